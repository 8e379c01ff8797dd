"""Runs a graph op by op in numpy.

Arrives: a `Graph`; leaves: values. Every tensor's storage is a flat byte array: leaves have theirs, results get one
when they are made, views share their root's. An op's sources are decoded to float32, its `reference` is called, and the
result is rounded to the tensor's type. Results are freed after their last use unless kept. Next: `models/gguf`, the
first client.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gml.backend import Program
from gml.dims import Dim, value_of
from gml.errors import GraphError, ShapeError
from gml.graph import Graph
from gml.ops.base import resolved
from gml.tensor import Tensor, strided


class ReferenceBackend:
    """Compiles to `ReferenceProgram`. `cache_weights` keeps decoded constants (faster, more memory)."""

    name = "reference"

    def __init__(self, cache_weights: bool = True) -> None:
        self.cache_weights = cache_weights

    def compile(self, graph: Graph) -> ReferenceProgram:
        return ReferenceProgram(graph, self.cache_weights)


class Rows:
    """The destination of an op that writes: `rows[index] = values` encodes and stores (numpy's order, whole rows).

    With `moved`, values are blocks of the destination's type already.
    """

    def __init__(self, tensor: Tensor, blocks: np.ndarray, moved: bool) -> None:
        self.type, self.blocks, self.moved = tensor.type, blocks, moved

    @property
    def shape(self) -> tuple[int, ...]:
        """Four sizes in numpy's order, in elements (in blocks when these are moved)."""
        return (*self.blocks.shape[:3], self.blocks.shape[3] * (1 if self.moved else self.type.block_size))

    def __setitem__(self, index: Any, values: np.ndarray) -> None:
        self.blocks[index] = values if self.moved else self.type.encode(values)


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
        attrs = resolved(tensor.attrs, values)
        # an op that moves elements of one type sees them as they are stored: float32 would lose bits of some types
        moved = op.moves and bool(tensor.src) and tensor.src[0].type is tensor.type
        load = self._blocks if moved else self._load
        arrays = [load(s, values) for i, s in enumerate(tensor.src) if i != op.writes]
        if op.writes is not None:
            target = tensor.src[op.writes]
            op.reference(attrs, Rows(target, self._blocks(target, values), moved), *arrays)
            return
        result = np.asarray(op.reference(attrs, *arrays))
        shape = tuple(value_of(n, values) for n in reversed(tensor.ne))
        if moved:
            shape = (*shape[:3], shape[3] // tensor.type.block_size)
        if result.size != np.prod(shape, dtype=np.int64):
            raise ShapeError(f"{op.name}: the reference made shape {result.shape}, {tensor.describe()} has {shape}")
        result = np.ascontiguousarray(result).reshape(shape)
        # the copy matters: a result must not share memory with a state that is written later
        blocks = np.array(result) if moved else tensor.type.encode(result)
        self._storage[tensor] = np.ascontiguousarray(blocks).reshape(-1).view(np.uint8)

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
