"""Attention in one op: softmax(scale * q k + mask) v, without a matrix of n_q * n_kv scores in memory.

Arrives: queries, keys and values (these two in any type of a cache), what each query may see; leaves: F32. The kernel
is in `attention_kernel.py`. Next module: `gml/ops/softmax.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gml.dims import exact_div, is_static, min_of
from gml.dtypes import BF16, F16, F32, DType
from gml.ops.attention_kernel import AttentionKernel, AttentionSpec, attention_chunks
from gml.ops.base import Inferred, OpDef, Sample, SampleBuilder, declare, rule
from gml.ops.elementwise import needs_float, needs_number
from gml.ops.lower import Chunks, Direct, KernelContext, Place
from gml.ops.matmul import needs_weights, product
from gml.ops.views import permute, view
from gml.quants.base import by_name
from gml.records import dataclass
from gml.tensor import Tensor

__all__ = ["flash_attn_ext"]


@dataclass(frozen=True)
class AttentionAttrs:
    """See `flash_attn_ext`; mask, sinks: whether the sources end with these."""

    scale: float
    max_bias: float = 0.0
    logit_softcap: float = 0.0
    causal: bool = False
    window: int = 0
    mask: bool = False
    sinks: bool = False


def named_sources(attrs: Any, *rest: Any) -> tuple[Any, Any]:
    """(mask, sinks) out of the sources that come last, as the attributes say; None for one that is absent."""
    left = [r for r in rest if r is not None]
    rule(
        len(left) == bool(attrs.mask) + bool(attrs.sinks),
        f"mask={attrs.mask} and sinks={attrs.sinks} do not go with {len(left)} more sources",
    )
    mask = left[0] if attrs.mask else None
    return mask, left[-1] if attrs.sinks else None


def alibi_slopes(n_head: int, max_bias: float) -> list[float]:
    """What the mask is multiplied with for each head. Source: ALiBi, https://arxiv.org/abs/2108.12409."""
    if max_bias <= 0 or n_head == 0:
        return [1.0] * n_head
    n_log2 = 1 << (n_head.bit_length() - 1)
    even, odd = 2.0 ** (-max_bias / n_log2), 2.0 ** (-max_bias / 2 / n_log2)
    return [even ** (h + 1) if h < n_log2 else odd ** (2 * (h - n_log2) + 1) for h in range(n_head)]


def check_bias(max_bias: float, mask: Tensor | None) -> None:
    """Raise `ShapeError` unless ALiBi's bound is a number of at least 0 and comes with a mask."""
    needs_number(max_bias, "max_bias")
    rule(0 <= max_bias < math.inf, f"max_bias must be at least 0, found {max_bias}")
    rule(not max_bias or mask is not None, "max_bias multiplies the mask: give a mask")


def check_sinks(sinks: Tensor | None, n_head: Any) -> None:
    """Raise `ShapeError` unless sinks are one number per head."""
    if sinks is not None:
        needs_float(sinks, "sinks")
        rule(sinks.ne == (n_head, 1, 1, 1), f"sinks must be [{n_head}], one per head, found {list(sinks.ne)}")


def _check_attrs(attrs: AttentionAttrs) -> None:
    for name in ("scale", "logit_softcap"):
        needs_number(getattr(attrs, name), name)
        rule(math.isfinite(getattr(attrs, name)), f"{name} must be finite, found {getattr(attrs, name)}")
    rule(attrs.logit_softcap >= 0, f"logit_softcap must be at least 0 (0: none), found {attrs.logit_softcap}")
    rule(isinstance(attrs.causal, bool), f"causal must be True or False, found {attrs.causal!r}")
    whole = isinstance(attrs.window, int) and not isinstance(attrs.window, bool) and attrs.window >= 0
    rule(whole, f"window must be a whole number of at least 0 (0: none), found {attrs.window!r}")
    rule(attrs.causal or not attrs.window, f"window = {attrs.window} needs causal=True")


