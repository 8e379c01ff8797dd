"""Every node kind, compiled for the targets that run here, against the interpreter: the same bits (NaN is just NaN)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gml.backends.cpu.jit import compile_kernels, host_features
from gml.backends.cpu.target import TARGETS, Target, runs_here
from gml.kernel_ir import F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, VOID, Builder, Kernel, Node, Type
from gml.kernel_ir.interp import run
from gml.kernel_ir.lanes import dtype_of
from gml.kernel_ir.math import expand_math
from gml.kernel_ir.rewrite import rebuild

#: rows of input of every kernel
N = 64
HERE = [t for t in TARGETS if runs_here(t, host_features())]
INTS = [I8, I16, I32, I64, U8, U16, U32, U64]
FLOATS = [F16, F32, F64]
NUMBERS = [*INTS, *FLOATS]


def lanes_of(t: Type) -> tuple[int, ...]:
    """Scalars and more than a register; what is no register at all for two types, as compiling takes the time."""
    return (1, 3, 16) if t in (I8, F32) else (1, 16)


Make = Callable[[Builder, "list[Node]"], Node]


def lanewise(name: str, inputs: list[Type], make: Make) -> Kernel:
    """out[i] = make(inputs[i]) for every row of vectors; truth values are stored as bytes."""
    b = Builder(name)
    pointers = [b.param(f"x{i}") for i in range(len(inputs))]
    out = b.param("out")
    b.param("sizes")
    begin, end = b.param("begin", I64), b.param("end", I64)

    def row(i: Node) -> None:
        made = make(b, [b.load(p, i * t.n_bytes, t) for p, t in zip(pointers, inputs, strict=True)])
        if made.type.kind == "b":
            made = b.cast(made, U8)
        b.store(out, i * made.type.n_bytes, made)
        row_bytes.append(made.type)

    row_bytes: list[Type] = []
    b.loop(begin, end, row)
    kernel = b.finish()
    kernel.meta["types"] = (inputs, row_bytes[0])
    return kernel


def values(t: Type, n: int, rng: np.random.Generator) -> np.ndarray:
    """Random bits, small numbers and the edges of a type."""
    dtype = dtype_of(t.scalar)
    bits = rng.integers(0, 256, size=n * dtype.itemsize, dtype=np.uint8).view(dtype)
    small = rng.integers(-9, 10, size=n) * (0.25 if t.is_float else 1)
    made = np.where(rng.random(n) < 0.5, bits, small.astype(dtype))
    if t.is_float:
        info = np.finfo(dtype)
        edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, info.max, info.tiny, info.smallest_subnormal]
        edges += [127.5, 128.5, -128.5, 255.5, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 8388609.0]
    else:
        info = np.iinfo(dtype)
        edges = [0, 1, info.min, info.max, info.max - 1] + ([-1, -2] if t.kind == "i" else [])
    with np.errstate(over="ignore", invalid="ignore"):
        edges = np.array(edges).astype(dtype)
    places = rng.random(n) < 0.3
    made[places] = rng.choice(edges, size=int(places.sum()))
    return made


def outputs(module: object, kernel: Kernel, data: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What compiled code and the interpreter give for a kernel's result."""
    result: Type = kernel.meta["types"][1]
    found = np.zeros(N * result.n_bytes, np.uint8)
    expected = found.copy()
    module.run(kernel.name, [*data, found], [], 0, N)  # type: ignore[attr-defined]
    run(kernel, [*(d.view(np.uint8) for d in data), expected], [], 0, N)
    return found.view(dtype_of(result.scalar)), expected.view(dtype_of(result.scalar))


