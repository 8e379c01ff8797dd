"""`GML_DEBUG` and `GML_DUMP`: what is printed or written while a graph is compiled.

Arrives: the states between passes, then the plan, then the program; leaves: text on standard error, files in a folder
of this compile. Times are printed, never written: files can be compared. Next module: `check.py`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from gml.compiler.plan import CompiledGraph
from gml.compiler.program import PlannedProgram
from gml.compiler.state import State
from gml.debug import knobs
from gml.dims import Dim
from gml.errors import UnsupportedError
from gml.graph import Graph
from gml.inspect.files import new_folder, write
from gml.inspect.stages import kernels_text
from gml.inspect.text import memory_text, phases_text, regions_text, state_text
from gml.kernel_ir import Kernel
from gml.kernel_ir.printer import print_kernel

#: the least `GML_DEBUG` at which each of these is printed
TIMINGS, GRAPH, PLAN, KERNELS, PASSES, LLVM, ASSEMBLY = range(1, 8)


class Watch:
    """Sees one compile, from the graph to the program."""

    def __init__(self, graph: Graph) -> None:
        self.name = graph.name or "(unnamed)"
        self.level = int(knobs.debug)
        self.folder: Path | None = new_folder(knobs.dump, "", graph.name or "graph") if knobs.dump else None
        self.times: list[tuple[str, float]] = []
        self.n_passes = 0
        self._show(GRAPH, "00-graph.txt", "graph", graph.text())
        self._last = time.perf_counter()

    def passed(self, name: str, state: State) -> None:
        """A pass is done."""
        self._lap(name)
        self.n_passes += 1
        if self.level >= PASSES or self.folder is not None:
            self._show(PASSES, f"{self.n_passes:02d}-{name}.txt", f"after {name}", state_text(state))
        self._last = time.perf_counter()

    def planned(self, compiled: CompiledGraph) -> None:
        """Regions, phases and memory are decided."""
        self._lap("plan")
        compiled.watch = self
        if self.level >= PLAN or self.folder is not None:
            self._show(PLAN, "regions.txt", "regions", regions_text(compiled))
            self._show(PLAN, "phases.txt", "phases", phases_text(compiled))
            self._show(PLAN, "memory.txt", "memory", memory_text(compiled))
        self._last = time.perf_counter()
        if self.level >= KERNELS or self.folder is not None:
            kernels = compiled.kernels
            self._lap("lower")
            for name, kernel in kernels.items():
                self._show(KERNELS, f"kernels/{name}.ir", f"kernel {name}", print_kernel(kernel))
            self._last = time.perf_counter()

    def made(self, program: PlannedProgram) -> None:
        """The program is ready to run."""
        self._lap("code")
        if self.level >= TIMINGS:
            compiled = program.compiled
            times = ", ".join(f"{name} {1e3 * t:.1f}" for name, t in self.times)
            n_regions = sum(len(phase) for phase in compiled.step)
            counts = f"{len(compiled.state.nodes)} nodes, {n_regions} regions, {len(compiled.step)} phases"
            total = 1e3 * sum(t for _, t in self.times)
            self._print(f"compiled {self.name} in {total:.1f} ms ({times}): {counts}, {len(compiled.regions)} kernels")
        for level, stage, suffix in ((LLVM, "llvm", ".ll"), (ASSEMBLY, "asm", ".s")):
            if self.level >= level or self.folder is not None:
                self._native(program, level, stage, suffix)

    def _native(self, program: PlannedProgram, level: int, stage: str, suffix: str) -> None:
        """What the backend makes of every kernel; some backends make nothing."""
        for name, kernel in program.compiled.kernels.items():
            one: dict[str, Kernel] = {name: kernel}
            try:
                text = kernels_text(program, stage, one)
            except UnsupportedError:
                return
            self._show(level, f"kernels/{name}{suffix}", f"{stage} {name}", text)

    def _lap(self, name: str) -> None:
        self.times.append((name, time.perf_counter() - self._last))

    def _show(self, level: int, file: str, title: str, text: str) -> None:
        if self.folder is not None:
            write(self.folder / file, text)
        if self.level >= level:
            self._print(f"-- {title} of {self.name} --\n{text.rstrip()}")

    def _print(self, text: str) -> None:
        print(f"gml: {text}" if not text.startswith("--") else text, file=sys.stderr, flush=True)


def attach(program: PlannedProgram) -> None:
    """Look at a program that was just made, as the knobs ask."""
    watch = program.compiled.watch
    if isinstance(watch, Watch):
        watch.made(program)
    if knobs.check:
        # only here: the check imports every op's numpy side
        from gml.inspect.check import check_steps

        check_steps(program, watch.folder if isinstance(watch, Watch) else None)
    if knobs.debug >= TIMINGS:
        time_steps(program)


def time_steps(program: PlannedProgram) -> None:
    """Print how long each step of a program takes."""
    execute, name = program._execute, program.graph.name or "(unnamed)"
    n_steps = 0

    def timed(values: dict[Dim, int]) -> None:
        nonlocal n_steps
        start = time.perf_counter()
        execute(values)
        sizes = " ".join(f"{dim.name}={value}" for dim, value in values.items())
        spent = 1e3 * (time.perf_counter() - start)
        print(f"gml: step {n_steps} of {name} {sizes}: {spent:.2f} ms", file=sys.stderr, flush=True)
        n_steps += 1

    program._execute = timed
