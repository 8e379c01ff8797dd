"""The compiler, read from top to bottom: a graph goes in, kernels and a plan come out.

Every pass is named, can be left out (`Options.disabled`, `GML_PASSES=-name`) and keeps the meaning of all kept tensors.
Passes that others rely on (expand, refine's lowerable forms) are marked as required. What is between them is verified
(`verify.py`) and can be looked at (`gml/inspect`). Next module: `plan.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from gml.compiler import graph_passes
from gml.compiler.plan import CompiledGraph, make_plan
from gml.compiler.state import Options, State
from gml.compiler.verify import verify_order, verify_plan, verify_state
from gml.debug import inspector, knobs
from gml.graph import Graph

#: the passes over tensor ops in their order; True: cannot be left out
PASSES: tuple[tuple[str, Callable[[State], State], bool], ...] = (
    ("prune", graph_passes.prune, False),
    ("canonicalise", graph_passes.canonicalise, False),
    ("expand", graph_passes.expand, True),
    ("fold", graph_passes.fold, False),
    ("refine", graph_passes.refine, False),
    ("merge", graph_passes.merge, False),
    ("prune", graph_passes.prune, False),
)

#: whether everything is verified after every pass, as with `GML_CHECK=1`; tests switch it on
always_verify = False


def compile_graph(graph: Graph, options: Options | None = None) -> CompiledGraph:
    """Run all passes, then fuse, lay out phases, plan memory and lower to kernel IR.

    Raises `UnsupportedError` for an op that has no lowering, `VerifyError` when a pass broke a rule.
    """
    verifying = always_verify or knobs.check > 0
    watch = inspector().Watch(graph) if knobs.debug or knobs.dump else None
    state = State.start(graph, options or Options())
    for name, run, required in PASSES:
        if required or name not in state.options.disabled:
            before, state = state, run(state)
            if verifying:
                verify_state(state, f"pass {name}", before)
            if watch is not None:
                watch.passed(name, state)
    verify_order(state, "the passes")
    compiled = make_plan(state)
    if verifying:
        verify_plan(compiled)
    if watch is not None:
        watch.planned(compiled)
    return compiled