def assert_same_bits(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """The same bytes, or both NaN."""
    same = found.view(f"u{found.itemsize}") == expected.view(f"u{found.itemsize}")
    if found.dtype.kind == "f":
        same |= np.isnan(found) & np.isnan(expected)
    if not same.all():
        at = np.flatnonzero(~same)[:5]
        raise AssertionError(f"{what}: lanes {at.tolist()}: found {found[at]}, expected {expected[at]}")


def compare(kernels: list[Kernel], target: Target, data: Callable[[Kernel], list[np.ndarray]] | None = None) -> None:
    """Compile all at once and compare each with the interpreter."""
    module = compile_kernels(kernels, target)
    rng = np.random.default_rng(1)
    for kernel in kernels:
        inputs = kernel.meta["types"][0]
        given = data(kernel) if data else [values(t, N * t.lanes, rng) for t in inputs]
        assert_same_bits(*outputs(module, kernel, given), kernel.name)


def binary_kernels() -> list[Kernel]:
    kernels = []
    for kind in ("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor"):
        for t in INTS if kind in ("and", "or", "xor") else NUMBERS:
            for lanes in lanes_of(t):
                v = t.vec(lanes)
                make = lambda b, x, kind=kind, v=v: b.emit(kind, v, tuple(x), {})  # noqa: E731
                kernels.append(lanewise(f"{kind}_{v}", [v, v], make))
    return kernels


def shift_kernels() -> list[Kernel]:
    kernels = []
    for kind in ("shl", "shr"):
        for t in INTS:
            for lanes in lanes_of(t):
                v = t.vec(lanes)
                make = lambda b, x, kind=kind, v=v: b.emit(  # noqa: E731
                    kind, v, (x[0], x[1] & b.const(v.bits - 1, v)), {}
                )
                kernels.append(lanewise(f"{kind}_{v}", [v, v], make))
                fixed = lambda b, x, kind=kind, v=v: b.emit(kind, v, (x[0], b.const(3, v)), {})  # noqa: E731
                kernels.append(lanewise(f"{kind}3_{v}", [v], fixed))
    return kernels


def unary_kernels() -> list[Kernel]:
    kernels = []
    for t in NUMBERS:
        for lanes in lanes_of(t):
            v = t.vec(lanes)
            kernels.append(lanewise(f"neg_{v}", [v], lambda b, x: b.neg(x[0])))
            kernels.append(lanewise(f"abs_{v}", [v], lambda b, x: b.abs(x[0])))
            for how in ("lt", "le", "gt", "ge", "eq", "ne"):
                kernels.append(lanewise(f"{how}_{v}", [v, v], lambda b, x, how=how: b.cmp(how, *x)))
            choose = lambda b, x: b.select(b.cmp("lt", x[0], x[1]), x[1], x[2])  # noqa: E731
            kernels.append(lanewise(f"select_{v}", [v, v, v], choose))
    for t in FLOATS:
        for lanes in lanes_of(t):
            v = t.vec(lanes)
            for how in ("floor", "ceil", "trunc", "even", "away"):
                kernels.append(lanewise(f"{how}_{v}", [v], lambda b, x, how=how: b.round(how, x[0])))
    for t in (F32, F64):
        for lanes in lanes_of(t):
            v = t.vec(lanes)
            kernels.append(lanewise(f"fma_{v}", [v, v, v], lambda b, x: b.fma(*x)))
            kernels.append(lanewise(f"sqrt_{v}", [v], lambda b, x: b.math("sqrt", x[0])))
    return kernels


def cast_kernels() -> list[Kernel]:
    kernels = []
    for source in NUMBERS:
        for result in NUMBERS:
            if source == result or (source == F64 and result == F16):
                continue
            for lanes in (1, 16):
                name = f"cast_{source.vec(lanes)}_{result}"
                kernels.append(lanewise(name, [source.vec(lanes)], lambda b, x, r=result: b.cast(x[0], r)))
    for result in NUMBERS:
        truth = lambda b, x, r=result: b.cast(b.cmp("lt", x[0], x[1]), r)  # noqa: E731
        kernels.append(lanewise(f"cast_bool_{result}", [I16.vec(8), I16.vec(8)], truth))
    for a, c in ((F32.vec(4), U8.vec(16)), (I64, F32.vec(2)), (F16.vec(8), I32.vec(4)), (U8.vec(2), F16), (I32, F32)):
        kernels.append(lanewise(f"bits_{a}_{c}", [a], lambda b, x, c=c: b.bitcast(x[0], c)))
    return kernels


def lane_kernels() -> list[Kernel]:
    kernels = []
    for t in NUMBERS:
        for lanes in (2, 16):
            v = t.vec(lanes)
            for how in ("add", "min", "max"):
                kernels.append(lanewise(f"reduce_{how}_{v}", [v], lambda b, x, how=how: b.reduce(how, x[0])))
            kernels.append(lanewise(f"splat_{v}", [t], lambda b, x, n=lanes: b.splat(x[0], n)))
            kernels.append(lanewise(f"extract_{v}", [v], lambda b, x: b.extract(x[0], 1)))
            kernels.append(lanewise(f"insert_{v}", [v, t], lambda b, x: b.insert(x[0], x[1], 1)))
            order = [(7 * i + 3) % (2 * lanes) for i in range(lanes + 1)]
            kernels.append(lanewise(f"shuffle_{v}", [v, v], lambda b, x, o=order: b.shuffle(x[0], x[1], o)))
    logic = lambda b, x: b.xor(  # noqa: E731
        b.and_(b.cmp("lt", x[0], x[1]), b.cmp("ne", x[0], 3)), b.or_(b.cmp("gt", x[0], 5), b.cmp("eq", x[1], x[0]))
    )
    kernels.append(lanewise("logic", [I32.vec(8), I32.vec(8)], logic))
    pick = lambda b, x: b.cast(b.extract(b.cmp("lt", x[0], x[1]), 3), I32)  # noqa: E731
    kernels.append(lanewise("extract_bool", [I32.vec(8), I32.vec(8)], pick))
    return kernels


FAMILIES = {
    "binary": binary_kernels,
    "shift": shift_kernels,
    "unary": unary_kernels,
    "cast": cast_kernels,
    "lanes": lane_kernels,
}


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_arithmetic_equals_the_interpreter(family: str, target: Target) -> None:
    compare(FAMILIES[family](), target)


# -- integer dot products ----------------------------------------------------------------------------------------------


def dot_kernel(w: Type, lanes: int, n_pairs: int, w_max: int) -> Kernel:
    def make(b: Builder, x: list[Node]) -> Node:
        return b.group_dot(x[:n_pairs], x[n_pairs:], w_max)

    inputs = [w.vec(lanes)] * n_pairs + [I8.vec(lanes)] * n_pairs
    kernel = lanewise(f"dot_{w}_{lanes}_{n_pairs}_{w_max}", inputs, make)
    kernel.meta["w_max"] = w_max
    return kernel


def dot_data(kernel: Kernel) -> list[np.ndarray]:
    """Weights and values at their bounds in half of the lanes, so that sums would overflow where they can."""
    inputs, w_max = kernel.meta["types"][0], kernel.meta["w_max"]
    rng = np.random.default_rng(2)
    made = []
    for i, t in enumerate(inputs):
        low, high = (-127, 127) if i >= len(inputs) // 2 else (-w_max if t.kind == "i" else 0, w_max)
        if t.kind == "i" and i < len(inputs) // 2:
            high = min(high, 127)
        v = rng.integers(low, high + 1, size=N * t.lanes)
        v[: N * t.lanes // 2] = rng.choice([low, high], size=N * t.lanes // 2, p=[0.02, 0.98])
        made.append(v.astype(dtype_of(t.scalar)))
    return made


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.name)
def test_integer_dots_are_exact_at_their_bounds(target: Target) -> None:
    kernels = []
    for lanes, n_pairs in ((8, 3), (12, 1), (16, 9), (24, 2), (32, 1), (32, 8), (64, 9)):
        kernels += [dot_kernel(U8, lanes, n_pairs, w_max) for w_max in (1, 15, 63, 127, 129, 130, 255)]
        kernels += [dot_kernel(I8, lanes, n_pairs, w_max) for w_max in (8, 127, 128)]
    compare(kernels, target, dot_data)


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.name)
def test_lookups(target: Target) -> None:
    rng = np.random.default_rng(3)
    kernels = []
    for t, low, high in ((I8, -128, 128), (U8, 0, 256)):
        table = tuple(int(v) for v in rng.integers(low, high, size=16))
        for lanes in (1, 3, 8, 16, 24, 32, 48, 64):
            make = lambda b, x, t=t, table=table: b.lookup(table, x[0] & 15, t)  # noqa: E731
            kernels.append(lanewise(f"lookup_{t}_{lanes}", [U8.vec(lanes)], make))
    compare(kernels, target)


