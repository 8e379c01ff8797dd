"""What samples of the kernel IR are made of: kernels, data with all edges, comparison bit for bit.

Arrives: rows of `sample_arithmetic.py` and `sample_structure.py`; leaves: `SAMPLES`, collected in `samples.py`. What is
expected comes from Python's unbounded integers, fractions, `struct` and numpy, not from the interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gml.kernel_ir import F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Builder, Kernel, Node, Type

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS = (F16, F32, F64)
N = 48


@dataclass(frozen=True)
class Sample:
    """A kernel and one run of it.

    build     makes the kernel
    buffers   contents before the run, by parameter
    sizes     run-time sizes
    end       the run does chunks 0 <= i < end
    expected  by buffer: contents after the run, of the type that they are compared as; NaN equals NaN
    ulp       for `math` functions: how far floats may be off in units of the last place; 0 is bit for bit
    native    can be compiled (not: calls of Python functions)
    """

    name: str
    build: Callable[[], Kernel]
    buffers: Sequence[np.ndarray]
    expected: dict[int, np.ndarray]
    sizes: Sequence[int] = ()
    end: int = 1
    ulp: int = 0
    native: bool = True

    def fresh(self) -> list[np.ndarray]:
        """Copies of the buffers as flat bytes."""
        return [np.array(b).reshape(-1).view(np.uint8).copy() for b in self.buffers]


SAMPLES: list[Sample] = []


def assert_same(found: np.ndarray, expected: np.ndarray, ulp: int = 0) -> None:
    """Bytes of a buffer against what is expected: the same bits, where not NaN, or floats within `ulp`."""
    values = found.view(expected.dtype).reshape(expected.shape)
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(values, expected)
        return
    word = f"i{expected.dtype.itemsize}"
    a, b = (ordered(v.view(word)) for v in (values, expected))
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(values), nan)
    if ulp == 0:  # zeros of either sign differ here
        np.testing.assert_array_equal(
            values.view(word)[~nan], expected.view(word)[~nan], err_msg=f"{values} {expected}"
        )
        return
    worst = np.abs(a - b)[~nan].max(initial=0)
    assert worst <= ulp, f"{worst} ulp away"


def ordered(bits: np.ndarray) -> np.ndarray:
    """Bits of f32 as integers in the floats' order, neighbours one apart."""
    wide = bits.astype(np.int64)
    return np.where(wide < 0, -(wide & 0x7FFFFFFF), wide)


# -- data --------------------------------------------------------------------------------------------------------------


def numpy_type(t: Type) -> np.dtype:
    return np.dtype(f"{t.kind}{t.bits // 8}")


def wrapped(value: int, t: Type) -> int:
    """An integer modulo 2^bits."""
    value %= 1 << t.bits
    return value - (1 << t.bits) if t.kind == "i" and value >= 1 << (t.bits - 1) else value


def numbers(t: Type, seed: int = 0, n: int = N) -> np.ndarray:
    """Edges of a type and random numbers, n of them; each seed pairs them differently."""
    random = np.random.default_rng(seed)
    dtype = numpy_type(t)
    if t.kind == "f":
        limits = np.finfo(dtype)
        edges = np.array(
            [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.0, limits.max, limits.min, limits.tiny, limits.smallest_subnormal,
             -limits.smallest_subnormal, np.inf, -np.inf, np.nan, 1 + limits.eps, 0.1, 0.3, -0.7], dtype,
        )  # fmt: skip
        rest = (random.standard_normal(n) * 4).astype(dtype)
    else:
        limits = np.iinfo(dtype)
        edges = np.array([0, 1, 2, 3, 5, 7, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype)
        edges = np.concatenate([edges, (-edges[1:6]).astype(dtype)])
        rest = random.integers(limits.min, limits.max, n, dtype, endpoint=True)
    return random.permutation(np.concatenate([edges, rest])[:n])


def pairs(t: Type, n_edges: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """All edges against all edges."""
    edges = numbers(t, 1, 20)[:n_edges]
    return tuple(np.ascontiguousarray(v.reshape(-1)) for v in np.meshgrid(edges, edges))  # type: ignore[return-value]


def identifier(name: str) -> str:
    """A sample's name as a kernel's name."""
    return re.sub(r"\W", "_", name)


def start(name: str, n_buffers: int) -> tuple[Builder, list[Node]]:
    """A builder and the conventional parameters: buffers, then sizes, begin, end."""
    b = Builder(name)
    params = [b.param(f"p{i}") for i in range(n_buffers)]
    return b, [*params, b.param("sizes"), b.param("begin", I64), b.param("end", I64)]


def lanewise(
    name: str,
    make: Callable[..., Node],
    sources: Sequence[np.ndarray],
    types: Sequence[Type],
    expected: np.ndarray,
    lanes: int = 8,
    ulp: int = 0,
) -> None:
    """A kernel that applies `make(b, *values)` to all of some arrays, so many lanes at a time."""

    def build() -> Kernel:
        b, params = start(identifier(name), len(sources) + 1)

        def body(i: Node) -> None:
            values = [b.load(p, i * (t.bits // 8), t.vec(lanes)) for p, t in zip(params, types, strict=False)]
            b.store(params[len(sources)], i * (expected.dtype.itemsize), make(b, *values))

        b.loop(0, len(expected), body, step=lanes)
        return b.finish()

    buffers = [*sources, np.zeros_like(expected)]
    SAMPLES.append(Sample(name, build, buffers, {len(sources): expected}, ulp=ulp))


def python_integers(function: Callable[..., int], t: Type, *arrays: np.ndarray) -> np.ndarray:
    """A function of Python's integers over arrays, wrapped to the type."""
    rows = zip(*(a.tolist() for a in arrays), strict=True)
    return np.array([wrapped(function(*row), t) for row in rows], numpy_type(t))


def in_numpy(function: Callable[..., Any], *arrays: np.ndarray, dtype: Any = None) -> np.ndarray:
    """A numpy function without its warnings."""
    with np.errstate(all="ignore"):
        return np.asarray(function(*arrays), dtype or arrays[0].dtype)


def whole(
    name: str, body: Callable[..., None], buffers: Sequence[np.ndarray], expected: dict[int, np.ndarray], **more: Any
) -> None:
    """A kernel of its own: body(b, *parameters)."""

    def build() -> Kernel:
        b, params = start(identifier(name), len(buffers))
        body(b, *params)
        return b.finish()

    SAMPLES.append(Sample(name, build, buffers, expected, **more))
