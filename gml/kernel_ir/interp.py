"""Runs kernels: what the kernel IR means, and what compiled code must give bit for bit (but `math`, see below).

Arrives: a verified kernel, buffers and sizes; leaves: the buffers, written. A kernel becomes a list of Python
functions once (a table says which for every kind: `lanes.py` for arithmetic, here for memory and blocks), each with
its arguments' places; loops run in Python, lanes in numpy. Memory is checked at every access, scratch is filled with
0xFF (NaN, -1) each time it is reached.

`math` functions (but `sqrt`) are computed in float64 and rounded to f32, within 1 ulp; backends that expand them
(`math.py`) agree bit for bit with the interpreter on the expanded kernel. What the bits of a NaN are is open.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gml.kernel_ir.builder import KernelError, wrap
from gml.kernel_ir.lanes import MEANINGS, Fault, constant, dtype_of
from gml.kernel_ir.nodes import I64, Block, Kernel, Node, Type
from gml.kernel_ir.printer import print_node
from gml.kernel_ir.verify import verify

POISON = 0xFF

Frame = list[Any]
Step = Callable[[Frame], None]


def run(kernel: Kernel, buffers: Sequence[np.ndarray], sizes: Sequence[int] = (), begin: int = 0, end: int = 1) -> None:
    """One call of a kernel for the chunks begin <= i < end.

    buffers  flat, contiguous uint8 arrays, one per pointer parameter other than `sizes`, in order; written in place
    sizes    run-time sizes that `sizes` points to

    Raises KernelError when the kernel is not valid, touches bytes outside of a buffer or writes to a read-only one,
    breaks a condition of a node (shift counts, look-up indices, bounds of `group_dot`), or when the buffers do not
    fit its parameters.
    """
    program = _programs.get(kernel)
    if program is None:
        program = _programs[kernel] = _Program(kernel)
    frame = program.empty.copy()
    for param, slot in program.params:
        frame[slot] = {"begin": begin, "end": end}.get(param.attrs["name"])
    _bind_buffers(program, frame, buffers, sizes)
    with np.errstate(all="ignore"):
        for step in program.steps:
            step(frame)


class _Buffer:
    """Memory that pointers point into: a pointer is (buffer, byte offset)."""

    __slots__ = ("data", "n_bytes", "name", "writeable")

    def __init__(self, name: str, data: np.ndarray) -> None:
        self.name, self.data, self.n_bytes, self.writeable = name, data, len(data), data.flags.writeable

    def check(self, offset: int, n_bytes: int) -> None:
        """Refuse what is not in the buffer."""
        if offset < 0 or offset + n_bytes > self.n_bytes:
            raise Fault(f"touches bytes {offset} to {offset + n_bytes} of {self.name}, which has {self.n_bytes}")

    def check_write(self, offset: int, n_bytes: int) -> None:
        """Refuse what cannot be written."""
        self.check(offset, n_bytes)
        if not self.writeable:
            raise Fault(f"writes to {self.name}, which is read-only")


def _bind_buffers(program: _Program, frame: Frame, buffers: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
    pointers = [(p, slot) for p, slot in program.params if p.type.kind == "p"]
    n_expected = sum(p.attrs["name"] != "sizes" for p, _ in pointers)
    if len(buffers) != n_expected:
        raise KernelError(f"kernel {program.name}: expected {n_expected} buffers, found {len(buffers)}")
    following = iter(buffers)
    for param, slot in pointers:
        name = param.attrs["name"]
        if name == "sizes":
            data = np.array(sizes, np.int64).view(np.uint8)
            data.flags.writeable = False
        else:
            data = next(following)
            if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
                raise KernelError(f"kernel {program.name}: buffer {name} must be a flat, contiguous uint8 array")
        frame[slot] = (_Buffer(name, data), 0)


class _Program:
    """A kernel as a list of steps over a frame of values.

    Values are arrays of lanes, i64 scalars as int, pointers as (buffer, offset).
    """

    def __init__(self, kernel: Kernel) -> None:
        verify(kernel)
        self.name = kernel.name
        self._kernel = weakref.ref(kernel)
        self._slots: dict[Any, int] = {}
        self.empty: Frame = []
        self.params = [(p, self.slot(p)) for p in kernel.params]
        self.steps = self.block(kernel.body)

    def slot(self, value: Any) -> int:
        """Where a value is in the frame."""
        if isinstance(value, Node) and value.kind == "result":
            value = (value.args[0], value.attrs["index"])
        found = self._slots.get(value)
        if found is None:
            found = self._slots[value] = len(self.empty)
            self.empty.append(None)
        return found

    def slots(self, values: Sequence[Node]) -> list[int]:
        return [self.slot(v) for v in values]

    def block(self, block: Block) -> list[Step]:
        steps = []
        for node in block.nodes:
            if node.kind == "const":
                value = constant(node.attrs["value"], node.type)
                self.empty[self.slot(node)] = int(value[0]) if node.type == I64 else value
            elif node.kind in _BLOCKS:
                steps.append(_BLOCKS[node.kind](self, node))
            elif node.kind not in ("result", "fence", "prefetch"):
                make = _MEMORY.get(node.kind) or (_index if _is_index(node) else _lanewise)
                steps.append(self.placed(node, make(self, node)))
        return steps

    def placed(self, node: Node, step: Step) -> Step:
        """The step, its faults told with the node's line."""

        def run(frame: Frame) -> None:
            try:
                step(frame)
            except Fault as fault:
                kernel = self._kernel()
                line = print_node(kernel, node) if kernel is not None else node.kind
                raise KernelError(f"kernel {self.name}: `{line}`: {fault}") from None

        return run if node.kind in _FAULTY else step


