"""Runs a compiled graph with the interpreter of the kernel IR: slow, and the meaning of what backends emit."""

from __future__ import annotations

import numpy as np

from gml.compiler.pipeline import compile_graph
from gml.compiler.plan import CompiledGraph, Invocation
from gml.compiler.program import PlannedProgram, count_chunks, watched
from gml.compiler.state import Options
from gml.dims import Dim
from gml.graph import Graph
from gml.kernel_ir.interp import run


class InterpretingBackend:
    """Compiles to kernel IR and interprets it."""

    name = "interpreter"

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()

    def compile(self, graph: Graph) -> InterpretedProgram:
        return watched(self.program(compile_graph(graph, self.options)))

    def program(self, compiled: CompiledGraph) -> InterpretedProgram:
        """A program from a plan."""
        return InterpretedProgram(compiled)


class InterpretedProgram(PlannedProgram):
    """A compiled graph run by the interpreter, chunk by chunk."""

    def __init__(self, compiled: CompiledGraph) -> None:
        super().__init__(compiled)
        self._set_up = False

    def _execute(self, values: dict[Dim, int]) -> None:
        with np.errstate(all="ignore"):
            if not self._set_up:
                self._run(self.compiled.setup, values)
                self._set_up = True
            self._run(self.compiled.step, values)

    def run_alone(self, invocation: Invocation, values: dict[Dim, int]) -> None:
        with np.errstate(all="ignore"):
            self._run([[invocation]], values)

    def recipe(self) -> str:
        return "gml.compiler.interpret.InterpretingBackend()"

    def _run(self, phases: list[list[Invocation]], values: dict[Dim, int]) -> None:
        sizes = [values[d] for d in self.compiled.state.dims]
        for invocation in (i for phase in phases for i in phase):
            if invocation.region.callback:
                self.call_back(invocation.region, values)
                continue
            kernel = self.compiled.kernels[invocation.kernel]
            buffers = [self.storage(root) for root in invocation.buffers]
            run(kernel, buffers, sizes, 0, count_chunks(invocation.chunks, values))
