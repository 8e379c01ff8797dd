"""Damaged files: every mutant of a good file gives values or a `gml.Error`, in little memory and time.

`GML_MUTANTS` sets how many the slow run makes (100000 otherwise).
"""

from __future__ import annotations

import os
import random
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import gml
from gml import quants
from gml.errors import Error
from gml.models.gguf import GGUFFile, StringArray, ValueType, write_gguf
from gml.models.gguf.keys import NUMBERS

BOUNDARIES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 65535, 65536]
BOUNDARIES += [
    sign * 2**bits + delta for bits in (31, 32, 60, 61, 62, 63, 64) for delta in (-1, 0, 1) for sign in (1, -1)
]
MAX_BYTES = 2 << 20  # decoding works in pieces of some hundred kilobytes
MAX_SECONDS = 5.0


def good_files(folder: Path, vectors: Path) -> list[bytes]:
    """Seeds: the good vectors, and a file that has every value type and every tensor type."""
    metadata, types = {"general.architecture": "llama"}, {}
    for kind in NUMBERS:
        metadata |= {f"k.{kind.name}": 1, f"a.{kind.name}": [1, 0, 1]}
        types |= {f"k.{kind.name}": kind, f"a.{kind.name}": kind}
    for kind in (ValueType.FLOAT32, ValueType.BOOL):
        metadata[f"k.{kind.name}"] = True if kind == ValueType.BOOL else 1.0
        metadata[f"a.{kind.name}"] = [True, False] if kind == ValueType.BOOL else [1.0, 0.5]
    metadata |= {"s": "text", "tokens": ["a", "", "ü🦙", "x" * 300] * 3}
    rng = np.random.default_rng(0)
    every_type = [(f"t{t.ggml_id}", t, (t.block_size, 2), rng.bytes(2 * t.type_size)) for t in quants.all_types()]
    dims = [
        ("d1", gml.F32, (3,), bytes(12)),
        ("d3", gml.Q8_0, (32, 2, 1), bytes(68)),
        ("d4", gml.F16, (1, 2, 3, 1), bytes(12)),
    ]
    write_gguf(folder / "types.gguf", metadata, every_type, types=types)
    write_gguf(folder / "dims.gguf", {"general.architecture": "llama", "tokens": ["a", "bc"]}, dims, alignment=64)
    paths = [folder / "types.gguf", folder / "dims.gguf", *sorted((vectors / "gguf").glob("ok-*.gguf"))]
    return [path.read_bytes() for path in paths]


def flip(rng: random.Random, data: bytearray, _: list[bytes]) -> None:
    for _n in range(rng.choice([1, 1, 1, 2, 8])):
        data[rng.randrange(len(data))] = rng.choice([rng.randrange(256), 0, 255, data[rng.randrange(len(data))]])


def truncate(rng: random.Random, data: bytearray, _: list[bytes]) -> None:
    del data[rng.randrange(len(data) + 1) :]


def set_integer(rng: random.Random, data: bytearray, _: list[bytes]) -> None:
    width = rng.choice([4, 8, 8])
    if len(data) > width:
        at = rng.randrange(len(data) - width)
        value = rng.choice([*BOUNDARIES, len(data), len(data) - at, rng.getrandbits(64)])
        data[at : at + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")


def set_count(rng: random.Random, data: bytearray, _: list[bytes]) -> None:
    """The numbers of tensors and keys: the two that steer everything after them."""
    at = rng.choice([4, 8, 16])
    if len(data) >= 24:
        struct.pack_into("<I", data, at, rng.choice([*range(60), 2**31, 2**32 - 1]))


def shift_integer(rng: random.Random, data: bytearray, _: list[bytes]) -> None:
    """A small number changed by a little: off-by-one lengths and sizes."""
    at = rng.randrange(len(data))
    data[at] = (data[at] + rng.choice([-1, 1, -8, 8])) % 256


def splice(rng: random.Random, data: bytearray, others: list[bytes]) -> None:
    other = rng.choice(others)
    start, at = rng.randrange(len(other)), rng.randrange(len(data))
    n = rng.choice([1, 8, 40, len(other)])
    data[at : at + rng.choice([0, n])] = other[start : start + n]


def remove(rng: random.Random, data: bytearray, _: list[bytes]) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice([1, 4, 8, 32])]


def repeat(rng: random.Random, data: bytearray, _: list[bytes]) -> None:
    start, n = rng.randrange(len(data)), rng.choice([1, 8, 32, 64])
    data[start:start] = data[start : start + n] * rng.choice([1, 2, 10])


MUTATIONS = [flip, truncate, set_integer, set_integer, set_count, shift_integer, splice, remove, repeat]


def mutant(seed: int, files: list[bytes]) -> bytes:
    rng = random.Random(seed)
    data = bytearray(rng.choice(files))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if data:
            rng.choice(MUTATIONS)(rng, data, files)
    return bytes(data)


def touch(file: GGUFFile) -> None:
    """Everything that a file offers, read."""
    for value in file.metadata.values():
        assert isinstance(value, (bool, int, float, str, np.ndarray, StringArray))
        if isinstance(value, StringArray):
            assert sum(map(len, value.iter_raw())) <= file.n_bytes and len(list(value)) == len(value)
        elif isinstance(value, np.ndarray):
            value.sum()
    assert list(file.metadata) == list(file.types)
    for tensor in file.tensors.values():
        assert tensor.data.nbytes == tensor.n_bytes <= file.n_bytes
        tensor.data.tobytes()
        assert tensor.decode().shape == tensor.shape


@np.errstate(all="ignore")
def run(seeds: range, files: list[bytes], folder: Path) -> tuple[int, int]:
    """Reads mutants, every 16th from disk; gives how many were read and how many refused."""
    n_read = n_refused = 0
    path = folder / "mutant.gguf"
    tracemalloc.start()
    try:
        for seed in seeds:
            content = mutant(seed, files)
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            start = time.perf_counter()
            try:
                if seed % 16:
                    file = GGUFFile.from_buffer(content)
                else:
                    path.write_bytes(content)
                    file = GGUFFile.open(path)
                touch(file)
                file.close()
                n_read += 1
            except Error as error:
                assert "\n" not in str(error) and len(str(error)) < 1000, seed
                n_refused += 1
            except BaseException as error:
                raise AssertionError(f"mutant {seed} raised {error!r}") from error
            assert tracemalloc.get_traced_memory()[1] - before < MAX_BYTES, f"mutant {seed} took too much memory"
            assert time.perf_counter() - start < MAX_SECONDS, f"mutant {seed} took too long"
    finally:
        tracemalloc.stop()
    return n_read, n_refused


def test_mutants(tmp_path, vectors):
    n_read, n_refused = run(range(2500), good_files(tmp_path, vectors), tmp_path)
    assert n_read + n_refused == 2500
    assert n_read > 250 and n_refused > 1000, "the mutations do not reach both sides"


@pytest.mark.slow
def test_many_mutants(tmp_path, vectors):
    n = int(os.environ.get("GML_MUTANTS", "100000"))
    n_read, n_refused = run(range(10**6, 10**6 + n), good_files(tmp_path, vectors), tmp_path)
    print(f"\n{n} mutants: {n_read} read, {n_refused} refused")
    assert n_read + n_refused == n
