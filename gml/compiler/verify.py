"""What must hold between passes, and of a finished plan; broken rules raise `VerifyError` with the pass and the tensor.

Arrives: a `State` after a pass, or a `CompiledGraph`; leaves: nothing, or an error. `verify_order` is cheap and always
runs; the others run with `GML_CHECK=1` and in tests. They say what is right in their own words and share no code with
the passes that they check. Next module: `regions.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gml.compiler.regions import Region
from gml.compiler.state import State
from gml.dims import max_of
from gml.errors import Error, ShapeError
from gml.records import dataclass, field
from gml.tensor import Tensor, contiguous_strides

if TYPE_CHECKING:
    from gml.compiler.plan import CompiledGraph


class VerifyError(Error):
    """A pass broke a rule of the compiler: a fault in gml or in a user's op, not in the graph."""


def _broken(where: str, what: str) -> VerifyError:
    return VerifyError(f"after {where}: {what}; this is a fault in gml or in a user's op, please report it")


# -- tensor ops --------------------------------------------------------------------------------------------------------


def verify_order(state: State, where: str) -> None:
    """Sources come before their users, nodes occur once, and what must be readable is computed."""
    known = set(state.leaves)
    n_leaves = len(known)
    for node in state.nodes:
        for source in node.src:
            if source not in known:
                later = "comes later" if source in set(state.nodes) else "is neither a node nor a leaf of the graph"
                raise _broken(where, f"{node.describe()} needs {source.describe()}, which {later}")
        if node.view_of is not None and node.view_of not in known:
            raise _broken(where, f"{node.describe()} looks into {node.view_of.describe()}, which is not there yet")
        known.add(node)
    if len(known) != n_leaves + len(state.nodes):
        raise _broken(where, "a node occurs twice, or a leaf is among the nodes")
    for tensor in state.needed:
        if tensor not in known:
            raise _broken(where, f"{tensor.describe()} must be readable after a run and is not computed")


def verify_state(state: State, where: str, before: State | None = None) -> None:
    """All rules of tensor ops: order, types and sizes as the ops infer them, and effects as they were `before`."""
    verify_order(state, where)
    _verify_needed(state, where)
    for node in state.nodes:
        _verify_inferred(node, where)
    if before is not None:
        _verify_effects(state, before, where)


def _verify_needed(state: State, where: str) -> None:
    graph = state.graph
    if len(state.outputs) != len(graph.outputs):
        raise _broken(where, f"expected {len(graph.outputs)} outputs, found {len(state.outputs)}")
    lost = [t for t in graph.kept if t not in state.moved]
    if lost:
        raise _broken(where, f"{lost[0].describe()} was kept and nothing is known of where its values are")
    for user, now in [*zip(graph.outputs, state.outputs, strict=True), *state.moved.items()]:
        if (now.type, now.ne) != (user.type, user.ne):
            raise _broken(where, f"{user.describe()} has become {now.describe()}: type and ne must stay")


def _verify_inferred(node: Tensor, where: str) -> None:
    """A node is what its op makes of its sources."""
    op = node.op
    if op is None:
        raise _broken(where, f"{node.describe()} is among the nodes and has no op")
    try:
        found = op.infer(node.attrs, *node.src)
    except ShapeError as error:
        raise _broken(where, f"{node.describe()}: op {op.name} refuses its sources: {error}") from None
    ne = (*found.ne, *[1] * (4 - len(found.ne)))
    if found.type is not node.type or ne != node.ne:
        expected = f"{found.type.name}{list(ne)}"
        raise _broken(where, f"{node.describe()}: op {op.name} makes {expected}, found {node.type.name}{list(node.ne)}")
    base = node.src[0] if op.view else node.src[op.writes] if op.writes is not None else None
    if node.view_of is not base:
        raise _broken(where, f"{node.describe()}: op {op.name} must look into its source, and does not")
    nb = contiguous_strides(node.type, node.ne) if found.nb is None else tuple(found.nb)
    offset = found.offset if base is None else base.offset + found.offset
    if nb != node.nb or offset != node.offset:
        expected = f"nb = {list(nb)} from byte {offset}"
        raise _broken(where, f"{node.describe()}: expected {expected}, found {list(node.nb)} from byte {node.offset}")


