"""Fusion: nodes are grouped into regions, each of which becomes one kernel that stores one result.

Arrives: a `State` whose nodes all have a lowering; leaves: regions in execution order. A node joins the region of its
only user when it can be pulled by it (see `gml/ops/lower.py`); tiles take the elementwise ops behind them as epilogue:

    rms_norm -> mul -> quantize_q8          one region: a row is normalised, scaled and quantised without touching
    memory mul_mat, mul_mat -> swiglu_split        one region: both products of a tile stay in registers
    mul_mat -> add (residual)               one region

Next module: `phases.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from types import FunctionType

from gml.compiler.state import State
from gml.errors import UnsupportedError
from gml.ops.lower import Callback, Direct, Elementwise, Indexed, RowSink, Rowwise, Tiles
from gml.records import dataclass, field
from gml.tensor import Tensor

Pulled = (Elementwise, Indexed, Rowwise)


#: nodes of a region: pulling recurses over them
MAX_MEMBERS = 64
#: rowwise nodes of a region: each one asks its sources for a row several times
MAX_ROWWISE = 2


@dataclass(eq=False)
class Region:
    """Fused nodes that become one kernel.

    nodes    in execution order; the last one is stored (`out`)
    """

    nodes: list[Tensor]
    members: set[Tensor] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.members = set(self.nodes)

    @property
    def out(self) -> Tensor:
        """The result that is stored."""
        return self.nodes[-1]

    @property
    def callback(self) -> bool:
        """Whether the region is a Python function."""
        return isinstance(form_of(self.out), Callback)

    @cached_property
    def inputs(self) -> list[Tensor]:
        """Tensors that are read from memory, in order of first use."""
        found: dict[Tensor, None] = {}
        for node in self.nodes:
            for source in node.src:
                if source not in self.members:
                    found.setdefault(source)
        if self.out.op is not None and self.out.op.writes is not None:
            written = self.out.src[self.out.op.writes]
            found.setdefault(written)
        return list(found)

    @cached_property
    def reads(self) -> set[Tensor]:
        """Roots of the storage that is read."""
        return {t.root for t in self.inputs}

    @property
    def writes(self) -> Tensor:
        """Root of the storage that is written."""
        return self.out.root


def form_of(node: Tensor) -> object:
    """The lowering form of a node. Raises `UnsupportedError` for an op without one."""
    assert node.op is not None
    if node.op.lower is None:
        raise UnsupportedError(
            f"op {node.op.name} has no lowering to kernel IR; use the reference backend or give it one"
        )
    lower = node.op.lower
    return lower(node.attrs, node, *node.src) if isinstance(lower, FunctionType) else lower


def fuse(state: State) -> list[Region]:
    """Group the nodes (views excepted) into regions."""
    fusing = "fuse" not in state.options.disabled
    users = state.users()
    needed = state.needed
    order = {t: i for i, t in enumerate(state.nodes)}
    writers = _writers(state, order)
    taken: set[Tensor] = set()
    regions: list[Region] = []
    # from the last node back, so that a region starts at its end and grows towards its sources
    for node in reversed(state.nodes):
        assert node.op is not None
        if node.op.view or node in taken:
            continue
        members = [node]
        if fusing:
            _grow(node, members, users, needed, partial(_undisturbed, late=node, order=order, writers=writers))
        taken.update(members)
        regions.append(Region(sorted(members, key=order.__getitem__)))
    regions.reverse()
    return regions


def _grow(node: Tensor, members: list[Tensor], users: dict, needed: set[Tensor], undisturbed) -> None:
    """Add to `members` the sources of `node`, and theirs, that can be pulled into its kernel."""
    iterated = _iterated(node)
    pending = [node]
    tiles: list[Tensor] = []
    sink = form_of(node)
    if isinstance(sink, (Direct, Tiles, Callback)):
        return
    while pending:
        consumer = pending.pop()
        for source in _pullable_sources(consumer):
            if (
                source in members
                or source.is_leaf
                or source in needed
                or source.view_of is not None
                or _is_view(source)
            ):
                continue
            if (
                any(user not in members for user in users[source])
                or not source.type.is_scalar
                or not undisturbed(source)
            ):
                continue
            form = form_of(source)
            if len(members) >= MAX_MEMBERS or (isinstance(form, Rowwise) and n_rowwise(members) >= MAX_ROWWISE):
                continue
            if not isinstance(sink, Elementwise) and _finishes_tiles(source, users, needed):
                continue
            if isinstance(form, Pulled) and _same_rows(source, iterated):
                if isinstance(form, Rowwise) and tiles:
                    continue
                members.append(source)
                pending.append(source)
            elif isinstance(form, Tiles) and _can_finish(node, source, members, tiles, form):
                members.append(source)
                tiles.append(source)


def n_rowwise(members: Sequence[Tensor]) -> int:
    """How many of them work per row first."""
    return sum(isinstance(form_of(m), Rowwise) for m in members)


def _finishes_tiles(node: Tensor, users: dict, needed: set[Tensor]) -> bool:
    """Whether an elementwise node is better done in registers, behind the tiles that it alone uses."""
    if not isinstance(form_of(node), Elementwise):
        return False
    return any(
        not s.is_leaf
        and s.view_of is None
        and s not in needed
        and s.ne == node.ne
        and isinstance(form_of(s), Tiles)
        and all(u is node for u in users[s])
        for s in node.src
    )


def _is_view(node: Tensor) -> bool:
    return node.op is not None and node.op.view


def _iterated(node: Tensor) -> Tensor:
    """The tensor whose rows the region visits."""
    form = form_of(node)
    return node.src[form.over] if isinstance(form, RowSink) and form.over is not None else node


def _pullable_sources(consumer: Tensor) -> Sequence[Tensor]:
    """Sources that are asked for at the consumer's own rows."""
    form = form_of(consumer)
    if isinstance(form, (Elementwise, Rowwise)):
        return consumer.src
    if isinstance(form, RowSink):
        over = 0 if form.over is None else form.over
        return [consumer.src[over]]
    return []


def _same_rows(source: Tensor, iterated: Tensor) -> bool:
    return source.ne[1:] == iterated.ne[1:]


def _can_finish(node: Tensor, source: Tensor, members: list[Tensor], tiles: list[Tensor], form: Tiles) -> bool:
    """Whether tiles of `source` can be finished by the elementwise members and stored as `node`."""
    if not all(isinstance(form_of(m), Elementwise) for m in members if m not in tiles) or source.ne != node.ne:
        return False
    if not tiles:
        return True
    first = tiles[0]
    first_form = form_of(first)
    assert isinstance(first_form, Tiles)
    return first_form.partner(first.attrs, first, *first.src) == form.partner(source.attrs, source, *source.src)


def _writers(state: State, order: dict[Tensor, int]) -> dict[Tensor, list[int]]:
    """For each root that ops write, when."""
    found: dict[Tensor, list[int]] = {}
    for node in state.nodes:
        if node.op is not None and node.op.writes is not None:
            found.setdefault(node.root, []).append(order[node])
    return found


def _undisturbed(early: Tensor, late: Tensor, order: dict[Tensor, int], writers: dict[Tensor, list[int]]) -> bool:
    """Whether computing `early` only when `late` is computed sees the same storage."""
    if early not in order:
        # computed by the setup already
        return False
    if late.op is not None and late.op.writes is not None and any(s.root is late.root for s in early.src):
        # rows that are written would be read again, by rows that come later
        return False
    start, stop = order[early], order[late]
    return not any(start < at < stop for s in early.src for at in writers.get(s.root, ()))
