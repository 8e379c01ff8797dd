"""Normalisations along rows (dimension 0), and over groups of channels (dimension 2).

Moments are computed in float64, as ggml does. Weights and biases are separate `mul` and `add`. Next module:
`gml/ops/matmul.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gml.dims import is_static, max_of
from gml.dtypes import F16
from gml.kernel_ir import F32, F64, Node
from gml.ops.base import Inferred, OpDef, Sample, declare, rule
from gml.ops.cases import one_source
from gml.ops.elementwise import needs_float, needs_number
from gml.ops.lower import Chunks, Direct, Element, KernelContext, Operand, Place, Row, Rowwise
from gml.ops.views import permute
from gml.records import dataclass
from gml.tensor import Tensor

__all__ = ["group_norm", "l2_norm", "norm", "rms_norm"]


@dataclass(frozen=True)
class NormAttrs:
    """eps: keeps the divisor away from 0."""

    eps: float


@dataclass(frozen=True)
class GroupNormAttrs:
    """n_groups: groups of channels (dimension 2); eps: added to the variance."""

    n_groups: int
    eps: float


def _infer_norm(attrs: NormAttrs | GroupNormAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    needs_number(attrs.eps, "eps")
    rule(attrs.eps >= 0, f"eps must be at least 0, found {attrs.eps}")
    return Inferred(a.type, a.ne)


def _infer_group_norm(attrs: GroupNormAttrs, a: Tensor) -> Inferred:
    rule(
        isinstance(attrs.n_groups, int) and not isinstance(attrs.n_groups, bool) and attrs.n_groups >= 1,
        f"n_groups must be a whole number of at least 1, found {attrs.n_groups!r}",
    )
    rule(is_static(a.ne[2]), f"the number of channels ne[2] must be fixed, found {a.ne[2]}")
    return _infer_norm(attrs, a)


def _centred(x: np.ndarray, axes: int | tuple[int, ...], eps: float) -> np.ndarray:
    """x less its mean, over its standard deviation, along some axes; float64."""
    centred = x - x.mean(axis=axes, keepdims=True, dtype=np.float64)
    return centred / np.sqrt(np.mean(centred * centred, axis=axes, keepdims=True) + eps)


def _reference_norm(attrs: NormAttrs, a: np.ndarray) -> np.ndarray:
    return _centred(a, -1, attrs.eps) if a.size else a


def _reference_rms_norm(attrs: NormAttrs, a: np.ndarray) -> np.ndarray:
    if not a.size:
        return a
    mean_square = np.mean(np.square(a, dtype=np.float64), axis=-1, keepdims=True)
    return a * (1 / np.sqrt(mean_square + attrs.eps)).astype(np.float32)


def _reference_l2_norm(attrs: NormAttrs, a: np.ndarray) -> np.ndarray:
    length = np.sqrt(np.sum(np.square(a, dtype=np.float64), axis=-1, keepdims=True))
    return a * (1 / np.maximum(length, attrs.eps)).astype(np.float32)


def channels_per_group(n_channels: int, n_groups: int) -> int:
    """ceil(n_channels / n_groups): the last groups may be smaller or empty, as in ggml."""
    return -(-n_channels // n_groups)


def _reference_group_norm(attrs: GroupNormAttrs, a: np.ndarray) -> np.ndarray:
    out = np.empty_like(a)
    n_channels = a.shape[1]
    if not a.size:
        return out
    step = channels_per_group(n_channels, attrs.n_groups)
    for first in range(0, n_channels, step):
        out[:, first : first + step] = _centred(a[:, first : first + step], (1, 2, 3), attrs.eps)
    return out


# -- the same in kernel IR ---------------------------------------------------------------------------------------------


def _lower_norm(k: KernelContext, attrs: NormAttrs, row: Row, a: Any) -> Element:
    b, n = k.b, k.size(a.tensor.ne[0])
    count = b.cast(k.value(n), F64)
    mean = k.sum_row(n, lambda i, lanes: a.at((i, *row), lanes)) / count

    def centred(i: Operand, lanes: int) -> Node:
        return b.cast(a.at((i, *row), lanes), F64) - b.splat(mean, lanes)

    variance = k.sum_row(n, lambda i, lanes: (c := centred(i, lanes)) * c) / count
    scale = 1.0 / k.sqrt64(variance + float(attrs.eps))
    return lambda i, lanes: b.cast(centred(i, lanes) * b.splat(scale, lanes), F32)


def _lower_rms_norm(k: KernelContext, attrs: NormAttrs, row: Row, a: Any) -> Element:
    b, n = k.b, k.size(a.tensor.ne[0])
    square = k.sum_row(n, lambda i, lanes: (x := b.cast(a.at((i, *row), lanes), F64)) * x)
    scale = b.cast(1.0 / k.sqrt64(square / b.cast(k.value(n), F64) + float(attrs.eps)), F32)
    return lambda i, lanes: a.at((i, *row), lanes) * b.splat(scale, lanes)


def _lower_l2_norm(k: KernelContext, attrs: NormAttrs, row: Row, a: Any) -> Element:
    b, n = k.b, k.size(a.tensor.ne[0])
    square = k.sum_row(n, lambda i, lanes: (x := b.cast(a.at((i, *row), lanes), F64)) * x)
    scale = b.cast(1.0 / b.max(k.sqrt64(square), float(attrs.eps)), F32)
    return lambda i, lanes: a.at((i, *row), lanes) * b.splat(scale, lanes)


def _lower_group_norm(k: KernelContext, attrs: GroupNormAttrs, out: Place, a: Place) -> None:
    """A chunk is one group of one image: three passes over its rows."""
    b = k.b
    n_channels = max_of(a.tensor.ne[2])
    per_group = channels_per_group(n_channels, attrs.n_groups)
    width, height = a.ne[0], k.value(a.ne[1])

    def group(chunk: Node) -> None:
        g, image = k.split(chunk, [_n_groups(attrs, a.tensor), a.ne[3]])
        first = k.value(g) * per_group
        rows = (b.min(first + per_group, n_channels) - first) * height

        def over_rows(body: Callable[[Any, Node], Node], start: Node) -> Node:
            def one(r: Node, total: Node) -> Node:
                return body((r % height, first + r // height, image), total)

            return b.loop(0, rows, one, [start])[0]

        count = b.cast(rows * width, F64)
        zero = b.const(0.0, F64)
        total = over_rows(lambda row, t: t + k.sum_row(width, lambda i, lanes: a.at((i, *row), lanes)), zero)
        mean = total / count

        def centred(i: Operand, row: Any, lanes: int) -> Node:
            return b.cast(a.at((i, *row), lanes), F64) - b.splat(mean, lanes)

        squares = over_rows(
            lambda row, t: t + k.sum_row(width, lambda i, lanes: (c := centred(i, row, lanes)) * c), zero
        )
        scale = 1.0 / k.sqrt64(squares / count + float(attrs.eps))

        def store(r: Node) -> None:
            row = (r % height, first + r // height, image)
            k.for_lanes(
                width,
                lambda i, lanes: out.put((i, *row), b.cast(centred(i, row, lanes) * b.splat(scale, lanes), F32)),
            )

        b.loop(0, rows, store)

    b.loop(k.begin, k.end, group)


def _n_groups(attrs: GroupNormAttrs, a: Tensor) -> int:
    """Groups that have channels."""
    n_channels = max_of(a.ne[2])
    return -(-n_channels // max(channels_per_group(n_channels, attrs.n_groups), 1))


_NORM = declare(
    OpDef(
        "norm",
        _infer_norm,
        _reference_norm,
        (
            *one_source(lambda a: norm(a, eps=1e-5)),
            Sample("far_from_0", lambda s: norm(s.f32(33, 3, low=1000.0, high=1001.0), eps=1e-6)),
        ),
        attrs=NormAttrs,
        in_place=(0,),
        lower=Rowwise(_lower_norm),
    )
)
_RMS_NORM = declare(
    OpDef(
        "rms_norm",
        _infer_norm,
        _reference_rms_norm,
        (
            *one_source(lambda a: rms_norm(a, eps=1e-5)),
            Sample("zeros", lambda s: rms_norm(s.array(np.zeros((3, 7), np.float32)), eps=1e-6)),
            Sample("embedding", lambda s: rms_norm(s.f32(576, 2), eps=1e-6)),
        ),
        attrs=NormAttrs,
        in_place=(0,),
        lower=Rowwise(_lower_rms_norm),
    )
)
_L2_NORM = declare(
    OpDef(
        "l2_norm",
        _infer_norm,
        _reference_l2_norm,
        (
            *one_source(lambda a: l2_norm(a, eps=1e-5)),
            Sample("zeros", lambda s: l2_norm(s.array(np.zeros((3, 7), np.float32)), eps=1e-6)),
            Sample("below_eps", lambda s: l2_norm(s.f32(7, 3), eps=100.0)),
        ),
        attrs=NormAttrs,
        in_place=(0,),
        lower=Rowwise(_lower_l2_norm),
    )
)
_GROUP_NORM = declare(
    OpDef(
        "group_norm",
        _infer_group_norm,
        _reference_group_norm,
        (
            Sample("image", lambda s: group_norm(s.f32(7, 5, 6), 3, eps=1e-5)),
            Sample("batch", lambda s: group_norm(s.f32(5, 3, 4, 2), 2, eps=1e-6)),
            Sample("one_group", lambda s: group_norm(s.f32(33, 1, 4), 1, eps=1e-6)),
            Sample("uneven", lambda s: group_norm(s.f32(3, 2, 7), 3, eps=1e-5)),
            Sample("more_groups_than_channels", lambda s: group_norm(s.f32(7, 2, 2), 5, eps=1e-5)),
            Sample("permuted", lambda s: group_norm(permute(s.f32(4, 7, 3), 2, 0, 1, 3), 2, eps=1e-5)),
            Sample("one", lambda s: group_norm(s.f32(1), 1, eps=1e-5)),
            Sample("empty", lambda s: group_norm(s.f32(7, 0, 4), 2, eps=1e-5)),
            Sample("F16", lambda s: group_norm(s.f32(7, 3, 4, type=F16), 2, eps=1e-5)),
            Sample("run_time", lambda s: group_norm(s.input([s.dim("n_wide", 5, max=9), 3, 4]), 2, eps=1e-5)),
        ),
        attrs=GroupNormAttrs,
        in_place=(0,),
        lower=Direct(_lower_group_norm, lambda attrs, out, a: Chunks(((_n_groups(attrs, a), 1), (a.ne[3], 1)))),
    )
)


def norm(a: Tensor, eps: float) -> Tensor:
    """Each row less its mean, over sqrt(variance + eps). Result: a's type and sizes.

    Raises `ShapeError` when a is not F32, F16 or BF16, or eps is below 0.
    """
    return _NORM(a, eps=eps)


def rms_norm(a: Tensor, eps: float) -> Tensor:
    """Each row over sqrt(mean of squares + eps). Result: a's type and sizes. Source: https://arxiv.org/abs/1910.07467.

    Raises `ShapeError` when a is not F32, F16 or BF16, or eps is below 0.
    """
    return _RMS_NORM(a, eps=eps)


def l2_norm(a: Tensor, eps: float) -> Tensor:
    """Each row over max(sqrt(sum of squares), eps). Result: a's type and sizes.

    Raises `ShapeError` when a is not F32, F16 or BF16, or eps is below 0.
    """
    return _L2_NORM(a, eps=eps)


def group_norm(a: Tensor, n_groups: int, eps: float) -> Tensor:
    """a [width, height, channels, batch]: each group of channels less its mean, over sqrt(variance + eps).

    Groups hold ceil(channels / n_groups) channels, the last one what is left. Source: https://arxiv.org/abs/1803.08494.
    Raises `ShapeError` when a is not F32, F16 or BF16, the channels are a run-time size, n_groups < 1 or eps < 0.
    """
    return _GROUP_NORM(a, n_groups=n_groups, eps=eps)
