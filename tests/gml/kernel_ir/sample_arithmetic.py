"""Samples of arithmetic, conversions and lanes. Next module: `sample_structure.py`."""

from __future__ import annotations

import math
import operator
from fractions import Fraction

import numpy as np
from kernel_ir.sample_base import FLOATS, INTEGERS, in_numpy, lanewise, numbers, numpy_type, pairs, python_integers

from gml.kernel_ir import BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Builder, Node, Type

# -- integers ----------------------------------------------------------------------------------------------------------


def divide(a: int, b: int) -> int:
    """Towards zero; 0 when b is 0."""
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return a - divide(a, b) * b


_INTEGER = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": divide, "rem": remainder}
_BITS = {"and_": operator.and_, "or_": operator.or_, "xor": operator.xor, "min": min, "max": max}

for t in INTEGERS:
    a, b = pairs(t)
    for kind, function in {**_INTEGER, **_BITS}.items():
        made = lambda b, x, y, kind=kind: getattr(b, kind)(x, y)  # noqa: E731
        lanewise(f"{kind.strip('_')}-{t}", made, [a, b], [t, t], python_integers(function, t, a, b))
    # i64 scalars are indices: folded, and numbers of Python in the interpreter
    scalar = lambda b, x, y: b.xor(b.add(b.div(x, y), b.mul(x, y)), b.sub(b.rem(x, y), b.min(x, y)))  # noqa: E731
    mixed = python_integers(lambda x, y: (divide(x, y) + x * y) ^ (remainder(x, y) - min(x, y)), t, a, b)
    lanewise(f"scalar-{t}", scalar, [a, b], [t, t], mixed, lanes=1)
    counts = (np.arange(len(a)) % t.bits).astype(numpy_type(t))
    for kind, function in {"shl": operator.lshift, "shr": operator.rshift}.items():
        made = lambda b, x, y, kind=kind: getattr(b, kind)(x, y)  # noqa: E731
        lanewise(f"{kind}-{t}", made, [a, counts], [t, t], python_integers(function, t, a, counts))
    lanewise(f"neg-{t}", lambda b, x: -x, [a], [t], python_integers(operator.neg, t, a))
    lanewise(f"abs-{t}", lambda b, x: b.abs(x), [a], [t], python_integers(abs, t, a))

# -- floats ------------------------------------------------------------------------------------------------------------


