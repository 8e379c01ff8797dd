"""Soft maxima along rows (dimension 0) as attention needs them, and the mask of what lies ahead.

Arrives: scores; leaves: weights that add up to 1 per row. Next module: `gml/ops/conv.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gml.dims import Size, dims_of, exact_div, is_static, max_of, min_of
from gml.dtypes import BF16, F16
from gml.kernel_ir import F32, I64, Node
from gml.ops.attention import alibi_slopes, check_bias, check_sinks, holes, named_sources, softmax_rows
from gml.ops.base import Inferred, OpDef, Sample, SampleBuilder, declare, rule
from gml.ops.cases import one_source
from gml.ops.elementwise import needs_float, needs_number
from gml.ops.lower import Element, Index, Indexed, KernelContext, Operand, Row, Rowwise
from gml.ops.movement import concat
from gml.ops.views import is_size, permute
from gml.records import dataclass
from gml.tensor import Tensor

__all__ = ["diag_mask_inf", "soft_max"]


@dataclass(frozen=True)
class SoftMaxAttrs:
    """See `soft_max`; mask, sinks: whether the sources end with these."""

    scale: float = 1.0
    max_bias: float = 0.0
    mask: bool = False
    sinks: bool = False


@dataclass(frozen=True)
class DiagMaskAttrs:
    """n_past: how many elements of row 0 stay, less one."""

    n_past: Size


def _infer_soft_max(
    attrs: SoftMaxAttrs, a: Tensor, mask_or_sinks: Tensor | None = None, sinks: Tensor | None = None
) -> Inferred:
    needs_float(a)
    needs_number(attrs.scale, "scale")
    rule(math.isfinite(attrs.scale), f"scale must be finite, found {attrs.scale}")
    mask, sinks = named_sources(attrs, mask_or_sinks, sinks)
    if mask is not None:
        needs_float(mask, "mask")
        fits = mask.ne[0] == a.ne[0] and (mask.ne[1] == a.ne[1] or min_of(mask.ne[1] - a.ne[1]) >= 0)
        shared = all(exact_div(a.ne[i], mask.ne[i]) is not None for i in (2, 3))
        rule(
            fits and shared,
            f"mask must be [{a.ne[0]}, at least {a.ne[1]}, ..] with ne[2:] that divide {list(a.ne[2:])}; "
            f"found {list(mask.ne)}",
        )
    check_bias(attrs.max_bias, mask)
    rule(not attrs.max_bias or is_static(a.ne[2]), f"max_bias needs a fixed number of heads ne[2], found {a.ne[2]}")
    check_sinks(sinks, a.ne[2])
    return Inferred(a.type, a.ne)


def _reference_soft_max(attrs: SoftMaxAttrs, a: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    mask, sinks = named_sources(attrs, *rest)
    slopes = alibi_slopes(a.shape[1], attrs.max_bias)
    out = np.empty_like(a)
    for s, h in np.ndindex(a.shape[:2]):
        scores = a[s, h].astype(np.float64) * attrs.scale
        if mask is not None:
            scores = scores + mask[s % mask.shape[0], h % mask.shape[1], : a.shape[2]] * slopes[h]
        out[s, h] = softmax_rows(scores, None if sinks is None else sinks.reshape(-1)[h])
    return out


def _infer_diag_mask(attrs: DiagMaskAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    rule(
        is_size(attrs.n_past) and min_of(attrs.n_past) >= 0,
        f"n_past must be a size of at least 0, found {attrs.n_past!r}",
    )
    strange = dims_of([attrs.n_past]) - dims_of(a.ne)
    rule(not strange, f"n_past may be made of the run-time sizes of a only, found {attrs.n_past} and ne = {list(a.ne)}")
    return Inferred(a.type, a.ne)


def _reference_diag_mask(attrs: Any, a: np.ndarray) -> np.ndarray:
    row, column = np.arange(a.shape[2])[:, None], np.arange(a.shape[3])
    return np.where(column > attrs.n_past + row, np.float32(-np.inf), a)


# -- the same in kernel IR ---------------------------------------------------------------------------------------------


def _lower_soft_max(k: KernelContext, attrs: SoftMaxAttrs, row: Row, a: Any, *rest: Any) -> Element:
    b, n = k.b, k.size(a.tensor.ne[0])
    mask, sinks = named_sources(attrs, *rest)
    i1, head, seq = row
    slope = _slope(k, head, alibi_slopes(max_of(a.tensor.ne[2]), attrs.max_bias)) if attrs.max_bias else None

    def score(i: Operand, lanes: int) -> Node:
        x = a.at((i, *row), lanes) * float(attrs.scale)
        if mask is None:
            return x
        repeated = [
            0 if m == 1 else k.value(j) % k.size(m) for j, m in zip((head, seq), mask.tensor.ne[2:], strict=True)
        ]
        bias = mask.at((i, i1, *repeated), lanes)
        return x + (bias if slope is None else bias * b.splat(slope, lanes))

    largest = k.max_row(n, score)
    sink = None if sinks is None else sinks.at((head, 0, 0, 0), 1)
    if sink is not None:
        largest = b.max(largest, sink)
    # a row of -inf has no largest element to subtract; all its weights are 0
    largest = b.select(b.cmp("gt", largest, float("-inf")), largest, b.const(0.0))

    def weight(i: Operand, lanes: int) -> Node:
        return b.math("exp", score(i, lanes) - b.splat(largest, lanes))

    total = b.cast(k.sum_row(n, weight), F32)
    if sink is not None:
        total = total + b.math("exp", sink - largest)
    factor = b.select(b.cmp("gt", total, 0.0), 1.0 / total, b.const(0.0))
    return lambda i, lanes: weight(i, lanes) * b.splat(factor, lanes)


def _slope(k: KernelContext, head: Operand, slopes: list[float]) -> Node:
    """The slope of a head, chosen among constants."""
    chosen = k.b.const(1.0)
    for h, slope in enumerate(slopes):
        chosen = k.b.select(k.b.cmp("eq", k.value(head), h), k.b.const(slope), chosen)
    return chosen


def _lower_diag_mask(k: KernelContext, attrs: DiagMaskAttrs, index: Index, lanes: int, a: Any) -> Node:
    b = k.b
    last = k.value(index[1]) + k.value(k.size(attrs.n_past))
    column = b.splat(k.value(index[0]), lanes)
    if lanes > 1:
        column = column + b.const(tuple(range(lanes)), I64.vec(lanes))
    return b.select(b.cmp("gt", column, b.splat(last, lanes)), float("-inf"), a.at(index, lanes))


# -- declarations ------------------------------------------------------------------------------------------------------


def _run_time(s: SampleBuilder) -> Tensor:
    n = s.dim("n_kv", 19, max=40)
    return soft_max(s.input([n, 3, 2]), s.input([n, 3]), scale=0.5)


def _run_time_past(s: SampleBuilder) -> Tensor:
    n_past = s.dim("n_past", 3, max=5, min=0)
    return diag_mask_inf(concat(s.input([n_past, 4]), s.f32(4, 4), 0), n_past)


_SOFT_MAX = declare(
    OpDef(
        "soft_max",
        _infer_soft_max,
        _reference_soft_max,
        (
            *one_source(lambda a: soft_max(a)),
            Sample("scale", lambda s: soft_max(s.f32(33, 3), scale=0.125)),
            Sample("large", lambda s: soft_max(s.f32(33, 3, low=-500.0, high=500.0))),
            Sample("mask", lambda s: soft_max(s.f32(37, 4, 3), holes(s, 37, 4), scale=0.3)),
            Sample("mask_padded", lambda s: soft_max(s.f32(7, 3, 2), holes(s, 7, 8))),
            Sample("mask_heads", lambda s: soft_max(s.f32(7, 3, 4, 2), holes(s, 7, 3, 2, 2))),
            Sample("alibi", lambda s: soft_max(s.f32(20, 3, 6), holes(s, 20, 3), max_bias=8.0)),
            Sample("sinks", lambda s: soft_max(s.f32(20, 3, 4), None, s.f32(4))),
            Sample("sinks_mask", lambda s: soft_max(s.f32(20, 3, 4), holes(s, 20, 3), s.f32(4), scale=2.0)),
            Sample("permuted_mask", lambda s: soft_max(s.f32(5, 3, 2), permute(s.f32(3, 5), 1, 0, 2, 3))),
            Sample("run_time_mask", _run_time),
        ),
        attrs=SoftMaxAttrs,
        in_place=(0,),
        lower=Rowwise(_lower_soft_max),
    )
)
_DIAG_MASK_INF = declare(
    OpDef(
        "diag_mask_inf",
        _infer_diag_mask,
        _reference_diag_mask,
        (
            *one_source(lambda a: diag_mask_inf(a, 2)),
            Sample("square", lambda s: diag_mask_inf(s.f32(19, 19, 2), 0)),
            Sample("F16_past", lambda s: diag_mask_inf(s.f32(9, 4, type=F16), 3)),
            Sample("BF16_past", lambda s: diag_mask_inf(s.f32(40, 4, type=BF16), 17)),
            Sample("run_time_past", _run_time_past),
        ),
        attrs=DiagMaskAttrs,
        in_place=(0,),
        lower=Indexed(_lower_diag_mask),
    )
)


def soft_max(
    a: Tensor,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    scale: float = 1.0,
    max_bias: float = 0.0,
) -> Tensor:
    """exp(scale * a + mask) over its sum along each row. Result: a's type and sizes [n_kv, n_q, n_head, n_seq].

    mask     [n_kv, n_q or more, m2, m3], -inf hides; m2 and m3 divide n_head and n_seq and repeat
    sinks    [n_head]: a score per head that is part of the sum only
    max_bias above 0: the mask is multiplied by ALiBi's slope of the head

    A row of which everything is hidden gives zeros. Source: `ggml_soft_max_ext`. Raises `ShapeError` when types, sizes
    or numbers do not fit.
    """
    src = [a, *(t for t in (mask, sinks) if t is not None)]
    return _SOFT_MAX(*src, scale=scale, max_bias=max_bias, mask=mask is not None, sinks=sinks is not None)


def diag_mask_inf(a: Tensor, n_past: Size) -> Tensor:
    """a [n, m, ..] with -inf in row i behind element n_past + i. Result: a's type and sizes.

    Source: `ggml_diag_mask_inf`. Raises `ShapeError` when a is not F32, F16 or BF16, or n_past is no size of at least 0
    or has run-time sizes that a has not.
    """
    return _DIAG_MASK_INF(a, n_past=n_past)
