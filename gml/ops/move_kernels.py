"""Kernels of the ops that move elements: copies, rows by number, repeats, concatenation, padding.

Used by `movement.py` and `indexing.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gml.dims import Size
from gml.dtypes import F64, DType
from gml.kernel_ir import F32, I8, I64, Node
from gml.ops.float_panels import decode_rows
from gml.ops.lower import (
    Callback,
    Chunks,
    Direct,
    Elementwise,
    Index,
    Indexed,
    KernelContext,
    Operand,
    Place,
    Row,
    RowSink,
    convert,
    tiles_lanes,
)  # fmt: skip
from gml.quants import QuantType
from gml.tensor import Tensor


def can_write(type: DType) -> bool:
    """Whether kernels store this type."""
    return type.can_pack if isinstance(type, QuantType) else True


# -- copies ------------------------------------------------------------------------------------------------------------


def choose_copy(attrs: Any, out: Tensor, a: Tensor, *rest: Tensor) -> Any:
    """The form of cont, dup and cast."""
    if a.type is out.type and not a.type.is_scalar:
        return Direct(_copy_blocks, _row_chunks)
    if not can_write(out.type):
        return Callback()
    if not a.type.is_scalar or not out.type.is_scalar or a.ne != out.ne:
        return Direct(_copy_converted, _row_chunks)
    if out.type is F64 or out.type.is_integer or a.type.is_integer:
        # floats pass through f32 when they are pulled; these would lose bits
        return Indexed(lambda k, attrs, index, lanes, a: convert(k.b, a.tensor.type, out.type, a.raw(index, lanes)))
    return Elementwise(lambda b, attrs, x: x)


def choose_cpy(attrs: Any, out: Tensor, a: Tensor, b: Tensor) -> Any:
    """The form of cpy: the result is a view of b, whose rows are written."""
    if not can_write(out.type) and a.type is not out.type:
        return Callback()
    if a.type is out.type and not a.type.is_scalar:
        return Direct(lambda k, attrs, out, a, b: _copy_blocks(k, attrs, out, a), _row_chunks)
    return Direct(lambda k, attrs, out, a, b: _copy_converted(k, attrs, out, a), _row_chunks)


def _row_chunks(attrs: Any, out: Tensor, *src: Tensor) -> Chunks:
    return Chunks(tuple((n, 1) for n in out.ne[1:]))


def _copy_blocks(k: KernelContext, attrs: Any, out: Place, a: Place) -> None:
    """Blocks of one format, byte by byte within rows; rows are matched in order."""
    b, size = k.b, out.type.type_size

    def row(chunk: Node) -> None:
        target, source = out.row(_rows_of(k, chunk, out)), a.row(_rows_of(k, chunk, a))
        n_blocks = k.value(k.size(out.tensor.ne[0])) // out.type.block_size

        def block(i: Node) -> None:
            for start, kernel_type in _pieces(size):
                b.store(target, i * out.nb[0] + start, b.load(source, i * a.nb[0] + start, kernel_type))

        b.loop(0, n_blocks, block)

    b.loop(k.begin, k.end, row)


def _pieces(n_bytes: int) -> list[tuple[int, Any]]:
    """(offset, type) of loads that together are n bytes."""
    pieces, at = [], 0
    for lanes in (32, 16, 8, 4, 2, 1):
        while n_bytes - at >= lanes:
            pieces.append((at, I8.vec(lanes)))
            at += lanes
    return pieces


def _copy_converted(k: KernelContext, attrs: Any, out: Place, a: Place) -> None:
    """Elements in order, converted; a row of the result may take from several rows of a."""
    b = k.b
    same = out.tensor.ne == a.tensor.ne

    def row(chunk: Node) -> None:
        to = _rows_of(k, chunk, out)
        if isinstance(a.type, QuantType):
            decode_rows(k, a, [_rows_of(k, chunk, a)], lambda values, i: out.put((i, *to), values[0]))
        elif isinstance(out.type, QuantType):
            encode_row(k, out, to, lambda i: a.at((i, *_rows_of(k, chunk, a)), 16))
        elif same:
            k.for_lanes(out.ne[0], lambda i, lanes: out.put_raw((i, *to), _converted(k, a, out, (i, *to), lanes)))
        else:
            n = out.ne[0]

            def one(i: Node) -> None:
                flat = chunk * n + i
                i0, i1, i2, i3 = k.split(flat, a.ne)
                out.put_raw((i, *to), _converted(k, a, out, (i0, i1, i2, i3), 1))

            b.loop(0, n, one)

    b.loop(k.begin, k.end, row)


def _converted(k: KernelContext, a: Place, out: Place, index: Index, lanes: int) -> Node:
    return convert(k.b, a.type, out.type, a.raw(index, lanes))


def _rows_of(k: KernelContext, chunk: Node, place: Place) -> Row:
    """(i1, i2, i3) of a row number of a tensor."""
    i1, i2, i3 = k.split(chunk, place.ne[1:])
    return i1, i2, i3


def encode_row(k: KernelContext, out: Place, row: Row, values: Callable[[Node], Node]) -> None:
    """A row of a block format from values(i0) -> f32 of 16 lanes."""
    b, dtype, start = k.b, out.type, out.row(row)
    assert isinstance(dtype, QuantType)

    def block(i: Node) -> None:
        parts = [values(i * dtype.block_size + at) for at in range(0, dtype.block_size, 16)]
        dtype.pack(b, parts, b.offset(start, i * dtype.type_size))

    b.loop(0, k.value(out.ne[0]) // dtype.block_size, block)


# -- rows by number ----------------------------------------------------------------------------------------------------


def choose_get_rows(attrs: Any, out: Tensor, a: Tensor, ids: Tensor) -> Any:
    """The form of get_rows: pulled from scalar types, decoded row by row from block formats."""
    if a.type.is_scalar:
        return Indexed(_get_row_element)
    return RowSink(_get_row_blocks)


def _id(k: KernelContext, ids: Any, index: Index, n_rows: Operand, name: str) -> Node:
    """A row number, checked: one that is out of range makes the run fail, and 0 is used in its place."""
    b = k.b
    i = b.cast(ids.at(index, 1), I64)
    inside = b.and_(b.cmp("ge", i, 0), b.cmp("lt", i, k.value(n_rows)))
    k.require(inside, f"{name}: a row number is out of range")
    return b.select(inside, i, k.b.i64(0))


def _get_row_element(k: KernelContext, attrs: Any, index: Index, lanes: int, a: Any, ids: Any) -> Node:
    i0, i1, i2, i3 = index
    row = _id(k, ids, (i1, i2, i3, 0), k.size(a.tensor.ne[1]), "get_rows")
    return a.at((i0, row, i2, i3), lanes)


def _get_row_blocks(k: KernelContext, attrs: Any, row: Row, out: Place, a: Place, ids: Place) -> None:
    i1, i2, i3 = row
    source = _id(k, ids, (i1, i2, i3, 0), a.ne[1], "get_rows")
    decode_rows(k, a, [(source, i2, i3)], lambda values, i: out.put((i, *row), values[0]))


def choose_set_rows(attrs: Any, out: Tensor, a: Tensor, b: Tensor, ids: Tensor) -> Any:
    """The form of set_rows."""
    return RowSink(_set_row, over=1, ordered=True) if can_write(a.type) else Callback()


def _set_row(k: KernelContext, attrs: Any, row: Row, out: Place, a: Any, b: Any, ids: Place) -> None:
    i1, i2, i3 = row
    id2, id3 = _wrapped(k, i2, ids.tensor.ne[1]), _wrapped(k, i3, ids.tensor.ne[2])
    target = _id(k, ids, (i1, id2, id3, 0), out.ne[1], "set_rows")
    to = (target, i2, i3)
    if isinstance(out.type, QuantType):
        encode_row(k, out, to, lambda i: b.at((i, *row), 16))
    else:
        k.for_lanes(out.ne[0], lambda i, lanes: out.put((i, *to), b.at((i, *row), lanes)))


def _wrapped(k: KernelContext, index: Operand, n: Size) -> Operand:
    return 0 if n == 1 else k.value(index) % k.size(n)


# -- new tensors of old elements ---------------------------------------------------------------------------------------

REPEAT = Indexed(
    lambda k, attrs, index, lanes, a: a.at(index, lanes),
    lambda attrs, out, a: tiles_lanes(a, out),
    tiled=True,
)


def _concat(k: KernelContext, attrs: Any, index: Index, lanes: int, a: Any, b: Any) -> Node:
    dim = attrs.dim
    n = k.value(k.size(a.tensor.ne[dim]))
    i = k.value(index[dim])

    def behind() -> Node:
        moved = list(index)
        moved[dim] = i - n
        return b.at(tuple(moved), lanes)

    (value,) = k.b.when(k.b.cmp("lt", i, n), lambda: a.at(index, lanes), behind)
    return value


CONCAT = Indexed(_concat, lambda attrs, out, a, b: attrs.dim != 0)


def _pad(k: KernelContext, attrs: Any, index: Index, lanes: int, a: Any) -> Node:
    b = k.b
    inner: list[Operand] = []
    inside: Node | None = None
    for i, left, right, n in zip(index, attrs.left, attrs.right, a.tensor.ne, strict=True):
        if left == 0 and right == 0:
            inner.append(i)
            continue
        moved = k.value(i) - k.size(left)
        ok = b.and_(b.cmp("ge", moved, 0), b.cmp("lt", moved, k.value(k.size(n))))
        inside = ok if inside is None else b.and_(inside, ok)
        inner.append(moved)
    if inside is None:
        return a.at(tuple(inner), lanes)
    kind = a.kernel_type if a.tensor.type.is_integer else F32
    (value,) = b.when(inside, lambda: a.at(tuple(inner), lanes), lambda: b.const(0, kind.vec(lanes)))
    return value


PAD = Indexed(_pad, lambda attrs, out, a: attrs.left[0] == 0 and attrs.right[0] == 0)


def _set(k: KernelContext, attrs: Any, out: Place, a: Place, b: Place) -> None:
    """One chunk: a is copied, then b's elements take their places."""
    ir = k.b

    def all_of_it(_: Node) -> None:
        def copy(r: Node) -> None:
            row = _rows_of(k, r, out)
            k.for_lanes(out.ne[0], lambda i, lanes: out.put_raw((i, *row), a.raw((i, *row), lanes)))

        ir.loop(0, _n_rows(k, out), copy)

        def place(r: Node) -> None:
            i1, i2, i3 = _rows_of(k, r, b)
            start: Operand = k.size(attrs.offset)
            for i, step in zip((i1, i2, i3), attrs.steps, strict=True):
                start = k.value(start) + k.value(i) * k.size(step)

            def one(i: Node) -> None:
                ir.store(out.pointer, (k.value(start) + i) * out.type.type_size, b.raw((i, i1, i2, i3), 1))

            ir.loop(0, b.ne[0], one)

        ir.loop(0, _n_rows(k, b), place)

    ir.loop(k.begin, k.end, all_of_it)


def _n_rows(k: KernelContext, place: Place) -> Node:
    n = k.b.i64(1)
    for size in place.ne[1:]:
        n = n * size
    return n


SET = Direct(_set, lambda attrs, out, a, b: Chunks(()))
