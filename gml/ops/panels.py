"""Panels: how quantised weights lie in memory for the matrix kernels, and the kernel IR that packs and reads them.

A panel is 8 rows of a weight matrix, interleaved by 4 columns, so that one 32-byte vector holds 4 columns of each row:

    quad q of a group of 32 columns:   row 0: columns 4q..4q+3 | row 1: 4q..4q+3 | ... | row 7: 4q..4q+3

Per block of the format, in order:

    d      8 stored scales, one per row
    m      8 stored offsets (formats with an offset)
    then per 32 columns:
      sub-scales, 8 bytes per group (formats with sub-scales), then u8 offsets, 8 bytes per group (offset "group")
      codes in planes: 8 bits  8 vectors, one per quad
                       4 bits  4 vectors, quad q in the low and quad q + 4 in the high half of each byte
                       2 bits  2 vectors, quad 4 v + j of vector v in bits 2 j, 2 j + 1
                       1 bit   1 vector, quad j in bit j
      of 3-, 5- and 6-bit codes the low 2, 4 and 4 bits come first, then the rest as a 1-, 1- and 2-bit plane

These are the bits of the file in another order (6-bit sub-scales are widened to bytes). Next module: `quantized.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gml.kernel_ir import I8, U8, U16, U32, Builder, Node
from gml.ops.lower import KernelContext, Place
from gml.quants import QuantType, by_name
from gml.quants.codes import CodeTraits, code_values, half_value, scale_value, small_value, small_values
from gml.records import dataclass

#: rows of a panel: one lane each
ROWS = 8
#: columns that activations share a scale over, and that codes are stored by
COLUMNS = 32
QUADS = COLUMNS // 4
VECTOR = ROWS * 4

#: bit planes of a code: (bits, position of the lowest in the code)
PLANES = {
    1: ((1, 0),),
    2: ((2, 0),),
    3: ((2, 0), (1, 2)),
    4: ((4, 0),),
    5: ((4, 0), (1, 4)),
    6: ((4, 0), (2, 4)),
    8: ((8, 0),),
}


@dataclass(frozen=True)
class PanelLayout:
    """Byte positions inside a panel of one format."""

    traits: CodeTraits

    @property
    def m_at(self) -> int:
        """Where the block's offsets start."""
        return ROWS * self.traits.scale_bytes

    @property
    def head_bytes(self) -> int:
        """Scales and offsets of a block."""
        return self.m_at + (2 * ROWS if self.traits.offset else 0)

    @property
    def groups_per_chunk(self) -> int:
        """Groups in 32 columns."""
        return COLUMNS // self.traits.group

    @property
    def sub_scale_bytes(self) -> int:
        """Sub-scales of 32 columns."""
        return ROWS * self.groups_per_chunk if self.traits.sub_scale else 0

    @property
    def side_bytes(self) -> int:
        """Sub-scales and offsets of 32 columns."""
        return self.sub_scale_bytes + (ROWS * self.groups_per_chunk if self.traits.offset == "group" else 0)

    @property
    def chunk_bytes(self) -> int:
        """Everything of 32 columns."""
        return self.side_bytes + self.traits.bits * VECTOR

    @property
    def chunks_per_block(self) -> int:
        """Groups of 32 columns in a block."""
        return self.traits.block_size // COLUMNS

    @property
    def block_bytes(self) -> int:
        """A block of 8 rows."""
        return self.head_bytes + self.chunks_per_block * self.chunk_bytes

    def panel_bytes(self, k: int) -> int:
        """A panel of k columns."""
        return k // self.traits.block_size * self.block_bytes


@dataclass(frozen=True)
class PackAttrs:
    """type: name of the block format; k, n: columns and rows of each matrix."""

    type: str
    k: int
    n: int

    @property
    def dtype(self) -> QuantType:
        found = by_name(self.type)
        assert isinstance(found, QuantType)
        return found

    @property
    def layout(self) -> PanelLayout:
        traits = self.dtype.traits
        assert traits is not None
        return PanelLayout(traits)


# -- packing -----------------------------------------------------------------------------------------------------------


def pack_block(b: Builder, dtype: QuantType, row: Callable[[Node], Node], codes: Node, target: Node) -> None:
    """Take the blocks of eight rows apart and store them as one block of a panel at `target`.

    row    gives the address of a row's block
    codes  private memory for 8 blocks of codes as bytes

    Loops over rows and over groups of 32 columns where blocks have many of them: unrolled, a block of 256 columns is
    thousands of instructions.
    """
    traits = dtype.traits
    assert traits is not None
    layout = PanelLayout(traits)
    small = layout.chunks_per_block == 1

    def one_row(r: Node) -> None:
        block = dtype.unpack(b, row(r))
        b.store(target, r * traits.scale_bytes, block.d)
        if block.m is not None:
            b.store(target, r * 2 + layout.m_at, block.m)
        per_chunk = layout.groups_per_chunk
        for c in range(layout.chunks_per_block):
            at = layout.head_bytes + c * layout.chunk_bytes
            groups = range(c * per_chunk, (c + 1) * per_chunk)
            for i, g in enumerate(groups):
                if traits.sub_scale:
                    b.store(target, r + (at + i * ROWS), block.sub_scales[g])
                if traits.offset == "group":
                    b.store(target, r + (at + layout.sub_scale_bytes + i * ROWS), block.group_m[g])
            b.store(codes, r * traits.block_size + c * COLUMNS, _columns(b, [block.groups[g] for g in groups]))

    def one_chunk(c: Node) -> None:
        rows = [b.load(codes, c * COLUMNS + r * traits.block_size, U8.vec(COLUMNS)) for r in range(ROWS)]
        chunk = b.offset(target, c * layout.chunk_bytes + layout.head_bytes)
        _store_planes(b, traits, _quads(b, rows), chunk, layout.side_bytes)

    b.loop(0, ROWS, one_row, unroll=small)
    b.loop(0, layout.chunks_per_block, one_chunk)


