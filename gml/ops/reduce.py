"""Sums, means, places of extremes and orders, along rows (dimension 0).

Sums are made in float64 and rounded once, as close to ggml's double accumulators as numpy comes. Next module:
`gml/ops/norm.py`.
"""

from __future__ import annotations

import numpy as np

from gml.dims import Size, min_of
from gml.dtypes import F32, I32
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, declare, rule
from gml.ops.cases import one_source
from gml.ops.elementwise import needs_float
from gml.ops.reduce_kernels import ARGMAX, ARGSORT, CUMSUM, MEAN, SUM, SUM_ROWS, TOP_K
from gml.ops.views import transpose
from gml.records import dataclass
from gml.tensor import Tensor

__all__ = ["argmax", "argsort", "cumsum", "mean", "sum", "sum_rows", "top_k"]

ORDERS = ("asc", "desc")
#: the shared layouts that are matrices, as argmax needs them
_MATRICES = ("dense", "transposed", "one", "empty_row", "F16", "BF16", "run_time_row", "run_time_empty")


@dataclass(frozen=True)
class ArgsortAttrs:
    """order: "asc" or "desc"."""

    order: str = "asc"


@dataclass(frozen=True)
class TopKAttrs:
    """k: how many of each row."""

    k: Size


def _infer_sum(attrs: NoAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    return Inferred(a.type, (1,))


def _infer_sum_rows(attrs: NoAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    return Inferred(a.type, (1, *a.ne[1:]))


def _infer_mean(attrs: NoAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    return Inferred(F32, (1, *a.ne[1:]))


def _infer_argmax(attrs: NoAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    rule(a.ne[2] == 1 and a.ne[3] == 1, f"a must be a matrix, found ne = {list(a.ne)}; use reshape or view")
    return Inferred(I32, (a.ne[1],))


def _infer_argsort(attrs: ArgsortAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    rule(attrs.order in ORDERS, f"order must be 'asc' or 'desc', found {attrs.order!r}")
    return Inferred(I32, a.ne)


def _infer_top_k(attrs: TopKAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    rule(
        not isinstance(attrs.k, (bool, float, str)) and min_of(attrs.k) >= 0 and min_of(a.ne[0] - attrs.k) >= 0,
        f"k must be between 0 and ne[0] = {a.ne[0]}, found {attrs.k!r}",
    )
    return Inferred(I32, (attrs.k, *a.ne[1:]))


def _infer_cumsum(attrs: NoAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    return Inferred(a.type, a.ne)


def _order(a: np.ndarray, order: str) -> np.ndarray:
    """Indices that sort rows; equal values keep their order, NaNs come last."""
    return np.argsort(-a if order == "desc" else a, axis=-1, kind="stable")


def _reference_argmax(attrs: NoAttrs, a: np.ndarray) -> np.ndarray:
    if a.shape[-1] == 0:
        return np.zeros(a.shape[:-1], np.int32)
    # NaN never wins a comparison in ggml, whereas numpy's argmax stops at it
    return np.argmax(np.where(np.isnan(a), -np.inf, a), axis=-1)


_SUM = declare(
    OpDef(
        "sum",
        _infer_sum,
        lambda attrs, a: a.sum(dtype=np.float64),
        (*one_source(lambda a: sum(a)), Sample("cancelling", lambda s: sum(s.array([1e8, 1, -1e8, 1], type=F32)))),
        lower=SUM,
    )
)
_SUM_ROWS = declare(
    OpDef(
        "sum_rows",
        _infer_sum_rows,
        lambda attrs, a: a.sum(axis=-1, dtype=np.float64),
        one_source(lambda a: sum_rows(a)),
        lower=SUM_ROWS,
    )
)
_MEAN = declare(
    OpDef(
        "mean",
        _infer_mean,
        lambda attrs, a: a.sum(axis=-1, dtype=np.float64) / a.shape[-1],
        one_source(lambda a: mean(a)),
        lower=MEAN,
    )
)
_ARGMAX = declare(
    OpDef(
        "argmax",
        _infer_argmax,
        _reference_argmax,
        (
            *(s for s in one_source(lambda a: argmax(a)) if s.name in _MATRICES),
            Sample("ties", lambda s: argmax(s.array([[1, 3, 3, 2], [0, 0, 0, 0], [-5, -5, -7, -5]], type=F32))),
            Sample("infinite", lambda s: argmax(s.array([[-np.inf] * 3, [-np.inf, np.inf, 0]], type=F32))),
            Sample("long", lambda s: argmax(s.f32(1000, 2))),
        ),
        lower=ARGMAX,
    )
)
_ARGSORT = declare(
    OpDef(
        "argsort",
        _infer_argsort,
        lambda attrs, a: _order(a, attrs.order),
        (
            *one_source(lambda a: argsort(a)),
            Sample("desc", lambda s: argsort(s.f32(33, 3), "desc")),
            Sample("ties", lambda s: argsort(s.array([2, 1, 2, 1, 0, 2], type=F32))),
            Sample("ties_desc", lambda s: argsort(s.array([2, 1, 2, 1, 0, 2], type=F32), "desc")),
            Sample("desc_transposed", lambda s: argsort(transpose(s.f32(3, 7)), "desc")),
        ),
        attrs=ArgsortAttrs,
        lower=ARGSORT,
    )
)
_TOP_K = declare(
    OpDef(
        "top_k",
        _infer_top_k,
        lambda attrs, a: _order(a, "desc")[..., : attrs.k],
        (
            Sample("few", lambda s: top_k(s.f32(33, 3), 7)),
            Sample("all", lambda s: top_k(s.f32(7, 3, 2, 2), 7)),
            Sample("one", lambda s: top_k(s.f32(33), 1)),
            Sample("none", lambda s: top_k(s.f32(7, 3), 0)),
            Sample("ties", lambda s: top_k(s.array([2, 1, 3, 3, 0, 3], type=F32), 4)),
            Sample("transposed", lambda s: top_k(transpose(s.f32(3, 7)), 2)),
            Sample("empty", lambda s: top_k(s.f32(7, 0), 2)),
            Sample("run_time", lambda s: top_k(s.input([7, s.dim("n_tokens", 3, max=8)]), 2)),
            Sample("run_time_row", lambda s: top_k(s.input([s.dim("n_row", 19, max=40, min=4), 3]), 4)),
        ),
        attrs=TopKAttrs,
        lower=TOP_K,
    )
)
_CUMSUM = declare(
    OpDef(
        "cumsum",
        _infer_cumsum,
        lambda attrs, a: np.cumsum(a, axis=-1, dtype=np.float64),
        one_source(lambda a: cumsum(a)),
        in_place=(0,),
        lower=CUMSUM,
    )
)


def sum(a: Tensor) -> Tensor:
    """All elements summed: [1], of a's type. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _SUM(a)


def sum_rows(a: Tensor) -> Tensor:
    """a [n, ...] -> [1, ...], each row summed, of a's type. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _SUM_ROWS(a)


def mean(a: Tensor) -> Tensor:
    """a [n, ...] -> F32 [1, ...], each row's mean (NaN for empty rows).

    Raises `ShapeError` when a is not F32, F16 or BF16.
    """
    return _MEAN(a)


def argmax(a: Tensor) -> Tensor:
    """a [n, m] -> I32 [m], the index of each row's largest element; ties go to the lower index, an empty row gives 0.

    (ggml's backends disagree on ties.) Raises `ShapeError` for more than two dimensions or types other than F32, F16,
    BF16.
    """
    return _ARGMAX(a)


def argsort(a: Tensor, order: str = "asc") -> Tensor:
    """a [n, ...] -> I32 [n, ...], the indices that sort each row.

    order  "asc" or "desc"; equal elements keep their order either way, NaNs come last

    Raises `ShapeError` for another order or types other than F32, F16, BF16.
    """
    return _ARGSORT(a, order=order)


def top_k(a: Tensor, k: Size) -> Tensor:
    """a [n, ...] -> I32 [k, ...], the indices of each row's k largest elements, largest first, ties by lower index.

    Raises `ShapeError` unless 0 <= k <= n, or for types other than F32, F16, BF16.
    """
    return _TOP_K(a, k=k)


def cumsum(a: Tensor) -> Tensor:
    """Running sums along rows, of a's type and sizes. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _CUMSUM(a)
