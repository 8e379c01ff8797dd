"""Replaces what a target lacks by nodes that it has, with the same results bit for bit.

Arrives: a kernel; leaves: a kernel that `emit.py` can write for the target. Everywhere: vector maths, and the cases of
integer division that machines trap on. Without the instructions: half floats (computed in f32), rounding, fused
multiply-add. Next module: `text.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gml.backends.cpu.target import Target
from gml.kernel_ir import F16, F32, F64, I64, U16, U32, U64, Builder, Kernel, Node
from gml.kernel_ir.math import expand_math, with_sign
from gml.kernel_ir.rewrite import rebuild

#: kinds that compute with numbers; half floats go through f32 for them where no instruction converts
_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "rem", "min", "max", "neg", "abs", "round"))


def legalise(kernel: Kernel, target: Target) -> Kernel:
    """The kernel without nodes that the target has no code for."""

    def everywhere(b: Builder, node: Node, args: Sequence[Node]) -> Node | None:
        if node.kind == "math":
            return expand_math(b, node, args)
        if node.kind in ("div", "rem") and node.type.is_int:
            return _integer_division(b, node, args)
        return None

    def without_instructions(b: Builder, node: Node, args: Sequence[Node]) -> Node | None:
        if not target.f16 and (made := _half(b, node, args)) is not None:
            return made
        if node.kind == "fma" and not target.fma and node.type.bits == 32:
            return fused(b, *args)
        if not target.rounds:
            if node.kind == "round":
                return rounded(b, node.attrs["how"], args[0])
            if node.kind == "cast" and node.type.is_int and args[0].type.is_float:
                return b.emit("cast", node.type, (rounded(b, "even", args[0]),), {})
        return None

    made = rebuild(kernel, everywhere)
    if not (target.f16 and target.rounds and target.fma):
        # twice: a half float that is rounded becomes an f32 that is rounded
        made = rebuild(rebuild(made, without_instructions), without_instructions)
    return made


# -- integer division --------------------------------------------------------------------------------------------------


def _harmless(divisor: Node) -> bool:
    """Whether a divisor is known to be neither 0 nor -1."""
    if divisor.kind == "splat":
        divisor = divisor.args[0]
    if divisor.kind != "const":
        return False
    value = divisor.attrs["value"]
    return all(v not in (0, -1) for v in (value if isinstance(value, tuple) else (value,)))


def _integer_division(b: Builder, node: Node, args: Sequence[Node]) -> Node | None:
    """a / 0 = 0 and least / -1 = least; what is left of both follows from the quotient."""
    a, divisor = args
    if _harmless(divisor):
        return None
    zero = b.const(0, a.type)
    by_zero = b.cmp("eq", divisor, zero)
    special = by_zero
    if a.type.kind == "i":
        negating = b.cmp("eq", divisor, b.const(-1, a.type))
        special = b.or_(by_zero, negating)
    quotient = b.emit("div", a.type, (a, b.select(special, b.const(1, a.type), divisor)), {})
    if a.type.kind == "i":
        quotient = b.select(negating, b.neg(a), quotient)
    quotient = b.select(by_zero, zero, quotient)
    return quotient if node.kind == "div" else a - quotient * divisor


# -- fused multiply-add ------------------------------------------------------------------------------------------------


def fused(b: Builder, x: Node, y: Node, z: Node) -> Node:
    """x * y + z rounded once, for f32 in f64: the product is exact, and the sum rounded to odd can be rounded again.

    Source: S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums" (2008).
    """
    product, addend = b.cast(x, F64) * b.cast(y, F64), b.cast(z, F64)
    total = product + addend
    seen = total - product
    error = (product - (total - seen)) + (addend - seen)
    bits = b.bitcast(total, I64.vec(x.lanes))
    # towards the exact sum's side: away from zero when the error has the sum's sign
    outwards = b.cmp("ge", bits ^ b.bitcast(error, I64.vec(x.lanes)), b.const(0, I64.vec(x.lanes)))
    step = b.select(outwards, b.const(1, bits.type), b.const(-1, bits.type))
    inexact = b.and_(b.cmp("ne", error, 0.0), b.cmp("eq", bits & 1, 0))
    inexact = b.and_(inexact, b.cmp("lt", b.abs(error), float("inf")))
    return b.cast(b.bitcast(b.select(inexact, bits + step, bits), F64.vec(x.lanes)), F32)


# -- rounding ----------------------------------------------------------------------------------------------------------


def rounded(b: Builder, how: str, x: Node) -> Node:
    """A whole number near x (f32, f64) as `round` gives it: adding and subtracting 2^23 (2^52) rounds to even."""
    large = 8388608.0 if x.type.bits == 32 else 4503599627370496.0
    size = b.abs(x)
    even = (size + large) - large
    down = even - b.select(b.cmp("gt", even, size), b.const(1.0, x.type), 0.0)
    up = even + b.select(b.cmp("lt", even, size), b.const(1.0, x.type), 0.0)
    negative = b.cmp("lt", x, 0.0)
    value = {
        "even": lambda: even,
        "trunc": lambda: down,
        "floor": lambda: b.select(negative, up, down),
        "ceil": lambda: b.select(negative, down, up),
        "away": lambda: down + b.select(b.cmp("ge", size - down, 0.5), b.const(1.0, x.type), 0.0),
    }[how]()
    # what is large has no fraction; NaN is not below anything and stays
    return _signed(b, b.select(b.cmp("lt", size, large), value, size), x)


def _signed(b: Builder, size: Node, x: Node) -> Node:
    """size (not negative) with x's sign."""
    if x.type.bits == 32:
        return with_sign(b, size, x)
    words = U64.vec(x.lanes)
    return b.bitcast(b.bitcast(size, words) | (b.bitcast(x, words) & (1 << 63)), x.type)


# -- half floats -------------------------------------------------------------------------------------------------------


def _half(b: Builder, node: Node, args: Sequence[Node]) -> Node | None:
    """Casts from and to f16 in integer arithmetic, everything else in f32: rounding its results to f16 is right."""
    if node.kind == "cast":
        (x,) = args
        if x.type.scalar == F16 and node.type.scalar != F32:
            return b.cast(b.cast(x, F32), node.type.scalar)
        if x.type.scalar == F16:
            return half_to_float(b, x)
        if node.type.scalar == F16:
            return float_to_half(b, x if x.type.scalar == F32 else b.cast(x, F32))
    half = [a.type.scalar == F16 for a in args]
    if not any(half):
        return None
    if node.kind == "cmp":
        return b.cmp(node.attrs["how"], *(b.cast(a, F32) for a in args))
    if node.kind == "reduce":
        return _reduce(b, node.attrs["how"], args[0])
    if node.kind in _ARITHMETIC:
        wide = b.emit(node.kind, F32.vec(node.lanes), tuple(b.cast(a, F32) for a in args), node.attrs)
        return b.cast(wide, F16)
    return None


def _reduce(b: Builder, how: str, x: Node) -> Node:
    """Halves folded as f16: every sum is rounded."""
    while x.lanes > 1:
        half = x.lanes // 2
        low, high = (b.cast(b.slice(x, start, half), F32) for start in (0, half))
        x = b.cast({"add": b.add, "min": b.min, "max": b.max}[how](low, high), F16)
    return x


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
