"""Reading GGUF files: the vectors, values, hostile numbers, what the system refuses, real models."""

from __future__ import annotations

import json
import os
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gml
from gml.errors import Error, FormatError, UnsupportedError
from gml.models.gguf import GGUFFile, MetadataType, StringArray, ValueType, strings, write_gguf

#: strings that the fast scan takes, and such that it leaves to the slow one
PIECES = [b"", b"a", b"bc", b"\0", b"x\0\0", bytes(9), b"y" * 255, b"z" * 256, b"w" * 3000]
#: what the refusal of each bad vector must name
NAMED = {
    "bad-magic.gguf": "GGML",
    "bad-version-1.gguf": "version 1",
    "bad-version-99.gguf": "version 99",
    "bad-align-zero.gguf": "power of two, found 0",
    "bad-align-3.gguf": "power of two, found 3",
    "bad-dims-overflow.gguf": "tensor 'a'.*9223372036854775808",
    "bad-ndims-9.gguf": "tensor 'a'.*found 9",
    "bad-string-length.gguf": "key 'k'.*18446744073709551615",
    "bad-array-count.gguf": "key 'k'.*4611686018427387904",
    "bad-array-of-arrays.gguf": "key 'k'.*array of arrays",
    "bad-value-type.gguf": "key 'k'.*found 77",
    "bad-dup-tensor.gguf": "second tensor named 'a'",
    "bad-dup-key.gguf": "general.architecture.*twice",
    "bad-truncated-data.gguf": "tensor 'a'.*ends at byte 168",
    "bad-truncated-header.gguf": "cut short",
    "bad-huge-counts.gguf": "1152921504606846976",
    "bad-tensor-type.gguf": "tensor 'a'.*200",
    "bad-tensor-type-removed.gguf": "tensor 'a'.*Q4_2.*removed",
    "bad-row-not-blocks.gguf": r"tensor 'a'.*multiple of 32.*\[33\]",
    "bad-offset-unaligned.gguf": "tensor 'b'.*multiple of 32, found 9",
    "bad-offset-past-end.gguf": "tensor 'a'.*ends at byte 136",
    "bad-empty-file.gguf": "empty",
    "bad-bool.gguf": "key 'k'.*found 7",
    "ok-big-endian.gguf": "big endian",
}
#: the tensors of the good vectors, as float32 in numpy's order
VALUES = {
    "ok-empty.gguf": {},
    "ok-one-f32.gguf": {"a": [[0, 1, 2, 3], [4, 5, 6, 7]]},
    "ok-two-aligned.gguf": {"a": [0, 1, 2], "b": [0, 1]},
    "ok-align-64.gguf": {"a": [0, 1, 2], "b": [0, 1]},
    "ok-all-kv-types.gguf": {},
    "ok-v2.gguf": {"a": [0, 1, 2, 3]},
    "bad-utf8-key.gguf": {},
}


def test_vectors(vectors):
    folder = vectors / "gguf"
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    assert set(expected) == set(NAMED) | set(VALUES)
    for name, row in expected.items():
        if name in NAMED:
            assert row["expect"] != "ok"
            with pytest.raises(Error, match=NAMED[name]) as refusal:
                GGUFFile.open(folder / name)
            assert str(folder / name) in str(refusal.value) and "\n" not in str(refusal.value)
            continue
        assert row["expect"] != "error"
        with GGUFFile.open(folder / name) as file:
            found = {tensor.name: tensor.decode().tolist() for tensor in file.tensors.values()}
            assert found == VALUES[name], name
            assert file.version == (2 if "v2" in name else 3)
            assert file.alignment == (64 if "64" in name else 32)


