"""What a block format is, and the registry of all storage types.

Arrives: nothing; leaves: `QuantType`, and `by_id`/`by_name` over scalars and block formats. Each format has one file in this
package. Next module: `gml/arena.py`.
"""

from __future__ import annotations

import numpy as np

from gml.dtypes import SCALARS, DType
from gml.errors import UnsupportedError
from gml.kernel_ir import Builder, Node
from gml.quants.codes import Codes, CodeTraits


class QuantType(DType):
    """A block format: `block_size` elements in `type_size` bytes, whose fields are named by a numpy structured dtype.

    A subclass gives `decode` (and `encode` where gml writes the format), and `traits` with `unpack`, from which the compiler
    makes all its kernels; its one instance is registered.
    """

    def __init__(self, name: str, ggml_id: int, block_size: int, type_size: int, layout: list[tuple]) -> None:
        numpy_layout = np.dtype(layout)
        assert numpy_layout.itemsize == type_size, f"{name}: layout has {numpy_layout.itemsize} bytes, not {type_size}"
        super().__init__(name, ggml_id, block_size, type_size, numpy_layout)

    #: what codes look like; None for formats that the compiler does not know
    traits: CodeTraits | None = None

    def unpack(self, b: Builder, block: Node) -> Codes:
        """Kernel IR that takes the block at an address apart. See `codes.py`."""
        raise UnsupportedError(f"{self.name}: the format has no `unpack`, so it cannot be compiled")

    def decode(self, blocks: np.ndarray) -> np.ndarray:
        raise UnsupportedError(f"{self.name}: this build cannot decode the format")

    def encode(self, values: np.ndarray) -> np.ndarray:
        raise UnsupportedError(f"{self.name}: this build cannot encode the format")


#: ids that ggml once used and removed
REMOVED = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

_by_id: dict[int, DType] = {}
_by_name: dict[str, DType] = {}


def register(dtype: DType) -> DType:
    """Add a storage type; a second one of the same id or name is refused."""
    if dtype.ggml_id in _by_id or dtype.name in _by_name:
        raise UnsupportedError(f"storage type {dtype.name} (id {dtype.ggml_id}) is registered already")
    _by_id[dtype.ggml_id] = dtype
    _by_name[dtype.name] = dtype
    return dtype


for _scalar in SCALARS:
    register(_scalar)


def by_id(ggml_id: int) -> DType:
    """The storage type of a ggml type id. Raises `UnsupportedError` for removed and unknown ids."""
    found = _by_id.get(ggml_id)
    if found is None:
        if ggml_id in REMOVED:
            raise UnsupportedError(
                f"tensor type {ggml_id} ({REMOVED[ggml_id]}) was removed from ggml; re-quantise the model"
            )
        raise UnsupportedError(f"unknown tensor type id {ggml_id}; known: {', '.join(sorted(_by_name))}")
    return found


def by_name(name: str) -> DType:
    """The storage type of a ggml name, in any case. Raises `UnsupportedError` for unknown names."""
    found = _by_name.get(name.upper())
    if found is None:
        raise UnsupportedError(f"unknown storage type {name!r}; known: {', '.join(sorted(_by_name))}")
    return found


def all_types() -> list[DType]:
    """All registered storage types, by id."""
    return [_by_id[i] for i in sorted(_by_id)]
