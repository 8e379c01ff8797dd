"""The micro-kernel: panels of 8 rows against tokens, integer dot products per group, float sums per row.

Arrives: packed panels (`panels.py`) and quantised activations (`activations.py`); leaves: a vector of 8 sums per token.
There are two ways with the same bits:

    one token        codes go from the packed panel into registers and are used once: memory sets the speed
    several tokens   a panel is unpacked once for a block of tokens: codes as bytes, scales and offsets as floats, some
                     columns at a time, so that they stay in the first-level cache; tokens come three at a time

Floats are accumulated over groups in the order of the columns, one lane per row, so a result does not depend on how
many tokens are computed together, on threads, or on the target. Next module: `quantized.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gml.kernel_ir import F32, I8, I32, U8, Node
from gml.ops.activations import AT, GROUP
from gml.ops.float_panels import batch_index
from gml.ops.lower import Chunks, KernelContext, Operand, Place
from gml.ops.panels import (
    COLUMNS,
    QUADS,
    ROWS,
    VECTOR,
    PackAttrs,
    PanelLayout,
    block_offsets,
    block_scales,
    group_offsets,
    group_scales,
    load_quads,
    pack_panel,
)  # fmt: skip
from gml.records import dataclass
from gml.tensor import Tensor

#: tokens that a panel is unpacked for; their activations stay in the second-level cache meanwhile
TOKEN_BLOCK = 48
#: tokens whose sums are held in registers together
TOKENS = 3
#: bytes of a cache line, as most processors have them
LINE = 64
#: columns that are unpacked at a time: with three rows of activations they fit the first-level cache
UNPACKED_COLUMNS = 1024


@dataclass(frozen=True)
class Panel:
    """A panel's number, its outer indices, and the tokens from `start` to `whole` that come `TOKENS` at a time."""

    number: Node
    outer: tuple[Operand, Operand]
    start: Node
    whole: Node


@dataclass(frozen=True)
class Tile:
    """8 rows by some tokens."""

    panel: Panel
    token: Node
    n_tokens: int


@dataclass(frozen=True)
class Entered:
    """What the tiles of a panel need: where the packed panel lies, and the sums of the tokens that are done already."""

    weights: Node
    sums: Node


