"""Attention, softmax and rope against torch, against compositions of plain ops, and by their invariances."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from op_conformance import assert_near, leaves, normal, torch_or_skip, value

import gml
from gml.ops.attention import alibi_slopes
from gml.ops.base import SampleBuilder
from gml.tensor import Tensor


@pytest.fixture(scope="module")
def torch() -> Any:
    """torch, or a skip that names the extra."""
    return torch_or_skip()


def sources(n_q: int, n_kv: int, heads: tuple[int, int], d: int, dv: int = 0, n_seq: int = 1) -> list[np.ndarray]:
    """Random q, k and v in numpy's order."""
    shapes = ((heads[0], n_q, d), (heads[1], n_kv, d), (heads[1], n_kv, dv or d))
    return [normal(i + n_q, n_seq, *shape) for i, shape in enumerate(shapes)]


def attend(arrays: list[np.ndarray], mask: np.ndarray | None = None, sinks: Any = None, **how: Any) -> np.ndarray:
    """`flash_attn_ext` as [n_seq, n_q, n_head, dv]."""
    extra = [a for a in (mask, sinks) if a is not None]
    q, k, v, *rest = leaves(*arrays, *extra)
    named = dict(zip([n for n, a in (("mask", mask), ("sinks", sinks)) if a is not None], rest, strict=True))
    return value(gml.flash_attn_ext(q, k, v, **named, **how))


# -- against torch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [(4, 4), (9, 3), (6, 1)])
@pytest.mark.parametrize(("n_q", "n_kv", "causal"), [(33, 33, True), (7, 45, False), (1, 70, False)])
def test_torch_scaled_dot_product(torch: Any, heads: tuple[int, int], n_q: int, n_kv: int, causal: bool) -> None:
    arrays = sources(n_q, n_kv, heads, 64, dv=32, n_seq=2)
    q, k, v = (torch.from_numpy(a).double() for a in arrays)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    assert_near(attend(arrays, scale=64**-0.5, causal=causal), expected.transpose(1, 2).numpy())


def test_torch_scaled_dot_product_with_a_mask(torch: Any) -> None:
    arrays = sources(12, 40, (4, 2), 16)
    mask = normal(9, 12, 40)
    mask[mask > 0.5] = -np.inf
    q, k, v = (torch.from_numpy(a).double() for a in arrays)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.from_numpy(mask).double(), scale=0.3, enable_gqa=True
    )
    assert_near(attend(arrays, mask, scale=0.3), expected.transpose(1, 2).numpy())


def test_torch_softmax(torch: Any) -> None:
    x = normal(1, 3, 5, 7, 33) * 30
    expected = torch.softmax(torch.from_numpy(x).double() * 0.7, dim=-1)
    assert_near(value(gml.soft_max(leaves(x)[0], scale=0.7)), expected.numpy())


# -- the same by other ops ---------------------------------------------------------------------------------------------


def composed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, sinks: Tensor | None = None, **how: Any) -> Tensor:
    """Attention as mul_mat, soft_max, mul_mat, as graphs do it without the fused op."""
    weights = gml.soft_max(gml.mul_mat(k, q), mask, sinks, **how)
    return gml.permute(gml.mul_mat(gml.cont(gml.transpose(v)), weights), 0, 2, 1, 3)


@pytest.mark.parametrize("max_bias", [0.0, 8.0])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_fused_is_composed(max_bias: float, with_sinks: bool) -> None:
    arrays = sources(9, 33, (6, 2), 16, dv=24, n_seq=2)
    mask = normal(4, 2, 3, 9, 33)
    mask[normal(5, 2, 3, 9, 33) > 0.3] = -np.inf
    mask[1, 2, 5] = -np.inf
    q, k, v, m, s = leaves(*arrays, mask, normal(6, 6))
    how: dict[str, Any] = {"scale": 0.25, "max_bias": max_bias}
    given = s if with_sinks else None
    found = value(gml.flash_attn_ext(q, k, v, m, given, **how))
    assert_near(found, value(composed(q, k, v, m, given, **how)))
    assert not found[1, 5, 2].any(), "a row that is hidden altogether gives zeros"
    assert found[1, 4].any()


