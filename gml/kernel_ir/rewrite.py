"""Rebuilds a kernel node by node, replacing some: how backends legalise what their target lacks.

Arrives: a kernel and a rule; leaves: a new kernel. The rule gets the builder, a node and its new arguments, and gives
the node to use instead, or None to keep the kind. Next module: `math.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gml.kernel_ir.builder import Builder
from gml.kernel_ir.nodes import Block, Kernel, Node

Rule = Callable[[Builder, Node, Sequence[Node]], "Node | None"]


def rebuild(kernel: Kernel, rule: Rule) -> Kernel:
    """The same kernel with `rule` applied to every node that has no blocks of its own."""
    b = Builder(kernel.name)
    now: dict[Node, Node] = {}
    for param in kernel.params:
        now[param] = b.param(param.attrs["name"], param.type)
    _block(b, kernel.body, now, rule)
    made = b.finish()
    made.meta = dict(kernel.meta)
    return made


def _block(b: Builder, block: Block, now: dict[Node, Node], rule: Rule) -> None:
    for node in block.nodes:
        if node.kind == "for":
            _loop(b, node, now, rule)
        elif node.kind == "if":
            _if(b, node, now, rule)
        elif node.kind != "result":
            args = [now[a] for a in node.args]
            made = rule(b, node, args)
            now[node] = made if made is not None else b.emit(node.kind, node.type, tuple(args), node.attrs)


def _loop(b: Builder, node: Node, now: dict[Node, Node], rule: Rule) -> None:
    body: Block = node.attrs["body"]

    def inside(*params: Node) -> list[Node]:
        now.update(zip(body.params, params, strict=True))
        _block(b, body, now, rule)
        return [now[y] for y in body.yields]

    start, stop, step, *carried = (now[a] for a in node.args)
    results = b.loop(start, stop, inside, carried, step=step)
    _bind(node, results, now)


def _if(b: Builder, node: Node, now: dict[Node, Node], rule: Rule) -> None:
    def inside(block: Block) -> Callable[[], list[Node]]:
        def make() -> list[Node]:
            _block(b, block, now, rule)
            return [now[y] for y in block.yields]

        return make

    results = b.when(now[node.args[0]], inside(node.attrs["then"]), inside(node.attrs["other"]))
    _bind(node, results, now)


def _bind(node: Node, results: Sequence[Node], now: dict[Node, Node]) -> None:
    for result in node.attrs.get("results", ()):
        now[result] = results[result.attrs["index"]]