def pack_panel(k: KernelContext, attrs: PackAttrs, w: Place, p: Node, outer: tuple, target: Node) -> None:
    """Panel p of a matrix to `target`. Rows past the end repeat the last one; their results are never stored."""
    b, layout, dtype = k.b, attrs.layout, attrs.dtype
    codes = b.scratch(ROWS * dtype.block_size)

    def block(i: Node) -> None:
        def row(r: Node) -> Node:
            return b.offset(w.row((b.min(p * ROWS + r, attrs.n - 1), *outer)), i * dtype.type_size)

        pack_block(b, dtype, row, codes, b.offset(target, i * layout.block_bytes))

    b.loop(0, attrs.k // dtype.block_size, block)


def _columns(b: Builder, groups: Sequence[Node]) -> Node:
    """32 codes of a row as bytes."""
    whole = groups[0] if len(groups) == 1 else b.concat(groups[0], groups[1])
    return b.bitcast(whole, U8.vec(COLUMNS))


def _quads(b: Builder, rows: Sequence[Node]) -> list[Node]:
    """Eight rows of 32 bytes as eight quads: a transposition of 8 by 8 words of 4 bytes."""
    words = transpose8(b, [b.bitcast(row, U32.vec(QUADS)) for row in rows])
    return [b.bitcast(word, U8.vec(VECTOR)) for word in words]


def _store_planes(b: Builder, traits: CodeTraits, quads: Sequence[Node], target: Node, at: int) -> None:
    for bits, low in PLANES[traits.bits]:
        per_vector = 8 // bits
        n_vectors = QUADS // per_vector
        for v in range(n_vectors):
            packed = None
            for j in range(per_vector):
                part = quads[_quad_of(bits, v, j)]
                if bits < 8:
                    part = ((part >> low) & ((1 << bits) - 1)) << (bits * j)
                packed = part if packed is None else packed | part
            assert packed is not None
            b.store(target, at + v * VECTOR, packed)
        at += n_vectors * VECTOR


def _quad_of(bits: int, vector: int, field: int) -> int:
    """Which quad lies in a field of a plane's vector."""
    return vector + 4 * field if bits == 4 else vector * (8 // bits) + field


def transpose8(b: Builder, rows: Sequence[Node]) -> list[Node]:
    """Eight vectors of eight lanes, transposed by exchanging single lanes, pairs and halves."""
    words = list(rows)
    for half in (1, 2, 4):
        mixed = list(words)
        for i in range(8):
            if not i & half:
                first = [j if not j & half else 8 + (j ^ half) for j in range(8)]
                second = [(j | half) if not j & half else 8 + j for j in range(8)]
                mixed[i] = b.shuffle(words[i], words[i + half], first)
                mixed[i + half] = b.shuffle(words[i], words[i + half], second)
        words = mixed
    return words


# -- reading -----------------------------------------------------------------------------------------------------------


def load_quads(b: Builder, traits: CodeTraits, pointer: Node, at: int) -> list[Node]:
    """The eight quads of 32 columns: u8 codes (i8 for signed formats and tables), 8 rows by 4 columns each."""
    quads: list[Node | None] = [None] * QUADS
    for bits, low in PLANES[traits.bits]:
        per_vector = 8 // bits
        n_vectors = QUADS // per_vector
        for v in range(n_vectors):
            vector = b.load(pointer, at + v * VECTOR, U8.vec(VECTOR), constant=True)
            for j in range(per_vector):
                quad = _quad_of(bits, v, j)
                part = _field(b, vector, bits * j, bits, low)
                whole = quads[quad]
                quads[quad] = part if whole is None else whole | part
        at += n_vectors * VECTOR
    found = [q for q in quads if q is not None]
    if traits.signed:
        found = [b.bitcast(q, I8.vec(VECTOR)) for q in found]
    return [code_values(b, traits, q) for q in found]


def _field(b: Builder, vector: Node, position: int, bits: int, target: int) -> Node:
    """A bit field of each byte, moved to bit `target`."""
    if bits == 8:
        return vector
    mask = ((1 << bits) - 1) << target
    distance = position - target
    # shifted in 16-bit lanes: what crosses a byte is masked away, and no target shifts bytes
    wide = b.bitcast(vector, U16.vec(VECTOR // 2))
    if distance > 0:
        wide = wide >> distance
    elif distance < 0:
        wide = wide << -distance
    return b.bitcast(wide, U8.vec(VECTOR)) & mask


def block_scales(b: Builder, traits: CodeTraits, pointer: Node) -> Node:
    """d of a block's eight rows, f32."""
    stored = b.load(pointer, 0, traits.scale_type.vec(ROWS), constant=True)  # type: ignore[attr-defined]
    return scale_value(b, traits, stored)


def block_offsets(b: Builder, layout: PanelLayout, pointer: Node) -> Node | None:
    """m or dmin of a block's eight rows with its sign, f32."""
    if layout.traits.offset is None:
        return None
    value = half_value(b, b.load(pointer, layout.m_at, U16.vec(ROWS), constant=True))
    return value if layout.traits.offset_sign > 0 else -value


def group_scales(b: Builder, layout: PanelLayout, chunk: Node, group: int, d: Node) -> Node:
    """The scales of a group's eight rows in the 32 columns at `chunk`: d, times the sub-scales where there are any."""
    traits = layout.traits
    if not traits.sub_scale:
        return d
    stored = b.load(chunk, group * ROWS, (I8 if traits.sub_scale == "i8" else U8).vec(ROWS), constant=True)
    return d * small_value(b, stored, traits.sub_scale)


def group_offsets(b: Builder, layout: PanelLayout, chunk: Node, group: int, m: Node | None) -> Node | None:
    """The offsets of a group's eight rows."""
    if m is None or layout.traits.offset == "block":
        return m
    stored = b.load(chunk, layout.sub_scale_bytes + group * ROWS, U8.vec(ROWS), constant=True)
    return m * small_value(b, stored)


# -- the same in numpy: what packed weights mean ---------------------------------------------------------------------


def decode_panels(dtype: QuantType, panels: np.ndarray) -> np.ndarray:
    """Panels as bytes [n_panels, panel_bytes] to float32 weights [8 n_panels, k]: the values of the file's blocks."""
    traits = dtype.traits
    assert traits is not None
    layout = PanelLayout(traits)
    n_panels = len(panels)
    blocks = np.ascontiguousarray(panels).view(np.uint8).reshape(n_panels, -1, layout.block_bytes)
    d = _stored_scales(traits, blocks[..., : layout.m_at])
    m = (
        _halves(blocks[..., layout.m_at : layout.head_bytes]) * np.float32(traits.offset_sign)
        if traits.offset
        else None
    )
    groups = []
    for c in range(layout.chunks_per_block):
        chunk = blocks[..., layout.head_bytes + c * layout.chunk_bytes :][..., : layout.chunk_bytes]
        codes = _codes(traits, chunk[..., layout.side_bytes :])
        for g in range(layout.groups_per_chunk):
            mine = codes[..., g * traits.group : (g + 1) * traits.group].astype(np.float32) - np.float32(traits.zero)
            scale, offset = d, m
            if traits.sub_scale:
                scale = d * small_values(traits.sub_scale, chunk[..., g * ROWS : (g + 1) * ROWS])
            if m is not None and traits.offset == "group":
                start = layout.sub_scale_bytes + g * ROWS
                offset = m * chunk[..., start : start + ROWS].astype(np.float32)
            values = mine * scale[..., None]
            groups.append(values if offset is None else values + offset[..., None])
    # [panels, blocks, rows, columns] to rows of whole matrices
    whole = np.concatenate(groups, axis=-1)
    return np.ascontiguousarray(whole.transpose(0, 2, 1, 3)).reshape(n_panels * ROWS, -1)


def _halves(raw: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def _stored_scales(traits: CodeTraits, raw: np.ndarray) -> np.ndarray:
    if traits.scale == "e8m0":
        return np.ldexp(np.float32(traits.factor), raw.astype(np.int32) - 128)
    d = _halves(raw) if traits.scale == "f16" else np.ascontiguousarray(raw).view("<f4")
    return d * np.float32(traits.factor)


def _codes(traits: CodeTraits, raw: np.ndarray) -> np.ndarray:
    """Planes of 32 columns [..., bits * 32] to codes (or table entries) [..., 8 rows, 32 columns]."""
    codes = np.zeros((*raw.shape[:-1], QUADS, VECTOR), np.uint8)
    at = 0
    for bits, low in PLANES[traits.bits]:
        for v in range(QUADS * bits // 8):
            vector = raw[..., at : at + VECTOR]
            for j in range(8 // bits):
                field = (vector >> np.uint8(bits * j)) & np.uint8((1 << bits) - 1)
                codes[..., _quad_of(bits, v, j), :] |= field << np.uint8(low)
            at += VECTOR
    # a quad is 8 rows of 4 columns
    rows = codes.reshape(*raw.shape[:-1], QUADS, ROWS, 4).swapaxes(-3, -2).reshape(*raw.shape[:-1], ROWS, COLUMNS)
    if traits.signed:
        return rows.view(np.int8)
    return rows if traits.table is None else np.array(traits.table, np.int8)[rows]
