"""The order in which nodes are written, where it is free: so that values live shortly and registers suffice.

Arrives: the nodes of a block; leaves: runs of nodes among which nothing writes to memory, and in each the dot products
that belong together. LLVM schedules instructions itself, but not far from the order that it is given. Next module:
`emit.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gml.kernel_ir import Block, Kernel, Node
from gml.kernel_ir.nodes import KINDS

#: stands for a user that is not a node: a block yields the value
_YIELD = None
_BLOCKS = ("body", "then", "other")
_READS = frozenset(("load", "gather"))

Users = Mapping[Node, "list[Node | None]"]


def users(kernel: Kernel) -> Users:
    """Who uses each value."""
    found: dict[Node, list[Node | None]] = {}
    open_blocks = [kernel.body]
    while open_blocks:
        block = open_blocks.pop()
        for node in block.nodes:
            for arg in node.args:
                found.setdefault(arg, []).append(node)
            open_blocks += [node.attrs[name] for name in _BLOCKS if name in node.attrs]
        for value in block.yields:
            found.setdefault(value, []).append(_YIELD)
    return found


def runs(block: Block) -> Iterator[list[Node]]:
    """The block cut at every node that has an effect; such a node is a run of its own. Dot products come first."""
    run: list[Node] = []
    for node in block.nodes:
        if KINDS[node.kind][2] or node.kind in _READS:
            run.append(node)
            continue
        if run:
            yield _dots_first(run)
        yield [node]
        run = []
    if run:
        yield _dots_first(run)


def _dots_first(run: list[Node]) -> list[Node]:
    """A run with its dot products and what they need before everything else: that would take registers meanwhile."""
    needed = {node for node in run if node.kind == "group_dot"}
    if not needed:
        return run
    for node in reversed(run):
        if node in needed:
            needed.update(node.args)
    return [node for node in run if node in needed] + [node for node in run if node not in needed]


def only_for_dots(run: Sequence[Node], users: Users) -> frozenset[Node]:
    """Nodes of a run that nothing but its dot products uses, directly or not: they are written where these use them."""
    members, waiting = set(run), set()
    for node in reversed(run):
        if node.kind in ("group_dot", "result", "const"):
            continue
        by = users.get(node, ())
        if (
            by
            and all(u in members and (u in waiting or u.kind == "group_dot") for u in by if u is not None)
            and None not in by
        ):
            waiting.add(node)
    return frozenset(waiting)


def dots_together(nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The first node, a dot product, and those behind it with the same weights that do not depend on any of them.

    The second list has the nodes behind the first that they need, in order.
    """
    first, n = nodes[0], len(nodes[0].args) // 2
    chosen, above, others = [first], {first}, []
    for node in nodes[1:]:
        if any(a in above for a in node.args):
            above.add(node)
        elif node.kind != "group_dot":
            others.append(node)
        else:
            above.add(node)
            if node.args[:n] == first.args[:n] and len(node.args) == 2 * n and node.attrs == first.attrs:
                chosen.append(node)
    needed = {a for node in chosen for a in node.args}
    for node in reversed(others):
        if node in needed:
            needed.update(node.args)
    return chosen, [node for node in others if node in needed]
