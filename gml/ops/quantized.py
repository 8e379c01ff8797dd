"""Matrix multiplication of quantised weights in integers: what `mul_mat` becomes in compiled code.

    quantize_q8(x)         activations as signed bytes, a float scale per 32, and the sums that offsets need
    pack_panels(w)         a weight matrix rearranged for the micro-kernel (`panels.py`), once per model
    mul_mat_q8(panels, q)  integer dot products per group, float accumulation over groups in column order

Floats are accumulated over groups in the order of the columns, one lane per row, so a result does not depend on how
many tokens are computed together, on threads, or on the target. Next module: `gml/graph.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gml.dtypes import F32 as TF32
from gml.dtypes import I8 as TI8
from gml.errors import UnsupportedError
from gml.kernel_ir import F32, I8, I32, Node
from gml.ops.base import Inferred, OpDef, Sample, declare, rule
from gml.ops.float_panels import batch_index
from gml.ops.lower import Chunks, Direct, KernelContext, Operand, Place, RowSink, Tiles
from gml.ops.panels import (
    COLUMNS,
    QUADS,
    ROWS,
    VECTOR,
    PanelLayout,
    block_offsets,
    block_scales,
    decode_panels,
    group_offsets,
    group_scales,
    load_quads,
    pack_block,
)  # fmt: skip
from gml.quants import QuantType, by_name
from gml.tensor import Tensor

#: tokens whose activations a run of panels goes through before the next run: they stay in the second-level cache
TOKEN_BLOCK = 48
#: tokens whose sums are held in registers together
TOKENS = 3


# -- activations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ActivationRow:
    """Where the parts of a quantised row of k elements lie, in bytes from its start.

    codes  i8 [k]
    d      f32 [k / 32]      the largest magnitude over 127
    sums   i32 [k / 16]      sums of the codes of 16 columns
    sums32 i32 [k / 32]      sums of the codes of 32 columns
    """

    k: int

    @property
    def d(self) -> int:
        return self.k

    @property
    def sums(self) -> int:
        return self.d + self.k // COLUMNS * 4

    @property
    def sums32(self) -> int:
        return self.sums + self.k // 16 * 4

    @property
    def n_bytes(self) -> int:
        """The row, padded so that rows start on cache lines and do not all fall into the same cache sets."""
        return -(-(self.sums32 + self.k // COLUMNS * 4) // 64) * 64 + 64


@dataclass(frozen=True)
class QuantizeAttrs:
    """k: elements of a row."""

    k: int


def _infer_quantize(attrs: QuantizeAttrs, x: Tensor) -> Inferred:
    rule(
        x.ne[0] == attrs.k and attrs.k % COLUMNS == 0,
        f"rows must have k = {attrs.k} elements, a multiple of 32; found {x.ne[0]}",
    )
    return Inferred(TI8, (ActivationRow(attrs.k).n_bytes, *x.ne[1:]))


def quantize_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales of rows [..., k]: per 32 elements d = max|x| / 127, code = x / d rounded half to even."""
    groups = x.reshape(*x.shape[:-1], -1, COLUMNS).astype(np.float32)
    amax = np.abs(groups).max(axis=-1)
    d = (amax * np.float32(1.0 / 127.0)).astype(np.float32)
    inverse = np.where(amax > 0, np.float32(127.0) / amax, np.float32(0)).astype(np.float32)
    codes = np.clip(np.rint(groups * inverse[..., None]), -127, 127)
    return np.nan_to_num(codes).astype(np.int8), d


def _reference_quantize(attrs: QuantizeAttrs, x: np.ndarray) -> np.ndarray:
    codes, d = quantize_rows(x)
    row = ActivationRow(attrs.k)
    out = np.zeros((*x.shape[:-1], row.n_bytes), dtype=np.int8)

    def put(at: int, values: np.ndarray) -> None:
        flat = np.ascontiguousarray(values.reshape(*x.shape[:-1], -1))
        raw = flat.view(np.int8).reshape(*x.shape[:-1], -1)
        out[..., at : at + raw.shape[-1]] = raw

    wide = codes.astype(np.int32)
    put(0, codes)
    put(row.d, d)
    put(row.sums, wide.reshape(*wide.shape[:-1], 2, 16).sum(-1, dtype=np.int32))
    put(row.sums32, wide.sum(-1, dtype=np.int32))
    return out


