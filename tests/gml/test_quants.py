"""Decoding of block formats against the `gguf` package, and against plain loops for the formats it lacks."""

from __future__ import annotations

import importlib
import inspect
import tracemalloc

import numpy as np
import pytest

from gml.errors import FormatError, UnsupportedError
from gml.quants import QuantType, all_types, by_id, by_name
from gml.quants.base import CHUNK, REMOVED, register

#: elements and bytes of a block as in ggml-common.h: what must be registered
SIZES = {
    "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34),
    "Q8_1": (9, 32, 36), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210), "Q8_K": (15, 256, 292), "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136),
    "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36),
    "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74), "IQ3_XXS": (18, 256, 98), "IQ1_S": (19, 256, 50),
    "IQ3_S": (21, 256, 110), "IQ2_S": (22, 256, 82), "IQ1_M": (29, 256, 56), "Q1_0": (41, 128, 18),
    "Q2_0": (42, 64, 18),
}  # fmt: skip

#: 0, -0, 1, smallest and largest denormal, largest, infinities, quiet and signalling NaN
SPECIAL_F16 = [0x0000, 0x8000, 0x3C00, 0x0001, 0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01]
SPECIAL_F32 = [0, 0x80000000, 0x3F800000, 1, 0x807FFFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001]

#: those that the other package does not decode
LOOPS = ("Q8_1", "Q8_K", "Q1_0", "Q2_0")

FORMATS = [t for t in all_types() if isinstance(t, QuantType)]


def format_params(formats: list[QuantType]) -> list:
    return [pytest.param(t, id=t.name) for t in formats]


def random_blocks(dtype: QuantType, n: int, seed: int = 0) -> np.ndarray:
    raw = np.random.default_rng(seed).integers(0, 256, n * dtype.type_size, dtype=np.uint8)
    return raw.view(dtype.numpy)


def extreme_blocks(dtype: QuantType) -> np.ndarray:
    """All bytes alike, then every special float in every float field over several codes, then every byte value."""
    every_byte = [np.full(dtype.type_size, byte, np.uint8).view(dtype.numpy) for byte in range(256)]
    alike = [every_byte[byte] for byte in (0x00, 0xFF, 0x88, 0x77, 0x80, 0x7F)]
    made = list(every_byte)
    for name in dtype.numpy.names or ():
        if dtype.numpy[name].kind == "f":
            bits, specials = ("<u2", SPECIAL_F16) if dtype.numpy[name].itemsize == 2 else ("<u4", SPECIAL_F32)
            for base in (*alike, random_blocks(dtype, 8)):
                for special in specials:
                    block = base.copy()
                    block[name] = np.array(special, bits).view(dtype.numpy[name])
                    made.append(block)
    if dtype.name == "MXFP4":
        exponents = random_blocks(dtype, 256)
        exponents["e"] = np.arange(256)
        made.append(exponents)
    if dtype.name == "NVFP4":
        exponents = random_blocks(dtype, 256)
        exponents["d"][:, 0] = np.arange(256)
        made.append(exponents)
    if dtype.name == "IQ1_M":
        for special in SPECIAL_F16:
            block = random_blocks(dtype, 8)
            pieces = (np.uint16(special) >> np.arange(0, 16, 4, dtype=np.uint16)) & np.uint16(15)
            block["scales"] = (block["scales"] & np.uint16(0xFFF)) | (pieces << np.uint16(12))
            made.append(block)
    return np.concatenate(made)


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Every bit alike, signs of zeros included; of NaN only that it is one (its payload is the machine's choice)."""
    assert found.dtype == np.float32 and found.shape == expected.shape
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found[~nan].view(np.uint32), expected[~nan].view(np.uint32))


