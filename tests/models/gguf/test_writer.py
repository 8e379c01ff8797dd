"""Writing GGUF files: what was written is read back, by gml and by the package gguf."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gml
from gml import quants
from gml.errors import Error, ShapeError, UsageError
from gml.models.gguf import GGUFFile, MetadataType, ValueType, write_gguf
from gml.models.gguf.keys import NUMBERS

LIMITS = {
    kind: (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for kind, dtype in NUMBERS.items()
    if dtype.kind in "iu" and kind != ValueType.BOOL
}
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20)
NAMES = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=15)


def scalars(kind: ValueType) -> st.SearchStrategy:
    """Values that the type holds exactly."""
    if kind == ValueType.STRING:
        return TEXTS
    if kind == ValueType.BOOL:
        return st.booleans()
    if kind in LIMITS:
        return st.integers(*LIMITS[kind])
    return st.floats(width=32 if kind == ValueType.FLOAT32 else 64, allow_nan=False)


KINDS = st.sampled_from([kind for kind in ValueType if kind != ValueType.ARRAY])
PAIRS = KINDS.flatmap(
    lambda kind: st.one_of(
        st.tuples(st.just(MetadataType(kind)), scalars(kind)),
        st.tuples(st.just(MetadataType(ValueType.ARRAY, kind)), st.lists(scalars(kind), max_size=5)),
    )
)


@st.composite
def tensors(draw):
    dtype = draw(st.sampled_from(quants.all_types()))
    ne = [draw(st.integers(0, 3)) * dtype.block_size, *draw(st.lists(st.integers(0, 3), max_size=3))]
    return dtype, ne, draw(st.integers(0, 2**32 - 1))


def random_bytes(dtype, ne, seed) -> bytes:
    return np.random.default_rng(seed).bytes(dtype.row_bytes(ne[0]) * int(np.prod(ne[1:], dtype=np.int64)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(NAMES.filter(lambda key: not key.startswith(("split.", "general.alignment"))), PAIRS, max_size=6),
    st.dictionaries(NAMES, tensors(), max_size=4),
    st.sampled_from([1, 8, 32, 256]),
)
def test_round_trip(tmp_path, pairs, rows, alignment):
    path = tmp_path / "m.gguf"
    metadata = {key: value for key, (_, value) in pairs.items()}
    types = {key: kind for key, (kind, _) in pairs.items()}
    sources = [(name, dtype, ne, random_bytes(dtype, ne, seed)) for name, (dtype, ne, seed) in rows.items()]
    write_gguf(path, metadata, sources, types=types, alignment=alignment)
    with GGUFFile.open(path) as file:
        kept = {key: value for key, value in file.metadata.items() if key != "general.alignment"}
        assert list(kept) == list(metadata) and file.alignment == alignment
        for key, value in kept.items():
            assert file.types[key] == types[key]
            assert (value.tolist() if hasattr(value, "tolist") else value) == metadata[key]
        assert list(file.tensors) == list(rows)
        for name, dtype, ne, data in sources:
            tensor = file.tensors[name]
            assert (tensor.type, list(tensor.ne), tensor.offset % alignment) == (dtype, ne, 0)
            assert tensor.data.tobytes() == data
        again = tmp_path / "again.gguf"
        rewritten = [(t.name, t.type, t.ne, t.data) for t in file.tensors.values()]
        write_gguf(again, file.metadata, rewritten, types=file.types)
    assert again.read_bytes() == path.read_bytes()


def test_the_gguf_package_reads_what_gml_writes(tmp_path):
    gguf = pytest.importorskip("gguf")
    values = {kind: [limits[0], limits[1]] for kind, limits in LIMITS.items()}
    values |= {ValueType.FLOAT32: [0.5, -3.0], ValueType.FLOAT64: [0.1, 1e300], ValueType.BOOL: [True, False]}
    values[ValueType.STRING] = ["ü🦙", ""]
    metadata, types = {"general.architecture": "llama"}, {}
    for kind, items in values.items():
        for key, value in ((f"one.{kind.name}", items[0]), (f"many.{kind.name}", items)):
            metadata[key], types[key] = value, kind
    rng = np.random.default_rng(5)
    sources = []
    for dtype in quants.all_types():
        known = dtype.name in gguf.GGMLQuantizationType.__members__  # the package may be older than a format
        if known and dtype.name not in ("Q8_1", "Q8_K"):  # intermediate formats, no tensors of files
            ne = (2 * dtype.block_size, 3)
            sources.append((f"t.{dtype.name}", dtype, ne, rng.bytes(dtype.row_bytes(ne[0]) * 3)))
    write_gguf(tmp_path / "m.gguf", metadata, sources, types=types, alignment=64)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    for key, value in metadata.items():
        assert reader.fields[key].contents() == value, key
    assert len(sources) > 25
    assert reader.alignment == 64 and len(reader.tensors) == len(sources)
    for theirs, (name, dtype, ne, data) in zip(reader.tensors, sources, strict=True):
        assert (theirs.name, theirs.tensor_type.name, theirs.shape.tolist()) == (name, dtype.name, list(ne))
        assert theirs.data.tobytes() == data


def test_gml_reads_what_the_gguf_package_writes(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_array("tokens", ["a", "ü🦙"])
    writer.add_array("types", [1, -2])
    writer.add_float64("eps", 1e-5)
    weights = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    writer.add_tensor("w", weights)
    writer.add_tensor("h", weights.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        assert file.metadata["tokens"] == ["a", "ü🦙"] and file.metadata["types"].tolist() == [1, -2]
        assert file.metadata["eps"] == 1e-5 and file.tensors["w"].ne == (4, 3, 2)
        assert np.array_equal(file.tensors["w"].decode(), weights) and np.array_equal(
            file.tensors["h"].decode(), weights
        )


def test_types_that_are_inferred(tmp_path):
    metadata = {
        "bool": True, "int": 7, "negative": -1, "large": 2**63, "very negative": -(2**40), "float": 0.5, "text": "x",
        "ints": [1, 2], "large ints": [2**32 - 1], "mixed": [1, 2.5], "texts": ["a"], "bools": [True],
        "array": np.array([1, 2], np.uint8), "scalar": np.float64(0.1), "empty": np.array([], np.int16),
    }  # fmt: skip
    write_gguf(tmp_path / "m.gguf", metadata)
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        names = {key: str(kind) for key, kind in file.types.items()}
        assert file.metadata["mixed"].tolist() == [1.0, 2.5] and file.metadata["scalar"] == 0.1
    assert names == {
        "bool": "BOOL", "int": "UINT32", "negative": "INT32", "large": "UINT64", "very negative": "INT64",
        "float": "FLOAT32", "text": "STRING", "ints": "ARRAY[INT32]", "large ints": "ARRAY[UINT32]",
        "mixed": "ARRAY[FLOAT32]", "texts": "ARRAY[STRING]", "bools": "ARRAY[BOOL]", "array": "ARRAY[UINT8]",
        "scalar": "FLOAT64", "empty": "ARRAY[INT16]",
    }  # fmt: skip


def test_streams_are_written_piece_by_piece(tmp_path):
    pieces = [bytes([n]) * 1000 for n in range(8)]
    sources = [
        ("iterator", gml.I8, (8000,), iter(pieces)),
        ("function", gml.I8, (1000,), lambda: pieces[3]),
        ("generator", gml.I8, (2000,), lambda: (piece for piece in pieces[:2])),
        ("arrays", gml.F32, (4,), [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]),
    ]
    write_gguf(tmp_path / "m.gguf", {}, sources)
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        assert file.tensors["iterator"].data.tobytes() == b"".join(pieces)
        assert file.tensors["function"].data.tobytes() == pieces[3]
        assert file.tensors["generator"].data.tobytes() == b"".join(pieces[:2])
        assert file.tensors["arrays"].decode().tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"k": 2**64}, "does not fit 64 bits"),
        ({"k": None}, "found NoneType"),
        ({"k": []}, "empty list says nothing"),
        ({"k": [[1]]}, "arrays are flat"),
        ({"k": ["a", 1]}, "items of one type"),
        ({"": 1}, "1 to 65535 bytes"),
        ({7: 1}, "expected a string, found int"),
        ({"k": "\ud800"}, "not valid Unicode"),
        ({"k": np.zeros((2, 2), np.int8)}, r"found int8 of shape \(2, 2\)"),
        ({"k": np.float16(1)}, "no type for numpy's float16"),
        ({"general.alignment": 3}, "power of two"),
    ],
)
def test_metadata_that_gguf_does_not_hold(tmp_path, metadata, message):
    with pytest.raises(UsageError, match=message):
        write_gguf(tmp_path / "m.gguf", metadata)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (256, ValueType.UINT8),
        (-1, ValueType.UINT64),
        (2**64, ValueType.UINT64),
        (1.5, ValueType.INT32),
        ("x", ValueType.INT32),
        (2, ValueType.BOOL),
        (True, ValueType.UINT8),
        ([1, 2], MetadataType(ValueType.INT32)),
        (1, ValueType.STRING),
    ],
)
def test_values_that_their_type_does_not_hold(tmp_path, value, kind):
    with pytest.raises(UsageError, match="metadata key 'k'"):
        write_gguf(tmp_path / "m.gguf", {"k": value}, types={"k": kind})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (("w", gml.F32, (2,), b"1234567"), "expected 8 bytes for F32 of ne = .2., found 7"),
        (("w", gml.F32, (2,), [b"1234", b"56789"]), "found more than 8"),
        (("w", gml.F32, (2,), np.zeros(2)), "expected blocks of F32 or bytes, found float64"),
        (("w", gml.F32, (2, 3), np.zeros((2, 3), np.float32)), r"blocks of shape \(3, 2\)"),
        (("w", gml.Q4_0, (33,), b""), "multiple of 32"),
        (("w", gml.F32, (1, 1, 1, 1, 1), bytes(4)), "1 to 4 sizes"),
        (("w", gml.F32, (-1,), b""), "0 or more"),
        (("w" * 64, gml.F32, (1,), bytes(4)), "0 to 63 bytes, found 64"),
        (("w", gml.F32, (1,), 5), "expected an array, bytes"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path, source, message):
    (tmp_path / "m.gguf").write_bytes(b"before")
    with pytest.raises(Error, match=message):
        write_gguf(tmp_path / "m.gguf", {}, [source])
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"] and (tmp_path / "m.gguf").read_bytes() == b"before"


def test_two_tensors_of_one_name_are_refused(tmp_path):
    with pytest.raises(UsageError, match="names must differ"):
        write_gguf(tmp_path / "m.gguf", {}, [("w", gml.I8, (1,), b"1"), ("w", gml.I8, (1,), b"1")])


def test_a_failing_source_leaves_no_file(tmp_path):
    def fail():
        raise RuntimeError("source")

    with pytest.raises(RuntimeError, match="source"):
        write_gguf(tmp_path / "m.gguf", {}, [("w", gml.F32, (1,), fail)])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Error, match="cannot be written"):
        write_gguf(tmp_path / "missing" / "m.gguf", {})


def test_sizes_errors_are_shape_errors(tmp_path):
    with pytest.raises(ShapeError):
        write_gguf(tmp_path / "m.gguf", {}, [("w", gml.F32, (2**40, 2**40), b"")])