@pytest.mark.parametrize(
    ("n_q", "n_kv", "window"), [(7, 7, 0), (5, 40, 0), (33, 40, 7), (6, 4, 0), (6, 4, 2), (3, 9, 1)]
)
def test_structure_is_a_mask(n_q: int, n_kv: int, window: int) -> None:
    """causal and window hide what a mask of -inf hides, queries before the first key included."""
    mask = np.full((n_q, n_kv), -np.inf, np.float32)
    for i in range(n_q):
        last = i + n_kv - n_q
        for j in range(max(0, last - window + 1) if window else 0, max(0, min(n_kv, last + 1))):
            mask[i, j] = 0
    arrays = sources(n_q, n_kv, (4, 2), 16)
    np.testing.assert_array_equal(
        attend(arrays, scale=0.4, causal=True, window=window), attend(arrays, mask, scale=0.4)
    )


def test_token_by_token_is_the_prompt_at_once() -> None:
    """Each query sees in a cache view of its own length what it sees in the causal prompt."""
    n = 21
    context = gml.Context()
    q, k, v = (context.constant(a) for a in sources(n, n, (4, 2), 16))
    whole = value(gml.flash_attn_ext(q, k, v, scale=0.25, causal=True))
    for i in range(n):
        one = gml.view(q, [16, 1, 4], nb=list(q.nb[1:3]), offset=i * q.nb[1])
        seen = [gml.view(t, [16, i + 1, 2], nb=list(t.nb[1:3])) for t in (k, v)]
        assert_near(value(gml.flash_attn_ext(one, *seen, scale=0.25, causal=True)), whole[:, i : i + 1])


@pytest.mark.parametrize("name", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_a_strided_cache_of_any_type(name: str) -> None:
    """Views into a cache [d * n_head_kv, n_ctx], as sessions make them, give what its decoded values give."""
    s = SampleBuilder(3)
    d, n_kv, n_ctx, n_head_kv = 64, 19, 32, 3
    kind = getattr(gml, name, None) or gml.quants.by_name(name)
    caches = [s.f32(d * n_head_kv, n_ctx, type=kind) for _ in range(2)]
    row = kind.row_bytes(d)
    k, v = (gml.view(c, [d, n_kv, n_head_kv], nb=[row * n_head_kv, row]) for c in caches)
    q = s.f32(d, 5, 6)
    found = value(gml.flash_attn_ext(q, k, v, scale=0.2, causal=True))
    plain = [c.numpy().reshape(n_ctx, n_head_kv, d)[:n_kv].swapaxes(0, 1).astype(np.float32) for c in caches]
    assert_near(found, attend([q.numpy(), *plain], scale=0.2, causal=True))


def test_softcap_saturates() -> None:
    """cap * tanh(score / cap): no effect where it is large, equal weights where it is tiny."""
    arrays = sources(4, 9, (2, 2), 16)
    assert_near(attend(arrays, scale=0.3, logit_softcap=1e5), attend(arrays, scale=0.3), 1e-5)
    mean = arrays[2].mean(axis=2, dtype=np.float64)
    assert_near(attend(arrays, scale=0.3, logit_softcap=1e-7), np.repeat(mean[:, None], 4, axis=1), 1e-5)


def test_sinks_only_take_weight() -> None:
    """A sink is one more score whose value is zero."""
    q, k, v = sources(5, 11, (2, 2), 8)
    sinks = normal(3, 2)
    # one more key, whose score is put into the mask, with a value of zeros
    more = [np.concatenate([a, np.zeros_like(a[:, :, :1])], axis=2) for a in (k, v)]
    mask = np.zeros((1, 2, 5, 12), np.float32)
    mask[..., -1] = sinks[None, :, None]
    assert_near(attend([q, k, v], sinks=sinks, scale=0.5), attend([q, *more], mask, scale=0.5))


def test_a_long_prompt_takes_the_memory_of_one_head() -> None:
    q, k, v = leaves(*sources(512, 512, (9, 3), 64))
    program = gml.compile(gml.flash_attn_ext(q, k, v, scale=0.125, causal=True), "reference")
    program.run()
    tracemalloc.start()
    try:
        program.run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20  # 9 heads of float64 scores would be 19 MB in each intermediate


def test_slopes_are_those_of_the_paper() -> None:
    """Eight heads: 1/2 to 1/256; twelve: those of eight, then every other one of sixteen."""
    assert alibi_slopes(8, 8.0) == [2.0**-i for i in range(1, 9)]
    np.testing.assert_allclose(alibi_slopes(12, 8.0)[8:], [2.0 ** -(i / 2) for i in (1, 3, 5, 7)])
    assert alibi_slopes(5, 0.0) == [1.0] * 5


def test_diag_mask_makes_softmax_causal() -> None:
    x = normal(2, 3, 6, 10)
    (a,) = leaves(x)
    found = value(gml.soft_max(gml.diag_mask_inf(a, 4)))[0]
    for i in range(6):
        e = np.exp(x[:, i, : i + 5].astype(np.float64))
        np.testing.assert_allclose(found[:, i, : i + 5], e / e.sum(-1, keepdims=True), rtol=1e-5)
        assert not found[:, i, i + 5 :].any()


# -- rope --------------------------------------------------------------------------------------------------------------

MODES = ("normal", "neox")


def rotated(x: np.ndarray, positions: Any, **how: Any) -> np.ndarray:
    """x [n_tokens, n_head, d], rotated."""
    a, b = leaves(x, np.asarray(positions, np.int32))
    return value(gml.rope(a, b, **{"n_dims": x.shape[-1], **how}))[0]


@pytest.mark.parametrize("mode", MODES)
def test_scores_depend_on_distances_only(mode: str) -> None:
    q, k = normal(1, 1, 2, 64), normal(2, 1, 2, 64)
    scores = [
        (rotated(q, [p], mode=mode) * rotated(k, [p - 11], mode=mode)).sum(-1).ravel() for p in (11, 12, 500, 3000)
    ]
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], atol=2e-3)


