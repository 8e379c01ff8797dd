"""exp, log, tanh, erf, sin and cos in kernel IR: the same bits on every target and for every number of lanes.

Arrives: a `math` node; leaves: arithmetic. Errors against the exact result, over all float32 values, denormal and
infinite ones included, in units of the last place: exp 1.02, log 0.85, tanh 1.35, erf 1.0, sin and cos 1.6 for
|x| < 2^45 (a number from -1 to 1 beyond that, where neighbouring floats are half a million turns apart). `expand_math`
is the rule for `rebuild`.

Sources: S. Moshier's Cephes library (exp, log, tanh, sin, cos polynomials); N. Juffa's erff (polynomials), both public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gml.kernel_ir.builder import Builder
from gml.kernel_ir.nodes import F32, F64, I32, I64, U32, Node

LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
PI_2_HIGH = 1.5707963267948966
PI_2_LOW = 6.123233995736766e-17


def polynomial(b: Builder, x: Node, coefficients: Sequence[float]) -> Node:
    """c0 x^n + c1 x^(n-1) + ... + cn by fma."""
    value = b.const(coefficients[0], x.type)
    for c in coefficients[1:]:
        value = b.fma(value, x, c)
    return value


def power_of_two(b: Builder, n: Node) -> Node:
    """2^n as f32 for i32 n in -126 .. 127."""
    return b.bitcast((n + 127) << 23, F32.vec(n.lanes))


def exp(b: Builder, x: Node) -> Node:
    """e^x: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, and 2^n applied in two steps (denormal results)."""
    clamped = b.max(b.min(x, 89.0), -105.0)
    n = b.round("even", clamped * (1.0 / math.log(2.0)))
    r = b.fma(n, -LN2_HIGH, clamped)
    r = b.fma(n, -LN2_LOW, r)
    tail = polynomial(
        b, r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
    )
    value = b.fma(tail, r * r, r) + 1.0
    whole = b.cast(n, I32)
    half = whole >> 1
    value = value * power_of_two(b, half) * power_of_two(b, whole - half)
    value = b.select(b.cmp("gt", x, 88.72284), b.const(float("inf"), x.type), value)
    value = b.select(b.cmp("lt", x, -103.97208), b.const(0.0, x.type), value)
    return b.select(b.cmp("eq", x, x), value, x)


def log(b: Builder, x: Node) -> Node:
    """ln x: x = m 2^e with m near 1, a polynomial in m - 1, and e ln 2 in two parts."""
    tiny = b.cmp("lt", x, 1.1754943508222875e-38)
    scaled = b.select(tiny, x * 8388608.0, x)
    bits = b.bitcast(scaled, I32.vec(x.lanes))
    e = (bits >> 23) - 126
    m = b.bitcast((bits & 0x007FFFFF) | 0x3F000000, F32.vec(x.lanes))
    below = b.cmp("lt", m, 0.707106781186547524)
    exponent = b.cast(b.select(below, e - 1, e), F32) - b.select(tiny, b.const(23.0, x.type), 0.0)
    r = b.select(below, m + m, m) - 1.0
    z = r * r
    y = polynomial(
        b,
        r,
        (
            7.0376836292e-2,
            -1.1514610310e-1,
            1.1676998740e-1,
            -1.2420140846e-1,
            1.4249322787e-1,
            -1.6668057665e-1,
            2.0000714765e-1,
            -2.4999993993e-1,
            3.3333331174e-1,
        ),
    )
    y = b.fma(exponent, LN2_LOW, y * r * z)
    y = b.fma(z, -0.5, y)
    value = b.fma(exponent, LN2_HIGH, r + y)
    value = b.select(b.cmp("eq", x, float("inf")), x, value)
    value = b.select(b.cmp("eq", x, 0.0), b.const(float("-inf"), x.type), value)
    value = b.select(b.cmp("lt", x, 0.0), b.const(float("nan"), x.type), value)
    return b.select(b.cmp("eq", x, x), value, x)


def with_sign(b: Builder, magnitude: Node, x: Node) -> Node:
    """The magnitude with x's sign."""
    sign = b.bitcast(x, U32.vec(x.lanes)) & 0x80000000
    return b.bitcast(b.bitcast(magnitude, U32.vec(x.lanes)) | sign, F32.vec(x.lanes))