def test_every_value_type(vectors):
    with GGUFFile.open(vectors / "gguf" / "ok-all-kv-types.gguf") as file:
        found = dict(file.metadata)
        assert file.types["t.9"] == MetadataType(ValueType.ARRAY, ValueType.STRING)
        assert file.types["t.12"] == MetadataType(ValueType.FLOAT64)
    texts, floats = found.pop("t.9"), found.pop("t.arr.f32")
    assert isinstance(texts, StringArray) and texts == ["a", "", "c"] and texts.raw(2) == b"c"
    assert floats.dtype == np.float32 and floats.tolist() == [0.5, -0.5] and not floats.flags.writeable
    assert found == {
        "general.architecture": "llama",
        "t.0": 255,
        "t.1": -128,
        "t.2": 65535,
        "t.3": -32768,
        "t.4": 2**32 - 1,
        "t.5": -(2**31),
        "t.6": 1.5,
        "t.7": True,
        "t.8": "ü🦙",
        "t.10": 2**64 - 1,
        "t.11": -(2**63),
        "t.12": 0.1,
    }
    assert next(iter(found)) == "general.architecture" and type(found["t.7"]) is bool


def test_a_key_that_is_not_utf8_stays_readable(vectors):
    with GGUFFile.open(vectors / "gguf" / "bad-utf8-key.gguf") as file:
        (key,) = file.metadata
    assert key.encode("utf-8", "surrogateescape") == b"\xff\xfe"


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def entry(name: bytes, ne: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, kind, offset)


def gguf(pairs: list[bytes] = (), tensors: list[bytes] = (), data: bytes = b"") -> bytes:
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join([*pairs, *tensors])
    return header + bytes(-len(header) % 32) + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"G", "magic"),
        (b"GGUF\x03", "version"),
        (gguf([text(b"") + struct.pack("<II", 4, 0)], data=bytes(64)), "empty"),
        (gguf([text(b"k" * 70000) + struct.pack("<II", 4, 0)]), "at most 65535 bytes"),
        (gguf([text(b"k") + struct.pack("<IIQB", 9, 7, 1, 2)]), "entry 0: expected a boolean"),
        (
            gguf([text(b"k") + struct.pack("<IIQ", 9, 8, 2) + text(b"ab") + struct.pack("<Q", 99)]),
            "key 'k', string 1 of 2",
        ),
        (gguf([text(b"k") + struct.pack("<IIQ", 9, 8, 1) + struct.pack("<Q", 2**64 - 1)]), "key 'k', string 0 of 1"),
        (gguf([text(b"general.alignment") + struct.pack("<IQ", 10, 64)]), "expected a UINT32, found UINT64"),
        (gguf([text(b"general.alignment") + struct.pack("<IIQI", 9, 4, 1, 64)]), "expected a UINT32, found ARRAY"),
        (gguf(tensors=[entry(b"t", [])], data=bytes(32)), "1 to 4 dimensions, found 0"),
        (gguf(tensors=[entry(b"t" * 65, [1])], data=bytes(32)), "at most 64 bytes"),
        (gguf(tensors=[entry(b"t", [2**63, 0])], data=bytes(32)), "63 bits"),
        (gguf(tensors=[entry(b"t", [2**32, 2**32])], data=bytes(32)), "63 bits"),
        (gguf(tensors=[entry(b"t", [8], 0, 2**64 - 32)], data=bytes(32)), "file ends at byte"),
        (gguf(tensors=[entry(b"t", [9])], data=bytes(32)), "expected 36 bytes of data"),
        (
            gguf(tensors=[entry(b"t", [16]), entry(b"u", [1], 0, 32)], data=bytes(64)),
            "'u'.*overlaps that of tensor 't'",
        ),
        (gguf(tensors=[entry(b"t", [1], 99)], data=bytes(32)), "tensor 't'.*unknown tensor type id 99"),
    ],
)
def test_hostile_numbers_are_named(content, message):
    with pytest.raises(Error, match=message) as refusal:
        GGUFFile.from_buffer(content, "model.gguf")
    assert str(refusal.value).startswith("model.gguf: ") and "byte" in str(refusal.value)


