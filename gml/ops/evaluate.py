"""Runs one op by its reference: what the reference backend does for every node, and compiled programs for callbacks.

Arrives: a node and ways to its sources' storage; leaves: blocks of its type, or a written destination. Next module:
`gml/graph.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gml.dims import Dim, value_of
from gml.errors import ShapeError
from gml.ops.base import resolved
from gml.tensor import Tensor


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


def evaluate(
    tensor: Tensor,
    values: Mapping[Dim, int],
    blocks: Callable[[Tensor], np.ndarray],
    decoded: Callable[[Tensor], np.ndarray],
) -> np.ndarray | None:
    """The blocks of a node's result, of four axes in numpy's order; None for an op that wrote its destination.

    blocks, decoded  give a source's stored blocks and its values

    Raises `ShapeError` when the reference makes another shape than was inferred.
    """
    op = tensor.op
    assert op is not None
    attrs = resolved(tensor.attrs, values)
    # an op that moves elements of one type sees them as they are stored: float32 would lose bits of some types
    moved = op.moves and bool(tensor.src) and tensor.src[0].type is tensor.type
    arrays = [(blocks if moved else decoded)(s) for i, s in enumerate(tensor.src) if i != op.writes]
    if op.writes is not None:
        target = tensor.src[op.writes]
        op.reference(attrs, Rows(target, blocks(target), moved), *arrays)
        return None
    result = np.asarray(op.reference(attrs, *arrays))
    shape = tuple(value_of(n, values) for n in reversed(tensor.ne))
    if moved:
        shape = (*shape[:3], shape[3] // tensor.type.block_size)
    if result.size != np.prod(shape, dtype=np.int64):
        raise ShapeError(f"{op.name}: the reference made shape {result.shape}, {tensor.describe()} has {shape}")
    result = np.ascontiguousarray(result).reshape(shape)
    return result if moved else tensor.type.encode(result)