def smaller(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(x < y, x, y)


def larger(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(x > y, x, y)


_FLOAT = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rem": np.fmod,
    "min": smaller, "max": larger,
}  # fmt: skip

for t in FLOATS:
    a, b = pairs(t, 20)
    for kind, function in _FLOAT.items():
        made = lambda b, x, y, kind=kind: getattr(b, kind)(x, y)  # noqa: E731
        lanewise(f"{kind}-{t}", made, [a, b], [t, t], in_numpy(function, a, b), lanes=4)
    for lanes in (1, 2, 16):
        add_mul = lambda b, x, y: x * y + y  # noqa: E731
        lanewise(f"add_mul-{t}-{lanes}", add_mul, [a, b], [t, t], in_numpy(lambda x, y: x * y + y, a, b), lanes=lanes)
    lanewise(f"neg-{t}", lambda b, x: -x, [a], [t], -a)
    lanewise(f"abs-{t}", lambda b, x: b.abs(x), [a], [t], np.abs(a))


def fused(x: float, y: float, z: float) -> Fraction | float:
    """x y + z exactly, or the float that it is where that is none."""
    if not all(map(math.isfinite, (x, y, z))):
        return z if math.isfinite(x) and math.isfinite(y) else (x * y) + z
    value = Fraction(x) * Fraction(y) + Fraction(z)
    return value if value else (x * y) + z if (x == 0 or y == 0) else 0.0


def nearest(value: Fraction | float, t: Type) -> float:
    """The float of a type nearest to an exact value, ties to even; found by scaling to an integer."""
    if isinstance(value, float):
        return value
    digits, lowest, highest = {32: (24, -149, 128), 64: (53, -1074, 1024)}[t.bits]
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += size >= Fraction(2) ** exponent
    unit = max(exponent - digits, lowest)
    rounded = round(size / Fraction(2) ** unit)  # Python's round is half to even
    if rounded * Fraction(2) ** unit >= Fraction(2) ** highest:
        return math.inf if value > 0 else -math.inf
    return math.ldexp(rounded, unit) if value >= 0 else -math.ldexp(rounded, unit)


#: f32 triples whose sum in f64 lies near the middle of two f32, so that rounding twice goes wrong
_TWICE = [
    (1.0 + 2.0**-23, 1.0 + 2.0**-23, 2.0**-60), (2.0**-24, 1.0, 1.0), (2.0**-24, 1.0, 1.0 + 2.0**-23),
    (1.0 + 2.0**-12, 1.0 + 2.0**-12, 2.0**-70), (1.0 + 2.0**-12, 1.0 + 2.0**-12, -(2.0**-70)),
    (2.0**-75, 2.0**-75, 2.0**-149), (2.0**-75, 2.0**-75, -(2.0**-149)), (1.5 * 2.0**-75, 2.0**-75, 0.0),
    (2.0**-24 * (1 + 2.0**-20), 1.0 - 2.0**-20, 1.0), (3.0e38, 2.0, -3.4e38), (2.0**-80, 2.0**-80, 1.0 + 2.0**-23),
]  # fmt: skip

for t in (F32, F64):
    dtype = numpy_type(t)
    grid = [np.ascontiguousarray(v.reshape(-1)) for v in np.meshgrid(*[numbers(t, seed, 20)[:8] for seed in (1, 2, 3)])]
    random = [numbers(t, seed, 256) for seed in (4, 5, 6)]
    close = [
        random[0],
        random[1],
        -(in_numpy(np.multiply, random[0], random[1])),
    ]  # what is left is the rounding's error
    twice = [np.array(column, dtype) for column in zip(*(_TWICE * 8)[:88], strict=True)]
    operands = [np.concatenate(parts) for parts in zip(grid, random, close, twice, strict=True)]
    rows = zip(*(o.tolist() for o in operands), strict=True)
    with np.errstate(all="ignore"):
        truth = np.array([nearest(fused(*row), t) for row in rows], dtype)
    lanewise(f"fma-{t}", lambda b, x, y, z: b.fma(x, y, z), operands, [t] * 3, truth)
    lanewise(f"fma-{t}-scalar", lambda b, x, y, z: b.fma(x, y, z), operands, [t] * 3, truth, lanes=1)


def away(x: np.ndarray) -> np.ndarray:
    """Half away from zero, by fractions."""
    exact = [v if not math.isfinite(v) else math.floor(abs(Fraction(v)) + Fraction(1, 2)) for v in x.tolist()]
    return np.copysign(np.array([float(v) for v in exact]), x)


_ROUND = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "even": np.rint, "away": away}
for t in FLOATS:
    ties = np.arange(-8, 8).astype(numpy_type(t)) / numpy_type(t).type(2)
    below = np.nextafter(ties, numpy_type(t).type(0))
    values = np.concatenate([numbers(t, 7), ties, below])
    for how, function in _ROUND.items():
        made = lambda b, x, how=how: b.round(how, x)  # noqa: E731
        lanewise(f"round-{how}-{t}", made, [values], [t], in_numpy(function, values))

# -- functions ---------------------------------------------------------------------------------------------------------

_MATH = {"exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": np.vectorize(math.erf)}
_ARGUMENTS = np.concatenate([
    numbers(F32, 8), np.random.default_rng(9).uniform(-100, 100, 512).astype(np.float32),
    np.linspace(-4, 4, 512, dtype=np.float32), np.logspace(-30, 8, 128, dtype=np.float32),
])  # fmt: skip

