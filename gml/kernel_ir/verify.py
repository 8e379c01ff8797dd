"""Checks kernels: every node against its rules, every value used only where it is known.

Arrives: a kernel; leaves: the same kernel, or a `KernelError` that names the kernel, the node's line and the rule.
Passes may rely on it: valid IR in, valid IR out. Next module: `lanes.py`.
"""

from __future__ import annotations

import re

from gml.kernel_ir.builder import KernelError
from gml.kernel_ir.nodes import I64, MAX_DEPTH, PTR, Block, Kernel, Node
from gml.kernel_ir.printer import print_node
from gml.kernel_ir.rules import complaint


def verify(kernel: Kernel) -> Kernel:
    """The kernel, if it follows all rules.

    Raises KernelError otherwise, one line: `kernel NAME: `LINE`: RULE`.
    """
    _Verifier(kernel).kernel_rules()
    return kernel


class _Verifier:
    """One walk over a kernel. `known` are the values that may be used at this point."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.known: set[Node] = set()
        self.seen: set[Node] = set()
        self.blocks: set[int] = set()

    def fail(self, node: Node | None, rule: str) -> None:
        line = f"`{print_node(self.kernel, node)}`: " if node is not None else ""
        raise KernelError(f"kernel {self.kernel.name}: {line}{rule}")

    def kernel_rules(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*", self.kernel.name, re.ASCII):
            raise KernelError(f"kernel {self.kernel.name!r}: the name must be an identifier, for it names a function")
        names = [p.attrs.get("name") for p in self.kernel.params]
        for i, param in enumerate(self.kernel.params):
            if param.kind != "param" or param.attrs.get("index") != i:
                self.fail(param, f"parameter {i} of the kernel must be a `param` with this index")
            if not isinstance(names[i], str) or names.count(names[i]) != 1:
                self.fail(param, "every parameter needs a name of its own")
            if param.type != (I64 if names[i] in ("begin", "end") else PTR):
                self.fail(param, "parameters are pointers, but `begin` and `end` are i64")
            self.known.add(param)
        if self.kernel.body.params or self.kernel.body.yields:
            self.fail(None, "the kernel's own block has no parameters and yields nothing")
        self.block(self.kernel.body, 0)

    def block(self, block: Block, depth: int) -> list[Node]:
        """Checks a block and gives what became known in it."""
        if depth > MAX_DEPTH:
            self.fail(None, f"blocks are nested deeper than {MAX_DEPTH}")
        if id(block) in self.blocks:
            self.fail(block.nodes[0] if block.nodes else None, "a block belongs to one node only")
        self.blocks.add(id(block))
        known, seen, made = self.known, self.seen, []
        for node in block.nodes:
            if node in seen:
                self.fail(node, "the node stands in the kernel twice")
            seen.add(node)
            for arg in node.args:
                if arg not in known:
                    self.unknown(node, arg)
            found = complaint(node)
            if found is not None:
                self.fail(node, found)
            if node.kind == "for":
                self.loop(node, depth)
            elif node.kind == "if":
                self.condition(node, depth)
            known.add(node)
            made.append(node)
        return made

    def unknown(self, node: Node, arg: Node) -> None:
        what = f"uses `{print_node(self.kernel, arg)}`"
        if arg in self.seen:
            self.fail(node, f"{what} outside of the block that it belongs to")
        self.fail(node, f"{what} before it is made")

    def inner(self, node: Node, block: Block, depth: int) -> None:
        """A block of a node: its values are known to nobody outside."""
        self.known.update(block.params)
        self.seen.update(block.params)
        made = self.block(block, depth + 1)
        for value in block.yields:
            if value not in self.known:
                self.unknown(node, value)
            if value.type.kind == "void":
                self.fail(node, f"yields `{value.kind}`, which gives no value")
        self.known.difference_update(made)
        self.known.difference_update(block.params)

    def loop(self, node: Node, depth: int) -> None:
        body: Block = node.attrs["body"]
        for i, param in enumerate(body.params):
            if param.kind != "block_param" or param.attrs.get("index") != i or param in self.seen:
                self.fail(node, f"parameter {i} of the body must be a `block_param` of its own with this index")
        self.inner(node, body, depth)

    def condition(self, node: Node, depth: int) -> None:
        for block in (node.attrs["then"], node.attrs["other"]):
            self.inner(node, block, depth)
