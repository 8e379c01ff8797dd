"""Replaces what a target lacks: vector maths everywhere, half floats where no instruction converts them.

Arrives: a kernel; leaves: a kernel that `emit.py` can write for the target. Next module: `emit.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gml.backends.cpu.target import Target
from gml.kernel_ir import F16, F32, U16, U32, Builder, Kernel, Node
from gml.kernel_ir.math import expand_math
from gml.kernel_ir.rewrite import rebuild


def legalise(kernel: Kernel, target: Target) -> Kernel:
    """The kernel without nodes that the target has no code for."""

    def rule(b: Builder, node: Node, args: Sequence[Node]) -> Node | None:
        if node.kind == "math":
            return expand_math(b, node, args)
        if node.kind == "cast" and not target.f16:
            return _half_cast(b, node, args[0])
        return None

    return rebuild(kernel, rule)


def _half_cast(b: Builder, node: Node, x: Node) -> Node | None:
    """Casts from and to f16 in integer arithmetic."""
    source, result = x.type.scalar, node.type.scalar
    if source == F16:
        wide = half_to_float(b, x)
        return b.cast(wide, result)
    if result == F16:
        return float_to_half(b, b.cast(x, F32))
    return None


def half_to_float(b: Builder, x: Node) -> Node:
    """f16 as f32: the exponent moved over; denormals by a subtraction of floats."""
    bits = b.cast(b.bitcast(x, U16.vec(x.lanes)), U32)
    magnitude = (bits & 0x7FFF) << 13
    exponent = magnitude & 0x0F800000
    moved = magnitude + (112 << 23)
    special = moved + (112 << 23)
    magic = b.const(113 << 23, U32.vec(x.lanes))
    tiny = b.bitcast(
        b.bitcast(moved + (1 << 23), F32.vec(x.lanes)) - b.bitcast(magic, F32.vec(x.lanes)), U32.vec(x.lanes)
    )
    value = b.select(b.cmp("eq", exponent, 0x0F800000), special, b.select(b.cmp("eq", exponent, 0), tiny, moved))
    return b.bitcast(value | ((bits & 0x8000) << 16), F32.vec(x.lanes))


def float_to_half(b: Builder, x: Node) -> Node:
    """f32 as f16, rounded to nearest even; what is too large becomes infinite, NaN stays NaN."""
    lanes = x.lanes
    bits = b.bitcast(x, U32.vec(lanes))
    sign = bits & 0x80000000
    size = bits ^ sign
    magic = b.bitcast(b.const(126 << 23, U32.vec(lanes)), F32.vec(lanes))
    tiny = b.bitcast(b.bitcast(size, F32.vec(lanes)) + magic, U32.vec(lanes)) - (126 << 23)
    odd = (size >> 13) & 1
    normal = (size - (112 << 23) + 0xFFF + odd) >> 13
    large = b.select(b.cmp("gt", size, 0x7F800000), b.const(0x7E00, U32.vec(lanes)), 0x7C00)
    half = b.select(b.cmp("lt", size, 113 << 23), tiny, normal)
    half = b.select(b.cmp("ge", size, (127 + 16) << 23), large, half)
    return b.bitcast(b.cast(half | (sign >> 16), U16), F16.vec(lanes))