def panel_chunks(attrs: PackAttrs, out: Tensor, panels: Tensor, x: Tensor) -> Chunks:
    """One chunk per panel and outer index."""
    return Chunks(((-(-attrs.n // ROWS), 1), (out.ne[2], 1), (out.ne[3], 1)))


# -- loops -------------------------------------------------------------------------------------------------------------


def walk(k: KernelContext, attrs: PackAttrs, out: Tensor, visitor: Any, panels: Place, x: Place) -> None:
    """Blocks of tokens outside, the chunk's panels inside: panels meet activations that are still in cache."""
    b = k.b
    n_tokens = k.value(k.size(out.ne[1]))

    def token_block(start: Node) -> None:
        stop = b.min(start + TOKEN_BLOCK, n_tokens)
        whole = start + (stop - start) // TOKENS * TOKENS

        def panel(chunk: Node) -> None:
            p, i2, i3 = k.split(chunk, [-(-attrs.n // ROWS), k.size(out.ne[2]), k.size(out.ne[3])])
            here = Panel(k.value(p), (i2, i3), start, whole)
            visitor.enter(here)
            b.loop(start, whole, lambda t: visitor.tile(Tile(here, t, TOKENS)), step=TOKENS)
            b.loop(whole, stop, lambda t: visitor.tile(Tile(here, t, 1)))

        b.loop(k.begin, k.end, panel)

    b.loop(0, n_tokens, token_block, step=TOKEN_BLOCK)


def enter(k: KernelContext, attrs: PackAttrs, panel: Panel, panels: Place, x: Place) -> Entered:
    """Where the panel lies in packed weights."""
    i2, i3 = panel.outer
    weights = panels.row((panel.number, batch_index(k, i2, panels, x, 2), batch_index(k, i3, panels, x, 3)))
    return Entered(weights, _sums_of_block(k, attrs, panel, weights, x))


def enter_file(k: KernelContext, attrs: PackAttrs, panel: Panel, w: Place, x: Place) -> Entered:
    """Pack the panel from the file's blocks into private memory first."""
    i2, i3 = panel.outer
    weights = k.b.scratch(attrs.layout.panel_bytes(attrs.k))
    pack_panel(k, attrs, w, panel.number, (batch_index(k, i2, w, x, 2), batch_index(k, i3, w, x, 3)), weights)
    return Entered(weights, _sums_of_block(k, attrs, panel, weights, x))


def compute(
    k: KernelContext, attrs: PackAttrs, tile: Tile, entered: Entered, panels: Place, x: Place
) -> list[tuple[Any, Node]]:
    """The float sums of a tile, one vector of 8 rows per token."""
    b, panel = k.b, tile.panel
    if tile.n_tokens == 1:
        sums = [_one_token(k, attrs.layout, attrs.k, entered.weights, x.row((tile.token, *panel.outer)))]
    else:
        at = (tile.token - panel.start) * VECTOR
        sums = [b.load(entered.sums, at + j * VECTOR, F32.vec(ROWS)) for j in range(tile.n_tokens)]
    return [((panel.number * ROWS, tile.token + j, *panel.outer), s) for j, s in enumerate(sums)]


# -- one token ---------------------------------------------------------------------------------------------------------


def _one_token(k: KernelContext, layout: PanelLayout, n_columns: int, weights: Node, token: Node) -> Node:
    b, traits = k.b, layout.traits

    def block(i: Node, total: Node) -> Node:
        pointer = b.offset(weights, i * layout.block_bytes)
        d = block_scales(b, traits, pointer)
        m = block_offsets(b, layout, pointer)

        def chunk(c: Node, total: Node) -> Node:
            # a loop even where a block has eight times as many columns: unrolled, it outgrows the decoder's cache
            here = b.offset(pointer, c * layout.chunk_bytes + layout.head_bytes)
            quads = load_quads(b, traits, here, layout.side_bytes)
            column = i * layout.chunks_per_block + c
            for g in range(layout.groups_per_chunk):
                scale = group_scales(b, layout, here, g, d)
                bias = _bias(k, traits, scale, group_offsets(b, layout, here, g, m))
                total = _add_group(k, traits, token, column, g, quads, scale, bias, total)
            return total

        return b.loop(0, layout.chunks_per_block, chunk, [total])[0]

    return b.loop(0, n_columns // traits.block_size, block, [b.const(0.0, F32.vec(ROWS))])[0]


# -- a block of tokens -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnpackedLayout:
    """32 unpacked columns of a panel: per group 8 scales and 8 offsets as f32, then eight quads of codes as bytes."""

    layout: PanelLayout

    @property
    def biased(self) -> bool:
        """Whether something is added per unit of the activations' sum."""
        return bool(self.layout.traits.zero or self.layout.traits.offset)

    @property
    def group_bytes(self) -> int:
        """Scales and offsets of a group."""
        return VECTOR * (1 + self.biased)

    @property
    def codes_at(self) -> int:
        """Where the codes start."""
        return self.layout.groups_per_chunk * self.group_bytes

    @property
    def chunk_bytes(self) -> int:
        """Everything of 32 columns."""
        return self.codes_at + QUADS * VECTOR


def _sums_of_block(k: KernelContext, attrs: PackAttrs, panel: Panel, weights: Node, x: Place) -> Node:
    """Sums of the panel's rows for the tokens from `start` to `whole`, f32 [8] each, in private memory."""
    b, layout = k.b, attrs.layout
    unpacked = UnpackedLayout(layout)
    n_columns = min(attrs.k, max(UNPACKED_COLUMNS, layout.traits.block_size))
    n_blocks, blocks_at_once = attrs.k // layout.traits.block_size, n_columns // layout.traits.block_size
    codes = b.scratch(blocks_at_once * layout.chunks_per_block * unpacked.chunk_bytes)
    sums = b.scratch(TOKEN_BLOCK * VECTOR)
    start, whole = panel.start, panel.whole

    def columns(first: Node) -> None:
        stop = b.min(first + blocks_at_once, n_blocks)
        _unpack(k, unpacked, layout.panel_bytes(attrs.k), weights, first, stop, codes)
        n_chunks = (stop - first) * layout.chunks_per_block

        def tokens(t: Node) -> None:
            # one register each: far from one another, they would need long displacements in every load
            rows = [
                b.offset(x.row((t + j, *panel.outer)), first * (layout.chunks_per_block * GROUP.itemsize), apart=True)
                for j in range(TOKENS)
            ]
            at = (t - start) * VECTOR
            old = [b.load(sums, at + j * VECTOR, F32.vec(ROWS)) for j in range(TOKENS)]
            for j, total in enumerate(_three_tokens(k, unpacked, codes, n_chunks, rows, old)):
                b.store(sums, at + j * VECTOR, total)

        b.loop(start, whole, tokens, step=TOKENS)

    def block_of_tokens() -> None:
        b.loop(0, whole - start, lambda t: b.store(sums, t * VECTOR, b.const(0.0, F32.vec(ROWS))))
        b.loop(0, n_blocks, columns, step=blocks_at_once)

    b.when(b.cmp("lt", start, whole), block_of_tokens)
    return sums


def _unpack(
    k: KernelContext,
    unpacked: UnpackedLayout,
    panel_bytes: int,
    weights: Node,
    first: Node,
    stop: Node,
    target: Node,
) -> None:
    """Blocks `first` to `stop` of a packed panel, unpacked to `target`."""
    b, layout = k.b, unpacked.layout
    traits = layout.traits

    def block(i: Node) -> None:
        pointer = b.offset(weights, i * layout.block_bytes)
        d = block_scales(b, traits, pointer)
        m = block_offsets(b, layout, pointer)

        def chunk(c: Node) -> None:
            here = b.offset(pointer, c * layout.chunk_bytes + layout.head_bytes)
            there = b.offset(target, ((i - first) * layout.chunks_per_block + c) * unpacked.chunk_bytes)
            for line in range(0, layout.chunk_bytes, LINE):
                # of the next panel, which is due when this one has met all tokens
                b.prefetch(here, line + panel_bytes)
            for g in range(layout.groups_per_chunk):
                scale = group_scales(b, layout, here, g, d)
                bias = _bias(k, traits, scale, group_offsets(b, layout, here, g, m))
                b.store(there, g * unpacked.group_bytes, scale)
                if bias is not None:
                    b.store(there, g * unpacked.group_bytes + VECTOR, bias)
            for q, quad in enumerate(load_quads(b, traits, here, layout.side_bytes)):
                b.store(there, unpacked.codes_at + q * VECTOR, quad)

        b.loop(0, layout.chunks_per_block, chunk)

    b.loop(first, stop, block)


def _three_tokens(
    k: KernelContext, unpacked: UnpackedLayout, codes: Node, n_chunks: Node, rows: Sequence[Node], sums: Sequence[Node]
) -> Sequence[Node]:
    """The sums of some tokens with unpacked columns added."""
    b, layout = k.b, unpacked.layout
    traits = layout.traits
    code_type = I8 if traits.signed or traits.table is not None else U8

    def chunk(c: Node, *sums: Node) -> list[Node]:
        sums_now = list(sums)
        here = b.offset(codes, c * unpacked.chunk_bytes)
        quads = [b.load(here, unpacked.codes_at + q * VECTOR, code_type.vec(VECTOR)) for q in range(QUADS)]
        for g in range(layout.groups_per_chunk):
            at = g * unpacked.group_bytes
            scale = b.load(here, at, F32.vec(ROWS))
            bias = b.load(here, at + VECTOR, F32.vec(ROWS)) if unpacked.biased else None
            for j, row in enumerate(rows):
                sums_now[j] = _add_group(k, traits, row, c, g, quads, scale, bias, sums_now[j])
        return sums_now

    return b.loop(0, n_chunks, chunk, sums)


# -- a group of columns ------------------------------------------------------------------------------------------------


def _bias(k: KernelContext, traits: Any, scale: Node, offset: Node | None) -> Node | None:
    """What a group's eight rows add per unit of the activations' sum: the offset, less the zero point."""
    if not traits.zero:
        return offset
    below = scale * float(-traits.zero)
    return below if offset is None else offset + below


def _add_group(
    k: KernelContext,
    traits: Any,
    row: Node,
    column: Node,
    g: int,
    quads: Sequence[Node],
    scale: Node,
    bias: Node | None,
    total: Node,
) -> Node:
    """total + scale * dx * dot + bias * sum, for group g of the 32 columns number `column` of a token's row."""
    b = k.b
    start = column * GROUP.itemsize
    n_quads = traits.group // 4
    mine = range(g * n_quads, (g + 1) * n_quads)
    spread = []
    for q in mine:
        word = b.load(row, start + (AT["codes"] + 4 * q), I32, constant=True)
        spread.append(b.bitcast(b.splat(word, ROWS), I8.vec(VECTOR)))
    dot = b.group_dot([quads[q] for q in mine], spread, traits.w_max)
    dx = b.splat(b.load(row, start + AT["d"], F32, constant=True), ROWS)
    total = b.fma(b.cast(dot, F32), scale * dx, total)
    if bias is not None:
        at = AT["sum"] if traits.group == COLUMNS else AT["sums"] + 4 * g
        total = b.fma(bias, b.splat(b.load(row, start + at, F32, constant=True), ROWS), total)
    return total
