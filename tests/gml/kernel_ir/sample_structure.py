"""Samples of memory, blocks and calls. Next module: `samples.py`."""

from __future__ import annotations

import numpy as np
from kernel_ir.sample_base import FLOATS, INTEGERS, numbers, numpy_type, whole

from gml.kernel_ir import F32, I32, I64, PTR, U8, VOID, Builder, Node, Type

# -- memory ------------------------------------------------------------------------------------------------------------


def copy_unaligned(t: Type, lanes: int) -> None:
    """From byte 1 to byte 3, by way of a moved pointer; bytes around stay as they are."""
    data = np.random.default_rng(lanes).integers(0, 256, t.vec(lanes).n_bytes + 8).astype(np.uint8)
    if t.is_float:  # NaN may come out as another one
        data[1 : 1 + t.vec(lanes).n_bytes] = numbers(t, lanes, lanes + 20)[:lanes].view(np.uint8)
    before = np.full(len(data), 0xAB, np.uint8)
    after = before.copy()
    after[3 : 3 + t.vec(lanes).n_bytes] = data[1 : 1 + t.vec(lanes).n_bytes]

    def body(b: Builder, x: Node, y: Node, sizes: Node, begin: Node, end: Node) -> None:
        value = b.load(x, 1, t.vec(lanes), constant=lanes == 1)
        b.prefetch(x, 1 << 20)
        b.store(b.offset(y, 5), -2, value)
        b.fence()

    whole(f"load-store-{t}-{lanes}", body, [data, before], {1: after})


for t in (*INTEGERS, *FLOATS):
    for lanes in (1, 3, 8):
        copy_unaligned(t, lanes)


def stride(t: Type, name: str, stride: int) -> None:
    """Every lane from and to places so many bytes apart."""
    width, lanes = t.bits // 8, 8
    data = numbers(t, 20, 64)
    at = 0 if stride >= 0 else -stride * (lanes - 1)
    places = at + np.arange(lanes) * stride
    lane_bytes = data.view(np.uint8)[places[:, None] + np.arange(width)]
    spread = np.zeros(64 * width, np.uint8)
    for place, lane in zip(places, lane_bytes, strict=True):
        spread[place : place + width] = lane

    def body(b: Builder, x: Node, y: Node, z: Node, sizes: Node, begin: Node, end: Node) -> None:
        value = b.gather(x, at, b.load(sizes, 0, I64), t.vec(lanes))
        b.store(y, 0, value)
        b.scatter(z, at, b.load(sizes, 0, I64), value)

    buffers = [data, np.zeros(lanes, numpy_type(t)), np.zeros(64 * width, np.uint8)]
    expected = {1: lane_bytes.reshape(-1).view(numpy_type(t)), 2: spread}
    whole(f"gather-scatter-{t}-{name}", body, buffers, expected, sizes=[stride])


