"""What the passes hand to one another: the nodes in execution order, and where the user's tensors have gone.

Arrives: a `Graph`; leaves: a `State`. Passes make new tensors instead of changing old ones; `rewrite` keeps the order
of effects. Next module: the passes in the order of `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from gml.dims import Dim
from gml.graph import Graph
from gml.records import dataclass, field
from gml.tensor import Tensor


@dataclass(frozen=True)
class Options:
    """Choices of the compiler.

    exact     float activations everywhere: slower, and equal to float32 arithmetic on the decoded weights
    layout    "packed": weights are rearranged at first use for speed; "file": used where they lie in the mapped file
    lanes     width of vectorised row loops; 1 switches vectorisation off
    disabled  names of passes that are left out
    """

    exact: bool = False
    layout: str = "packed"
    lanes: int = 16
    disabled: frozenset[str] = frozenset()


@dataclass
class State:
    """The graph between two passes.

    nodes    results in execution order
    outputs  what must be computed, in the user's order
    moved    the user's kept tensors -> the tensors that now hold their values
    folded   constants that the compiler made, beside the graph's leaves
    """

    graph: Graph
    options: Options
    nodes: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    moved: dict[Tensor, Tensor] = field(default_factory=dict)
    folded: list[Tensor] = field(default_factory=list)

    @classmethod
    def start(cls, graph: Graph, options: Options) -> State:
        """The state before the first pass."""
        kept = graph.kept
        return cls(graph, options, list(graph.nodes), list(graph.outputs), {t: t for t in kept})

    @property
    def dims(self) -> list[Dim]:
        """Run-time sizes in the order in which kernels find them."""
        return list(self.graph.dims.values())

    @property
    def leaves(self) -> list[Tensor]:
        """Tensors with storage of their own: the graph's, then those that the compiler made."""
        return self.graph.leaves + self.folded

    @property
    def needed(self) -> set[Tensor]:
        """Tensors whose values must be readable after a run."""
        return {*self.outputs, *self.moved.values()}

    def users(self) -> dict[Tensor, list[Tensor]]:
        """For each tensor the nodes that have it as a source, once per use."""
        found: dict[Tensor, list[Tensor]] = {}
        for node in self.nodes:
            for source in node.src:
                found.setdefault(source, []).append(node)
        return found

    def written_roots(self) -> set[Tensor]:
        """Tensors whose storage some node writes."""
        return {n.root for n in self.nodes if n.op is not None and n.op.writes is not None}


def rewrite(state: State, rule: Callable[[Tensor], Tensor | None], written: set[Tensor] | None = None) -> State:
    """Replace nodes: rule(node) gives the tensor to use instead, or None. Sources are already the new ones.

    New nodes that the rule made along the way are placed where the replaced node was. `written` are roots that ops
    write, which the rule may look at: those that take the place of one of them are added.
    """
    roots = set() if written is None else written
    now: dict[Tensor, Tensor] = {}
    nodes: list[Tensor] = []
    placed: set[Tensor] = set(state.leaves)

    def place(tensor: Tensor) -> None:
        fresh: list[Tensor] = []
        pending = [tensor]
        while pending:
            t = pending.pop()
            if t in placed:
                continue
            placed.add(t)
            if not t.is_leaf:
                fresh.append(t)
            pending.extend(t.src)
        nodes.extend(sorted(fresh, key=lambda t: t.serial))

    for old in state.nodes:
        node = with_sources(old, tuple(now.get(s, s) for s in old.src), now)
        if old in roots:
            roots.add(node)
        new = rule(node)
        if new is not None and old in roots:
            roots.add(new)
        if new is None:
            new = node
        elif new.name == "" and old.name:
            new.named(old.name)
        place(new)
        if new is not old:
            now[old] = new
    return State(
        state.graph,
        state.options,
        nodes,
        [now.get(t, t) for t in state.outputs],
        {user: now.get(t, t) for user, t in state.moved.items()},
        state.folded,
    )


def with_sources(node: Tensor, src: tuple[Tensor, ...], now: dict[Tensor, Tensor]) -> Tensor:
    """The same node over other sources (the node itself when they are the same)."""
    if all(a is b for a, b in zip(src, node.src, strict=True)):
        return node
    view_of, offset, nb = None, node.offset, node.nb
    if node.view_of is not None:
        op = node.op
        assert op is not None
        view_of = src[0 if op.writes is None else op.writes]
        # the new source lies elsewhere, and its strides may differ where sizes are 1
        found = op.infer(node.attrs, *src)
        offset = view_of.offset + found.offset
        nb = found.nb
    made = Tensor(
        node.type,
        node.ne,
        nb=nb,
        op=node.op,
        attrs=node.attrs,
        src=src,
        view_of=view_of,
        offset=offset,
        name=node.name,
    )
    made.kept = node.kept
    return made
