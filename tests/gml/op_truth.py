"""What each op means, a second time: scalar loops in float64, written from the formulas and not from `gml/ops`.

A row of `TRUTH` takes (attrs, ne, *sources) and gives the result in numpy's order; sources are float64 (or integer)
arrays of four axes, `ne` the result's four sizes. For ops that write, all sources come, the destination with its values
before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import op_truth_nets


def indices(ne: tuple[int, ...]) -> Any:
    """All (i3, i2, i1, i0) of a tensor."""
    return itertools.product(*(range(n) for n in reversed(ne)))


def filled(ne: tuple[int, ...], value: Callable[..., Any], dtype: Any = np.float64) -> np.ndarray:
    """The array whose element at (i3, i2, i1, i0) is value(i3, i2, i1, i0)."""
    out = np.empty(tuple(reversed(ne)), dtype)
    for index in indices(ne):
        out[index] = value(*index)
    return out


def unary(f: Callable[[float], float]) -> Callable[..., np.ndarray]:
    """A function applied to each element."""
    return lambda attrs, ne, a: filled(ne, lambda *i: f(float(a[i])))


def binary(f: Callable[[float, float], float]) -> Callable[..., np.ndarray]:
    """A function of each element of a and the element of b that lies there when b is tiled over a."""

    def truth(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return filled(ne, lambda *i: f(float(a[i]), float(b[tuple(j % n for j, n in zip(i, b.shape, strict=True))])))

    return truth


def by_row(f: Callable[..., list[Any]], dtype: Any = np.float64) -> Callable[..., np.ndarray]:
    """A function of (attrs, row) that gives the result's row."""

    def truth(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
        out = np.empty(tuple(reversed(ne)), dtype)
        for index in indices((*a.shape[:3][::-1],)):
            out[index] = f(attrs, [float(x) for x in a[index]])
        return out

    return truth


# -- functions of one number -------------------------------------------------------------------------------------------


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def relu(x: float) -> float:
    return max(x, 0.0)


def gelu(x: float) -> float:
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x: float) -> float:
    return x * normal_cdf(x)


def gelu_quick(x: float) -> float:
    return x * sigmoid(1.702 * x)


def silu(x: float) -> float:
    return x * sigmoid(x)


def hardsigmoid(x: float) -> float:
    return min(1.0, max(0.0, (x + 3) / 6))


def softplus(x: float) -> float:
    return x if x > 20 else math.log1p(math.exp(x))


def round_half_away(x: float) -> float:
    return math.copysign(math.floor(abs(x) + 0.5), x)


def sign(x: float) -> float:
    return float((x > 0) - (x < 0))


