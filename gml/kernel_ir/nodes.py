"""The kernel IR: a small, closed, target-neutral language for one kernel.

A kernel is a list of nodes in structured blocks: straight code, counted loops with carried values, and conditions.
Every value has a `Type` with a number of lanes. Backends implement these node kinds and nothing else; `builder.py`
makes them, `verify.py` checks them, `printer.py` prints them and `interp.py` runs them. Imports only the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Type:
    """A scalar kind and a number of lanes.

    kind   "i" signed integer, "u" unsigned integer, "f" IEEE float, "b" truth value, "p" pointer, "void"
    bits   8 to 64 for numbers, 1 for "b", 64 for "p"
    lanes  1 for scalars
    """

    kind: str
    bits: int
    lanes: int = 1

    @property
    def scalar(self) -> Type:
        """The type of one lane."""
        return _type(self.kind, self.bits, 1)

    def vec(self, lanes: int) -> Type:
        """The same with another number of lanes."""
        return _type(self.kind, self.bits, lanes)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @property
    def n_bytes(self) -> int:
        """Bytes in memory, all lanes together."""
        return self.bits * self.lanes // 8

    def __str__(self) -> str:
        name = {"b": "bool", "p": "ptr", "void": "void"}.get(self.kind, f"{self.kind}{self.bits}")
        return name if self.lanes == 1 else f"{name}x{self.lanes}"

    __repr__ = __str__


@cache
def _type(kind: str, bits: int, lanes: int) -> Type:
    return Type(kind, bits, lanes)


I8, I16, I32, I64 = (_type("i", n, 1) for n in (8, 16, 32, 64))
U8, U16, U32, U64 = (_type("u", n, 1) for n in (8, 16, 32, 64))
F16, F32, F64 = (_type("f", n, 1) for n in (16, 32, 64))
BOOL, PTR, VOID = _type("b", 1, 1), _type("p", 64, 1), _type("void", 0, 1)

#: bits of a NaN are unspecified (it is a NaN everywhere, but which one may differ between targets)
#: most lanes of a value, most bytes of a scratch, deepest nesting of blocks: no kernel comes near, mistakes do
MAX_LANES, MAX_SCRATCH_BYTES, MAX_DEPTH = 4096, 1 << 28, 64
#: most bytes of a table: what stays in a first-level cache beside the data
MAX_TABLE_BYTES = 1 << 14

#: every node kind: (number of arguments or None for any, has a result, has no effect), and what it means
KINDS: dict[str, tuple[int | None, bool, bool, str]] = {
    # values from nowhere
    "const": (0, True, True, "attrs value: a number, or a tuple with one per lane"),
    "param": (0, True, True, "attrs index, name: a parameter of the kernel"),
    # memory; addresses are pointer + byte offset (i64)
    # (numbers only: no truth values, no pointers; touching bytes outside a buffer is a fault of the kernel)
    "load": (2, True, False, "pointer, offset: the type's bytes, unaligned; attrs constant: nobody writes there"),
    "store": (3, False, False, "pointer, offset, value"),
    "gather": (3, True, False, "pointer, offset, stride: lane i from offset + i * stride"),
    "scatter": (4, False, False, "pointer, offset, stride, value: lane i to offset + i * stride, in order"),
    "prefetch": (2, False, False, "pointer, offset: the line will be read soon; may lie outside the buffer"),
    "offset": (2, True, True, "pointer, i64: the pointer moved by bytes"),
    "scratch": (
        0, True, False,
        "attrs n_bytes: memory private to this call, aligned to 64, with undefined contents each time it is reached",
    ),
    "table": (0, True, True, "attrs data: bytes; constant memory that holds them, aligned to 64; nobody writes there"),
    "atomic_add": (3, True, False, "pointer, offset (of a multiple of 8 bytes), i64: adds, gives the old value"),
    # arithmetic, lane by lane; integers wrap; both sides have the result's type
    "add": (2, True, True, "a + b"),
    "sub": (2, True, True, "a - b"),
    "mul": (2, True, True, "a * b"),
    "div": (2, True, True, "a / b; integers towards zero, a / 0 = 0, least / -1 = least (what AArch64's sdiv does)"),
    "rem": (2, True, True, "a - trunc(a / b) * b, exact for floats (fmod); integers: a rem 0 = a, least rem -1 = 0"),
    "min": (2, True, True, "a < b ? a : b, so b when one is NaN or both are zero (x86's minps)"),
    "max": (2, True, True, "a > b ? a : b, so b when one is NaN or both are zero (x86's maxps)"),
    "and": (2, True, True, "bits of integers or truth values"),
    "or": (2, True, True, "bits of integers or truth values"),
    "xor": (2, True, True, "bits of integers or truth values"),
    "shl": (2, True, True, "a << b, 0 <= b < bits in every lane"),
    "shr": (2, True, True, "a >> b: arithmetic for i, logical for u; 0 <= b < bits in every lane"),
    "neg": (1, True, True, "-a"),
    "abs": (1, True, True, "|a|"),
    "fma": (3, True, True, "a * b + c rounded once (f32, f64)"),
    "cmp": (2, True, True, "attrs how: lt le gt ge eq ne (ordered; ne is true for NaN) -> bool lanes"),
    "select": (3, True, True, "condition (as many lanes), a, b: a where true; also of two pointers"),
    "round": (1, True, True, "attrs how: floor ceil trunc even (half to even) away (half away from zero)"),
    "math": (1, True, True, "attrs fn: sqrt (f32, f64), exp log sin cos tanh erf (f32)"),
    "cast": (
        1, True, True,
        "to a number with the same lanes, by value: integers wrap, truth is 1; f64 to f16 only over f32; float to "
        "integer rounds half to even and saturates, NaN is 0",
    ),
    "bitcast": (1, True, True, "the same bits as another type of numbers; lane 0 is the lowest"),
    # lanes
    "splat": (1, True, True, "a scalar in every lane"),
    "extract": (1, True, True, "attrs lane: that lane as a scalar"),
    "insert": (2, True, True, "vector, scalar; attrs lane"),
    "shuffle": (2, True, True, "a, b, attrs lanes: tuple of indices into a's lanes followed by b's; all vectors"),
    "reduce": (1, True, True, "attrs how: add min max; of 2^k lanes, halves folded (i with i + n/2): a fixed order"),
    "lookup": (1, True, True, "attrs table: 16 u8 or i8 numbers; lanes (u8, below 16) are replaced by table[lane]"),
    "group_dot": (
        None, True, True,
        "w0, w1, ..., x0, x1, ...: u8 (or i8) and i8 vectors of 4 n lanes, n > 1; i32 lane j is the sum over all pairs "
        "of w[4j+i] * x[4j+i], i < 4; attrs w_max: no |w| is larger; no x is -128 (targets move w's sign to x)",
    ),
    # structure
    "for": (
        None, False, False,
        "start, stop, step > 0 (all i64), *carried; attrs body: its parameters are (index, *carried), it yields as "
        "many as are carried; attrs results, when there are any",
    ),
    "if": (1, False, False, "condition; attrs then, other: blocks that yield values of the same types; results"),
    "result": (1, True, True, "attrs index: a value that a loop or a condition yields, listed in its attrs results"),
    "block_param": (0, True, True, "attrs index: a parameter of the block it belongs to"),
    "call": (
        None, True, False,
        "attrs fn: a Python function; gets pointers as uint8 arrays from there to the buffer's end, vectors as arrays, "
        "scalars as numpy scalars, i64 as int (interpreter only)",
    ),
    "fence": (0, False, False, "memory operations before it are not moved behind it"),
}  # fmt: skip


@dataclass(eq=False)
class Block:
    """Nodes in order; `params` are the values it is entered with, `yields` those it leaves with."""

    params: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    yields: tuple[Node, ...] = ()


class Node:
    """One node; also the value it makes. Operators are installed by the builder module."""

    __slots__ = ("args", "attrs", "builder", "kind", "type")

    def __init__(
        self, kind: str, type: Type, args: tuple[Node, ...], attrs: dict[str, Any], builder: Any = None
    ) -> None:
        self.kind, self.type, self.args, self.attrs, self.builder = kind, type, args, attrs, builder

    @property
    def lanes(self) -> int:
        """Lanes of its type."""
        return self.type.lanes

    def __repr__(self) -> str:
        return f"<{self.kind} {self.type}>"

    # operators: the other side may be a Python number
    def __add__(self, other: Any) -> Node:
        return self.builder.add(self, other)

    def __radd__(self, other: Any) -> Node:
        return self.builder.add(other, self)

    def __sub__(self, other: Any) -> Node:
        return self.builder.sub(self, other)

    def __rsub__(self, other: Any) -> Node:
        return self.builder.sub(other, self)

    def __mul__(self, other: Any) -> Node:
        return self.builder.mul(self, other)

    def __rmul__(self, other: Any) -> Node:
        return self.builder.mul(other, self)

    def __truediv__(self, other: Any) -> Node:
        return self.builder.div(self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return self.builder.div(other, self)

    def __floordiv__(self, other: Any) -> Node:
        return self.builder.div(self, other)

    def __mod__(self, other: Any) -> Node:
        return self.builder.rem(self, other)

    def __neg__(self) -> Node:
        return self.builder.neg(self)

    def __and__(self, other: Any) -> Node:
        return self.builder.and_(self, other)

    def __or__(self, other: Any) -> Node:
        return self.builder.or_(self, other)

    def __xor__(self, other: Any) -> Node:
        return self.builder.xor(self, other)

    def __lshift__(self, other: Any) -> Node:
        return self.builder.shl(self, other)

    def __rshift__(self, other: Any) -> Node:
        return self.builder.shr(self, other)


@dataclass(eq=False)
class Kernel:
    """A kernel: parameters and a body.

    Parameters by convention: first pointers to buffers, then `sizes` (pointer to i64 run-time sizes), then `begin`
    and `end` (i64): the half-open range of chunks that this call does. A kernel only ever touches what its chunks
    own, so that chunks can run on any thread in any order. A finished kernel is not changed any more: passes make new
    ones (`rewrite.py`).
    """

    name: str
    params: Sequence[Node]
    body: Block
    meta: dict[str, Any] = field(default_factory=dict)