for fn, function in _MATH.items():
    arguments = _ARGUMENTS[np.abs(_ARGUMENTS) < 1e9] if fn in ("sin", "cos") else _ARGUMENTS
    arguments = arguments[: len(arguments) // 8 * 8]
    truth = in_numpy(lambda x, f=function: f(x).astype(np.float32), arguments.astype(np.float64), dtype=np.float32)
    lanewise(f"math-{fn}", lambda b, x, fn=fn: b.math(fn, x), [arguments], [F32], truth, ulp=2)
    lanewise(f"math-{fn}-scalar", lambda b, x, fn=fn: b.math(fn, x), [arguments[:32]], [F32], truth[:32], 1, ulp=2)
for t in (F32, F64):
    values = numbers(t, 10)
    lanewise(f"math-sqrt-{t}", lambda b, x: b.math("sqrt", x), [values], [t], in_numpy(np.sqrt, values))

# -- truth values ------------------------------------------------------------------------------------------------------

_COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def chosen(how: str):  # type: ignore[no-untyped-def]
    """x where the comparison holds, else y; and the comparison as a number."""
    return lambda b, x, y: b.select(b.cmp(how, x, y), x, y)


for t in (*INTEGERS, *FLOATS):
    a, b = pairs(t)
    for how, compare in _COMPARE.items():
        truth = np.where(in_numpy(compare, a, b, dtype=bool), a, b)
        lanewise(f"cmp-{how}-{t}", chosen(how), [a, b], [t, t], truth)
    lanewise(f"cmp-scalar-{t}", chosen("lt"), [a, b], [t, t], np.where(a < b, a, b), lanes=1)


def logic(b: Builder, x: Node, y: Node) -> Node:
    """Truth values combined bitwise, moved about, and as numbers."""
    low, high, same = b.cmp("lt", x, y), b.cmp("gt", x, 100), b.cmp("eq", x, y)
    found = b.xor(b.or_(b.and_(low, high), same), b.shuffle(high, None, range(7, -1, -1)))
    found = b.insert(found, b.extract(low, 3), 0)
    return b.cast(b.select(b.splat(b.extract(same, 1), 8), low, found), U8)


def logic_in_numpy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    low, high, same = x < y, x > 100, x == y
    found = ((low & high) | same).reshape(-1, 8) ^ high.reshape(-1, 8)[:, ::-1]
    found[:, 0] = low.reshape(-1, 8)[:, 3]
    return np.where(same.reshape(-1, 8)[:, 1:2], low.reshape(-1, 8), found).astype(np.uint8).reshape(-1)


a, b = pairs(I32)
lanewise("logic", logic, [a, b], [I32, I32], logic_in_numpy(a, b))
lanewise(
    "truth-to-float", lambda b, x, y: b.cast(b.cmp("le", x, y), F32), [a, b], [I32, I32], (a <= b).astype(np.float32)
)

# -- conversions -------------------------------------------------------------------------------------------------------


def saturated(x: float, t: Type) -> int:
    """Half to even, into the range; NaN is 0."""
    low, high = (-(1 << (t.bits - 1)), (1 << (t.bits - 1)) - 1) if t.kind == "i" else (0, (1 << t.bits) - 1)
    if math.isnan(x):
        return 0
    return high if x == math.inf else low if x == -math.inf else min(max(round(Fraction(x)), low), high)


for source in FLOATS:
    edges = [
        v for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1.5, -0.5, 0, 0.5) for v in (2.0**k + d, -(2.0**k) - d)
    ]
    with np.errstate(over="ignore"):
        values = np.concatenate([numbers(source, 11), np.array(edges).astype(numpy_type(source))])
    for result in INTEGERS:
        truth = np.array([saturated(v, result) for v in values.tolist()], numpy_type(result))
        lanewise(f"cast-{source}-{result}", lambda b, x, t=result: b.cast(x, t), [values], [source], truth)
for source in INTEGERS:
    values = numbers(source, 12)
    for result in INTEGERS:
        truth = python_integers(lambda v: v, result, values)
        lanewise(f"cast-{source}-{result}", lambda b, x, t=result: b.cast(x, t), [values], [source], truth)
    for result in FLOATS:
        exact = [nearest(Fraction(v), F64 if result == F64 else F32) for v in values.tolist()]
        with np.errstate(over="ignore"):
            truth = np.array(exact, np.float64).astype(numpy_type(result))
        lanewise(f"cast-{source}-{result}", lambda b, x, t=result: b.cast(x, t), [values], [source], truth)