@dataclass
class _Effects:
    """How one written leaf is used.

    n_writes  ops that write it
    seen      (writes that the reader names as its source, writes that come before it): pairs of all readers
    at        node -> number of writes before it
    """

    n_writes: int = 0
    seen: set[tuple[int, int]] = field(default_factory=set)
    at: dict[Tensor, int] = field(default_factory=dict)


def _effects(state: State) -> dict[Tensor, _Effects]:
    found: dict[Tensor, _Effects] = {root: _Effects() for root in state.written_roots()}
    named: dict[Tensor, int] = {}
    for node in state.nodes:
        writes = node.op.writes if node.op is not None else None
        for i, source in enumerate(node.src):
            effects = found.get(source.root)
            if effects is None or i == writes or (node.op is not None and node.op.view):
                continue
            effects.at[node] = effects.n_writes
            effects.seen.add((named.get(source, 0), effects.n_writes))
        if writes is not None:
            effects = found[node.root]
            effects.at[node] = effects.n_writes
            effects.n_writes += 1
            named[node] = effects.n_writes
        elif node.view_of is not None:
            named[node] = named.get(node.view_of, 0)
    return {root: effects for root, effects in found.items() if root.is_leaf}


def _verify_effects(state: State, before: State, where: str) -> None:
    """Every written leaf is written as often as before, and readers see it after as many writes as before.

    Nodes that a pass made anew cannot be matched with those they replace: of them only the pairs of `_Effects.seen`
    are compared, of which a pass may drop some and may not add any.
    """
    old, new = _effects(before), _effects(state)
    for root in old.keys() | new.keys():
        a, b = old.get(root, _Effects()), new.get(root, _Effects())
        if a.n_writes != b.n_writes:
            raise _broken(where, f"{root.describe()} was written by {a.n_writes} ops, now by {b.n_writes}")
        for node, n in b.at.items():
            if a.at.get(node, n) != n:
                raise _broken(
                    where, f"{node.describe()} saw {root.describe()} after {a.at[node]} writes, now after {n}"
                )
        if strange := sorted(b.seen - a.seen):
            raise _broken(where, f"{root.describe()} is read after {strange[0][1]} writes, where no op read it before")


# -- regions and phases ------------------------------------------------------------------------------------------------


@dataclass
class _Placed:
    """Regions by the order in which they run: setup phases first, then those of the step."""

    at: dict[Region, int] = field(default_factory=dict)
    of: dict[Tensor, Region] = field(default_factory=dict)

    def when(self, node: Tensor) -> int:
        return self.at[self.of[node]]


def verify_plan(compiled: CompiledGraph, where: str = "plan") -> None:
    """Regions partition the nodes, phases respect what depends on what, and no two live results share memory."""
    phases = [[i.region for i in phase] for phase in (*compiled.setup, *compiled.step)]
    placed = verify_regions(compiled.state, phases, where)
    _verify_data(compiled.state, placed, where)
    _verify_storage(compiled.state, placed, where)
    verify_memory(compiled, where)


def verify_regions(state: State, phases: Sequence[Sequence[Region]], where: str) -> _Placed:
    """Every node that computes something is in one region, and only the last one of a region is seen from outside."""
    placed = _Placed()
    for at, phase in enumerate(phases):
        for region in phase:
            placed.at[region] = at
            for node in region.nodes:
                if node in placed.of:
                    raise _broken(where, f"{node.describe()} is in two regions")
                placed.of[node] = region
    expected = {n for n in state.nodes if n.op is not None and not n.op.view}
    for node in expected ^ placed.of.keys():
        what = "is in no region" if node in expected else "is in a region and not among the nodes"
        raise _broken(where, f"{node.describe()} {what}")
    inner = {n for region in placed.at for n in region.nodes[:-1]}
    for tensor in state.needed:
        if tensor in inner:
            raise _broken(where, f"{tensor.describe()} must be readable after a run and is never stored")
    for user in state.nodes:
        for source in user.src:
            if source in inner and placed.of[source] is not placed.of.get(user):
                raise _broken(where, f"{user.describe()} reads {source.describe()}, which is never stored")
    return placed


