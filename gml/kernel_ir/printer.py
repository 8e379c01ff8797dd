"""Kernels as text: for people, for golden files, and as the key under which equal kernels are one.

Arrives: a kernel; leaves: text with everything that decides what the kernel does. Values are numbered in order,
constants are written where they are used (so where a constant was made does not matter), `meta` is left out. Next
module: `rules.py`.

    kernel scale(x: ptr, y: ptr, sizes: ptr, begin: i64, end: i64)
      for %0 = begin to end step 1:i64
        %1: i64 = mul %0, 32:i64
        %2: f32x8 = load x, %1
        %3: f32x8 = mul %2, 0.5:f32x8
        store y, %1, %3
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from gml.kernel_ir.builder import KernelError
from gml.kernel_ir.nodes import MAX_DEPTH, Block, Kernel, Node, Type

_STRUCTURE = frozenset(("body", "then", "other", "results"))
_INDENT = "  "


def print_kernel(kernel: Kernel) -> str:
    """The kernel's text, with its own name and those of its parameters; the same IR gives the same text."""
    return "\n".join(_Printer(kernel, keyed=False).lines) + "\n"


def kernel_key(kernel: Kernel) -> str:
    """The text without names: equal for kernels that compile to the same code. Key of caches.

    Only `sizes`, `begin` and `end` keep theirs, which mean something. Python functions of `call` nodes appear by
    identity: such a key holds within this process and as long as the kernel lives.
    """
    return "\n".join(_Printer(kernel, keyed=True).lines) + "\n"


def print_node(kernel: Kernel, node: Node) -> str:
    """The node's line as it stands in the kernel's text; works for broken kernels, too (unknown values are `%?`)."""
    try:
        printer = _Printer(kernel, keyed=False)
    except KernelError:  # nested without end
        return node.kind
    at = printer.line_of.get(node)
    return printer.lines[at].strip() if at is not None else printer.line(node)


class _Printer:
    """The lines of one kernel."""

    def __init__(self, kernel: Kernel, *, keyed: bool) -> None:
        self.keyed = keyed
        self.lines: list[str] = []
        self.line_of: dict[Node, int] = {}
        self._names: dict[Any, str] = {}
        self._types: dict[Type, str] = {}
        self._n = 0
        self._header(kernel)
        self._block(kernel.body, 1)

    def _header(self, kernel: Kernel) -> None:
        for i, param in enumerate(kernel.params):
            name = param.attrs.get("name", "?")
            self._names[param] = f"p{i}" if self.keyed and name not in ("sizes", "begin", "end") else name
            self.line_of[param] = 0
        params = ", ".join(f"{self._names[p]}: {p.type}" for p in kernel.params)
        self.lines.append(f"kernel {'' if self.keyed else kernel.name}({params})")

    # -- values --------------------------------------------------------------------------------------------------------

    def _type(self, type: Type) -> str:
        text = self._types.get(type)
        if text is None:
            text = self._types[type] = str(type)
        return text

    def _new(self, value: Any) -> str:
        name = self._names[value] = f"%{self._n}"
        self._n += 1
        return name

    def _value(self, node: Node) -> str:
        name = self._names.get(node)
        if name is None and node.kind == "const":
            name = self._names[node] = f"{_constant(node.attrs.get('value'), node.type)}:{self._type(node.type)}"
        elif name is None and node.kind == "result" and len(node.args) == 1:
            name = self._names.get((node.args[0], node.attrs.get("index")))
        return name or "%?"

    def _values(self, nodes: Sequence[Node]) -> str:
        return ", ".join([self._value(n) for n in nodes])

    def _attrs(self, node: Node) -> str:
        shown = [f"{k}={self._attr(v)}" for k, v in sorted(node.attrs.items()) if k not in _STRUCTURE]
        return f" {{{', '.join(shown)}}}" if shown else ""

    def _attr(self, value: Any) -> str:
        if callable(value):
            name = f"{getattr(value, '__module__', '?')}.{getattr(value, '__qualname__', type(value).__name__)}"
            return f"{name}@{id(value):x}" if self.keyed else name
        if isinstance(value, bytes):
            return f"{len(value)} bytes {hashlib.sha256(value).hexdigest()[:32]}"
        return value if isinstance(value, str) else repr(value)

    # -- lines ---------------------------------------------------------------------------------------------------------

    def line(self, node: Node) -> str:
        """A node without blocks."""
        if node.kind == "const":
            return f"const {self._value(node)}"
        args = f" {self._values(node.args)}" if node.args else ""
        text = f"{node.kind}{args}{self._attrs(node) if node.attrs else ''}"
        return text if node.type.kind == "void" else f"{self._names.get(node, '%?')}: {self._type(node.type)} = {text}"

    def _add(self, node: Node | None, text: str, depth: int) -> None:
        if node is not None:
            self.line_of[node] = len(self.lines)
        self.lines.append(_INDENT * depth + text)

    def _block(self, block: Block, depth: int) -> None:
        if depth > MAX_DEPTH + 1:
            raise KernelError(f"blocks are nested deeper than {MAX_DEPTH}")
        for node in block.nodes:
            kind = node.kind
            if kind == "const" or kind == "result":
                continue
            if kind == "for" and isinstance(node.attrs.get("body"), Block):
                self._for(node, depth)
            elif kind == "if" and isinstance(node.attrs.get("then"), Block):
                self._if(node, depth)
            else:
                if node.type.kind != "void":
                    self._new(node)
                self._add(node, self.line(node), depth)

    def _results(self, node: Node, yields: Sequence[Node]) -> str:
        """`%3: f32, %4: i64 = `: a name for every value that is yielded, whether something uses it or not."""
        named = [f"{self._new((node, i))}: {self._type(y.type)}" for i, y in enumerate(yields)]
        return ", ".join(named) + " = " if named else ""

    def _for(self, node: Node, depth: int) -> None:
        body: Block = node.attrs["body"]
        start, stop, step = ([*map(self._value, node.args[:3])] + ["%?"] * 3)[:3]
        results = self._results(node, node.args[3:])
        inside = [self._new(p) for p in body.params]
        carried = [f"{name} = {self._value(a)}" for name, a in zip(inside[1:], node.args[3:], strict=False)]
        carries = f" with {', '.join(carried)}" if carried else ""
        index = inside[0] if inside else "%?"
        self._add(node, f"{results}for {index} = {start} to {stop} step {step}{carries}", depth)
        self._block(body, depth + 1)
        self._yield(body, depth + 1)

    def _if(self, node: Node, depth: int) -> None:
        results = self._results(node, node.attrs["then"].yields)
        self._add(node, f"{results}if {self._values(node.args)}", depth)
        self._block(node.attrs["then"], depth + 1)
        self._yield(node.attrs["then"], depth + 1)
        other = node.attrs.get("other")
        if isinstance(other, Block) and (other.nodes or other.yields):
            self._add(None, "else", depth)
            self._block(other, depth + 1)
            self._yield(other, depth + 1)

    def _yield(self, block: Block, depth: int) -> None:
        if block.yields:
            self._add(None, f"yield {self._values(block.yields)}", depth)


def _constant(value: Any, type: Type) -> str:
    if isinstance(value, tuple):
        return f"({', '.join([_constant(v, type) for v in value])})"
    if type.kind == "f" and type.bits == 32 and isinstance(value, float):
        with np.errstate(over="ignore"):
            return str(np.float32(value))  # the shortest text that means this float32
    return repr(value)