for t in (*INTEGERS, *FLOATS):
    stride(t, "apart", 2 * (t.bits // 8))
    stride(t, "backwards", -(t.bits // 8))
stride(I32, "overlapping", 1)
stride(F32, "same", 0)


def transpose(b: Builder, x: Node, y: Node, sizes: Node, begin: Node, end: Node) -> None:
    """4 x 8 numbers by way of two pieces of scratch."""
    first, second = b.scratch(128), b.scratch(128)
    b.loop(0, 4, lambda i: b.store(first, i * 32, b.load(x, i * 32, I32.vec(8))))
    b.loop(0, 8, lambda j: b.store(second, j * 16, b.gather(first, j * 4, 32, I32.vec(4))))
    b.loop(0, 8, lambda j: b.store(y, j * 16, b.load(second, j * 16, I32.vec(4))))


_square = numbers(I32, 21, 32)
whole("scratch", transpose, [_square, _square * 0], {1: np.ascontiguousarray(_square.reshape(4, 8).T)})


_words = np.arange(40, dtype=np.int32) ** 2


def from_table(b: Builder, x: Node, y: Node, sizes: Node, begin: Node, end: Node) -> None:
    """Four neighbours from a place that is computed, and single numbers of another table and of the same again."""
    table, other = b.table(_words.tobytes()), b.table(bytes(range(200, 240)))

    def step(i: Node) -> None:
        at = b.cast(b.load(x, i * 4, I32), I64)
        b.store(y, i * 24, b.load(table, at * 4, I32.vec(4), constant=True))
        b.store(y, i * 24 + 16, b.cast(b.load(b.offset(other, at), 3, U8), I32))
        b.store(y, i * 24 + 20, b.load(b.table(_words.tobytes()), 156 - at * 4, I32))

    b.loop(begin, end, step)


_places = np.array([0, 36, 17, 5], np.int32)
whole(
    "table",
    from_table,
    [_places, np.zeros((4, 6), np.int32)],
    {1: np.array([[*_words[p : p + 4], 203 + p, _words[39 - p]] for p in _places], np.int32)},
    end=4,
)


def count(b: Builder, counters: Node, seen: Node, sizes: Node, begin: Node, end: Node) -> None:
    def step(i: Node) -> None:
        b.store(seen, i * 8, b.atomic_add(counters, 8, i * i - 3))

    b.loop(begin, end, step)


_steps = np.arange(7) ** 2 - 3
whole(
    "atomic_add",
    count,
    [np.array([5, 2**63 - 1, 5]), np.zeros(7, np.int64)],
    {
        0: np.array([5, (2**63 - 1 + int(_steps.sum()) + 2**63) % 2**64 - 2**63, 5]),
        1: np.array([(2**63 - 1 + int(_steps[:i].sum()) + 2**63) % 2**64 - 2**63 for i in range(7)]),
    },
    end=7,
)


def parameters(b: Builder, x: Node, sizes: Node, begin: Node, end: Node) -> None:
    b.store(x, 0, begin)
    b.store(x, 8, end)
    b.store(x, 16, b.load(sizes, 8, I64))


whole("param", parameters, [np.full(3, 9)], {0: np.array([0, 11, 22])}, sizes=[33, 22], end=11)

# -- blocks ------------------------------------------------------------------------------------------------------------


def running_sums(b: Builder, x: Node, y: Node, sizes: Node, begin: Node, end: Node) -> None:
    """Sum and maximum of n numbers, n known at run time: vectors, then what is left one by one."""
    n = b.load(sizes, 0, I64)
    whole_vectors = b.div(n, 8) * 8
    zero, low = b.const(0.0, F32.vec(8)), b.const(float("-inf"), F32.vec(8))

    def vector(i: Node, total: Node, largest: Node) -> tuple[Node, Node]:
        value = b.load(x, i * 4, F32.vec(8))
        return total + value, b.max(value, largest)

    def scalar(i: Node, total: Node, largest: Node) -> tuple[Node, Node]:
        value = b.load(x, i * 4, F32)
        return total + value, b.max(value, largest)

    totals, largests = b.loop(0, whole_vectors, vector, (zero, low), step=8)
    total, largest = b.loop(whole_vectors, n, scalar, (b.reduce("add", totals), b.reduce("max", largests)))
    b.store(y, 0, total)
    b.store(y, 4, largest)


for n in (0, 1, 7, 8, 9, 31, 32, 33):
    _values = np.random.default_rng(n).standard_normal(40).astype(np.float32)
    _lanes = np.zeros(8, np.float32)
    for i in range(0, n // 8 * 8, 8):
        _lanes = _lanes + _values[i : i + 8]
    while len(_lanes) > 1:
        _lanes = _lanes[: len(_lanes) // 2] + _lanes[len(_lanes) // 2 :]
    for v in _values[n // 8 * 8 : n]:
        _lanes = _lanes + v
    _largest = _values[:n].max(initial=-np.inf)
    whole(
        f"for-sums-{n}",
        running_sums,
        [_values, np.zeros(2, np.float32)],
        {1: np.array([_lanes[0], _largest])},
        sizes=[n],
    )


def swapped(b: Builder, x: Node, sizes: Node, begin: Node, end: Node) -> None:
    """Carried values that trade places, a pointer that moves, an index yielded, a loop in a loop."""

    def outer(i: Node, a: Node, c: Node, at: Node) -> tuple[Node, ...]:
        (inner,) = b.loop(i, b.load(sizes, 0, I64), lambda j, s: s + j * a, (c,), step=2)
        b.store(at, 0, inner)
        return c, i + 1, b.offset(at, 8)

    a, c, at = b.loop(begin, end, outer, (b.i64(3), b.i64(-4), x))
    b.store(at, 0, a)
    b.store(at, 8, c)


def swapped_in_python(end: int, n: int) -> list[int]:
    a, c, found = 3, -4, []
    for i in range(end):
        found.append(c + sum(j * a for j in range(i, n, 2)))
        a, c = c, i + 1
    return [*found, a, c]


whole("for-carried", swapped, [np.zeros(7, np.int64)], {0: np.array(swapped_in_python(5, 9))}, sizes=[9], end=5)
whole("for-never", swapped, [np.zeros(2, np.int64)], {0: np.array([3, -4])}, sizes=[9], end=0)


def branches(b: Builder, x: Node, y: Node, sizes: Node, begin: Node, end: Node) -> None:
    """Conditions in a loop: values, pointers, one in another, without an else, inside vectors."""

    def step(i: Node, total: Node) -> Node:
        value = b.load(x, i * 4, I32)
        odd = b.cmp("ne", value & 1, 0)
        positive = b.cmp("gt", value, 0)

        def then() -> Node:
            (inner,) = b.when(positive, lambda: value * 3, lambda: value - 100)
            return inner

        (made,) = b.when(odd, then, lambda: b.div(value, 2))
        b.when(b.and_(odd, positive), lambda: b.store(y, b.i64(0), total))
        target = b.select(odd, b.offset(y, 8), b.offset(y, 12))
        b.store(target, 0, made)
        return total + made

    (total,) = b.loop(begin, end, step, (b.const(0, I32),))
    b.store(y, 4, total)


def branches_in_python(values: list[int]) -> list[int]:
    found, total = [0, 0, 0, 0], 0
    for v in values:
        made = (v * 3 if v > 0 else v - 100) if v % 2 else int(v / 2)
        if v % 2 and v > 0:
            found[0] = total
        found[2 if v % 2 else 3] = made
        total += made
    found[1] = total
    return found


_mixed = np.array([4, -7, 9, 0, 2, -3, 15, -8], np.int32)
whole(
    "if", branches, [_mixed, np.zeros(4, np.int32)], {1: np.array(branches_in_python(_mixed.tolist()), np.int32)}, end=8
)


def lazy(b: Builder, x: Node, sizes: Node, begin: Node, end: Node) -> None:
    """What lies outside the buffer is not touched by the branch that is not taken."""
    n = b.load(sizes, 0, I64)
    (value,) = b.when(b.cmp("lt", n, 2), lambda: b.load(x, n * 8, I64), lambda: b.i64(-1))
    b.store(x, 0, value)


whole("if-lazy", lazy, [np.array([5, 6])], {0: np.array([-1, 6])}, sizes=[2**40])
whole("if-taken", lazy, [np.array([5, 6])], {0: np.array([6, 6])}, sizes=[1])


# -- calls of Python ---------------------------------------------------------------------------------------------------


def fill(memory: np.ndarray, n: int, value: np.float32, lanes: np.ndarray) -> None:
    """n bytes of memory become the value's sign, then the lanes."""
    memory[:n] = value < 0
    memory[n : n + len(lanes)] = lanes


def twice(value: np.float32) -> float:
    return float(value) * 2


def calls(b: Builder, x: Node, y: Node, sizes: Node, begin: Node, end: Node) -> None:
    b.call(fill, b.offset(x, 1), b.i64(2), b.const(-1.0, F32), b.const((7, 8, 9, 10), U8.vec(4)))
    b.store(y, 0, b.call(twice, b.const(1.25, F32), type=F32))
    b.store(y, 8, b.call(len, x, type=I64))


assert PTR != VOID
whole(
    "call",
    calls,
    [np.zeros(8, np.uint8), np.zeros(2, np.int64)],
    {0: np.array([0, 1, 1, 7, 8, 9, 10, 0], np.uint8), 1: np.array([int(np.float32(2.5).view(np.int32)), 8])},
    native=False,
)