for source, result in ((F16, F32), (F16, F64), (F32, F16), (F32, F64), (F64, F32)):
    middle = np.arange(48) * 2.0**-12 + 1 + 2.0**-11  # halfway between f16, and around
    values = np.concatenate([numbers(source, 13), middle.astype(numpy_type(source))])
    with np.errstate(all="ignore"):
        truth = values.astype(numpy_type(result))
    lanewise(f"cast-{source}-{result}", lambda b, x, t=result: b.cast(x, t), [values], [source], truth)
    lanewise(f"cast-{source}-{result}-scalar", lambda b, x, t=result: b.cast(x, t), [values], [source], truth, lanes=1)

_all_halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
lanewise("cast-every-f16", lambda b, x: b.cast(x, F32), [_all_halves], [F16], _all_halves.astype(np.float32), lanes=64)

for source, result in ((F32, I32), (U32, F32), (F64, I64), (F16, U16), (I8, U8), (I64, U64)):
    values = numbers(source, 14)
    made = lambda b, x, t=result: b.bitcast(x, t.vec(x.lanes))  # noqa: E731
    lanewise(f"bitcast-{source}-{result}", made, [values], [source], values.view(numpy_type(result)))
    lanewise(f"bitcast-{source}-{result}-scalar", made, [values], [source], values.view(numpy_type(result)), lanes=1)


def low_bytes(b: Builder, x: Node) -> Node:
    """Every word's lowest byte, by way of another number of lanes."""
    return b.cast(b.shuffle(b.bitcast(x, U8.vec(32)), None, range(0, 32, 4)), U32)


values = numbers(U32, 15)
lanewise("bitcast-lanes", low_bytes, [values], [U32], values & 0xFF)

# -- lanes -------------------------------------------------------------------------------------------------------------

for t in (F16, F32, F64, I8, U8, I16, I32, I64, U64):
    values = numbers(t, 16, 64)
    rows = values.reshape(-1, 8)

    def swap(b: Builder, x: Node) -> Node:
        """The first lane in every lane but the last two, which are lanes 6 and 2."""
        return b.insert(b.insert(b.splat(b.extract(x, 0), 8), b.extract(x, 6), 6), b.extract(x, 2), 7)

    lanewise(f"lanes-{t}", swap, [values], [t], rows[:, [0, 0, 0, 0, 0, 0, 6, 2]].reshape(-1))
    order = (7, 8, 0, 15, 3, 3, 12, 1)
    both = np.concatenate([rows, rows[:, ::-1]], axis=1)[:, order].reshape(-1)
    backwards = rows[:, ::-1].reshape(-1)
    lanewise(
        f"shuffle-{t}", lambda b, x, y: b.shuffle(x, y, (7, 8, 0, 15, 3, 3, 12, 1)), [values, backwards], [t, t], both
    )
    lanewise(f"slices-{t}", lambda b, x: b.concat(b.slice(x, 4, 4), b.slice(x, 0, 4)), [values], [t],
             rows[:, [4, 5, 6, 7, 0, 1, 2, 3]].reshape(-1))  # fmt: skip
    lanewise(f"quarters-{t}", lambda b, x: b.concat(*[b.slice(x, i, 2) for i in (6, 2, 4, 0)]), [values], [t],
             rows[:, [6, 7, 2, 3, 4, 5, 0, 1]].reshape(-1))  # fmt: skip
_EIGHT = tuple(range(8))
_truth = np.tile(np.arange(8, dtype=np.int32), 2)
lanewise("const-lanes", lambda b, x: x + b.const(_EIGHT, I32.vec(8)), [_truth * 0], [I32], _truth)
_truth = np.tile(np.array([1, 7], np.int32), 8)
made = lambda b, x: b.select(b.const((True, False) * 4, BOOL.vec(8)), x, 7)  # noqa: E731
lanewise("const-truth", made, [_truth * 0 + 1], [I32], _truth)


def constant(t: Type, value: float, held: float) -> None:
    """A number as the type holds it."""
    truth = np.full(16, held, numpy_type(t))
    lanewise(f"const-{t}-{value}", lambda b, x: b.const(value, t.vec(8)), [np.zeros_like(truth)], [t], truth)


