"""Encoding in hard cases, with importance weights and of a real model: the same bits as ggml's quantisers."""

from __future__ import annotations

import hashlib
from types import ModuleType

import numpy as np
import pytest
from quant_truth import assert_same_blocks, every_encoded, every_referenced

from gml.errors import FormatError, ShapeError
from gml.quants import QuantType, by_name

SHAPE = (4, 1024)


def hard_values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(23)
    normal = rng.standard_normal(SHAPE).astype(np.float32)
    one = np.zeros(SHAPE, np.float32)
    one[:, ::333] = 3
    outliers = normal.copy()
    outliers[:, ::100] *= 500
    cases = {
        "normal": normal,
        "one value in zeros": one,
        "outliers": outliers,
        "zeros": np.zeros(SHAPE, np.float32),
        "ties": (rng.integers(-20, 21, SHAPE) / 2).astype(np.float32),
        "positive ties": (rng.integers(0, 21, SHAPE) / 2).astype(np.float32),
        "two values": rng.choice([-1, 1], SHAPE).astype(np.float32),
        "negative": -np.abs(normal) - 1,
        "all magnitudes": (normal * 10.0 ** rng.integers(-45, 3, SHAPE)).astype(np.float32),
    }
    for size in (32, 256):
        magnitudes = np.repeat(10.0 ** rng.integers(-45, 3, (SHAPE[0], SHAPE[1] // size)), size, axis=1)
        cases[f"a magnitude per {size}"] = (normal * magnitudes).astype(np.float32)
    for largest in (1e-11, 1e-15, 1e-16, 1e-30, 1e-37, 1e-38, 1e-40, 1e-42, 1e-45):
        cases[f"up to {largest}"] = (normal / np.abs(normal).max() * np.float32(largest)).astype(np.float32)
    return cases


def hard_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(29)
    n = SHAPE[1]
    return {
        "ones": np.ones(n, np.float32),
        "uneven": rng.random(n).astype(np.float32) ** 4,
        "zeros": np.zeros(n, np.float32),
        "sparse": (rng.random(n) < 0.05).astype(np.float32),
        "groups of zeros": np.repeat(rng.integers(0, 2, n // 16), 16).astype(np.float32),
        "tiny": np.full(n, 1e-30, np.float32),
    }


VALUES, WEIGHTS = hard_values(), hard_weights()


@every_referenced
@pytest.mark.parametrize("case", VALUES)
def test_hard_values(dtype: QuantType, case: str, libgguf: ModuleType) -> None:
    if not dtype.needs_weights:
        assert_same_blocks(dtype, VALUES[case], None, libgguf)
    assert_same_blocks(dtype, VALUES[case], WEIGHTS["uneven"], libgguf)


@every_referenced
@pytest.mark.parametrize("case", WEIGHTS)
def test_hard_weights(dtype: QuantType, case: str, libgguf: ModuleType) -> None:
    for values in ("normal", "ties", "one value in zeros", "all magnitudes", "a magnitude per 32"):
        assert_same_blocks(dtype, VALUES[values], WEIGHTS[case], libgguf)


@pytest.fixture(scope="module")
def real_rows(pulled) -> list[np.ndarray]:
    """Rows of SmolLM2's tensors, decoded from Q8_0 and Q4_1."""
    gguf = pytest.importorskip("gguf", reason="gguf, the reference reader, is not installed (extra `test`)")
    tensors = {t.name: t for t in gguf.GGUFReader(pulled("smollm2")).tensors}
    names = ("token_embd.weight", "blk.0.attn_q.weight", "blk.0.ffn_down.weight", "blk.29.ffn_down.weight")
    return [gguf.quants.dequantize(tensors[name].data[:48], tensors[name].tensor_type) for name in names]


@every_referenced
def test_real_weights(dtype: QuantType, libgguf: ModuleType, real_rows: list[np.ndarray]) -> None:
    """With weights as uneven as the mean squares of activations are."""
    for values in real_rows:
        if values.shape[1] % dtype.block_size:
            continue
        weights = np.random.default_rng(41).gamma(0.5, size=values.shape[1]).astype(np.float32)
        if not dtype.needs_weights:
            assert_same_blocks(dtype, values, None, libgguf)
        assert_same_blocks(dtype, values, weights, libgguf)


@every_encoded
def test_weights_of_experts(dtype: QuantType) -> None:
    """Weights per expert repeat over its rows; more axes, other number types and odd strides are no different."""
    rng = np.random.default_rng(31)
    values = rng.standard_normal((2, 3, 2 * dtype.block_size)).astype(np.float32)
    weights = rng.random((2, 1, 2 * dtype.block_size)).astype(np.float32)
    blocks = dtype.encode(values, weights)
    for expert in range(2):
        np.testing.assert_array_equal(dtype.encode(values[expert], weights[expert, 0]), blocks[expert])
    np.testing.assert_array_equal(dtype.encode(values, np.asfortranarray(weights.astype(np.float64))), blocks)
    assert dtype.encode(np.empty((3, 0), np.float32), np.empty(0)).shape == (3, 0)
    assert dtype.encode(np.empty((0, dtype.block_size), np.float32), np.ones(dtype.block_size)).shape == (0, 1)


@every_encoded
def test_weights_that_do_not_fit_are_refused(dtype: QuantType) -> None:
    n = 2 * dtype.block_size
    values = np.ones((3, n), np.float32)
    for shape in ((n - 1,), (), (2, n), (3, 1), (3, 3, n)):
        with pytest.raises(ShapeError, match=rf"{dtype.name}: importance weights of shape .* do not fit .*{n},\), one"):
            dtype.encode(values, np.ones(shape))
    for bad in (np.nan, np.inf, -1, 1e300):
        weights = np.ones(n)
        weights[7] = bad
        with pytest.raises(FormatError, match=rf"{dtype.name}: importance weight .* at index \(7,\) of \({n},\)"):
            dtype.encode(values, weights)
    with pytest.raises(FormatError, match="must be real numbers"):
        dtype.encode(values, np.ones(n, np.complex64))


def test_rows_longer_than_a_piece(libgguf: ModuleType) -> None:
    """The mean square of a row is added in order over pieces."""
    values = np.random.default_rng(37).standard_normal((2, (1 << 16) + 96)).astype(np.float32)
    dtype = by_name("Q4_0")
    assert isinstance(dtype, QuantType)
    assert_same_blocks(dtype, values, np.ones(values.shape[1], np.float32), libgguf)


@every_encoded
def test_formats_that_need_weights_say_so(dtype: QuantType) -> None:
    values = np.ones(dtype.block_size, np.float32)
    assert dtype.can_encode != dtype.needs_weights
    if dtype.needs_weights:
        with pytest.raises(FormatError, match=rf"{dtype.name}: encode needs importance weights"):
            dtype.encode(values)
    else:
        assert dtype.encode(values).shape == (1,)


#: sha256 of blocks that ggml's quantisers made of the values below, where nothing else is at hand; Q2_0 is gml's
DIGESTS = {
    "Q4_0": "5ae07d5258ae3522", "Q4_1": "e8d6e4b9b2d99a62", "Q5_0": "f9922e53a3c77d70", "Q5_1": "ea7a1dff24c78fa6",
    "Q8_0": "faf8e29747dcabab", "Q2_K": "4fffb4a31dba5a47", "Q3_K": "a57959d5bfea069e", "Q4_K": "d2de14a25e4139c8",
    "Q5_K": "0d0f0cd008566fe6", "Q6_K": "7c270bbcb3028336", "IQ2_XXS": "df6c9e4cf92c2354", "IQ2_XS": "a48e2e52ddac4408",
    "IQ3_XXS": "543d65a424c115ea", "IQ1_S": "a5e75c6c0cf67870", "IQ4_NL": "aee7bfa256e21309",
    "IQ3_S": "7c095c67b8f0ed42",
    "IQ2_S": "edfc7fa0cbd7e3b4", "IQ4_XS": "778c2fb19d4ed35d", "IQ1_M": "257d099a2598528e", "TQ1_0": "e38c64b2ccb4d49e",
    "TQ2_0": "fd5db2244210e8f7", "MXFP4": "416df3dad1695f31", "NVFP4": "e7d0a3ae4f711972", "Q1_0": "a4dbb05497e941d8",
    "Q2_0": "32210f19baf50cab",
}  # fmt: skip


@every_encoded
def test_same_bits_as_ggml_made_once(dtype: QuantType) -> None:
    rng = np.random.default_rng(43)
    values, weights = rng.standard_normal((4, 1024)).astype(np.float32), rng.random(1024).astype(np.float32)
    blocks = dtype.encode(values, weights)
    assert hashlib.sha256(blocks.tobytes()).hexdigest()[:16] == DIGESTS[dtype.name]