def loop_q1_0(blocks: np.ndarray) -> np.ndarray:
    """ggml's definition of Q1_0 for one row of blocks: d or -d by a bit."""
    values = []
    for block in blocks:
        for i in range(128):
            bit = (int(block["qs"][i // 8]) >> (i % 8)) & 1
            values.append(np.float32(block["d"]) if bit else -np.float32(block["d"]))
    return np.array(values, np.float32)


def loop_q2_0(blocks: np.ndarray) -> np.ndarray:
    """ggml's definition of Q2_0 for one row of blocks: value = d * (code - 1), four codes to a byte."""
    values = []
    for block in blocks:
        for i in range(64):
            code = (int(block["qs"][i // 4]) >> (2 * (i % 4))) & 3
            values.append(np.float32(block["d"]) * np.float32(code - 1))
    return np.array(values, np.float32)


def loop_q8(dtype: QuantType, blocks: np.ndarray) -> np.ndarray:
    """ggml's definition of Q8_1 and Q8_K for one row of blocks: value = d * code."""
    values = []
    for block in blocks:
        for code in block["qs"]:
            values.append(np.float32(block["d"]) * np.float32(code))
    return np.array(values, np.float32).reshape(len(blocks) * dtype.block_size)


def expected_values(dtype: QuantType, blocks: np.ndarray) -> np.ndarray:
    """Blocks [nb] or [rows, nb], decoded by others."""
    with np.errstate(all="ignore"):
        if dtype.name in ("Q8_1", "Q8_K"):
            rows = [loop_q8(dtype, row) for row in blocks.reshape(-1, blocks.shape[-1])]
            return np.array(rows).reshape(*blocks.shape[:-1], -1)
        if dtype.name in ("Q1_0", "Q2_0"):
            loop = loop_q1_0 if dtype.name == "Q1_0" else loop_q2_0
            rows = [loop(row) for row in blocks.reshape(-1, blocks.shape[-1])]
            return np.array(rows).reshape(*blocks.shape[:-1], -1)
        gguf = pytest.importorskip("gguf", reason="gguf, the reference decoder, is not installed (extra `test`)")
        kind = gguf.GGMLQuantizationType(dtype.ggml_id)
        assert gguf.GGML_QUANT_SIZES[kind] == (dtype.block_size, dtype.type_size)
        return gguf.quants.dequantize(np.ascontiguousarray(blocks).view(np.uint8), kind)


def test_every_format_is_registered() -> None:
    assert {t.name: (t.ggml_id, t.block_size, t.type_size) for t in FORMATS} == SIZES


@pytest.mark.parametrize("dtype", format_params(FORMATS))
def test_every_format_has_a_file_of_its_own(dtype: QuantType) -> None:
    """Named like it, with a drawing of the layout that names every field and its source."""
    module = importlib.import_module(f"gml.quants.{dtype.name.lower()}")
    assert type(dtype).__module__ == module.__name__
    doc = inspect.getdoc(module) or ""
    assert doc.startswith(f"{dtype.name}: ") and "Source: " in doc and "Next module: " in doc
    assert f"{dtype.type_size} bytes" in doc
    layout = doc.split("\n\n", 1)[1].replace(",", " ").split()
    assert set(dtype.numpy.names or ()) <= set(layout)
    assert len(random_blocks(dtype, 3)) == 3 and len(extreme_blocks(dtype)) > 256


@pytest.mark.parametrize("dtype", format_params(FORMATS))
def test_random_blocks(dtype: QuantType) -> None:
    n = 40 if dtype.name in LOOPS else 2000
    blocks = random_blocks(dtype, n, seed=dtype.ggml_id)
    assert_same_bits(dtype.decode(blocks), expected_values(dtype, blocks))


@pytest.mark.parametrize("dtype", format_params(FORMATS))
@pytest.mark.filterwarnings("error")
def test_extreme_blocks(dtype: QuantType) -> None:
    blocks = extreme_blocks(dtype)
    assert_same_bits(dtype.decode(blocks), expected_values(dtype, blocks))


@pytest.mark.parametrize("dtype", format_params(FORMATS))
def test_shapes(dtype: QuantType) -> None:
    blocks = random_blocks(dtype, 24).reshape(4, 6)
    values = dtype.decode(blocks)
    assert_same_bits(values, expected_values(dtype, blocks))
    assert_same_bits(dtype.decode(blocks.reshape(2, 2, 6)), values.reshape(2, 2, -1))
    assert_same_bits(dtype.decode(blocks[::2, 1:4]), values[::2, dtype.block_size : 4 * dtype.block_size])
    assert_same_bits(dtype.decode(blocks[::-1]), values[::-1])
    for empty in ((0,), (3, 0), (0, 3)):
        found = dtype.decode(np.empty(empty, dtype.numpy))
        assert found.shape == (*empty[:-1], empty[-1] * dtype.block_size) and found.dtype == np.float32


@pytest.mark.parametrize("dtype", format_params(FORMATS))
def test_unaligned_bytes_and_pieces(dtype: QuantType) -> None:
    """Tensors of a mapped file start anywhere and are longer than a piece; the file must not be written to."""
    n = 2 * CHUNK // dtype.block_size + 3
    blocks = random_blocks(dtype, n)
    raw = np.empty(n * dtype.type_size + 1, np.uint8)
    raw[1:] = blocks.view(np.uint8)
    raw.flags.writeable = False
    values = dtype.decode(raw[1:].view(dtype.numpy))
    tail = slice((n - 5) * dtype.block_size, None)
    assert_same_bits(values[tail], expected_values(dtype, blocks[-5:]))
    assert_same_bits(values, np.concatenate([dtype.decode(part) for part in np.array_split(blocks, 7)]))


@pytest.mark.parametrize("dtype", format_params(FORMATS))
def test_memory_beside_the_result_is_bounded(dtype: QuantType) -> None:
    blocks = random_blocks(dtype, (1 << 21) // dtype.block_size)
    tracemalloc.start()
    try:
        values = dtype.decode(blocks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < values.nbytes + 16 * 4 * CHUNK


@pytest.mark.parametrize("dtype", format_params(FORMATS))
def test_other_dtypes_are_refused(dtype: QuantType) -> None:
    with pytest.raises(FormatError, match=rf"{dtype.name}: decode needs .* block dtype, found uint8"):
        dtype.decode(np.zeros(dtype.type_size, np.uint8))
    with pytest.raises(FormatError, match="found a scalar"):
        dtype.decode(np.zeros((), dtype.numpy))


def test_registry() -> None:
    for dtype in all_types():
        assert by_id(dtype.ggml_id) is dtype and by_name(dtype.name.lower()) is dtype
    for ggml_id, name in REMOVED.items():
        with pytest.raises(UnsupportedError, match=rf"{name}.*removed"):
            by_id(ggml_id)
    with pytest.raises(UnsupportedError, match=r"unknown tensor type id 4096; known: .*Q4_K"):
        by_id(4096)
    with pytest.raises(UnsupportedError, match="unknown storage type 'Q9_Z'"):
        by_name("Q9_Z")
    with pytest.raises(UnsupportedError, match="registered already"):
        register(by_name("Q4_0"))


def test_scalars_against_gguf() -> None:
    """BF16 and F16: every bit pattern decoded, and BF16 encoded."""
    gguf = pytest.importorskip("gguf", reason="gguf, the reference decoder, is not installed (extra `test`)")
    patterns = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    for name in ("BF16", "F16"):
        dtype = by_name(name)
        expected = gguf.quants.dequantize(patterns.view(np.uint8), gguf.GGMLQuantizationType(dtype.ggml_id))
        assert_same_bits(dtype.decode(patterns.view(dtype.numpy)), expected.reshape(-1))
    rng = np.random.default_rng(5)
    values = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16).view(np.uint16)
    np.testing.assert_array_equal(by_name("BF16").encode(values), expected)