#: kinds that can raise a fault
_FAULTY = frozenset(
    ("load", "store", "gather", "scatter", "atomic_add", "call", "shl", "shr", "lookup", "group_dot", "for")
)
_programs: weakref.WeakKeyDictionary[Kernel, _Program] = weakref.WeakKeyDictionary()


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _lanewise(program: _Program, node: Node) -> Step:
    """Arithmetic on arrays; i64 scalars become arrays on the way in and numbers on the way out."""
    function, out = MEANINGS[node.kind](node), program.slot(node)
    args = [(program.slot(a), a.type == I64) for a in node.args]
    plain = node.type != I64 and not any(index for _, index in args)
    if plain and len(args) == 1:
        first = args[0][0]

        def one(frame: Frame) -> None:
            frame[out] = function(frame[first])

        return one
    if plain and len(args) == 2:
        first, second = args[0][0], args[1][0]

        def two(frame: Frame) -> None:
            frame[out] = function(frame[first], frame[second])

        return two

    def mixed(frame: Frame) -> None:
        values = [np.array((frame[i],), np.int64) if index else frame[i] for i, index in args]
        made = function(*values)
        frame[out] = int(made[0]) if node.type == I64 else made

    return mixed


_MASK, _SIGN = (1 << 64) - 1, 1 << 63
_INDEX: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": lambda a, b: a if a < b else b,
    "max": lambda a, b: a if a > b else b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "div": lambda a, b: 0 if b == 0 else a // b if (a < 0) == (b < 0) else -(-a // b),
    "rem": lambda a, b: a if b == 0 else a - b * (a // b if (a < 0) == (b < 0) else -(-a // b)),
}


def _is_index(node: Node) -> bool:
    return node.type == I64 and node.kind in _INDEX


def _index(program: _Program, node: Node) -> Step:
    """Arithmetic on i64 scalars, which most of a kernel's nodes are, in Python's integers."""
    function, out = _INDEX[node.kind], program.slot(node)
    first, second = program.slots(node.args)

    def step(frame: Frame) -> None:
        value = function(frame[first], frame[second])
        frame[out] = ((value + _SIGN) & _MASK) - _SIGN

    return step


def _select(program: _Program, node: Node) -> Step:
    """Of lanes, i64 scalars and pointers."""
    out = program.slot(node)
    condition, a, b = program.slots(node.args)
    if node.type == I64 or node.type.kind == "p":

        def choose(frame: Frame) -> None:
            frame[out] = frame[a] if frame[condition][0] else frame[b]

        return choose

    def blend(frame: Frame) -> None:
        frame[out] = np.where(frame[condition], frame[a], frame[b])

    return blend


# -- memory ------------------------------------------------------------------------------------------------------------


def _bytes_of(value: Any) -> np.ndarray:
    """A value as it lies in memory."""
    return (np.array((value,), np.int64) if isinstance(value, int) else value).view(np.uint8)


def _load(program: _Program, node: Node) -> Step:
    out, n_bytes, dtype, index = program.slot(node), node.type.n_bytes, dtype_of(node.type), node.type == I64
    pointer, at = program.slots(node.args)

    def step(frame: Frame) -> None:
        buffer, base = frame[pointer]
        start = base + frame[at]
        buffer.check(start, n_bytes)
        lanes = buffer.data[start : start + n_bytes].copy().view(dtype)
        frame[out] = int(lanes[0]) if index else lanes

    return step


def _store(program: _Program, node: Node) -> Step:
    pointer, at, value = program.slots(node.args)
    n_bytes = node.args[2].type.n_bytes

    def step(frame: Frame) -> None:
        buffer, base = frame[pointer]
        start = base + frame[at]
        buffer.check_write(start, n_bytes)
        buffer.data[start : start + n_bytes] = _bytes_of(frame[value])

    return step


def _gather(program: _Program, node: Node) -> Step:
    out, lanes, width, dtype = program.slot(node), node.lanes, node.type.bits // 8, dtype_of(node.type)
    pointer, at, stride = program.slots(node.args)

    def step(frame: Frame) -> None:
        buffer, base = frame[pointer]
        starts = [base + frame[at] + i * frame[stride] for i in range(lanes)]
        for start in (starts[0], starts[-1]):  # the others lie between them
            buffer.check(start, width)
        places = np.array(starts)[:, None] + np.arange(width)
        frame[out] = buffer.data[places].reshape(-1).view(dtype)

    return step


