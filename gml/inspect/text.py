"""Stages of the compiler as text that can be compared: no addresses, no times; the same graph gives the same text.

Arrives: a `State` or a `CompiledGraph`; leaves: lines. Next module: `stages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from gml.compiler.plan import CompiledGraph, Invocation
from gml.compiler.state import State
from gml.compiler.verify import lives_of
from gml.dims import max_of
from gml.graph import attr_texts, type_text
from gml.tensor import Tensor

Wanted = Callable[[str], bool]


def wanted(only: str | None) -> Wanted:
    """Whether a name is asked for: by itself, by a pattern with * and ?, or as the number in front of a kernel's."""
    if only is None:
        return lambda name: True
    return lambda name: fnmatchcase(name, only) or name.split("_")[0] == only


class Labels:
    """Names of a state's tensors: `%number:name`, leaves first, then nodes in execution order."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.index = {t: i for i, t in enumerate([*state.leaves, *state.nodes])}

    def label(self, tensor: Tensor) -> str:
        """The tensor's name in dumps."""
        number = f"%{self.index[tensor]}" if tensor in self.index else "%?"
        return f"{number}:{tensor.name}" if tensor.name else number

    def leaf(self, t: Tensor) -> str:
        """A leaf's line."""
        return f"{self.label(t)} = {t.role} {type_text(t)}"

    def node(self, t: Tensor) -> str:
        """A node's line."""
        arguments = ", ".join([self.label(s) for s in t.src] + attr_texts(t.attrs))
        mark = " -> output" if t in self.state.outputs else " -> kept" if t in self.state.needed else ""
        return f"{self.label(t)} = {t.op.name if t.op else ''}({arguments}) {type_text(t)}{mark}"


def state_text(state: State, only: str | None = None) -> str:
    """The tensor ops between two passes, as `Graph.text` shows a graph."""
    labels, ask = Labels(state), wanted(only)
    graph = state.graph
    dims = ", ".join(f"{d.name} in {d.min}..{d.max}" for d in state.dims)
    lines = [f"graph {graph.name or '(unnamed)'}: {len(state.leaves)} leaves, {len(state.nodes)} nodes"]
    lines += [f"  run-time sizes: {dims}"] if dims else []
    lines += [f"  {labels.leaf(t)}" for t in state.leaves if ask(t.name)]
    lines += [f"  {labels.node(t)}" for t in state.nodes if ask(t.name)]
    moved = [(user, now) for user, now in state.moved.items() if user is not now and user.name and ask(user.name)]
    lines += [f"  {user.name} is now {labels.label(now)}" for user, now in moved]
    return "\n".join(lines) + "\n"


def parts(compiled: CompiledGraph) -> Iterator[tuple[str, int, list[tuple[str, Invocation]]]]:
    """("setup" or "step", number of the phase, its invocations with their numbers `r0`, `r1`, ...)."""
    number = 0
    for part, phases in (("setup", compiled.setup), ("step", compiled.step)):
        for at, phase in enumerate(phases):
            yield part, at, [(f"r{number + i}", invocation) for i, invocation in enumerate(phase)]
            number += len(phase)


def matches(invocation: Invocation, ask: Wanted) -> bool:
    """Whether an invocation's kernel or one of its tensors is asked for."""
    tensors = [*invocation.region.nodes, *invocation.region.inputs]
    return ask(kernel_name(invocation)) or any(ask(n.name) for n in tensors if n.name)


def kernel_name(invocation: Invocation) -> str:
    """The kernel's name, `callback` for a call into Python."""
    return invocation.kernel or "callback"


def regions_text(compiled: CompiledGraph, only: str | None = None) -> str:
    """Fused regions in the order in which they run: their kernel, what they read, their nodes; the last one is
    stored."""
    labels, ask = Labels(compiled.state), wanted(only)
    counts = [sum(len(phase) for phase in phases) for phases in (compiled.setup, compiled.step)]
    kernels = len(compiled.regions)
    lines = [f"regions: {counts[0]} of the setup, {counts[1]} of a step, {kernels} different kernels"]
    for part, _, invocations in parts(compiled):
        for number, invocation in invocations:
            if not matches(invocation, ask):
                continue
            region = invocation.region
            reads = [labels.label(t) for t in region.inputs]
            lines.append(f"{number} {part} {kernel_name(invocation)} reads {', '.join(reads) or 'nothing'}")
            lines += [f"    {labels.node(n)}" for n in region.nodes[:-1]]
            lines.append(f"  > {labels.node(region.out)}")
    return "\n".join(lines) + "\n"


def chunks_text(invocation: Invocation) -> str:
    """How much work an invocation is: factors, `ceil(size / step)` where they are not whole sizes."""
    factors = [f"{size}" if step == 1 else f"{size}/{step}" for size, step in invocation.chunks.factors]
    return " x ".join(factors) or "1"


def phases_text(compiled: CompiledGraph, only: str | None = None) -> str:
    """What runs side by side; a barrier is behind every phase."""
    labels, ask = Labels(compiled.state), wanted(only)
    lines = [f"phases: {len(compiled.setup)} of the setup, {len(compiled.step)} of a step, one barrier behind each"]
    for part, at, invocations in parts(compiled):
        chosen = [(number, i) for number, i in invocations if matches(i, ask)]
        lines += [f"{part} {at}"] if chosen else []
        for number, invocation in chosen:
            out = invocation.region.out
            chunks = f"{chunks_text(invocation)} chunks"
            lines.append(f"  {number} {kernel_name(invocation)}: {chunks} -> {labels.label(out)} {type_text(out)}")
    return "\n".join(lines) + "\n"


def memory_text(compiled: CompiledGraph, only: str | None = None) -> str:
    """Where results lie at the bounds of all run-time sizes, in the order of their life."""
    labels, ask, plan = Labels(compiled.state), wanted(only), compiled.plan
    hoisted = sum(max_of(t.n_bytes) for t in compiled.hoisted)
    lines = [
        f"activation buffer: {plan.peak_bytes} bytes, {plan.lower_bytes} alive at once",
        f"made once by the setup: {len(compiled.hoisted)} tensors, {hoisted} bytes",
    ]
    lives = [life for life in lives_of(compiled) if ask(life.root.name)]
    lines += ["", f"{'first':>6} {'last':>6} {'offset':>12} {'bytes':>12}  tensor"] if lives else []
    for life in sorted(lives, key=lambda life: (life.first, life.last, life.start)):
        name = f"{labels.label(life.root)} {type_text(life.root)}"
        lines.append(f"{life.first:>6} {life.last:>6} {life.start:>12} {life.stop - life.start:>12}  {name}")
    return "\n".join(lines) + "\n"
