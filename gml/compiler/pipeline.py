"""The compiler, read from top to bottom: a graph goes in, kernels and a plan come out.

Every pass is named, can be left out (`Options.disabled`, `GML_PASSES=-name`) and keeps the meaning of all kept tensors.
Passes that others rely on (expand, refine's lowerable forms) are marked as required. Next module: `plan.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from gml.compiler import graph_passes
from gml.compiler.plan import CompiledGraph, make_plan
from gml.compiler.state import Options, State
from gml.graph import Graph

#: the passes over tensor ops in their order; True: cannot be left out
PASSES: tuple[tuple[str, Callable[[State], State], bool], ...] = (
    ("prune", graph_passes.prune, False),
    ("canonicalise", graph_passes.canonicalise, False),
    ("expand", graph_passes.expand, True),
    ("refine", graph_passes.refine, False),
    ("merge", graph_passes.merge, False),
    ("prune", graph_passes.prune, False),
)


def compile_graph(graph: Graph, options: Options | None = None) -> CompiledGraph:
    """Run all passes, then fuse, lay out phases, plan memory and lower to kernel IR.

    Raises `UnsupportedError` for an op that has no lowering.
    """
    state = State.start(graph, options or Options())
    for name, run, required in PASSES:
        if required or name not in state.options.disabled:
            state = run(state)
    return make_plan(state)