# -- memory and structure ----------------------------------------------------------------------------------------------


def strided(t: Type) -> Kernel:
    """A column gathered, and scattered over a wider one."""
    b = Builder(f"strided_{t}")
    x, out, sizes = b.param("x"), b.param("out"), b.param("sizes")
    begin, end = b.param("begin", I64), b.param("end", I64)
    stride = b.load(sizes, 0, I64, constant=True)

    def row(i: Node) -> None:
        lanes = b.gather(x, i * (t.bits // 8), stride, t.vec(8))
        b.scatter(out, i * (t.bits // 8), stride, lanes)
        b.prefetch(x, i * 64 + (1 << 20))

    b.loop(begin, end, row)
    return b.finish()


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.name)
def test_strided_access(target: Target) -> None:
    kernels = [strided(t) for t in NUMBERS]
    module = compile_kernels(kernels, target)
    data = np.random.default_rng(4).integers(0, 256, size=8 * 72, dtype=np.uint8)
    for kernel in kernels:
        found, expected = np.zeros(8 * 72, np.uint8), np.zeros(8 * 72, np.uint8)
        module.run(kernel.name, [data, found], [72], 0, 9)
        run(kernel, [data, expected], [72], 0, 9)
        np.testing.assert_array_equal(found, expected, err_msg=kernel.name)
        assert found.any()


def structure_kernel() -> Kernel:
    """Loops in loops with carried values, branches that yield, scratch, an atomic counter, a choice of pointers."""
    b = Builder("structure")
    x, out, counter, sizes = b.param("x"), b.param("out"), b.param("counter"), b.param("sizes")
    begin, end = b.param("begin", I64), b.param("end", I64)
    n = b.load(sizes, 8, I64, constant=True)
    scratch, other = b.scratch(100), b.scratch(256)

    def row(i: Node, total: Node, previous: Node) -> tuple[Node, Node]:
        def column(j: Node, sums: Node, flips: Node) -> tuple[Node, Node]:
            v = b.load(x, (i * n + j) * 4, F32)
            b.store(scratch, j % 25 * 4, v)
            b.store(other, j % 25 * 4, v * 2.0)
            up = b.cmp("gt", v, 0.0)
            sums, flips = b.when(up, lambda: (sums + v, flips), lambda: (sums - v, flips + 1))
            b.when(b.and_(up, b.cmp("eq", j % 3, 1)), lambda: b.atomic_add(counter, 0, j) and None)
            return sums, flips

        sums, flips = b.loop(0, n, column, [b.const(0.0), b.i64(0)], step=2)
        source = b.select(b.cmp("gt", flips, n / 5), scratch, b.offset(other, 8))
        b.store(out, i * 8, sums + b.load(source, 8, F32))
        b.store(out, i * 8 + 4, previous)
        b.emit("fence", VOID, (), {})
        return total + flips, sums

    total, _ = b.loop(begin, end, row, [b.i64(0), b.const(-1.0)])
    b.store(counter, 8, total)
    return b.finish()


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.name)
@pytest.mark.parametrize("n", [11, 50])
def test_structure(target: Target, n: int) -> None:
    kernel = structure_kernel()
    module = compile_kernels([kernel], target)
    assert module.n_scratch_bytes("structure") == 128 + 256
    x = np.random.default_rng(5).normal(size=7 * n).astype(np.float32)
    results = []
    for call in (module.run, None):
        out, counter = np.zeros(7 * 8, np.uint8), np.zeros(16, np.uint8)
        buffers = [x.view(np.uint8), out, counter]
        if call:
            call("structure", buffers, [0, n], 1, 7)
        else:
            run(kernel, buffers, [0, n], 1, 7)
        results.append((out, counter))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert results[0][0][8:].any() and results[0][1].any()


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.name)
def test_vector_maths_has_the_interpreters_bits_once_expanded(target: Target) -> None:
    kernels = [
        lanewise(f"{fn}_{lanes}", [F32.vec(lanes)], lambda b, x, fn=fn: b.math(fn, x[0]))
        for fn in ("exp", "log", "sin", "cos", "tanh", "erf")
        for lanes in (1, 3, 16)
    ]
    compare([rebuild(k, expand_math) for k in kernels[2::3]], target)
    # the very same input bits, whatever the number of lanes
    module = compile_kernels(kernels, target)
    data = values(F32, N * 48, np.random.default_rng(6))
    for fn in ("exp", "log", "sin", "cos", "tanh", "erf"):
        results = []
        for lanes in (1, 3, 16):
            found = np.zeros(N * 48, np.float32)
            module.run(f"{fn}_{lanes}", [data, found], [], 0, N * 48 // lanes)
            results.append(np.where(np.isnan(found), np.float32(0), found))
        for other in results[1:]:
            np.testing.assert_array_equal(results[0].view(np.uint32), other.view(np.uint32))
