"""A block format as kernel IR sees it: small integer codes, and scales and offsets per group of columns.

A format declares `CodeTraits` and `unpack`, which turns the bytes of one block into `Codes`. From these alone come the
dequantiser, the packed layout of weights and all matrix kernels. The value of an element is

    scale * (code - zero) + offset        scale  = d * sub_scale           (d alone where there is no sub_scale)
                                          offset = offset_sign * m         ("block": one m per block)
                                                   offset_sign * dmin * m  ("group": one m per group)

with one rounding per operation, as in ggml. Formats with a table replace the code by table[code] first, and those with
a factor multiply d by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gml.kernel_ir import F16, F32, I8, I32, U8, U16, U32, Builder, Node
from gml.records import dataclass, field


@dataclass(frozen=True)
class CodeTraits:
    """What codes of a format look like.

    bits         of a stored code: 1, 2, 3, 4, 5, 6 or 8
    group        columns that share a scale: 16 or 32
    n_groups     groups in a block
    signed       codes are signed bytes (bits = 8 only)
    zero         subtracted from a code: 0 or a power of two
    table        signed numbers that codes of up to 4 bits stand for, one per code
    scale        how the block's scale d is stored: "f16", "f32" or "e8m0" (half of a power of two, as in MXFP4)
    factor       a power of two that belongs to d: the table has integers where the format has fractions
    sub_scale    a scale per group that d is multiplied with: None, "u8", "i8" or "e4m3" (half of a float of 8 bits)
    offset       None, "block" (an f16 m per block) or "group" (an f16 dmin per block times a u8 m per group)
    offset_sign  1 or -1
    """

    bits: int
    group: int
    n_groups: int
    signed: bool = False
    zero: int = 0
    table: tuple[int, ...] | None = None
    scale: str = "f16"
    factor: float = 1.0
    sub_scale: str | None = None
    offset: str | None = None
    offset_sign: int = 1

    @property
    def block_size(self) -> int:
        """Columns of a block."""
        return self.group * self.n_groups

    @property
    def w_max(self) -> int:
        """The largest magnitude of a code (or of its table entry) before `zero` is taken off."""
        if self.table is not None:
            return max(abs(v) for v in self.table)
        return 128 if self.signed else (1 << self.bits) - 1

    @property
    def scale_type(self) -> object:
        """Kernel IR type of a stored d."""
        return {"f16": U16, "f32": F32, "e8m0": U8}[self.scale]

    @property
    def scale_bytes(self) -> int:
        """Bytes of a stored d."""
        return {"f16": 2, "f32": 4, "e8m0": 1}[self.scale]


@dataclass
class Codes:
    """One block, unpacked.

    groups      per group a vector of `group` codes, u8 (i8 for signed formats)
    d           the stored scale of the block: u16 bits of an f16, f32, or u8
    sub_scales  per group a stored u8 or i8
    m           stored offset of the block (offset "block") or dmin (offset "group"), u16 bits of an f16
    group_m     per group a u8 (offset "group")
    """

    groups: Sequence[Node]
    d: Node
    sub_scales: Sequence[Node] = field(default_factory=list)
    m: Node | None = None
    group_m: Sequence[Node] = field(default_factory=list)


def scale_value(b: Builder, traits: CodeTraits, stored: Node) -> Node:
    """Stored scales (any lanes) as f32, times the factor."""
    value = _scale_value(b, traits, stored)
    return value if traits.factor == 1.0 else value * traits.factor


def _scale_value(b: Builder, traits: CodeTraits, stored: Node) -> Node:
    if traits.scale == "f16":
        return half_value(b, stored)
    if traits.scale == "f32":
        return stored
    bits = b.cast(stored, U32)
    # 2^(e - 128); the two smallest exponents are denormal
    normal = (b.max(bits, 1) - 1) << 23
    tiny = b.select(
        b.cmp("eq", bits, 0), b.const(0x00200000, U32.vec(bits.lanes)), b.const(0x00400000, U32.vec(bits.lanes))
    )
    return b.bitcast(b.select(b.cmp("lt", bits, 2), tiny, normal), F32.vec(bits.lanes))


def half_value(b: Builder, stored: Node) -> Node:
    """u16 bits of f16 (any lanes) as f32."""
    return b.cast(b.bitcast(stored, F16.vec(stored.lanes)), F32)


def small_value(b: Builder, stored: Node, kind: str | None = None) -> Node:
    """Stored u8 or i8 as f32; of kind "e4m3" half of the float that the bits are."""
    if kind != "e4m3":
        return b.cast(b.cast(stored, I32), F32)
    # exponent and mantissa are in the places of an f16, whose exponent counts from 8 more
    value = half_value(b, b.cast(stored & 127, U16) << 7) * 128.0
    return b.select(b.cmp("eq", stored, 127), b.const(0.0, F32.vec(stored.lanes)), value)


def small_values(kind: str | None, stored: np.ndarray) -> np.ndarray:
    """The same of bytes in numpy, float32."""
    if kind != "e4m3":
        return stored.view(np.int8 if kind == "i8" else np.uint8).astype(np.float32)
    value = ((stored & np.uint8(127)).astype(np.uint16) << np.uint16(7)).view(np.float16).astype(np.float32)
    return np.where(stored == 127, np.float32(0), value * np.float32(128))


def code_values(b: Builder, traits: CodeTraits, codes: Node) -> Node:
    """Codes as signed bytes or u8 that the dot product takes: table looked up, `zero` still in."""
    if traits.table is None:
        return codes
    return b.lookup((*traits.table, *(0,) * (16 - len(traits.table))), codes, I8)


def decode_group(b: Builder, traits: CodeTraits, block: Codes, g: int) -> Node:
    """The f32 values of group g, rounded as ggml's dequantisers do."""
    codes = b.cast(code_values(b, traits, block.groups[g]), I32)
    if traits.zero:
        codes = codes - traits.zero
    scale = scale_value(b, traits, block.d)
    if traits.sub_scale:
        scale = scale * small_value(b, block.sub_scales[g], traits.sub_scale)
    values = b.cast(codes, F32) * scale
    if traits.offset is None:
        return values
    assert block.m is not None
    offset = half_value(b, block.m)
    if traits.offset == "group":
        offset = offset * small_value(b, block.group_m[g])
    return values + offset if traits.offset_sign > 0 else values - offset