def _scatter(program: _Program, node: Node) -> Step:
    pointer, at, stride, value = program.slots(node.args)
    width = node.args[3].type.bits // 8

    def step(frame: Frame) -> None:
        buffer, base = frame[pointer]
        rows = _bytes_of(frame[value]).reshape(-1, width)
        for i, row in enumerate(rows):  # in order: lanes may overlap
            start = base + frame[at] + i * frame[stride]
            buffer.check_write(start, width)
            buffer.data[start : start + width] = row

    return step


def _offset(program: _Program, node: Node) -> Step:
    out = program.slot(node)
    pointer, n_bytes = program.slots(node.args)

    def step(frame: Frame) -> None:
        buffer, base = frame[pointer]
        frame[out] = (buffer, base + frame[n_bytes])

    return step


def _scratch(program: _Program, node: Node) -> Step:
    out, kept = program.slot(node), program.slot((node, "memory"))

    def step(frame: Frame) -> None:
        if frame[kept] is None:
            frame[kept] = _Buffer("scratch", np.empty(node.attrs["n_bytes"], np.uint8))
        frame[kept].data.fill(POISON)
        frame[out] = (frame[kept], 0)

    return step


def _table(program: _Program, node: Node) -> Step:
    out = program.slot(node)
    memory = (_Buffer("table", np.frombuffer(node.attrs["data"], np.uint8)), 0)

    def step(frame: Frame) -> None:
        frame[out] = memory

    return step


def _atomic_add(program: _Program, node: Node) -> Step:
    out = program.slot(node)
    pointer, at, value = program.slots(node.args)

    def step(frame: Frame) -> None:
        buffer, base = frame[pointer]
        start = base + frame[at]
        buffer.check_write(start, 8)
        if start % 8:
            raise Fault(f"adds to byte {start} of {buffer.name}, which is not a multiple of 8")
        word = buffer.data[start : start + 8]
        frame[out] = int(word.copy().view(np.int64)[0])
        word[:] = _bytes_of(wrap(frame[out] + frame[value], I64))

    return step


def _call(program: _Program, node: Node) -> Step:
    out, args = program.slot(node), [(program.slot(a), a.type) for a in node.args]
    fn, t = node.attrs["fn"], node.type

    def passed(value: Any, type: Type) -> Any:
        if type.kind == "p":
            buffer, base = value
            buffer.check(base, 0)
            return buffer.data[base:]
        return value if type == I64 or type.lanes > 1 else value[0]

    def step(frame: Frame) -> None:
        made = fn(*[passed(frame[i], type) for i, type in args])
        if t.kind == "void":
            return
        lanes = np.asarray(made)
        if lanes.size != t.lanes:
            raise Fault(f"the function gave {lanes.size} numbers instead of {t.lanes}")
        lanes = lanes.astype(dtype_of(t)).reshape(-1)
        frame[out] = int(lanes[0]) if t == I64 else lanes

    return step


_MEMORY: dict[str, Callable[[_Program, Node], Step]] = {
    "load": _load, "store": _store, "gather": _gather, "scatter": _scatter, "offset": _offset, "scratch": _scratch,
    "table": _table, "atomic_add": _atomic_add, "call": _call, "select": _select,
}  # fmt: skip


# -- blocks ------------------------------------------------------------------------------------------------------------


def _for(program: _Program, node: Node) -> Step:
    body: Block = node.attrs["body"]
    start, stop, step_of, *carried = program.slots(node.args)
    index, *inside = program.slots(body.params)
    steps, yields = program.block(body), program.slots(body.yields)
    results = [program.slot((node, i)) for i in range(len(carried))]

    def positive(frame: Frame) -> None:
        if frame[step_of] < 1:
            raise Fault(f"the step must be positive, found {frame[step_of]}")

    check = program.placed(node, positive)

    def loop(frame: Frame) -> None:
        check(frame)
        values = [frame[c] for c in carried]
        for i in range(frame[start], frame[stop], frame[step_of]):
            frame[index] = i
            for slot, value in zip(inside, values, strict=True):
                frame[slot] = value
            for step in steps:
                step(frame)
            values = [frame[y] for y in yields]
        for slot, value in zip(results, values, strict=True):
            frame[slot] = value

    return loop


def _if(program: _Program, node: Node) -> Step:
    condition = program.slot(node.args[0])
    blocks = [node.attrs["other"], node.attrs["then"]]
    steps = [program.block(b) for b in blocks]
    yields = [program.slots(b.yields) for b in blocks]
    results = [program.slot((node, i)) for i in range(len(yields[0]))]

    def branch(frame: Frame) -> None:
        taken = int(frame[condition][0])
        for step in steps[taken]:
            step(frame)
        values = [frame[y] for y in yields[taken]]
        for slot, value in zip(results, values, strict=True):
            frame[slot] = value

    return branch


_BLOCKS: dict[str, Callable[[_Program, Node], Step]] = {"for": _for, "if": _if}
