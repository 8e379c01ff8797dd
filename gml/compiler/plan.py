"""A compiled graph before any target is known: kernels in kernel IR, phases of invocations, buffers.

Arrives: a `Graph`; leaves: a `CompiledGraph`. What depends on constants alone (packed weights) is set apart as *setup*,
done once; the rest is the *step*. `interpret.py` runs it with the interpreter of the kernel IR; backends turn the
kernels into machine code.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from gml.compiler.lower_region import chunks_of, lower_region, region_roots, signature
from gml.compiler.memory import Plan, plan_memory
from gml.compiler.phases import lay_out
from gml.compiler.regions import Region, fuse
from gml.compiler.state import State
from gml.kernel_ir import Kernel
from gml.kernel_ir.verify import verify
from gml.ops.lower import Chunks
from gml.records import dataclass, field
from gml.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Invocation:
    """One kernel at work on some buffers.

    kernel    its name
    buffers   root tensors, in the order of the kernel's pointer parameters
    chunks    how much work there is
    region    what it came from; regions that are callbacks have no kernel
    """

    kernel: str
    buffers: tuple[Tensor, ...]
    chunks: Chunks
    region: Region


@dataclass
class CompiledGraph:
    """Kernels and phases of one graph.

    regions      per kernel the region that it is made from; equal regions share a kernel
    signatures   per kernel everything that it depends on: kernels are lowered only when no cache knows it
    setup, step  phases: lists of invocations that may run side by side
    hoisted      results of the setup: they depend on constants alone and outlive the steps
    plan         where the step's intermediate results lie
    watch        who looks at this compile (`gml/inspect/watch.py`), or None
    """

    state: State
    regions: dict[str, Region] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    setup: list[list[Invocation]] = field(default_factory=list)
    step: list[list[Invocation]] = field(default_factory=list)
    hoisted: list[Tensor] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    watch: Any = None

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels by name, lowered and verified when first asked for."""
        state = self.state
        made = {name: lower_region(region, name, state.dims, state.options) for name, region in self.regions.items()}
        return {name: verify(kernel) for name, kernel in made.items()}


def make_plan(state: State) -> CompiledGraph:
    """Fuse, lay out, plan and lower."""
    constant = _constant_nodes(state)
    early = State(state.graph, state.options, [n for n in state.nodes if n in constant], state.outputs, state.moved)
    late = State(state.graph, state.options, [n for n in state.nodes if n not in constant], state.outputs, state.moved)
    compiled = CompiledGraph(state)
    names: dict[str, str] = {}
    setup = lay_out(_fuse_apart(early, late))
    step = lay_out(fuse(late))
    compiled.hoisted = [r.writes for phase in setup for r in phase]
    compiled.plan = plan_memory(step, state.needed, set(compiled.hoisted))
    compiled.setup = [[_invoke(r, compiled, names) for r in phase] for phase in setup]
    compiled.step = [[_invoke(r, compiled, names) for r in phase] for phase in step]
    return compiled


def _constant_nodes(state: State) -> set[Tensor]:
    """Nodes that depend on constants alone and are pure."""
    found: set[Tensor] = set()
    if "hoist" in state.options.disabled:
        return found
    written = state.written_roots()
    for node in state.nodes:
        op = node.op
        if op is None or op.impure or op.writes is not None or node.dims or node in state.needed:
            continue
        if (
            all((s.role == "constant" and s.root not in written) or s in found for s in node.src)
            and node.root not in written
        ):
            found.add(node)
    return found


def _fuse_apart(early: State, late: State) -> list[Region]:
    """Regions of the setup: what the step reads is kept, the rest is fused as ever."""
    used = {s for node in late.nodes for s in node.src}
    roots = {t.root for t in used}
    keep = {n: n for n in early.nodes if n in used or n.root in roots or n in early.outputs}
    return fuse(State(early.graph, early.options, early.nodes, [], keep)) if early.nodes else []


def _invoke(region: Region, compiled: CompiledGraph, names: dict[str, str]) -> Invocation:
    state = compiled.state
    buffers = tuple(region_roots(region))
    if region.callback:
        return Invocation("", buffers, Chunks(()), region)
    key = signature(region, state.options)
    if key not in names:
        names[key] = f"k{len(names)}_{'_'.join(dict.fromkeys(n.op.name for n in region.nodes if n.op))}"[:80]
        compiled.regions[names[key]] = region
        compiled.signatures[names[key]] = key
    return Invocation(names[key], buffers, chunks_of(region), region)