def _row_values(k: int, rows: np.ndarray) -> np.ndarray:
    """All that quantised rows say: the values, and the sums of codes in units of the scale."""
    at = ActivationRow(k)
    raw = np.ascontiguousarray(rows).view(np.int8)
    d = np.ascontiguousarray(raw[..., at.d : at.sums]).view("<f4").astype(np.float64)
    sums = np.ascontiguousarray(raw[..., at.sums : at.sums32]).view("<i4")
    sums32 = np.ascontiguousarray(raw[..., at.sums32 : at.sums32 + k // COLUMNS * 4]).view("<i4")
    return np.concatenate([dequantize_rows(k, rows), sums * np.repeat(d, 2, axis=-1), sums32 * d], axis=-1)


def _lower_quantize(k: KernelContext, attrs: QuantizeAttrs, row: Any, out: Place, x: Any) -> None:
    b, at = k.b, ActivationRow(attrs.k)
    target = out.row(row)

    def group(g: Node) -> None:
        start = g * COLUMNS
        values = [x.at((start + i, *row), 16) for i in (0, 16)]
        amax = b.reduce("max", b.max(b.abs(values[0]), b.abs(values[1])))
        d = amax * (1.0 / 127.0)
        inverse = b.select(b.cmp("gt", amax, 0.0), b.const(127.0) / amax, 0.0)
        codes = [b.cast(b.min(b.max(v * inverse, -127.0), 127.0), I8) for v in values]
        sums = [b.reduce("add", b.cast(c, I32)) for c in codes]
        b.store(target, start, codes[0])
        b.store(target, start + 16, codes[1])
        b.store(target, g * 4 + at.d, d)
        b.store(target, g * 8 + at.sums, sums[0])
        b.store(target, g * 8 + (at.sums + 4), sums[1])
        b.store(target, g * 4 + at.sums32, sums[0] + sums[1])

    b.loop(0, attrs.k // COLUMNS, group)
    end = at.sums32 + attrs.k // COLUMNS * 4
    for i in range(end, at.n_bytes, 4):
        b.store(target, i, b.const(0, I32))


quantize_q8 = declare(
    OpDef(
        "quantize_q8",
        _infer_quantize,
        _reference_quantize,
        [
            Sample("rows", lambda s: quantize_q8(s.f32(64, 3), k=64)),
            Sample("one_group", lambda s: quantize_q8(s.f32(32), k=32)),
            Sample("zeros", lambda s: quantize_q8(s.array(np.zeros((2, 96), np.float32)), k=96)),
        ],
        attrs=QuantizeAttrs,
        lower=RowSink(_lower_quantize),
        compare=lambda attrs, rows, x: (
            _row_values(attrs.k, rows),
            _row_values(attrs.k, _reference_quantize(attrs, x)),
        ),
    )
)


# -- weights -----------------------------------------------------------------------------------------------------------


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


def _infer_pack(attrs: PackAttrs, w: Tensor) -> Inferred:
    rule(
        w.type.name == attrs.type and w.ne[:2] == (attrs.k, attrs.n), f"expected {attrs.type}[{attrs.k}, {attrs.n}, ..]"
    )
    return Inferred(TI8, (attrs.layout.panel_bytes(attrs.k), -(-attrs.n // ROWS), w.ne[2], w.ne[3]))


def _reference_pack(attrs: PackAttrs, w: np.ndarray) -> np.ndarray:
    raise UnsupportedError("pack_panels is made by the compiler and has no meaning in values; see `decode_panels`")


def _lower_pack(k: KernelContext, attrs: PackAttrs, out: Place, w: Place) -> None:
    n_panels = -(-attrs.n // ROWS)

    def panel(chunk: Node) -> None:
        p, i2, i3 = k.split(chunk, [n_panels, *out.ne[2:]])
        _pack_panel(k, attrs, w, k.value(p), (i2, i3), out.row((p, i2, i3)))

    k.b.loop(k.begin, k.end, panel)


def _pack_panel(k: KernelContext, attrs: PackAttrs, w: Place, p: Node, outer: tuple, target: Node) -> None:
    """Panel p of a matrix to `target`. Rows past the end repeat the last one; their results are never stored."""
    b, layout, dtype = k.b, attrs.layout, attrs.dtype
    codes = b.scratch(ROWS * dtype.block_size)

    def block(i: Node) -> None:
        def row(r: Node) -> Node:
            return b.offset(w.row((b.min(p * ROWS + r, attrs.n - 1), *outer)), i * dtype.type_size)

        pack_block(b, dtype, row, codes, b.offset(target, i * layout.block_bytes))

    b.loop(0, attrs.k // dtype.block_size, block)


pack_panels = OpDef(
    "pack_panels",
    _infer_pack,
    _reference_pack,
    [],
    attrs=PackAttrs,
    lower=Direct(_lower_pack, lambda attrs, out, w: Chunks(((-(-attrs.n // ROWS), 1), (out.ne[2], 1), (out.ne[3], 1)))),
    compare=lambda attrs, panels, w: (_panel_values(attrs, panels), w),
)


# -- products ----------------------------------------------------------------------------------------------------------


def _infer_mul_mat_q8(attrs: PackAttrs, panels: Tensor, x: Tensor) -> Inferred:
    return Inferred(TF32, (attrs.n, x.ne[1], x.ne[2], x.ne[3]))


@dataclass(frozen=True)
class Tile:
    """8 rows by some tokens: the number of the panel, the first token, how many, and the outer indices."""

    panel: Node
    token: Node
    n_tokens: int
    outer: tuple[Operand, Operand]


def _chunks(attrs: PackAttrs, out: Tensor, panels: Tensor, x: Tensor) -> Chunks:
    return Chunks(((-(-attrs.n // ROWS), 1), (out.ne[2], 1), (out.ne[3], 1)))


def _walk(k: KernelContext, attrs: PackAttrs, out: Tensor, visitor: Any, panels: Place, x: Place) -> None:
    """Token blocks outside, the chunk's panels inside: a panel's codes meet a block of tokens still in cache."""
    n_tokens = k.value(k.size(out.ne[1]))

    def token_block(start: Node) -> None:
        _panels(k, attrs, out, visitor, start, k.b.min(start + TOKEN_BLOCK, n_tokens))

    k.b.loop(0, n_tokens, token_block, step=TOKEN_BLOCK)


def _walk_file(k: KernelContext, attrs: PackAttrs, out: Tensor, visitor: Any, w: Place, x: Place) -> None:
    """Panels outside: each is packed once, for all tokens."""
    _panels(k, attrs, out, visitor, k.b.i64(0), k.value(k.size(out.ne[1])))


def _panels(k: KernelContext, attrs: PackAttrs, out: Tensor, visitor: Any, start: Node, stop: Node) -> None:
    """The chunk's panels against the tokens from `start` to `stop`, some at a time, then one by one."""
    b = k.b
    n_panels = -(-attrs.n // ROWS)
    whole = start + (stop - start) // TOKENS * TOKENS

    def panel(chunk: Node) -> None:
        p, i2, i3 = k.split(chunk, [n_panels, k.size(out.ne[2]), k.size(out.ne[3])])
        visitor.enter((k.value(p), i2, i3))
        b.loop(start, whole, lambda t: visitor.tile(Tile(k.value(p), t, TOKENS, (i2, i3))), step=TOKENS)
        b.loop(whole, stop, lambda t: visitor.tile(Tile(k.value(p), t, 1, (i2, i3))))

    b.loop(k.begin, k.end, panel)


def _enter(k: KernelContext, attrs: PackAttrs, panel: tuple, panels: Place, x: Place) -> Node:
    """Where the panel lies in packed weights."""
    p, i2, i3 = panel
    return panels.row((p, batch_index(k, i2, panels, x, 2), batch_index(k, i3, panels, x, 3)))


def _enter_file(k: KernelContext, attrs: PackAttrs, panel: tuple, w: Place, x: Place) -> Node:
    """Pack the panel from the file's blocks into private memory."""
    p, i2, i3 = panel
    scratch = k.b.scratch(attrs.layout.panel_bytes(attrs.k))
    _pack_panel(k, attrs, w, p, (batch_index(k, i2, w, x, 2), batch_index(k, i3, w, x, 3)), scratch)
    return scratch


def _compute(
    k: KernelContext, attrs: PackAttrs, tile: Tile, weights: Node, panels: Place, x: Place
) -> list[tuple[Any, Node]]:
    """The float sums of a tile, one vector of 8 rows per token."""
    b, layout, row = k.b, attrs.layout, ActivationRow(attrs.k)
    traits = layout.traits
    i2, i3 = tile.outer
    tokens = [x.row((tile.token + j, i2, i3)) for j in range(tile.n_tokens)]

    def block(i: Node, *sums: Node) -> list[Node]:
        pointer = b.offset(weights, i * layout.block_bytes)
        d = block_scales(b, traits, pointer)
        m = block_offsets(b, layout, pointer)

        def chunk(c: Node, *sums: Node) -> list[Node]:
            # 32 columns; a loop even where a block has eight times as many: unrolled, it outgrows the decoder cache
            sums_now = list(sums)
            here = b.offset(pointer, c * layout.chunk_bytes + layout.head_bytes)
            column = i * layout.chunks_per_block + c
            quads = load_quads(b, traits, here, layout.side_bytes)
            for g in range(layout.groups_per_chunk):
                scale = group_scales(b, layout, here, g, d)
                offset = group_offsets(b, layout, here, g, m)
                mine = range(g * QUADS // layout.groups_per_chunk, (g + 1) * QUADS // layout.groups_per_chunk)
                for j, token in enumerate(tokens):
                    sums_now[j] = _add_group(
                        k, traits, row, token, column, g, [(quads[q], q) for q in mine], scale, offset, sums_now[j]
                    )
            return sums_now

        return list(b.loop(0, layout.chunks_per_block, chunk, sums))

    zero = b.const(0.0, F32.vec(ROWS))
    sums = b.loop(0, attrs.k // traits.block_size, block, [zero] * tile.n_tokens)
    return [((tile.panel * ROWS, tile.token + j, i2, i3), s) for j, s in enumerate(sums)]


def _add_group(
    k: KernelContext,
    traits: Any,
    row: ActivationRow,
    token: Node,
    column: Node,
    g: int,
    quads: Any,
    scale: Node,
    offset: Any,
    total: Node,
) -> Node:
    """total + scale * dx * (dot - zero * sum) + offset * dx * sum, for one group of one token."""
    b = k.b
    spread = []
    for _, q in quads:
        word = b.load(token, column * COLUMNS + 4 * q, I32, constant=True)
        spread.append(b.bitcast(b.splat(word, ROWS), I8.vec(VECTOR)))
    dot = b.group_dot([w for w, _ in quads], spread, traits.w_max)
    dx = b.splat(b.load(token, column * 4 + row.d, F32, constant=True), ROWS)
    codes_sum = None
    if traits.zero or offset is not None:
        at = column * 4 + row.sums32 if traits.group == COLUMNS else column * 8 + (row.sums + 4 * g)
        codes_sum = b.splat(b.load(token, at, I32, constant=True), ROWS)
        if traits.zero:
            dot = dot - (codes_sum << (traits.zero.bit_length() - 1))
    total = b.fma(b.cast(dot, F32), scale * dx, total)
    if offset is not None:
        assert codes_sum is not None
        total = b.fma(b.cast(codes_sum, F32), offset * dx, total)
    return total


def _partner(attrs: PackAttrs, out: Tensor, panels: Tensor, x: Tensor) -> Any:
    return ("mul_mat_q8", x, out.ne, panels.ne[2:], panels.type.name)


def _panel_values(attrs: PackAttrs, panels: np.ndarray) -> np.ndarray:
    """The weights that panels stand for, float32 [n3, n2, n, k]."""
    n3, n2 = panels.shape[:2]
    w = [decode_panels(attrs.dtype, p) for p in panels.reshape(n3 * n2, *panels.shape[2:])]
    return np.stack(w).reshape(n3, n2, -1, attrs.k)[:, :, : attrs.n]


def _reference_mul_mat_q8(attrs: PackAttrs, panels: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _products(_panel_values(attrs, panels), dequantize_rows(attrs.k, x))


def _reference_mul_mat_q8_file(attrs: PackAttrs, w: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _products(w, dequantize_rows(attrs.k, x))


def _products(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """x w^T with the batches of w repeated over those of x."""
    for axis in (0, 1):
        w = np.repeat(w, x.shape[axis] // w.shape[axis], axis=axis)
    return x @ w.swapaxes(-1, -2).astype(np.float64)


def dequantize_rows(k: int, rows: np.ndarray) -> np.ndarray:
    """Rows that `quantize_q8` made [..., row bytes], as float64 values [..., k]."""
    at = ActivationRow(k)
    raw = np.ascontiguousarray(rows).view(np.int8)
    d = np.ascontiguousarray(raw[..., at.d : at.sums]).view("<f4").astype(np.float64)
    return (raw[..., :k].reshape(*raw.shape[:-1], -1, COLUMNS) * d[..., None]).reshape(*raw.shape[:-1], k)


mul_mat_q8 = OpDef(
    "mul_mat_q8",
    _infer_mul_mat_q8,
    _reference_mul_mat_q8,
    [],
    attrs=PackAttrs,
    lower=Tiles(_chunks, _walk, _compute, _partner, _enter),
    macs=lambda attrs, out, panels, x: out.n_elements * attrs.k,
)

mul_mat_q8_file = OpDef(
    "mul_mat_q8_file",
    _infer_mul_mat_q8,
    _reference_mul_mat_q8_file,
    [],
    attrs=PackAttrs,
    lower=Tiles(_chunks, _walk_file, _compute, _partner, _enter_file),
    macs=lambda attrs, out, w, x: out.n_elements * attrs.k,
)


def refine_mul_mat(attrs: Any, options: Any, w: Tensor, x: Tensor) -> Tensor | None:
    """Quantised weights that are constants, in packed panels, times quantised activations."""
    dtype = w.type
    if options.exact or not isinstance(dtype, QuantType) or dtype.traits is None or w.root.role != "constant":
        return None
    if not (isinstance(w.ne[0], int) and isinstance(w.ne[1], int) and w.nb[0] == dtype.type_size) or x.type is not TF32:
        return None
    shape = {"type": dtype.name, "k": w.ne[0], "n": w.ne[1]}
    activations = quantize_q8(x, k=w.ne[0])
    if options.layout == "file":
        return mul_mat_q8_file(w, activations, **shape)
    return mul_mat_q8(pack_panels(w, **shape), activations, **shape)
