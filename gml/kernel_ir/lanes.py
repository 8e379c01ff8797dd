"""What the kinds of nodes without memory and blocks mean, in numpy: arrays of lanes in, an array of lanes out.

Arrives: a node; leaves: a function of its arguments' lanes. `MEANINGS` has a row per kind. A function raises `Fault`
where the IR forbids what it was given. The `math` functions are computed in float64 and rounded; everything else is
exact. Next module: `interp.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from gml.kernel_ir.nodes import Node, Type

Lanes = Callable[..., np.ndarray]


class Fault(Exception):
    """The IR forbids what a node was given; the interpreter adds where."""


def dtype_of(type: Type) -> np.dtype:
    """The numpy type of one lane."""
    return np.dtype(np.bool_) if type.kind == "b" else np.dtype(f"{type.kind}{type.bits // 8}")


def _less(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a < b, a, b)


def _greater(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a > b, a, b)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers towards zero; a / 0 = 0, least / -1 = least."""
    plain = b != 0
    if a.dtype.kind == "i":
        plain &= b != -1
    safe = np.where(plain, b, b.dtype.type(1))
    q = a // safe
    q += ((a - q * safe) != 0) & ((a < 0) != (safe < 0))  # numpy's floor, back towards zero
    return np.where(plain, q, np.where(b == 0, a.dtype.type(0), np.negative(a)))


def _div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a / b if a.dtype.kind == "f" else _quotient(a, b)


def _rem(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.fmod(a, b) if a.dtype.kind == "f" else a - _quotient(a, b) * b


def _shift(shift: Lanes) -> Lanes:
    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = a.dtype.itemsize * 8
        if ((b < 0) | (b >= bits)).any():
            raise Fault(f"shift counts must be 0 to {bits - 1}, found {b.tolist()}")
        return shift(a, b)

    return run


# -- fused multiply-add ------------------------------------------------------------------------------------------------


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a + b as a rounded sum and its error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The product is exact in f64; the sum is rounded to odd there, so that rounding it again to f32 is right.

    Source: S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums" (2008).
    """
    s, error = _two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    bits = s.view(np.int64)
    inexact = (error != 0) & np.isfinite(error) & ((bits & 1) == 0)
    outwards = np.where((error > 0) == (s > 0), 1, -1)
    return np.where(inexact, bits + outwards, bits).view(np.float64).astype(np.float32)


def _fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Lane by lane in fractions, which are exact."""
    plain = a * b + c
    return np.array([_exact(*lane) for lane in zip(a.tolist(), b.tolist(), c.tolist(), plain.tolist(), strict=True)])


def _exact(a: float, b: float, c: float, plain: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return c if math.isinf(c) and math.isfinite(a) and math.isfinite(b) else plain
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if value == 0:  # the sign of zero is that of the float sum: -0 only from two negative zeros
        return (math.copysign(0.0, a) * math.copysign(1.0, b)) + c if a == 0 or b == 0 else 0.0
    try:
        rounded = value.numerator / value.denominator  # Python's division of integers rounds once
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return rounded if rounded else math.copysign(0.0, value)


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return _fma32(a, b, c) if a.dtype == np.float32 else _fma64(a, b, c)


# -- functions and conversions -----------------------------------------------------------------------------------------


def _away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return np.copysign(np.abs(whole) + (np.abs(x - whole) >= 0.5), x).astype(x.dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x.tolist()])


_COMPARE: dict[str, Lanes] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_ROUND: dict[str, Lanes] = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "even": np.rint, "away": _away}
_MATH: dict[str, Lanes] = {"exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": _erf}
_FOLD: dict[str, Lanes] = {"add": np.add, "min": _less, "max": _greater}


def _math(node: Node) -> Lanes:
    if node.attrs["fn"] == "sqrt":
        return np.sqrt
    function = _MATH[node.attrs["fn"]]
    return lambda x: function(x.astype(np.float64)).astype(np.float32)