def _verify_data(state: State, placed: _Placed, where: str) -> None:
    """What a region reads was made in an earlier phase."""
    for node in state.nodes:
        if node not in placed.of:
            continue
        for source in node.src:
            maker = source
            while maker.op is not None and maker.op.view:
                maker = maker.src[0]
            if maker.is_leaf or placed.of[maker] is placed.of[node]:
                continue
            if placed.when(maker) >= placed.when(node):
                raise _broken(where, f"{node.describe()} reads {source.describe()} before it is made, or while it is")


def _verify_storage(state: State, placed: _Placed, where: str) -> None:
    """Reads and writes of the same storage happen in the order of the nodes, phases apart."""
    order = {n: i for i, n in enumerate(state.nodes)}
    writers: dict[Tensor, list[Tensor]] = {}
    for node in state.nodes:
        if node.op is not None and node.op.writes is not None:
            writers.setdefault(node.root, []).append(node)
    for node in placed.of:
        for root in {s.root for s in node.src} & writers.keys():
            for writer in writers[root]:
                if writer is node or placed.of[writer] is placed.of[node]:
                    continue
                sooner, later = (writer, node) if order[writer] < order[node] else (node, writer)
                if placed.when(sooner) >= placed.when(later):
                    what = f"{later.describe()} must come after {sooner.describe()}: both use {root.describe()}"
                    raise _broken(where, f"{what}, which one of them writes")


# -- memory ------------------------------------------------------------------------------------------------------------


@dataclass
class Life:
    """A result's bytes in the activation buffer and the phases of its life."""

    root: Tensor
    start: int
    stop: int
    first: int
    last: int


def verify_memory(compiled: CompiledGraph, where: str = "plan") -> None:
    """Results that are alive in the same phase have bytes of their own, inside the buffer.

    One may take over the bytes of another that dies in the phase in which it is born, if one region alone reads the
    old one there, element by element.
    """
    phases = [[i.region for i in phase] for phase in compiled.step]
    lives = lives_of(compiled)
    for life in lives:
        if life.start < 0 or life.stop > compiled.plan.peak_bytes:
            raise _broken(where, f"{life.root.describe()} lies outside the activation buffer")
    lives.sort(key=lambda life: life.start)
    for i, a in enumerate(lives):
        for b in lives[i + 1 :]:
            if b.start >= a.stop:
                break
            old, new = (a, b) if a.first < b.first else (b, a)
            if old.last < new.first or (old.last == new.first and _takes_over(old, new, phases[new.first])):
                continue
            both = f"{a.root.describe()} and {b.root.describe()}"
            raise _broken(where, f"{both} are both alive in phase {new.first} and share memory")


def lives_of(compiled: CompiledGraph) -> list[Life]:
    """The lives of all results in the activation buffer, as the phases of a step have them."""
    outside = set(compiled.hoisted)
    found: dict[Tensor, Life] = {}
    for at, phase in enumerate(compiled.step):
        for region in (i.region for i in phase):
            for root in _roots([*region.inputs, region.out]):
                if root.is_leaf or root in outside:
                    continue
                if root not in compiled.plan.offsets:
                    raise _broken("plan", f"{root.describe()} has no memory")
                start = compiled.plan.offsets[root]
                found.setdefault(root, Life(root, start, start + max_of(root.n_bytes), at, at)).last = at
    for root in _roots(compiled.state.needed):
        if root in found:
            found[root].last = len(compiled.step)
    return [life for life in found.values() if life.stop > life.start]


def _roots(tensors: Iterable[Tensor]) -> set[Tensor]:
    return {t.root for t in tensors}


def _takes_over(old: Life, new: Life, phase: Sequence[Region]) -> bool:
    readers = [r for r in phase if old.root in _roots(r.inputs)]
    if len(readers) != 1 or readers[0].out is not new.root or old.start != new.start:
        return False
    region = readers[0]
    uses = [n for n in region.nodes if any(s.root is old.root for s in n.src)]
    whole = all(s is old.root for n in uses for s in n.src if s.root is old.root)
    same = old.root.type is new.root.type and old.root.ne == new.root.ne
    return whole and same and all(n.op is not None and n.op.elementwise and n.ne == new.root.ne for n in uses)