for t, value, held in (
    (F32, 0.1, np.float32(0.1)), (F32, -0.0, -0.0), (F32, math.inf, math.inf), (F32, math.nan, math.nan),
    (F32, 1e39, math.inf), (F16, 65519.0, 65504.0), (F16, 65520.0, math.inf), (F64, 0.1, 0.1),
    (U64, 2**64 - 1, 2**64 - 1), (I8, 0xFF, -1), (U8, -1, 255), (I64, -(2**63), -(2**63)), (I64, 2**63, -(2**63)),
):  # fmt: skip
    constant(t, value, held)


def folded(values: np.ndarray, fold) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Halves folded until one lane is left, in every lane."""
    n = values.shape[1]
    with np.errstate(all="ignore"):
        while values.shape[1] > 1:
            half = values.shape[1] // 2
            values = fold(values[:, :half], values[:, half:]).astype(values.dtype)
    return values.repeat(n, axis=1).reshape(-1)


for t in (*INTEGERS, *FLOATS):
    for how, fold in {"add": np.add, "min": smaller, "max": larger}.items():
        for lanes in (2, 8, 32):
            if lanes != 8 and t not in (F32, I8):
                continue
            values = numbers(t, 17, 64)
            # few NaNs and infinities, or there is nothing else to see
            values = np.where(
                np.isfinite(values.astype(np.float64)) | (np.arange(64) < 24), values, values.dtype.type(1)
            )
            made = lambda b, x, how=how, lanes=lanes: b.splat(b.reduce(how, x), lanes)  # noqa: E731
            lanewise(f"reduce-{how}-{t}-{lanes}", made, [values], [t], folded(values.reshape(-1, lanes), fold), lanes)

_TABLE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
for t, table in ((I8, _TABLE), (U8, tuple(v & 0xFF for v in _TABLE))):
    for lanes in (1, 8, 16, 32, 64):
        index = np.random.default_rng(lanes).integers(0, 16, 128, np.uint8)
        truth = np.array(table, np.int64).astype(numpy_type(t))[index]
        made = lambda b, x, t=t, table=table: b.lookup(table, x, t)  # noqa: E731
        lanewise(f"lookup-{t}-{lanes}", made, [index], [U8], truth, lanes)


def group_dot(t: Type, n_pairs: int, lanes: int, w_max: int) -> None:
    """Weights and values at their bounds, and random ones."""
    random = np.random.default_rng(lanes + w_max)
    low, high = (-w_max, min(w_max, 127)) if t.kind == "i" else (0, w_max)
    n = 4 * lanes
    ws = [random.integers(low, high, n, endpoint=True).astype(numpy_type(t)) for _ in range(n_pairs)]
    xs = [random.integers(-127, 127, n, np.int8, endpoint=True) for _ in range(n_pairs)]
    for w, x in zip(ws, xs, strict=True):
        w[:lanes], x[:lanes] = high, 127
        w[lanes : 2 * lanes], x[lanes : 2 * lanes] = low, -127
        w[2 * lanes : 2 * lanes + 4], x[2 * lanes : 2 * lanes + 4] = high, -127
    total = sum(w.astype(np.int64) * x.astype(np.int64) for w, x in zip(ws, xs, strict=True))
    truth = total.reshape(-1, 4).sum(axis=1).repeat(4).astype(np.int32)  # repeated: as many results as weights

    def make(b: Builder, *values: Node) -> Node:
        sums = b.group_dot(values[:n_pairs], values[n_pairs:], w_max)
        return b.shuffle(sums, None, [i // 4 for i in range(lanes)])

    types = [t] * n_pairs + [I8] * n_pairs
    lanewise(f"group_dot-{t}-{n_pairs}x{lanes}-{w_max}", make, [*ws, *xs], types, truth, lanes)


for lanes in (8, 16, 32, 64):
    for t, w_max in ((U8, 15), (U8, 31), (U8, 63), (U8, 127), (U8, 128), (U8, 255), (I8, 8), (I8, 127), (I8, 128)):
        group_dot(t, 1, lanes, w_max)
for t, w_max in ((U8, 3), (U8, 15), (U8, 127), (U8, 255), (I8, 7), (I8, 127), (I8, 128)):
    group_dot(t, 8, 32, w_max)