def _cast(node: Node) -> Lanes:
    source, result = node.args[0].type, dtype_of(node.type)
    if source.kind != "f" or not node.type.is_int:
        return lambda x: x.astype(result)
    low, high = float(np.iinfo(result).min), float(int(np.iinfo(result).max) + 1)

    def saturate(x: np.ndarray) -> np.ndarray:
        x = np.rint(x.astype(np.float64))
        inside = (x >= low) & (x < high)
        value = np.where(inside, x, 0.0).astype(result)
        value[x >= high] = np.iinfo(result).max
        value[x < low] = np.iinfo(result).min
        return value

    return saturate


def _bitcast(node: Node) -> Lanes:
    dtype = dtype_of(node.type)
    return lambda x: x.view(dtype)


def _insert(node: Node) -> Lanes:
    lane = node.attrs["lane"]

    def run(a: np.ndarray, scalar: np.ndarray) -> np.ndarray:
        made = a.copy()
        made[lane] = scalar[0]
        return made

    return run


def _shuffle(node: Node) -> Lanes:
    lanes = np.array(node.attrs["lanes"])
    return lambda a, b: np.concatenate((a, b))[lanes]


def _reduce(node: Node) -> Lanes:
    fold = _FOLD[node.attrs["how"]]

    def run(a: np.ndarray) -> np.ndarray:
        while len(a) > 1:
            half = len(a) // 2
            a = fold(a[:half], a[half:])
        return a

    return run


def _lookup(node: Node) -> Lanes:
    table = np.array(node.attrs["table"], dtype_of(node.type))

    def run(index: np.ndarray) -> np.ndarray:
        if index.max() > 15:
            raise Fault(f"indices must be below 16, found {index.tolist()}")
        return table[index]

    return run


def _group_dot(node: Node) -> Lanes:
    n, w_max = len(node.args) // 2, node.attrs["w_max"]

    def run(*vectors: np.ndarray) -> np.ndarray:
        w = np.stack(vectors[:n]).astype(np.int32)
        x = np.stack(vectors[n:]).astype(np.int32)
        if np.abs(w).max() > w_max:
            raise Fault(f"w_max is {w_max}, but a weight is {int(w.flat[np.abs(w).argmax()])}")
        if x.min() == -128:
            raise Fault("no x may be -128")
        return (w * x).reshape(n, -1, 4).sum(axis=(0, 2), dtype=np.int32)

    return run


#: per kind: from the node to a function of lanes
MEANINGS: dict[str, Callable[[Node], Lanes]] = {
    "add": lambda node: np.add,
    "sub": lambda node: np.subtract,
    "mul": lambda node: np.multiply,
    "div": lambda node: _div,
    "rem": lambda node: _rem,
    "min": lambda node: _less,
    "max": lambda node: _greater,
    "and": lambda node: np.bitwise_and,
    "or": lambda node: np.bitwise_or,
    "xor": lambda node: np.bitwise_xor,
    "shl": lambda node: _shift(np.left_shift),
    "shr": lambda node: _shift(np.right_shift),
    "neg": lambda node: np.negative,
    "abs": lambda node: np.abs,
    "fma": lambda node: _fma,
    "cmp": lambda node: _COMPARE[node.attrs["how"]],
    "round": lambda node: _ROUND[node.attrs["how"]],
    "math": _math,
    "cast": _cast,
    "bitcast": _bitcast,
    "splat": lambda node: lambda x, n=node.lanes: x.repeat(n),
    "extract": lambda node: lambda x, lane=node.attrs["lane"]: x[lane : lane + 1],
    "insert": _insert,
    "shuffle": _shuffle,
    "reduce": _reduce,
    "lookup": _lookup,
    "group_dot": _group_dot,
}


def constant(value: Any, type: Type) -> np.ndarray:
    """The lanes of a constant."""
    return np.array(value if isinstance(value, tuple) else (value,) * type.lanes, dtype_of(type))