def test_tensors_of_size_zero_and_gaps_are_allowed():
    tensors = [entry(b"none", [0, 3]), entry(b"late", [2], 0, 64), entry(b"early", [1], 24, 0)]
    file = GGUFFile.from_buffer(gguf(tensors=tensors, data=bytes([7]) + bytes(63) + struct.pack("<2f", 1, 2)))
    assert file.tensors["none"].data.shape == (3, 0)
    assert file.tensors["late"].decode().tolist() == [1, 2]
    assert file.tensors["early"].decode().tolist() == [7] and list(file.tensors) == ["none", "late", "early"]


def test_blocks_are_views_with_rows_last(tmp_path):
    values = np.linspace(-1, 1, 2 * 3 * 64, dtype=np.float32).reshape(2, 3, 64)
    blocks = gml.Q4_1.encode(values)
    write_gguf(tmp_path / "m.gguf", {}, [("w", gml.Q4_1, (64, 3, 2), blocks)])
    with GGUFFile.open(str(tmp_path / "m.gguf")) as file:
        tensor = file.tensors["w"]
        assert (tensor.ne, tensor.shape, tensor.n_bytes) == ((64, 3, 2), (2, 3, 64), 12 * 20)
        assert tensor.data.shape == (2, 3, 2) and tensor.data.dtype == gml.Q4_1.numpy
        assert not tensor.data.flags.writeable and not tensor.data.flags.owndata
        assert tensor.decode().shape == (2, 3, 64) and np.array_equal(tensor.decode(), gml.Q4_1.decode(blocks))


def test_closing(tmp_path):
    write_gguf(tmp_path / "m.gguf", {"k": ["a", "b"]}, [("w", gml.F32, (2,), np.array([1, 2], np.float32))])
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        kept = file.tensors["w"].data
    file.close()
    assert kept.tolist() == [1, 2] and list(file.metadata["k"]) == ["a", "b"]
    with pytest.raises(Error, match=r"tensor 'w': the file was closed"):
        _ = file.tensors["w"].data


@pytest.mark.skipif(os.name == "nt", reason="Windows does not cut a file that is mapped")
def test_a_file_cut_while_open_is_refused(tmp_path):
    write_gguf(tmp_path / "m.gguf", {}, [("w", gml.F32, (100000,), np.zeros(100000, np.float32))])
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        os.truncate(tmp_path / "m.gguf", 64)
        with pytest.raises(FormatError, match="tensor 'w': the file was cut short while open"):
            file.tensors["w"].decode()


def test_what_the_system_refuses(tmp_path):
    with pytest.raises(Error, match="no such file"):
        GGUFFile.open(tmp_path / "missing.gguf")
    with pytest.raises(Error, match="a directory"):
        GGUFFile.open(tmp_path)
    with pytest.raises(Error, match="cannot be opened"):
        GGUFFile.open("bad\0name.gguf")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(Error, match="a device or pipe"):
            GGUFFile.open(tmp_path / "pipe")
    if hasattr(os, "geteuid") and os.geteuid() != 0:
        (tmp_path / "secret.gguf").write_bytes(b"GGUF")
        (tmp_path / "secret.gguf").chmod(0)
        with pytest.raises(Error, match="cannot be opened"):
            GGUFFile.open(tmp_path / "secret.gguf")