def _infer(
    attrs: AttentionAttrs,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask_or_sinks: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Inferred:
    _check_attrs(attrs)
    mask, sinks = named_sources(attrs, mask_or_sinks, sinks)
    needs_float(q, "q")
    needs_weights(k, "k")
    needs_weights(v, "v")
    rule(q.ne[0] == k.ne[0], f"q and k must have heads of one size, found ne[0] = {q.ne[0]} and {k.ne[0]}")
    rule(k.ne[1:] == v.ne[1:], f"k and v must agree but for ne[0], found {list(k.ne)} and {list(v.ne)}")
    fixed = (q.ne[0], v.ne[0], q.ne[2], k.ne[2])
    rule(
        all(is_static(n) and min_of(n) >= 1 for n in fixed),
        f"head sizes and numbers of heads must be fixed and at least 1, found q {list(q.ne)} and v {list(v.ne)}",
    )
    rule(
        exact_div(q.ne[2], k.ne[2]) is not None and exact_div(q.ne[3], k.ne[3]) is not None,
        f"heads and sequences of q must be multiples of those of k, found {list(q.ne[2:])} and {list(k.ne[2:])}",
    )
    if mask is not None:
        _check_mask(mask, q, k)
    check_bias(attrs.max_bias, mask)
    check_sinks(sinks, q.ne[2])
    return Inferred(F32, (v.ne[0], q.ne[2], q.ne[1], q.ne[3]))


def _check_mask(mask: Tensor, q: Tensor, k: Tensor) -> None:
    needs_float(mask, "mask")
    fits = mask.ne[0] == k.ne[1] and (mask.ne[1] == q.ne[1] or min_of(mask.ne[1] - q.ne[1]) >= 0)
    shared = all(exact_div(q.ne[i], mask.ne[i]) is not None for i in (2, 3))
    rule(
        fits and shared,
        f"mask must be [{k.ne[1]}, at least {q.ne[1]}, ..] with ne[2:] that divide {list(q.ne[2:])}; "
        f"found {list(mask.ne)}",
    )


def _visible(attrs: AttentionAttrs, n_q: int, n_kv: int) -> np.ndarray:
    """Which keys each query sees by structure: [n_q, n_kv]."""
    position = np.arange(n_q)[:, None] + (n_kv - n_q)
    key = np.arange(n_kv)
    seen = np.ones((n_q, n_kv), bool)
    if attrs.causal:
        seen &= key <= position
    if attrs.window:
        seen &= key > position - attrs.window
    return seen


def _reference(attrs: AttentionAttrs, q: np.ndarray, k: np.ndarray, v: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    """Head by head, so that one matrix of scores is in memory at a time."""
    mask, sinks = named_sources(attrs, *rest)
    n_seq, n_head, n_q, _ = q.shape
    n_seq_kv, n_head_kv, n_kv, dv = v.shape
    seen = _visible(attrs, n_q, n_kv)
    slopes = alibi_slopes(n_head, attrs.max_bias)
    out = np.zeros((n_seq, n_q, n_head, dv), np.float32)
    for s, h in np.ndindex(n_seq, n_head):
        kv = s // (n_seq // n_seq_kv), h // (n_head // n_head_kv)
        scores = product(q[s, h], k[kv].T) * attrs.scale
        if attrs.logit_softcap:
            scores = np.tanh(scores / attrs.logit_softcap) * attrs.logit_softcap
        if mask is not None:
            scores = scores + mask[s % mask.shape[0], h % mask.shape[1], :n_q] * slopes[h]
        scores = np.where(seen, scores, -np.inf)
        sink = None if sinks is None else sinks.reshape(-1)[h]
        out[s, :, h] = product(softmax_rows(scores, sink), v[kv])
    return out


def softmax_rows(scores: np.ndarray, sink: Any = None) -> np.ndarray:
    """exp of each row over its sum; `sink` takes part in the sum only. Zeros for rows of -inf."""
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        largest = np.maximum(largest, sink)
    e = np.exp(scores - np.where(np.isneginf(largest), 0.0, largest))
    total = e.sum(axis=-1, keepdims=True, dtype=np.float64)
    if sink is not None:
        total = total + np.exp(sink - largest)
    return e / np.where(total == 0, 1.0, total)


def _chunks(attrs: AttentionAttrs, out: Tensor, q: Tensor, k: Tensor, *rest: Tensor) -> Chunks:
    return attention_chunks(q, k)


def _lower(
    kernel: KernelContext, attrs: AttentionAttrs, out: Place, q: Place, k: Place, v: Place, *rest: Place
) -> None:
    mask, sinks = named_sources(attrs, *rest)
    spec = AttentionSpec(
        float(attrs.scale), float(attrs.max_bias), float(attrs.logit_softcap), attrs.causal, attrs.window
    )
    AttentionKernel(kernel, spec, out, q, k, v, mask, sinks).build()


def _sample(
    name: str,
    d: int,
    n_q: int,
    n_kv: int,
    heads: tuple[int, int],
    type: DType | str = F32,
    dv: int = 0,
    seqs: tuple[int, int] = (1, 1),
    mask: tuple[int, ...] = (),
    sinks: bool = False,
    **how: Any,
) -> Sample:
    """Random q, k, v; `mask` gives the sizes of a mask with holes."""

    def make(s: SampleBuilder) -> Tensor:
        kind = by_name(type) if isinstance(type, str) else type
        q = s.f32(d, n_q, heads[0], seqs[0])
        k, v = (s.f32(n, n_kv, heads[1], seqs[1], type=kind) for n in (d, dv or d))
        given = holes(s, *mask) if mask else None
        return flash_attn_ext(q, k, v, given, s.f32(heads[0]) if sinks else None, scale=0.3, **how)

    return Sample(name, make)


def holes(s: SampleBuilder, *ne: int, type: DType = F16) -> Tensor:
    """A mask of numbers, 0 and -inf; its first row hides everything."""
    values = s.random.uniform(-2.0, 2.0, size=tuple(reversed(ne)))
    values[s.random.random(values.shape) < 0.3] = -np.inf
    values[s.random.random(values.shape) < 0.3] = 0.0
    values[..., :1, :] = -np.inf
    return s.array(values.astype(np.float32), type=type)


def _permuted(s: SampleBuilder) -> Tensor:
    q, k = s.f32(16, 4, 5), s.f32(16, 2, 7)
    v = view(s.f32(24, 7, 2), [16, 7, 2], nb=[96, 672], offset=16)
    return flash_attn_ext(permute(q, 0, 2, 1, 3), permute(k, 0, 2, 1, 3), v, scale=0.25, causal=True)


def _run_time(s: SampleBuilder) -> Tensor:
    n_q, n_kv = s.dim("n_tokens", 3, max=5), s.dim("n_kv", 38, max=70)
    k, v = (s.input([8, n_kv, 1]) for _ in range(2))
    return flash_attn_ext(s.input([8, n_q, 2]), k, v, scale=0.4, causal=True)


_FLASH_ATTN_EXT = declare(
    OpDef(
        "flash_attn_ext",
        _infer,
        _reference,
        (
            _sample("plain", 16, 3, 7, (2, 2)),
            _sample("causal", 64, 5, 70, (6, 2), causal=True),
            _sample("prompt", 8, 41, 41, (3, 1), causal=True),
            _sample("window", 16, 40, 45, (3, 1), causal=True, window=7),
            _sample("window_far", 8, 2, 100, (2, 1), causal=True, window=9),
            _sample("more_queries_than_keys", 8, 6, 4, (2, 1), causal=True),
            _sample("softcap", 32, 4, 40, (3, 1), causal=True, logit_softcap=2.0),
            _sample("dv", 12, 3, 35, (4, 2), dv=20),
            _sample("mask", 16, 4, 37, (4, 2), mask=(37, 4)),
            _sample("mask_padded", 16, 4, 37, (4, 2), mask=(37, 32)),
            _sample("mask_heads", 8, 3, 9, (4, 2), seqs=(2, 1), mask=(9, 3, 2, 2)),
            _sample("alibi", 8, 3, 40, (6, 2), mask=(40, 3), max_bias=8.0),
            _sample("sinks", 8, 3, 40, (4, 2), sinks=True, causal=True),
            _sample("sinks_mask", 8, 3, 33, (4, 2), mask=(33, 3), sinks=True),
            _sample("sequences", 8, 3, 9, (4, 2), seqs=(4, 2)),
            _sample("one", 1, 1, 1, (1, 1)),
            _sample("one_query", 64, 1, 33, (9, 3), F16, causal=True),
            _sample("no_queries", 8, 0, 5, (2, 1)),
            _sample("no_keys", 8, 3, 0, (2, 1)),
            _sample("BF16", 40, 3, 33, (2, 1), BF16),
            _sample("Q8_0", 64, 4, 40, (3, 1), "Q8_0", causal=True, window=7),
            _sample("Q4_0", 32, 3, 34, (2, 2), "Q4_0", causal=True),
            Sample("permuted", _permuted),
            Sample("run_time", _run_time),
        ),
        attrs=AttentionAttrs,
        lower=Direct(_lower, _chunks),
        macs=lambda attrs, out, q, k, *rest: q.n_rows * k.ne[1] * (k.ne[0] + out.ne[0]),
    )
)


def flash_attn_ext(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    scale: float,
    max_bias: float = 0.0,
    logit_softcap: float = 0.0,
    causal: bool = False,
    window: int = 0,
) -> Tensor:
    """softmax(scale * q k + mask) v for each head: F32 [dv, n_head, n_q, n_seq], as the next mul_mat takes it.

    q        [d, n_q, n_head, n_seq], F32, F16 or BF16
    k, v     [d, n_kv, n_head_kv, n_seq_kv] and [dv, n_kv, ..] of any float type or block format; n_head_kv divides
             n_head and n_seq_kv divides n_seq: neighbouring heads share keys and values (GQA)
    mask     [n_kv, n_q or more, m2, m3] added to the scores, -inf hides; m2 and m3 divide n_head and n_seq and repeat
    sinks    [n_head]: a score per head that takes part in the sum and has no value
    max_bias above 0: the mask is multiplied by ALiBi's slope of the head
    logit_softcap above 0: scores become cap * tanh(score / cap) before the mask
    causal   query i sees key j only where j <= i + n_kv - n_q
    window   above 0, with causal: and only where j > i + n_kv - n_q - window

    A query that sees nothing gives zeros. Sources: https://arxiv.org/abs/2205.14135, `ggml_flash_attn_ext`. Raises
    `ShapeError` when types, sizes or numbers do not fit.
    """
    src = [q, k, v, *(t for t in (mask, sinks) if t is not None)]
    return _FLASH_ATTN_EXT(
        *src,
        scale=scale,
        max_bias=max_bias,
        logit_softcap=logit_softcap,
        causal=causal,
        window=window,
        mask=mask is not None,
        sinks=sinks is not None,
    )
