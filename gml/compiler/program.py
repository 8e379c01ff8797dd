"""What programs over a plan share: the buffers, reading results, calling the user's functions.

Arrives: a `CompiledGraph`; leaves: `PlannedProgram`, the base of the interpreter's and of every backend's program.
Next module: `gml/backend.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from gml.arena import aligned_bytes
from gml.backend import Program
from gml.compiler.cost import Cost, region_cost
from gml.compiler.plan import CompiledGraph, Invocation
from gml.compiler.regions import Region
from gml.debug import inspector, knobs
from gml.dims import Dim, max_of, value_of
from gml.errors import GraphError, UnsupportedError
from gml.kernel_ir import Kernel
from gml.ops.evaluate import evaluate
from gml.ops.lower import Chunks
from gml.tensor import Tensor, strided


def count_chunks(chunks: Chunks, values: dict[Dim, int]) -> int:
    """The number of chunks at these run-time sizes."""
    total = 1
    for size, step in chunks.factors:
        total *= -(-value_of(size, values) // step)
    return total


class PlannedProgram(Program):
    """A program with one activation buffer and storage for what the setup makes."""

    def __init__(self, compiled: CompiledGraph) -> None:
        super().__init__(compiled.state.graph)
        self.compiled = compiled
        self.activations = self.buffer(compiled.plan.peak_bytes, "the activation buffer")
        self.hoisted: dict[Tensor, np.ndarray] = {}
        self._ran = False

    def buffer(self, n_bytes: int, what: str) -> np.ndarray:
        """Memory for intermediate results. Raises `ArenaError` when it is out."""
        return aligned_bytes(n_bytes, what)

    @property
    def n_buffer_bytes(self) -> int:
        """Bytes of the buffer that all intermediate results of a step share."""
        return self.compiled.plan.peak_bytes

    def phase_costs(self) -> list[tuple[tuple[str, ...], str, Cost]]:
        """Per phase of a step: its kernels, the ops they are made of, and what it costs at the last run's sizes."""
        rows = []
        for phase in self.compiled.step:
            cost = sum((region_cost(invocation.region, self.values) for invocation in phase), Cost())
            ops = dict.fromkeys("+".join(t.op.name for t in v.region.nodes if t.op) for v in phase)
            rows.append((tuple(sorted(v.kernel for v in phase)), ", ".join(ops), cost))
        return rows

    def storage(self, root: Tensor) -> np.ndarray:
        """The bytes of a root tensor: a leaf's own, a part of the activation buffer, or what the setup made."""
        if root.is_leaf:
            return root.bytes()
        offset = self.compiled.plan.offsets.get(root)
        if offset is not None:
            return self.activations[offset : offset + max_of(root.n_bytes)]
        if root not in self.hoisted:
            self.hoisted[root] = aligned_bytes(max_of(root.n_bytes), root.describe())
        return self.hoisted[root]

    def run(self, **sizes: int) -> None:
        super().run(**sizes)
        self._ran = True

    def read(self, tensor: Tensor) -> np.ndarray:
        moved = self.compiled.state.moved.get(tensor, tensor if tensor.root.is_leaf else None)
        if tensor not in self.graph.index:
            raise GraphError(f"{tensor.describe()} is not part of this program's graph")
        if moved is None:
            raise GraphError(f"{tensor.describe()} was not kept; call .keep() on it before compiling")
        if not self._ran:
            raise GraphError("nothing to read yet: run the program first")
        blocks = strided(moved, self.storage(moved.root), self.values)
        return moved.type.decode(blocks).reshape([value_of(n, self.values) for n in tensor.shape])

    # -- being looked at -----------------------------------------------------------------------------------------------

    def run_alone(self, invocation: Invocation, values: dict[Dim, int]) -> None:
        """Run one kernel on its buffers as they are; what checks programs region by region asks for it."""
        raise UnsupportedError("this backend does not run single regions, so GML_CHECK cannot look at them")

    def native_text(self, stage: str, kernels: Sequence[Kernel]) -> str:
        """What the backend makes of kernels: stage "llvm" or "asm"."""
        raise UnsupportedError(f"this program has no stage {stage!r}: its backend interprets kernel IR")

    def recipe(self) -> str:
        """A Python expression for a backend like the one that made this program, which knows `gml` and its modules."""
        raise UnsupportedError("this backend does not say how it was made")

    def call_back(self, region: Region, values: dict[Dim, int]) -> None:
        """Run a region that is a Python function of the user's."""
        node = region.out

        def blocks(tensor: Tensor) -> np.ndarray:
            return strided(tensor, self.storage(tensor.root), values)

        result = evaluate(node, values, blocks, lambda t: t.type.decode(blocks(t)))
        if result is not None:
            blocks(node)[...] = result


AnyProgram = TypeVar("AnyProgram", bound=PlannedProgram)


def watched(program: AnyProgram) -> AnyProgram:
    """A program that was just made, looked at as the debugging knobs ask."""
    if knobs.debug or knobs.dump or knobs.check:
        inspector().attach(program)
    return program