def clamp(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
    def one(x: float) -> float:
        if math.isnan(x) or x > attrs.max:
            return attrs.max
        return attrs.min if x < attrs.min else x

    return filled(ne, lambda *i: one(float(a[i])))


# -- rows --------------------------------------------------------------------------------------------------------------


def norm_row(attrs: Any, row: list[float]) -> list[float]:
    if not row:
        return []
    mean = math.fsum(row) / len(row)
    variance = math.fsum((x - mean) ** 2 for x in row) / len(row)
    return [(x - mean) / math.sqrt(variance + attrs.eps) for x in row]


def rms_norm_row(attrs: Any, row: list[float]) -> list[float]:
    if not row:
        return []
    mean_square = math.fsum(x * x for x in row) / len(row)
    return [x / math.sqrt(mean_square + attrs.eps) for x in row]


def l2_norm_row(attrs: Any, row: list[float]) -> list[float]:
    length = math.sqrt(math.fsum(x * x for x in row))
    return [x / max(length, attrs.eps) for x in row]


def group_norm(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
    out = np.empty(a.shape)
    n3, n_channels = a.shape[:2]
    per_group = math.ceil(n_channels / attrs.n_groups)
    for i3, group in itertools.product(range(n3), range(attrs.n_groups)):
        channels = range(group * per_group, min((group + 1) * per_group, n_channels))
        values = [float(x) for c in channels for x in a[i3, c].ravel()]
        normed = iter(norm_row(attrs, values))
        for c, i1, i0 in itertools.product(channels, range(a.shape[2]), range(a.shape[3])):
            out[i3, c, i1, i0] = next(normed)
    return out


def order_row(attrs: Any, row: list[float]) -> list[int]:
    by = (lambda i: -row[i]) if attrs.order == "desc" else (lambda i: row[i])
    return sorted(range(len(row)), key=by)


def top_row(attrs: Any, row: list[float]) -> list[int]:
    return sorted(range(len(row)), key=lambda i: (-row[i], i))[: attrs.k]


def argmax(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
    def best(row: list[float]) -> int:
        return max(range(len(row)), key=lambda i: (row[i], -i), default=0)

    return np.array([best([float(x) for x in row]) for row in a[0, 0]]).reshape(1, 1, 1, -1)


def glu(f: Callable[[float], float]) -> Callable[..., np.ndarray]:
    """One source of which one half of each row is activated."""

    def row(attrs: Any, values: list[float]) -> list[float]:
        n = len(values) // 2
        act, other = (n, 0) if attrs.swapped else (0, n)
        return [f(values[act + i]) * values[other + i] for i in range(n)]

    return by_row(row)


# -- movement ----------------------------------------------------------------------------------------------------------


def flat(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
    """The same elements in the same order."""
    elements = [a[i] for i in np.ndindex(a.shape)]
    return np.array(elements, a.dtype).reshape(tuple(reversed(ne)))


def permute(axes: tuple[int, ...] | None) -> Callable[..., np.ndarray]:
    def truth(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
        order = axes if axes is not None else attrs.axes
        out = np.empty(tuple(reversed(ne)), a.dtype)
        for i3, i2, i1, i0 in np.ndindex(a.shape):
            moved = [0, 0, 0, 0]
            for i, axis in zip((i0, i1, i2, i3), order, strict=True):
                moved[axis] = i
            out[tuple(reversed(moved))] = a[i3, i2, i1, i0]
        return out

    return truth


def concat(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    axis = 3 - attrs.dim
    n = a.shape[axis]

    def one(*index: int) -> Any:
        i = list(index)
        if i[axis] < n:
            return a[tuple(i)]
        i[axis] -= n
        return b[tuple(i)]

    return filled(ne, one, a.dtype)


def pad(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
    left = tuple(reversed(attrs.left))

    def one(*index: int) -> Any:
        i = tuple(j - n for j, n in zip(index, left, strict=True))
        return a[i] if all(0 <= j < n for j, n in zip(i, a.shape, strict=True)) else 0

    return filled(ne, one, a.dtype)


def repeat(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
    return filled(ne, lambda *i: a[tuple(j % n for j, n in zip(i, a.shape, strict=True))], a.dtype)


def set_(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = [a[i] for i in np.ndindex(a.shape)]
    s1, s2, s3 = attrs.steps
    for i3, i2, i1, i0 in np.ndindex(b.shape):
        out[attrs.offset + i0 + i1 * s1 + i2 * s2 + i3 * s3] = b[i3, i2, i1, i0]
    return np.array(out, a.dtype).reshape(a.shape)


def cast(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
    return filled(ne, lambda *i: math.trunc(float(a[i])) if attrs.type.is_integer else a[i])


def cpy(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return flat(attrs, ne, a)


def get_rows(attrs: Any, ne: Any, a: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return filled(ne, lambda i3, i2, i1, i0: a[i3, i2, int(ids[0, i3, i2, i1]), i0], a.dtype)


def set_rows(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray, ids: np.ndarray) -> np.ndarray:
    out = a.copy()
    _, n3, n2, _ = ids.shape
    for i3, i2, i1 in np.ndindex(b.shape[:3]):
        out[i3, i2, int(ids[0, i3 % n3, i2 % n2, i1])] = b[i3, i2, i1]
    return out


# -- from numbers ------------------------------------------------------------------------------------------------------


def arange(attrs: Any, ne: Any) -> np.ndarray:
    values = []
    while (
        (attrs.start + len(values) * attrs.step < attrs.stop)
        if attrs.step > 0
        else (attrs.start + len(values) * attrs.step > attrs.stop)
    ):
        values.append(attrs.start + len(values) * attrs.step)
    return np.array(values, float).reshape(1, 1, 1, -1)


def timestep_embedding(attrs: Any, ne: Any, t: np.ndarray) -> np.ndarray:
    half = attrs.dim // 2

    def one(i3: int, i2: int, i1: int, i0: int) -> float:
        if i0 >= 2 * half:
            return 0.0
        angle = float(t[0, 0, 0, i1]) * attrs.max_period ** (-(i0 % half) / half)
        return math.cos(angle) if i0 < half else math.sin(angle)

    return filled(ne, one)


def map_custom(attrs: Any, ne: Any, *arrays: np.ndarray) -> np.ndarray:
    if attrs.name == "_softsign":
        return filled(ne, lambda *i: float(arrays[0][i]) / (1 + abs(float(arrays[0][i]))))
    if attrs.name == "_outer":
        x, y = arrays
        return filled(ne, lambda i3, i2, i1, i0: x[0, 0, 0, i0] * y[0, 0, 0, i1])
    return np.array(sum(1 for x in arrays[0].ravel() if x > 0)).reshape(1, 1, 1, 1)


GATES = {"reglu": relu, "geglu": gelu, "swiglu": silu, "geglu_erf": gelu_erf, "geglu_quick": gelu_quick}

#: ops that give elements of their sources: results must be equal bit for bit
MOVERS: dict[str, Callable[..., np.ndarray]] = {
    "reshape": flat,
    "permute": permute(None),
    "transpose": permute((1, 0, 2, 3)),
    "cont": flat,
    "dup": flat,
    "cpy": cpy,
    "cast": cast,
    "repeat": repeat,
    "concat": concat,
    "pad": pad,
    "set": set_,
    "get_rows": get_rows,
    "set_rows": set_rows,
}

TRUTH: dict[str, Callable[..., np.ndarray]] = {
    **MOVERS,
    **op_truth_nets.TRUTH,
    "add": binary(lambda a, b: a + b),
    "sub": binary(lambda a, b: a - b),
    "mul": binary(lambda a, b: a * b),
    "div": binary(lambda a, b: a / b),
    "scale": lambda attrs, ne, a: filled(ne, lambda *i: attrs.scale * float(a[i]) + attrs.bias),
    "clamp": clamp,
    "sqr": unary(lambda x: x * x),
    "sqrt": unary(math.sqrt),
    "log": unary(math.log),
    "exp": unary(math.exp),
    "neg": unary(lambda x: -x),
    "abs": unary(lambda x: x if x > 0 else -x),
    "sin": unary(math.sin),
    "cos": unary(math.cos),
    "tanh": unary(lambda x: 1 - 2 / (math.exp(2 * x) + 1)),
    "relu": unary(relu),
    "gelu": unary(gelu),
    "gelu_erf": unary(gelu_erf),
    "gelu_quick": unary(gelu_quick),
    "silu": unary(silu),
    "sigmoid": unary(sigmoid),
    "elu": unary(lambda x: x if x > 0 else math.exp(x) - 1),
    "softplus": unary(softplus),
    "hardswish": unary(lambda x: x * hardsigmoid(x)),
    "hardsigmoid": unary(hardsigmoid),
    "step": unary(lambda x: 1.0 if x > 0 else 0.0),
    "sgn": unary(sign),
    "floor": unary(lambda x: float(x // 1)),
    "ceil": unary(lambda x: float(-(-x // 1))),
    "round": unary(round_half_away),
    "trunc": unary(lambda x: float(int(x))),
    **{name: glu(f) for name, f in GATES.items()},
    **{f"{name}_split": binary(lambda a, b, f=f: f(a) * b) for name, f in GATES.items()},
    "sum": lambda attrs, ne, a: np.array(math.fsum(a.ravel())).reshape(1, 1, 1, 1),
    "sum_rows": by_row(lambda attrs, row: [math.fsum(row)]),
    "mean": by_row(lambda attrs, row: [math.fsum(row) / len(row) if row else math.nan]),
    "argmax": argmax,
    "argsort": by_row(order_row, np.int64),
    "top_k": by_row(top_row, np.int64),
    "cumsum": by_row(lambda attrs, row: list(itertools.accumulate(row))),
    "norm": by_row(norm_row),
    "rms_norm": by_row(rms_norm_row),
    "l2_norm": by_row(l2_norm_row),
    "group_norm": group_norm,
    "arange": arange,
    "timestep_embedding": timestep_embedding,
    "map_custom": map_custom,
}
