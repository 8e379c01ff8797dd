"""LLVM IR as lines of text: types, constants, and a writer of one function that names values.

LLVM's own builder objects are too slow for a compiler that should not be noticed, and text can be read. Next module:
`dot.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

from gml.kernel_ir import I32, Node, Type

_FLOAT = {16: "half", 32: "float", 64: "double"}


@cache
def llvm_type(t: Type) -> str:
    """A type as LLVM writes it."""
    if t.kind == "p":
        base = "ptr"
    elif t.kind == "b":
        base = "i1"
    else:
        base = _FLOAT[t.bits] if t.kind == "f" else f"i{t.bits}"
    return base if t.lanes == 1 else f"<{t.lanes} x {base}>"


@cache
def suffix(t: Type) -> str:
    """A type as it ends an intrinsic's name."""
    base = f"{'f' if t.kind == 'f' else 'i'}{t.bits}"
    return base if t.lanes == 1 else f"v{t.lanes}{base}"


def number(t: Type, value: Any) -> str:
    """A constant of a scalar kind."""
    if t.kind == "f":
        if t.bits == 16:
            return f"0xH{int.from_bytes(struct.pack('<e', value), 'little'):04X}"
        if math.isnan(value):
            return "0x7FF8000000000000"
        # LLVM writes f32 with the digits of the f64 of the same value
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if t.kind == "b":
        return "true" if value else "false"
    return str(int(value))


def constant(t: Type, value: Any) -> str:
    """A constant: a number for every lane, or a tuple of one per lane."""
    if t.lanes == 1:
        return number(t, value)
    scalar = llvm_type(t.scalar)
    if not isinstance(value, tuple):
        value = (value,) * t.lanes
    return "<" + ", ".join([f"{scalar} {number(t, v)}" for v in value]) + ">"


class Writer:
    """Lines of one function. `declared` are the declarations of what it calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.names: dict[Node, str] = {}
        self._n = 0

    def fresh(self, what: str = "v") -> str:
        """A name that nothing has yet, for a value or a label."""
        self._n += 1
        return f"{what}{self._n}"

    def new(self, text: str) -> str:
        """A line that makes a value; gives its name."""
        self._n += 1
        name = f"%v{self._n}"
        self.lines.append(f"  {name} = {text}")
        return name

    def value(self, node: Node) -> str:
        """A node as an operand."""
        return constant(node.type, node.attrs["value"]) if node.kind == "const" else self.names[node]

    def typed(self, node: Node) -> str:
        """A node as an operand with its type before it."""
        return f"{llvm_type(node.type)} {self.value(node)}"

    def call(self, result: str, name: str, arguments: Sequence[tuple[str, str]]) -> str:
        """A call of a function; `arguments` are types and operands."""
        self.declared.add(f"declare {result} @{name}({', '.join([t for t, _ in arguments])})")
        return self.new(f"call {result} @{name}({', '.join([f'{t} {v}' for t, v in arguments])})")

    # -- vectors in pieces ---------------------------------------------------------------------------------------------

    def shuffle(self, t: Type, a: str, b: str, lanes: Sequence[int]) -> str:
        """Lanes of a and b, both of type t."""
        indices = ", ".join([f"i32 {i}" for i in lanes])
        vector = llvm_type(t)
        return self.new(f"shufflevector {vector} {a}, {vector} {b}, <{len(lanes)} x i32> <{indices}>")

    def pieces(self, node: Node, width: int) -> list[str]:
        """A vector cut into pieces of `width` lanes."""
        value = self.value(node)
        if node.lanes == width:
            return [value]
        return [self.shuffle(node.type, value, "poison", range(i, i + width)) for i in range(0, node.lanes, width)]

    def join(self, pieces: Sequence[str], t: Type) -> str:
        """Any number of pieces of type t, one after the other."""
        first, *others = pieces
        lanes = t.lanes
        for piece in others:
            if lanes > t.lanes:  # both sides of a shuffle have the same type
                widened = [*range(t.lanes), *[-1] * (lanes - t.lanes)]
                indices = ", ".join([f"i32 {i}" if i >= 0 else "i32 poison" for i in widened])
                vector = llvm_type(t)
                piece = self.new(f"shufflevector {vector} {piece}, {vector} poison, <{lanes} x i32> <{indices}>")
            first = self.shuffle(t.vec(lanes), first, piece, range(lanes + t.lanes))
            lanes += t.lanes
        return first


def words(lanes: int) -> str:
    """The type of i32 sums."""
    return llvm_type(I32.vec(lanes))