def test_string_arrays_behave_like_lists(tmp_path):
    texts = ["", "a", "ü🦙", "x" * 300, "\0", "\0" * 20, "last\0"] * 500
    raw = [s.encode() for s in texts] + [b"\xff\xfe"]
    write_gguf(tmp_path / "m.gguf", {"k": raw})
    found = GGUFFile.open(tmp_path / "m.gguf").metadata["k"]
    assert list(found.iter_raw()) == raw and [found.raw(i) for i in range(len(found))] == raw
    assert len(found) == len(raw) and found[:-1] == texts and found == [*texts, "\udcff\udcfe"]
    assert found[-1] == "\udcff\udcfe" and found[2] == "ü🦙" and "ü🦙" in found
    with pytest.raises(IndexError):
        found[len(raw)]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=90),
    st.integers(0, 90),
    st.integers(0, 40),
    st.sampled_from([64, 1 << 17]),
)
def test_strings_are_found_as_one_by_one(items, count, n_cut, window):
    content = b"prefix" + b"".join(map(text, items))
    end = len(content) - n_cut
    expected, at = [], 6
    while len(expected) < count and at + 8 <= end:
        expected.append(at + 8)
        at += 8 + int.from_bytes(content[at : at + 8], "little")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings, "_WINDOW_BYTES", window)
        starts, found_end = strings.scan_strings(content, 6, count, end)
    assert (list(starts), found_end) == (expected, at)


def test_a_large_vocabulary_is_read_at_once(tmp_path):
    """Far above what it takes: one pass over 262144 strings, no object for each."""
    write_gguf(tmp_path / "m.gguf", {"tokens": [f"token{i}" for i in range(262144)]})
    times = []
    for _ in range(3):
        start = time.perf_counter()
        GGUFFile.open(tmp_path / "m.gguf").close()
        times.append(time.perf_counter() - start)
    assert min(times) < 0.3


@pytest.mark.parametrize(
    ("name", "n_tensors", "n_vocab", "types"),
    [
        ("smollm2", 272, 49152, {"F32", "Q4_1", "Q8_0"}),
        ("gemma3-270m", 236, 262144, {"F32", "Q4_K", "Q5_0", "Q6_K", "Q8_0"}),
    ],
)
def test_real_models(pulled, name, n_tensors, n_vocab, types):
    path = pulled(name)
    with GGUFFile.open(path) as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
        embedding = file.tensors["token_embd.weight"]
        assert len(file.tensors) == n_tensors and len(tokens) == len(list(tokens)) == n_vocab == embedding.ne[1]
        assert {tensor.type.name for tensor in file.tensors.values()} == types
        placed = sorted(file.tensors.values(), key=lambda tensor: tensor.offset)
        # every tensor begins where the one before ends, but for alignment, and the last one ends the file
        end = 0
        for tensor in placed:
            assert tensor.offset == -(-end // file.alignment) * file.alignment
            end = tensor.offset + tensor.n_bytes
        assert file.n_bytes - end - placed[0]._shard.header.data_start < file.alignment
        norm = file.tensors["output_norm.weight"].decode()
        assert norm.shape == (embedding.ne[0],) and np.isfinite(norm).all() and norm.std() > 0


@pytest.mark.slow
def test_a_real_model_as_the_gguf_package_reads_it(pulled):
    """Slow: the package makes several objects for every token."""
    path = pulled("smollm2")
    reference = pytest.importorskip("gguf").GGUFReader(path)
    with GGUFFile.open(path) as file:
        keys = [key for key in reference.fields if not key.startswith("GGUF.")]
        assert list(file.metadata) == keys
        for key in keys:
            value = file.metadata[key]
            assert (value.tolist() if hasattr(value, "tolist") else value) == reference.fields[key].contents(), key
        assert list(file.tensors) == [theirs.name for theirs in reference.tensors]
        for theirs in reference.tensors:
            ours = file.tensors[theirs.name]
            found = (list(ours.ne), ours.type.name, ours.n_bytes)
            assert found == (theirs.shape.tolist(), theirs.tensor_type.name, theirs.n_bytes)
            assert np.array_equal(ours.data.reshape(-1).view(np.uint8), theirs.data.reshape(-1).view(np.uint8))


def test_types_that_gml_lacks_are_unsupported(vectors):
    with pytest.raises(UnsupportedError):
        GGUFFile.open(vectors / "gguf" / "bad-tensor-type-removed.gguf")