@pytest.mark.parametrize("mode", MODES)
def test_position_0_turns_nothing_and_lengths_stay(mode: str) -> None:
    x = normal(1, 3, 2, 32)
    np.testing.assert_array_equal(rotated(x, [0, 0, 0], mode=mode), x)
    far = rotated(x, [1, 77, 4095], mode=mode, n_dims=20)
    np.testing.assert_allclose(np.linalg.norm(far, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5)
    np.testing.assert_array_equal(far[..., 20:], x[..., 20:])


def test_neox_is_normal_with_elements_in_another_order() -> None:
    x = normal(1, 4, 2, 24)
    order = np.concatenate([np.arange(0, 24, 2), np.arange(1, 24, 2)])
    positions = [3, 9, 1000, 2]
    np.testing.assert_array_equal(
        rotated(x[..., order], positions, mode="neox"), rotated(x, positions, mode="normal")[..., order]
    )


@pytest.mark.parametrize("mode", MODES)
def test_torch_rotates_as_complex_numbers(torch: Any, mode: str) -> None:
    n, d = 40, 64
    x = normal(1, n, 3, d)
    half = d // 2
    angles = torch.outer(torch.arange(n).double(), 10000.0 ** (-torch.arange(half).double() / half))
    pairs = x.reshape(n, 3, half, 2) if mode == "normal" else x.reshape(n, 3, 2, half).swapaxes(2, 3)
    turned = torch.view_as_complex(torch.from_numpy(np.ascontiguousarray(pairs)).double())
    turned = torch.view_as_real(turned * torch.polar(torch.ones_like(angles), angles)[:, None])
    flat = turned if mode == "normal" else turned.transpose(2, 3)
    assert_near(rotated(x, range(n), mode=mode)[None], flat.reshape(1, n, 3, d).numpy(), 1e-5)


def test_scales_of_positions_and_frequencies() -> None:
    x = normal(1, 3, 2, 16)
    positions = np.array([4, 8, 40])
    halved = rotated(x, positions // 2)
    np.testing.assert_allclose(rotated(x, positions, freq_scale=0.5), halved, atol=1e-5)
    a, b, factors = leaves(x, positions.astype(np.int32), np.full(8, 2.0, np.float32))
    np.testing.assert_allclose(value(gml.rope(a, b, factors, n_dims=16))[0], halved, atol=1e-5)
    np.testing.assert_allclose(rotated(x, positions, attn_factor=1.5), 1.5 * rotated(x, positions), rtol=1e-5)


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones() -> None:
    """Pairs that turn often within the trained context stay as they are, the slowest are interpolated."""
    d, n_ctx, factor = 128, 4096, 4.0
    x = normal(1, 1, 1, d)
    yarn = rotated(x, [50], ext_factor=1.0, freq_scale=1 / factor, n_ctx_orig=n_ctx)[0, 0].reshape(-1, 2)
    magnitude = 1 + 0.1 * math.log(factor)
    plain, stretched = (rotated(x, [50], freq_scale=f)[0, 0].reshape(-1, 2) * magnitude for f in (1, 1 / factor))
    turns = n_ctx / (2 * math.pi * 10000.0 ** (2 * np.arange(d // 2) / d))
    # the range is widened to whole pairs, so leave one on either side
    fast, slow = np.flatnonzero(turns > 32)[:-1], np.flatnonzero(turns < 1)[1:]
    assert len(fast) > 15
    assert len(slow) > 15
    np.testing.assert_allclose(yarn[fast], plain[fast], atol=2e-5)
    np.testing.assert_allclose(yarn[slow], stretched[slow], atol=2e-5)
    between = slice(fast[-1] + 4, slow[0] - 4)
    assert (np.abs(yarn[between] - plain[between]).max(-1) > 1e-4).all()
    assert (np.abs(yarn[between] - stretched[between]).max(-1) > 1e-4).all()


# -- refusals ----------------------------------------------------------------------------------------------------------


def leaf(*ne: Any, type: gml.DType = gml.F32) -> Tensor:
    return Tensor(type, ne, role="input")


def flash(q: tuple[Any, ...], kv: tuple[Any, ...], *rest: Any, **how: Any) -> Tensor:
    return gml.flash_attn_ext(leaf(*q), leaf(*kv), leaf(*kv), *rest, **{"scale": 1.0, **how})


N, M = gml.Dim("n", 8), gml.Dim("m", 8)
REFUSED = {
    "head_size": (lambda: flash((8, 3, 4), (6, 5, 2)), ["8 and 6"]),
    "heads": (lambda: flash((8, 3, 4), (8, 5, 3)), ["[4, 1] and [3, 1]"]),
    "values": (lambda: gml.flash_attn_ext(leaf(8, 3, 4), leaf(8, 5, 2), leaf(8, 6, 2), scale=1.0), ["5", "6"]),
    "run_time_values": (lambda: gml.flash_attn_ext(leaf(8, N), leaf(8, N), leaf(8, M), scale=1.0), ["n", "m"]),
    "mask": (lambda: flash((8, 3, 4), (8, 5, 2), leaf(6, 3)), ["[5, at least 3", "[6, 3, 1, 1]"]),
    "mask_rows": (lambda: flash((8, 3, 4), (8, 5, 2), leaf(5, 2)), ["at least 3", "[5, 2, 1, 1]"]),
    "sinks": (lambda: flash((8, 3, 4), (8, 5, 2), None, leaf(3)), ["[4]", "[3, 1, 1, 1]"]),
    "bias": (lambda: flash((8, 3, 4), (8, 5, 2), max_bias=8.0), ["mask"]),
    "window": (lambda: flash((8, 3, 4), (8, 5, 2), window=4), ["window = 4", "causal"]),
    "window_sign": (lambda: flash((8, 3, 4), (8, 5, 2), causal=True, window=-1), ["-1"]),
    "softcap": (lambda: flash((8, 3, 4), (8, 5, 2), logit_softcap=-1.0), ["-1.0"]),
    "scale": (lambda: flash((8, 3, 4), (8, 5, 2), scale=math.nan), ["nan"]),
    "softmax_mask": (lambda: gml.soft_max(leaf(7, 3), leaf(6, 3)), ["[7, at least 3", "[6, 3, 1, 1]"]),
    "softmax_heads": (lambda: gml.soft_max(leaf(7, 3, 4), leaf(7, 3, 3)), ["[4, 1]", "[7, 3, 3, 1]"]),
    "past": (lambda: gml.diag_mask_inf(leaf(7, 3), -1), ["-1"]),
    "rope_odd": (lambda: gml.rope(leaf(8, 2, 3), leaf(3, type=gml.I32), n_dims=7), ["7", "ne[0] = 8"]),
    "rope_wide": (lambda: gml.rope(leaf(8, 2, 3), leaf(3, type=gml.I32), n_dims=10), ["10", "ne[0] = 8"]),
    "rope_positions": (lambda: gml.rope(leaf(8, 2, 3), leaf(4, type=gml.I32), n_dims=8), ["I32[3]", "[4, 1, 1, 1]"]),
    "rope_factors": (
        lambda: gml.rope(leaf(8, 2, 3), leaf(3, type=gml.I32), leaf(3), n_dims=8), ["[4]", "[3, 1, 1, 1]"]
    ),
    "rope_mode": (lambda: gml.rope(leaf(8, 2, 3), leaf(3, type=gml.I32), n_dims=8, mode="glm"), ["normal", "'glm'"]),
    "yarn": (lambda: gml.rope(leaf(8, 2, 3), leaf(3, type=gml.I32), n_dims=8, ext_factor=1.0), ["n_ctx_orig = 0"]),
}  # fmt: skip


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_with_its_sizes(call: Any, words: list[str]) -> None:
    with pytest.raises(gml.ShapeError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)
