"""Runs a graph op by op in numpy.

Arrives: a `Graph`; leaves: values. Every tensor's storage is a flat byte array: leaves have theirs, results get one
when they are made, views share their root's. An op's sources are decoded to float32, its `reference` is called, and the
result is rounded to the tensor's type. Results are freed after their last use unless kept. Next: `models/gguf`, the
first client.
"""

from __future__ import annotations

import numpy as np

from gml.backend import Program
from gml.dims import Dim, value_of
from gml.errors import GraphError
from gml.graph import Graph
from gml.ops.evaluate import evaluate
from gml.tensor import Tensor, strided


class ReferenceBackend:
    """Compiles to `ReferenceProgram`. `cache_weights` keeps decoded constants (faster, more memory)."""

    name = "reference"

    def __init__(self, cache_weights: bool = True) -> None:
        self.cache_weights = cache_weights

    def compile(self, graph: Graph) -> ReferenceProgram:
        return ReferenceProgram(graph, self.cache_weights)


class ReferenceProgram(Program):
    """A graph that is run by the ops' references."""

    def __init__(self, graph: Graph, cache_weights: bool = True) -> None:
        super().__init__(graph)
        self._storage: dict[Tensor, np.ndarray] = {}
        self._decoded: dict[Tensor, np.ndarray] = {}
        self._cache_weights = cache_weights
        self._frees = _last_uses(graph)
        self._ran = False

    def _execute(self, values: dict[Dim, int]) -> None:
        self._storage = {}
        # NaN and overflow are values here, as they are in compiled code
        with np.errstate(all="ignore"):
            for tensor, done in zip(self.graph.nodes, self._frees, strict=True):
                self._step(tensor, values)
                for root in done:
                    self._storage.pop(root, None)
        self._ran = True

    def _step(self, tensor: Tensor, values: dict[Dim, int]) -> None:
        op = tensor.op
        assert op is not None
        if op.view:
            return
        result = evaluate(tensor, values, lambda t: self._blocks(t, values), lambda t: self._load(t, values))
        if result is not None:
            # the copy matters: a result must not share memory with a state that is written later
            self._storage[tensor] = np.array(result, order="C").reshape(-1).view(np.uint8)

    def _blocks(self, tensor: Tensor, values: dict[Dim, int]) -> np.ndarray:
        root = tensor.root
        storage = root.bytes() if root.is_leaf else self._storage.get(root)
        if storage is None:
            raise GraphError(f"{tensor.describe()} was not kept; call .keep() on it before compiling")
        return strided(tensor, storage, values)

    def _load(self, tensor: Tensor, values: dict[Dim, int]) -> np.ndarray:
        known = self._decoded.get(tensor)
        if known is not None:
            return known
        decoded = tensor.type.decode(self._blocks(tensor, values))
        if tensor.role == "constant" and self._cache_weights:
            self._decoded[tensor] = decoded
        return decoded

    def read(self, tensor: Tensor) -> np.ndarray:
        if tensor not in self.graph.index:
            raise GraphError(f"{tensor.describe()} is not part of this program's graph")
        if not self._ran:
            raise GraphError("nothing to read yet: run the program first")
        decoded = tensor.type.decode(self._blocks(tensor, self.values))
        return decoded.reshape([value_of(n, self.values) for n in tensor.shape])


def _last_uses(graph: Graph) -> list[list[Tensor]]:
    """For each node, the results whose storage nobody needs after it."""
    kept = {t.root for t in graph.kept}
    last: dict[Tensor, int] = {}
    for i, tensor in enumerate(graph.nodes):
        for used in (tensor, *tensor.src):
            if not used.root.is_leaf:
                last[used.root] = i
    frees: list[list[Tensor]] = [[] for _ in graph.nodes]
    for root, i in last.items():
        if root not in kept:
            frees[i].append(root)
    return frees
