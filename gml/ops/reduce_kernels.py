"""Kernels of sums, extremes, orders and running sums. Used by `reduce.py`."""

from __future__ import annotations

import math
from typing import Any

from gml.dims import max_of
from gml.kernel_ir import F32, F64, I32, I64, Node
from gml.ops.lower import Chunks, Direct, Element, KernelContext, Place, Row, RowSink, Rowwise


def _row_sum(k: KernelContext, row: Row, a: Any) -> Node:
    return k.sum_row(k.size(a.tensor.ne[0]), lambda i, lanes: a.at((i, *row), lanes))


def _constant(k: KernelContext, value: Node) -> Element:
    return lambda i, lanes: k.b.splat(value, lanes)


SUM_ROWS = Rowwise(lambda k, attrs, row, a: _constant(k, k.b.cast(_row_sum(k, row, a), F32)))


def _mean(k: KernelContext, attrs: Any, row: Row, a: Any) -> Element:
    n = k.b.cast(k.value(k.size(a.tensor.ne[0])), F64)
    return _constant(k, k.b.cast(_row_sum(k, row, a) / n, F32))


MEAN = Rowwise(_mean)


def _sum(k: KernelContext, attrs: Any, out: Place, a: Place) -> None:
    """One chunk: rows in order, in f64."""
    b = k.b
    n_rows = k.b.i64(1)
    for size in a.ne[1:]:
        n_rows = n_rows * size

    def one_row(r: Node, total: Node) -> Node:
        i1, i2, i3 = k.split(r, a.ne[1:])
        return total + _row_sum(k, (i1, i2, i3), a)

    def all_of_it(_: Node) -> None:
        (total,) = b.loop(0, n_rows, one_row, [b.const(0.0, F64)])
        out.put((0, 0, 0, 0), b.cast(total, F32))

    b.loop(k.begin, k.end, all_of_it)


SUM = Direct(_sum, lambda attrs, out, a: Chunks(()))


def _argmax(k: KernelContext, attrs: Any, out: Place, a: Place) -> None:
    b = k.b

    def row(r: Node) -> None:
        def step(i: Node, best: Node, at: Node) -> list[Node]:
            x = a.at((i, r, 0, 0), 1)
            larger = b.cmp("gt", x, best)
            return [b.select(larger, x, best), b.select(larger, i, at)]

        _, at = b.loop(0, a.ne[0], step, [b.const(float("-inf")), b.i64(0)])
        out.put((r, 0, 0, 0), b.cast(at, I32))

    b.loop(k.begin, k.end, row)


ARGMAX = Direct(_argmax, lambda attrs, out, a: Chunks(((a.ne[1], 1),)))


def _cumsum(k: KernelContext, attrs: Any, row: Row, out: Place, a: Any) -> None:
    b = k.b

    def step(i: Node, total: Node) -> Node:
        total = total + b.cast(a.at((i, *row), 1), F64)
        out.put((i, *row), b.cast(total, F32))
        return total

    b.loop(0, k.size(a.tensor.ne[0]), step, [b.const(0.0, F64)])


CUMSUM = RowSink(_cumsum)


def _sorted_row(k: KernelContext, a: Any, row: Row, descending: bool) -> tuple[Node, Node]:
    """Numbers of a row's elements in order (i32, in scratch, from a byte offset): a merge sort, stable, NaNs last."""
    b = k.b
    n = k.value(k.size(a.tensor.ne[0]))
    n_max = max(max_of(a.tensor.ne[0]), 1)
    values, orders = b.scratch(4 * n_max), b.scratch(8 * n_max)

    def start(i: Node) -> None:
        b.store(values, i * 4, b.cast(a.at((i, *row), 1), F32))
        b.store(orders, i * 4, b.cast(i, I32))

    b.loop(0, n, start)

    def first(x: Node, y: Node) -> Node:
        """Whether y must come before x although it stands behind it."""
        before = b.cmp("gt" if descending else "lt", y, x)
        return b.or_(before, b.and_(b.cmp("ne", x, x), b.cmp("eq", y, y)))

    def merge(low: Node, middle: Node, high: Node, source: Node, target: Node) -> None:
        def step(at: Node, left: Node, right: Node) -> list[Node]:
            left_id = b.load(orders, source + b.min(left, n - 1) * 4, I32)
            right_id = b.load(orders, source + b.min(right, n - 1) * 4, I32)
            x = b.load(values, b.cast(left_id, I64) * 4, F32)
            y = b.load(values, b.cast(right_id, I64) * 4, F32)
            from_right = b.or_(b.cmp("ge", left, middle), b.and_(b.cmp("lt", right, high), first(x, y)))
            b.store(orders, target + at * 4, b.select(from_right, right_id, left_id))
            return [b.select(from_right, left, left + 1), b.select(from_right, right + 1, right)]

        b.loop(low, high, step, [low, middle])

    def one_pass(_: Node, width: Node, source: Node) -> list[Node]:
        def work() -> list[Node]:
            target = 4 * n_max - source
            b.loop(
                0,
                n,
                lambda low: merge(low, b.min(low + width, n), b.min(low + width * 2, n), source, target),
                step=width * 2,
            )
            return [target]

        (source_now,) = b.when(b.cmp("lt", width, n), work, lambda: [source])
        return [width * 2, source_now]

    n_passes = max(n_max - 1, 0).bit_length()
    _, source = b.loop(0, n_passes, one_pass, [b.i64(1), b.i64(0)])
    return orders, source


def _argsort(k: KernelContext, attrs: Any, row: Row, out: Place, a: Any) -> None:
    orders, source = _sorted_row(k, a, row, attrs.order == "desc")
    b = k.b
    b.loop(0, out.ne[0], lambda i: out.put((i, *row), b.load(orders, source + i * 4, I32)))


ARGSORT = RowSink(_argsort)


def _top_k(k: KernelContext, attrs: Any, row: Row, out: Place, a: Any) -> None:
    orders, source = _sorted_row(k, a, row, True)
    b = k.b
    b.loop(0, out.ne[0], lambda i: out.put((i, *row), b.load(orders, source + i * 4, I32)))


TOP_K = RowSink(_top_k, over=0)


def arange_value(k: KernelContext, attrs: Any, index: Any, lanes: int) -> Node:
    """start + step * i."""
    b = k.b
    first = b.splat(b.cast(k.value(index[0]), F32), lanes)
    if lanes > 1:
        first = first + b.const(tuple(float(i) for i in range(lanes)), F32.vec(lanes))
    return first * float(attrs.step) + float(attrs.start)


def timestep_value(k: KernelContext, attrs: Any, index: Any, lanes: int, a: Any) -> Node:
    """cos, then sin, of t * max_period^(-j / half); 0 for what is left of an odd size."""
    b, half = k.b, attrs.dim // 2
    if half == 0:
        return b.const(0.0)
    i, token = k.value(index[0]), index[1]
    in_sines = b.cmp("ge", i, half)
    j = b.select(in_sines, i - half, i)
    frequency = b.math("exp", b.cast(j, F32) * (-math.log(attrs.max_period)) / float(half))
    angle = a.at((token, 0, 0, 0), 1) * frequency
    value = b.select(in_sines, b.math("sin", angle), b.math("cos", angle))
    return b.select(b.cmp("lt", i, 2 * half), value, 0.0)
