"""Pooling: the mean or the largest of windows over one or two dimensions.

Sizes and orders are ggml's, width before height. Next module: `gml/ops/ssm.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gml.dtypes import BF16, F16, F32
from gml.kernel_ir import F32 as KF32
from gml.kernel_ir import Node
from gml.ops.base import Inferred, OpDef, Sample, declare, rule
from gml.ops.conv import check_steps, is_inside, n_places, sizes_of, windows_of
from gml.ops.elementwise import needs_float
from gml.ops.lower import Index, Indexed, KernelContext
from gml.ops.views import permute, transpose
from gml.records import dataclass
from gml.tensor import Tensor

__all__ = ["pool_1d", "pool_2d"]

POOLS = ("avg", "max")
#: what a maximum starts from: the lowest F32, as in ggml
LOWEST = -float(np.finfo(np.float32).max)


#: elements of a window: the reference gathers them for every place
MAX_WINDOW = 1 << 16


@dataclass(frozen=True)
class PoolAttrs:
    """op: "avg" or "max"; the others numbers or pairs (width, height)."""

    op: str
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]


def _infer_pool(attrs: PoolAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    check_steps(attrs)
    n_window = math.prod(attrs.kernel)
    rule(
        n_window <= MAX_WINDOW, f"a window may have at most {MAX_WINDOW} elements, {list(attrs.kernel)} has {n_window}"
    )
    rule(attrs.op in POOLS, f"op must be one of {', '.join(POOLS)}, found {attrs.op!r}")
    steps = zip(attrs.kernel, attrs.stride, attrs.padding, strict=True)
    places = [n_places(a.ne[i], *how) for i, how in enumerate(steps)]
    return Inferred(F32, (*places, *a.ne[len(places) :]))


def _reference_pool(attrs: PoolAttrs, a: np.ndarray) -> np.ndarray:
    one = len(attrs.kernel) == 1
    kernel, stride = ((*pair, 1)[:2] for pair in (attrs.kernel, attrs.stride))
    padding = (*attrs.padding, 0)[:2]
    if attrs.op == "max":
        return windows_of(a, kernel, stride, padding, (1, 1), LOWEST).max(axis=(-4, -3), initial=LOWEST)
    total = windows_of(a, kernel, stride, padding, (1, 1)).sum(axis=(-4, -3), dtype=np.float64)
    if not one:
        return total / (kernel[0] * kernel[1])
    # windows of one dimension count what is inside only
    inside = windows_of(np.ones((1, a.shape[3])), kernel, stride, padding, (1, 1)).sum(axis=(-4, -3))
    return total / np.maximum(inside, 1)


def _lower_pool(k: KernelContext, attrs: PoolAttrs, index: Index, lanes: int, a: Any) -> Node:
    b, largest = k.b, attrs.op == "max"
    one = len(attrs.kernel) == 1
    n_taps = attrs.kernel[0] if one else attrs.kernel[0] * attrs.kernel[1]

    def tap(t: Node, total: Node, count: Node) -> list[Node]:
        wide = k.value(index[0]) * attrs.stride[0] + (t % attrs.kernel[0] - attrs.padding[0])
        tall, inside = index[1], is_inside(k, wide, k.size(a.tensor.ne[0]))
        if not one:
            tall = k.value(index[1]) * attrs.stride[1] + (t // attrs.kernel[0] - attrs.padding[1])
            inside = b.and_(inside, is_inside(k, tall, k.size(a.tensor.ne[1])))

        def add() -> list[Node]:
            value = a.at((wide, tall, *index[2:]), 1)
            return [b.max(total, value) if largest else total + value, count + 1.0]

        return list(b.when(inside, add, lambda: [total, count]))

    total, count = b.loop(0, n_taps, tap, [b.const(LOWEST if largest else 0.0, KF32), b.const(0.0, KF32)])
    if largest:
        return total
    return total / (b.max(count, 1.0) if one else float(n_taps))


_POOL_1D = declare(
    OpDef(
        "pool_1d",
        _infer_pool,
        _reference_pool,
        (
            Sample("avg", lambda s: pool_1d(s.f32(12, 3), "avg", 3)),
            Sample("max", lambda s: pool_1d(s.f32(12, 3, 2, 2), "max", 3, 2)),
            Sample("avg_padded", lambda s: pool_1d(s.f32(11, 3), "avg", 4, 3, 2)),
            Sample("max_padded", lambda s: pool_1d(s.f32(11, 3), "max", 4, 3, 3)),
            Sample("transposed", lambda s: pool_1d(transpose(s.f32(3, 9)), "avg", 2)),
            Sample("one", lambda s: pool_1d(s.f32(1), "max", 1)),
            Sample("no_rows", lambda s: pool_1d(s.f32(7, 0), "avg", 2)),
            Sample("F16", lambda s: pool_1d(s.f32(9, 2, type=F16), "avg", 2)),
            Sample("run_time", lambda s: pool_1d(s.input([8, s.dim("n", 3, max=5)]), "avg", 2)),
        ),
        attrs=PoolAttrs,
        lower=Indexed(_lower_pool, lambda attrs, out, a: False),
    )
)
_POOL_2D = declare(
    OpDef(
        "pool_2d",
        _infer_pool,
        _reference_pool,
        (
            Sample("avg", lambda s: pool_2d(s.f32(8, 6, 3), "avg", (2, 3))),
            Sample("max", lambda s: pool_2d(s.f32(9, 7, 2, 2), "max", (3, 2), (2, 1))),
            Sample("avg_padded", lambda s: pool_2d(s.f32(7, 5, 2), "avg", (3, 3), (2, 2), (1, 1))),
            Sample("max_padded", lambda s: pool_2d(s.f32(7, 5, 2), "max", (3, 3), (2, 2), (2, 1))),
            Sample("permuted", lambda s: pool_2d(permute(s.f32(3, 8, 6), 2, 0, 1, 3), "avg", (2, 2))),
            Sample("one", lambda s: pool_2d(s.f32(1), "max", (1, 1))),
            Sample("no_channels", lambda s: pool_2d(s.f32(7, 4, 0), "avg", (2, 2))),
            Sample("BF16", lambda s: pool_2d(s.f32(8, 4, type=BF16), "max", (2, 2))),
            Sample("run_time", lambda s: pool_2d(s.input([8, 4, s.dim("n", 3, max=5)]), "avg", (2, 2))),
        ),
        attrs=PoolAttrs,
        lower=Indexed(_lower_pool, lambda attrs, out, a: False),
    )
)


def pool_1d(a: Tensor, op: str, kernel: int, stride: int | None = None, padding: int = 0) -> Tensor:
    """The mean ("avg") or the largest ("max") of windows along a's rows: F32 [out_width, ..].

    out_width = (width + 2 padding - kernel) / stride + 1, rounded down; stride None: kernel. Only what is inside a row
    counts. Source: `ggml_pool_1d`. Raises `ShapeError` when types or sizes do not fit.
    """
    return _POOL_1D(a, op=op, kernel=(kernel,), stride=(kernel if stride is None else stride,), padding=(padding,))


def pool_2d(
    a: Tensor,
    op: str,
    kernel: tuple[int, int],
    stride: tuple[int, int] | None = None,
    padding: tuple[int, int] = (0, 0),
) -> Tensor:
    """The mean ("avg") or the largest ("max") of windows in a [width, height, ..]: F32 [out_width, out_height, ..].

    Sizes as in `pool_1d`, pairs are (width, height). A mean counts the zeros of the padding. Source: `ggml_pool_2d`.
    Raises `ShapeError` when types or sizes do not fit.
    """
    kernel = sizes_of(kernel, 2, "kernel")
    return _POOL_2D(
        a,
        op=op,
        kernel=kernel,
        stride=kernel if stride is None else sizes_of(stride, 2, "stride"),
        padding=sizes_of(padding, 2, "padding"),
    )
