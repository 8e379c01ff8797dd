"""The activation plan: offsets of all intermediate results in one buffer, reused as soon as nothing needs them.

Arrives: phases; leaves: a `Plan` of byte offsets, sized for the bounds of all run-time sizes, with its peak and the
lower bound (the largest set of results alive in one phase). Results live from the phase that makes them to the last
phase that reads them; kept ones to the end. Greedy by size, largest first: Pisarchyk and Lee,
https://arxiv.org/abs/2001.03288. Next module: `lower_region.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from gml.compiler.regions import Region
from gml.dims import max_of
from gml.records import dataclass, field
from gml.tensor import Tensor

ALIGNMENT = 64


@dataclass
class Lifetime:
    """Bytes needed by a result (and those that took over its storage), and the phases in which it is alive."""

    root: Tensor
    n_bytes: int
    first: int
    last: int


@dataclass
class Plan:
    """Where intermediate results lie in the activation buffer.

    offsets      root -> bytes from the start of the buffer
    peak_bytes   size of the buffer
    lower_bytes  the largest sum of bytes alive in one phase: no plan is smaller
    """

    offsets: dict[Tensor, int] = field(default_factory=dict)
    lifetimes: list[Lifetime] = field(default_factory=list)
    peak_bytes: int = 0
    lower_bytes: int = 0


def plan_memory(phases: Sequence[Sequence[Region]], needed: Iterable[Tensor], outside: Set[Tensor]) -> Plan:
    """Offsets for every result that is neither a leaf nor one of `outside`, which have storage of their own."""
    lifetimes = _lifetimes(phases, needed, outside)
    _take_over(phases, lifetimes)
    owners = {id(life): life for life in lifetimes.values()}
    plan = Plan(lifetimes=sorted(owners.values(), key=lambda life: (-life.n_bytes, life.first)))
    # per phase what lies where: only results that are alive together can be in each other's way
    placed: list[set[tuple[int, int]]] = [set() for _ in range(len(phases) + 1)]
    where: dict[int, int] = {}
    for life in plan.lifetimes:
        alive = placed[life.first : life.last + 1]
        offset = 0
        for start, stop in sorted(set().union(*alive)):
            if start < offset + life.n_bytes and offset < stop:
                offset = stop
        for there in alive:
            there.add((offset, offset + life.n_bytes))
        where[id(life)] = offset
        plan.peak_bytes = max(plan.peak_bytes, offset + life.n_bytes)
    plan.offsets = {root: where[id(life)] for root, life in lifetimes.items()}
    sizes = [0] * (len(phases) + 1)
    for life in plan.lifetimes:
        for phase in range(life.first, min(life.last + 1, len(phases))):
            sizes[phase] += life.n_bytes
    plan.lower_bytes = max(sizes)
    return plan


def _lifetimes(
    phases: Sequence[Sequence[Region]], needed: Iterable[Tensor], outside: Set[Tensor]
) -> dict[Tensor, Lifetime]:
    lifetimes: dict[Tensor, Lifetime] = {}
    for at, phase in enumerate(phases):
        for region in phase:
            for root in {region.writes, *region.reads}:
                if root.is_leaf or root in outside:
                    continue
                if root not in lifetimes:
                    n_bytes = -(-max_of(root.n_bytes) // ALIGNMENT) * ALIGNMENT
                    lifetimes[root] = Lifetime(root, n_bytes, at, at)
                lifetimes[root].last = at
    for tensor in needed:
        if tensor.root in lifetimes:
            lifetimes[tensor.root].last = len(phases)
    return lifetimes


def _take_over(phases: Sequence[Sequence[Region]], lifetimes: dict[Tensor, Lifetime]) -> None:
    """Let a result have the storage of a source that dies here and is read at the same places only."""
    for at, phase in enumerate(phases):
        for region in phase:
            out = region.out
            mine = lifetimes.get(out)
            if mine is None or mine.first != at or out.view_of is not None:
                continue
            for source in _reusable(region):
                theirs = lifetimes.get(source)
                shared = sum(source.root in r.reads for r in phase)
                if (
                    theirs is None
                    or theirs is mine
                    or theirs.last != at
                    or shared != 1
                    or theirs.n_bytes < mine.n_bytes
                ):
                    continue
                theirs.last = mine.last
                lifetimes[out] = theirs
                break


def _reusable(region: Region) -> list[Tensor]:
    """Inputs that are whole results of the out's sizes and type, read by elementwise ops of the region alone.

    None that the region also reads through a view: that is at other places, which may be overwritten by then.
    """
    out = region.out
    found = []
    for source in region.inputs:
        if source.view_of is not None or source.is_leaf or source.type is not out.type or source.ne != out.ne:
            continue
        if any(other is not source and other.root is source for other in region.inputs):
            continue
        readers = [n for n in region.nodes if source in n.src]
        if all(n.op is not None and n.op.elementwise and n.ne == out.ne for n in readers):
            found.append(source)
    return found
