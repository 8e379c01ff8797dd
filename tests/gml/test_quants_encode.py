"""Encoding of block formats: the same bits as ggml's quantisers (`libgguf`, and `gguf` for the simple formats)."""

from __future__ import annotations

import math
import tracemalloc
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from quant_truth import ENCODED, assert_same_blocks, encode, every_encoded, every_referenced

from gml.errors import FormatError, ShapeError, UnsupportedError
from gml.quants import QuantType, all_types, by_name
from gml.quants.base import CHUNK

SIMPLE = [t for t in ENCODED if t.name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")]
every_simple = pytest.mark.parametrize("dtype", [pytest.param(t, id=t.name) for t in SIMPLE])


def samples() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    shape = (16, 1024)
    normal = rng.standard_normal(shape).astype(np.float32)
    outliers = normal.copy()
    outliers[:, ::32] *= 100
    one = np.zeros(shape, np.float32)
    one[::2, 5::256] = 1
    opposite = np.zeros(shape, np.float32)
    opposite[:, 3::32], opposite[:, 7::32] = 2, -2
    scales = rng.choice([1e-30, 1e-15, 1e-6, 1e-3, 1, 100], (16, 1))
    return {
        "normal": normal,
        "outliers": outliers,
        "one value in zeros": one,
        "equal magnitudes of both signs": opposite,
        "ties": (rng.integers(-8, 9, shape) / 2).astype(np.float32),
        "ties of q8": (rng.integers(-127, 127, shape) + 0.5).astype(np.float32),
        "heavy tails, all scales": (rng.standard_t(2, shape) * scales).astype(np.float32),
        "zeros": np.zeros(shape, np.float32),
        "minus zeros": np.full(shape, -0.0, np.float32),
        "zeros of both signs": np.where(normal > 1, normal, np.copysign(np.float32(0), normal)),
        "constant": np.full(shape, 0.37, np.float32),
        "negative constant": np.full(shape, -0.37, np.float32),
        "positive": np.abs(normal) + 1,
        "negative": -np.abs(normal) - 1,
        "ramp": np.tile(np.linspace(-1, 1, 1024, dtype=np.float32), (16, 1)),
    }


SAMPLES = samples()


def test_which_formats_are_written() -> None:
    """All but the two that ggml keeps activations in."""
    unwritten = {t.name for t in all_types() if isinstance(t, QuantType)} - {t.name for t in ENCODED}
    assert unwritten == {"Q8_1", "Q8_K"}
    with pytest.raises(UnsupportedError, match="Q8_K: gml reads the format but does not write it"):
        by_name("Q8_K").encode(np.zeros(256, np.float32))


@every_referenced
@pytest.mark.parametrize("sample", SAMPLES)
def test_same_bits_as_ggml(dtype: QuantType, sample: str, libgguf: ModuleType) -> None:
    values = SAMPLES[sample]
    if dtype.name == "NVFP4":
        values = np.clip(values, -2688, 2688)  # what is larger is refused
    assert_same_blocks(dtype, values, None, libgguf)


@pytest.mark.parametrize("sample", SAMPLES)
def test_q2_0_is_what_ggml_defines(sample: str) -> None:
    """One value after the other: the scale is the largest magnitude, halves go away from zero, four codes to a byte."""
    values = SAMPLES[sample][:4]
    blocks = by_name("Q2_0").encode(values).reshape(-1)
    for block, row in zip(blocks, values.reshape(-1, 64), strict=True):
        d = max(abs(v) for v in row)
        assert block["d"] == np.float16(d)
        for i, v in enumerate(row):
            scaled = float(v * (np.float32(1) / d)) if d > 0 else 0.0
            code = math.floor(abs(scaled) + 0.5) * (1 if scaled > 0 else -1) + 1
            assert (int(block["qs"][i // 4]) >> (2 * (i % 4))) & 3 == code


@every_simple
@pytest.mark.parametrize("sample", SAMPLES)
def test_same_bits_as_gguf_package(dtype: QuantType, sample: str) -> None:
    if sample in ("minus zeros", "zeros of both signs"):
        pytest.skip("the gguf package keeps the sign of a zero that ggml drops; ggml is followed")
    gguf = pytest.importorskip("gguf", reason="gguf, the reference encoder, is not installed (extra `test`)")
    values = SAMPLES[sample]
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType(dtype.ggml_id))
    np.testing.assert_array_equal(encode(dtype, values).view(np.uint8).reshape(expected.shape), expected)


#: largest root mean square error of normal values, relative to them: what the formats are known for
QUALITY = {
    "Q4_0": 0.10, "Q4_1": 0.08, "Q5_0": 0.05, "Q5_1": 0.04, "Q8_0": 0.006, "IQ4_NL": 0.08, "Q4_K": 0.08, "Q6_K": 0.02,
    "Q2_K": 0.31, "Q3_K": 0.17, "Q5_K": 0.04, "IQ4_XS": 0.08, "TQ1_0": 0.9, "TQ2_0": 0.9, "MXFP4": 0.13,
    "NVFP4": 0.11, "Q1_0": 0.61, "Q2_0": 0.75, "IQ2_XXS": 0.40,
    "IQ2_XS": 0.36, "IQ2_S": 0.33, "IQ3_XXS": 0.22, "IQ3_S": 0.19, "IQ1_S": 0.56, "IQ1_M": 0.60,
}  # fmt: skip


@every_encoded
def test_values_come_back(dtype: QuantType) -> None:
    values = np.random.default_rng(3).standard_normal((4, 4096)).astype(np.float32)
    error = dtype.decode(encode(dtype, values)) - values
    assert np.sqrt(np.mean(error * error) / np.mean(values * values)) < QUALITY[dtype.name]


@given(hnp.arrays(np.float32, 32, elements=st.floats(-(2.0**20), 2.0**20, width=32)))
@settings(max_examples=200, deadline=None)
def test_q8_0_error_is_half_a_step(values: np.ndarray) -> None:
    """Half a step, and what rounding the scale to f16 costs: 127 steps of 2^-11, or half of the smallest denormal."""
    found = by_name("Q8_0").decode(by_name("Q8_0").encode(values))
    step = float(np.abs(values).max()) / 127
    bound = 0.5001 * step + 127 * max(step * 2.0**-11, 2.0**-25)
    assert np.abs(found.astype(np.float64) - values).max() <= bound


@every_encoded
def test_shapes(dtype: QuantType) -> None:
    values = np.random.default_rng(4).standard_normal((4, 3 * dtype.block_size)).astype(np.float32)
    blocks = encode(dtype, values)
    assert blocks.shape == (4, 3)
    np.testing.assert_array_equal(encode(dtype, values[1]), blocks[1])
    np.testing.assert_array_equal(encode(dtype, values[::2]), blocks[::2])
    np.testing.assert_array_equal(encode(dtype, np.asfortranarray(values)), blocks)
    np.testing.assert_array_equal(encode(dtype, values.astype(np.float64)), blocks)
    np.testing.assert_array_equal(encode(dtype, values[0, : dtype.block_size]), blocks[0, :1])
    assert encode(dtype, np.empty((3, 0), np.float32)).shape == (3, 0)
    assert encode(dtype, np.empty((0, dtype.block_size), np.float32)).shape == (0, 1)
    for wrong in (np.array(1.0), np.zeros(dtype.block_size + 1)):
        with pytest.raises(ShapeError, match=f"{dtype.name}: encode needs rows of a multiple of {dtype.block_size}"):
            encode(dtype, wrong)
    with pytest.raises(FormatError, match="needs real numbers"):
        encode(dtype, np.zeros(dtype.block_size, np.complex64))


@every_encoded
def test_pieces(dtype: QuantType) -> None:
    values = np.random.default_rng(6).standard_normal(CHUNK + 3 * dtype.block_size).astype(np.float32)
    blocks = encode(dtype, values)
    np.testing.assert_array_equal(encode(dtype, values[-5 * dtype.block_size :]), blocks[-5:])


@every_encoded
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.filterwarnings("error")
def test_values_that_are_not_finite_are_refused(dtype: QuantType, bad: float) -> None:
    values = np.zeros((2, CHUNK + 2 * dtype.block_size))
    values[1, CHUNK + 7] = bad
    with pytest.raises(FormatError, match=rf"{dtype.name}: cannot encode .* at index \(1, {CHUNK + 7}\) of \(2, "):
        encode(dtype, values)


#: values that fit: formats divide their scale by ever so much, and MXFP4's is a power of two
BEARS = {"Q6_K": 1e8, "IQ4_XS": 1e8, "MXFP4": 3.4e38}


@every_encoded
@pytest.mark.parametrize("huge", [1e8, 1e10, 1e14, 1e20, 3.4e38])
@pytest.mark.filterwarnings("error")
def test_values_too_large_for_the_scale_are_refused(dtype: QuantType, huge: float) -> None:
    """ggml stores an infinite scale and loses the block without a word."""
    values = np.ones((3, 2 * dtype.block_size), np.float32)
    values[2, dtype.block_size :] = np.linspace(-huge, huge, dtype.block_size)
    if huge <= BEARS.get(dtype.name, 0):
        assert np.abs(dtype.decode(encode(dtype, values))[2, -1] / huge - 1) < 0.3
        return
    with pytest.raises(FormatError, match=rf"index \(2, {dtype.block_size}\) .* too large: their scale `d.*scale the"):
        encode(dtype, values)


@every_encoded
def test_denormal_values_are_harmless(dtype: QuantType) -> None:
    """Scales whose inverse overflows: the block decodes to zeros."""
    values = np.full(dtype.block_size, 1e-40, np.float32)
    values[1::2] *= -1
    assert not np.any(dtype.decode(encode(dtype, values)))


@pytest.mark.parametrize("name", ["Q8_0", "Q4_K", "IQ4_XS", "IQ3_S"])
def test_memory_beside_the_blocks_is_bounded(name: str) -> None:
    """Pieces are of one size, however much there is to encode; the grids' need the most."""
    dtype = by_name(name)
    values = np.random.default_rng(8).standard_normal(1 << 18).astype(np.float32)
    weights = np.ones_like(values)
    dtype.encode(values[:256], weights[:256])
    tracemalloc.start()
    try:
        blocks = dtype.encode(values, weights)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < blocks.nbytes + (12 if name == "IQ3_S" else 3) * (1 << 20)
