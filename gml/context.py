"""A context makes leaves: tensors with storage.

Arrives: types, sizes, arrays; leaves: `Tensor`s whose bytes lie in the context's arena, or in memory that somebody else
owns (a mapped model file). Results of ops need no context. Next module: `gml/ops/base.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gml.arena import Arena
from gml.dims import Dim, Size, max_of
from gml.dtypes import F32, F64, I32, I64, SCALARS, DType
from gml.errors import ShapeError
from gml.tensor import Tensor, encoded_bytes

_STORAGE_OF = {t.numpy: t for t in SCALARS if t.numpy.kind in "fi"}


class Context:
    """Owns an arena and the leaves made in it.

    limit_bytes  hard limit of the arena (None: it grows as needed)
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.arena = Arena(limit_bytes)
        self.leaves: list[Tensor] = []
        #: run-time sizes learnt from the arrays that inputs were set to
        self.dim_values: dict[Dim, int] = {}

    def input(self, name: str, type: DType, ne: Sequence[Size]) -> Tensor:
        """A tensor that the user sets before each run. Contents start as zeros."""
        return self._leaf(name, type, ne, "input")

    def state(self, name: str, type: DType, ne: Sequence[Size]) -> Tensor:
        """A tensor that ops may write and that lasts from run to run (a KV cache). Contents start as zeros."""
        return self._leaf(name, type, ne, "state")

    def constant(self, array: Any, name: str = "", type: DType | None = None) -> Tensor:
        """A read-only copy of an array (numpy's order).

        float64 becomes F32 and Python ints I32 unless `type` says otherwise.
        """
        array = np.asarray(array)
        if type is None:
            type = _STORAGE_OF.get(array.dtype.newbyteorder("<"))
            if type is F64:
                type = F32
            elif type is I64 and (array.size == 0 or np.abs(array).max() < 1 << 31):
                type = I32
        if type is None:
            kinds = ", ".join(t.name for t in SCALARS)
            raise ShapeError(f"constant {name!r}: no storage type for dtype {array.dtype}; pass type= one of {kinds}")
        if array.ndim > 4:
            raise ShapeError(f"constant {name!r}: expected at most 4 dimensions, found shape {array.shape}")
        tensor = self._leaf(name, type, tuple(reversed(array.shape)) or (1,), "constant")
        tensor.bytes()[:] = encoded_bytes(type, array, tensor.describe())
        return tensor

    def from_buffer(
        self, buffer: np.ndarray, type: DType, ne: Sequence[Size], name: str = "", role: str = "constant"
    ) -> Tensor:
        """A leaf over bytes that somebody else owns (zero-copy). Raises `ShapeError` when there are too few of them."""
        tensor = Tensor(type, ne, role=role, name=name)
        storage = buffer.reshape(-1).view(np.uint8)
        if max_of(tensor.n_bytes) > storage.nbytes:
            raise ShapeError(f"{tensor.describe()} needs {tensor.n_bytes} bytes, the buffer has {storage.nbytes}")
        tensor.storage = storage
        self.leaves.append(tensor)
        return tensor

    def reset(self) -> None:
        """Forget all leaves and reuse their memory; tensors made before raise when touched."""
        self.arena.reset()
        self.leaves.clear()
        self.dim_values.clear()

    def _leaf(self, name: str, type: DType, ne: Sequence[Size], role: str) -> Tensor:
        tensor = Tensor(type, ne, role=role, name=name)
        tensor.storage = self.arena.alloc(max_of(tensor.n_bytes), tensor.describe(), zero=True)
        tensor.owner, tensor.generation = self, self.arena.generation
        self.leaves.append(tensor)
        return tensor
