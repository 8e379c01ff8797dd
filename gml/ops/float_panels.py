"""Matrix multiplication in floats: any strides, any type that decodes to floats, batches by division.

Eight rows of `a` are brought into private memory as f32, column by column ([k][8], one lane per row), and meet every
column of `b`: sums run over k in order with fma, so a result depends neither on how many columns are computed together
nor on threads. Next module: `gml/ops/matmul.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gml.dims import max_of
from gml.kernel_ir import F32, Node
from gml.ops.lower import Chunks, KernelContext, Operand, Place, Tiles
from gml.ops.panels import transpose8
from gml.quants import QuantType
from gml.quants.codes import decode_group
from gml.records import dataclass
from gml.tensor import Tensor

#: rows that are computed together, one lane each
ROWS = 8
#: columns of b whose sums are held in registers together
TOKENS = 4


@dataclass(frozen=True)
class FloatTile:
    """8 rows by some columns of b: the first row, the first column, how many, and the outer indices."""

    row: Node
    token: Node
    n_tokens: int
    outer: tuple[Operand, Operand]


@dataclass(frozen=True)
class FloatPanel:
    """8 rows: the first one and the outer indices."""

    row: Node
    outer: tuple[Operand, Operand]


def _chunks(attrs: Any, out: Tensor, a: Tensor, x: Tensor) -> Chunks:
    return Chunks(((out.ne[0], ROWS), (out.ne[2], 1), (out.ne[3], 1)))


def _walk(k: KernelContext, attrs: Any, out: Tensor, visitor: Any, a: Place, x: Place) -> None:
    b = k.b
    n_panels: Operand = (k.value(k.size(out.ne[0])) + (ROWS - 1)) // ROWS
    n_tokens = k.value(k.size(out.ne[1]))
    whole = n_tokens // TOKENS * TOKENS

    def panel(chunk: Node) -> None:
        p, i2, i3 = k.split(chunk, [n_panels, k.size(out.ne[2]), k.size(out.ne[3])])
        row = k.value(p) * ROWS
        visitor.enter(FloatPanel(row, (i2, i3)))
        b.loop(0, whole, lambda t: visitor.tile(FloatTile(row, t, TOKENS, (i2, i3))), step=TOKENS)
        b.loop(whole, n_tokens, lambda t: visitor.tile(FloatTile(row, t, 1, (i2, i3))))

    b.loop(k.begin, k.end, panel)


def _enter(k: KernelContext, attrs: Any, panel: FloatPanel, a: Place, x: Place) -> Node:
    """Decode the panel's rows into scratch [k][8]; rows past the end repeat the last one."""
    b = k.b
    scratch = b.scratch(max(max_of(a.tensor.ne[0]), 1) * ROWS * 4)
    last = k.value(k.size(a.tensor.ne[1])) - 1
    i2, i3 = panel.outer[0], panel.outer[1]
    w2, w3 = batch_index(k, i2, a, x, 2), batch_index(k, i3, a, x, 3)
    fill_columns(k, a, [(b.min(panel.row + r, last), w2, w3) for r in range(ROWS)], scratch)
    return scratch


def fill_columns(
    k: KernelContext, a: Place, rows: Sequence[tuple], scratch: Node, *, stride: int = ROWS * 4, at: int = 0
) -> None:
    """Eight rows (i1, i2, i3) of `a` as f32 to scratch, transposed: element i of row r at i * stride + at + 4 r."""
    b = k.b
    if isinstance(a.type, QuantType):
        decode_rows(k, a, rows, lambda values, column: _store_square(k, values, scratch, column, stride, at))
        return
    n = k.value(k.size(a.tensor.ne[0]))
    whole = n // ROWS * ROWS

    def square(i: Node) -> None:
        _store_square(k, [a.at((i, *row), ROWS) for row in rows], scratch, i, stride, at)

    def column(i: Node) -> None:
        for r, row in enumerate(rows):
            b.store(scratch, i * stride + (at + 4 * r), a.at((i, *row), 1))

    b.loop(0, whole, square, step=ROWS)
    b.loop(whole, n, column)


def fill_row(k: KernelContext, a: Place, row: tuple, scratch: Node, at: Operand) -> None:
    """One row of `a` as f32 to scratch, densely from byte `at` on."""
    b = k.b
    start = k.value(at)
    if isinstance(a.type, QuantType):
        decode_rows(k, a, [row], lambda values, column: b.store(scratch, start + column * 4, values[0]))
        return
    n = k.value(k.size(a.tensor.ne[0]))
    whole = n // ROWS * ROWS
    b.loop(0, whole, lambda i: b.store(scratch, start + i * 4, a.at((i, *row), ROWS)), step=ROWS)
    b.loop(whole, n, lambda i: b.store(scratch, start + i * 4, a.at((i, *row), 1)))


def decode_rows(k: KernelContext, a: Place, rows: Sequence[tuple], put: Callable[[list[Node], Node], None]) -> None:
    """put(values of eight neighbouring columns per row, first column) for whole rows of a block format."""
    b, dtype = k.b, a.type
    assert isinstance(dtype, QuantType) and dtype.traits is not None
    traits = dtype.traits
    starts = [a.row(row) for row in rows]
    n_blocks = k.value(k.size(a.tensor.ne[0])) // traits.block_size

    def block(i: Node) -> None:
        unpacked = [dtype.unpack(b, b.offset(start, i * dtype.type_size)) for start in starts]
        for g in range(traits.n_groups):
            values = [decode_group(b, traits, codes, g) for codes in unpacked]
            for part in range(0, traits.group, ROWS):
                put([b.slice(v, part, ROWS) for v in values], i * traits.block_size + (g * traits.group + part))

    b.loop(0, n_blocks, block)


def _store_square(k: KernelContext, rows: Sequence[Node], scratch: Node, column: Node, stride: int, at: int) -> None:
    """Eight rows of eight neighbouring columns, transposed."""
    b = k.b
    for j, word in enumerate(transpose8(k.b, rows)):
        b.store(scratch, (column + j) * stride + at, word)


def _compute(
    k: KernelContext, attrs: Any, tile: FloatTile, scratch: Node, a: Place, x: Place
) -> list[tuple[Any, Node]]:
    b = k.b
    i2, i3 = tile.outer

    def column(i: Node, *sums: Node) -> list[Node]:
        w = b.load(scratch, i * (ROWS * 4), F32.vec(ROWS))
        return [b.fma(w, b.splat(x.at((i, tile.token + j, i2, i3), 1), ROWS), total) for j, total in enumerate(sums)]

    zero = b.const(0.0, F32.vec(ROWS))
    sums = b.loop(0, k.value(k.size(a.tensor.ne[0])), column, [zero] * tile.n_tokens)
    return [((tile.row, tile.token + j, i2, i3), s) for j, s in enumerate(sums)]


def batch_index(k: KernelContext, index: Operand, a: Place, x: Place, axis: int) -> Operand:
    """The matrix of `a` that an outer index of `x` belongs to: neighbours in x share one, by division."""
    n_a, n_x = a.tensor.ne[axis], x.tensor.ne[axis]
    if n_a == n_x:
        return index
    if n_a == 1:
        return 0
    return k.value(index) // k.size(n_x // n_a)


def _partner(attrs: Any, out: Tensor, a: Tensor, x: Tensor) -> Any:
    return ("mul_mat", x, out.ne, a.ne[0], a.ne[2:])


FLOAT_MUL_MAT = Tiles(_chunks, _walk, _compute, _partner, _enter)