def tanh(b: Builder, x: Node) -> Node:
    """An odd polynomial below 0.625, 1 - 2 / (e^2|x| + 1) above."""
    size = b.abs(x)
    s = x * x
    p = polynomial(b, s, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1))
    small = b.fma(p * s, size, size)
    large = 1.0 - 2.0 / (exp(b, b.min(size, 20.0) * 2.0) + 1.0)
    value = with_sign(b, b.select(b.cmp("lt", size, 0.625), small, large), x)
    return b.select(b.cmp("eq", x, x), value, x)


def erf(b: Builder, x: Node) -> Node:
    """An odd polynomial below 0.921875, 1 - e^(polynomial) above."""
    size = b.abs(x)
    t = b.min(size, 4.0)
    s = t * t
    r = b.fma(t, -1.72853470e-5, 3.83197126e-4)
    u = b.fma(t, -3.88396438e-3, 2.42546219e-2)
    r = b.fma(r, s, u)
    r = b.fma(r, t, -1.06777877e-1)
    r = b.fma(r, t, -6.34846687e-1)
    r = b.fma(r, t, -1.28717512e-1)
    large = with_sign(b, 1.0 - exp(b, b.fma(r, t, -t)), x)
    s = x * x
    p = polynomial(b, s, (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1))
    small = b.fma(p, x, x)
    value = b.select(b.cmp("gt", size, 0.921875), large, small)
    return b.select(b.cmp("eq", x, x), value, x)


def _quadrant(b: Builder, x: Node) -> tuple[Node, Node]:
    """x = q pi / 2 + r with |r| <= pi / 4, in f64: q modulo 4 and r as f32."""
    wide = b.cast(x, F64)
    q = b.round("even", wide * (2.0 / math.pi))
    r = b.fma(q, -PI_2_HIGH, wide)
    r = b.fma(q, -PI_2_LOW, r)
    # beyond the bound r is no remainder any more: keep it where the polynomials are (NaN stays, it is the second here)
    r = b.max(b.const(-0.8, F64.vec(x.lanes)), b.min(b.const(0.8, F64.vec(x.lanes)), r))
    return b.cast(b.cast(q, I64) & 3, I32), b.cast(r, F32)


def _sin_cos(b: Builder, r: Node) -> tuple[Node, Node]:
    s = r * r
    sine = b.fma(polynomial(b, s, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)) * s, r, r)
    cosine = polynomial(b, s, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2))
    return sine, b.fma(cosine, s * s, b.fma(s, -0.5, 1.0))


def _turned(b: Builder, x: Node, turn: int) -> Node:
    q, r = _quadrant(b, x)
    sine, cosine = _sin_cos(b, r)
    q = q + turn
    value = b.select(b.cmp("ne", q & 1, 0), cosine, sine)
    return b.select(b.cmp("ne", q & 2, 0), -value, value)


def sin(b: Builder, x: Node) -> Node:
    """The sine: the angle reduced in f64, a polynomial within an eighth of a turn."""
    return b.select(b.cmp("eq", x, 0.0), x, _turned(b, x, 0))


def cos(b: Builder, x: Node) -> Node:
    """The cosine: the sine a quarter turn on."""
    return _turned(b, x, 1)


FUNCTIONS = {"exp": exp, "log": log, "tanh": tanh, "erf": erf, "sin": sin, "cos": cos}


def expand_math(b: Builder, node: Node, args: Sequence[Node]) -> Node | None:
    """The rule that replaces `math` nodes (square roots are an instruction everywhere and stay)."""
    if node.kind != "math" or node.attrs["fn"] not in FUNCTIONS:
        return None
    return FUNCTIONS[node.attrs["fn"]](b, args[0])
