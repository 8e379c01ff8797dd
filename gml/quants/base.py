"""What a block format is, and the registry of all storage types.

Arrives: nothing; leaves: `QuantType`, and `by_id`/`by_name` over scalars and block formats. Each format has one file in
this package, named like it in lower case. Next module: `bits.py`, which the formats share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from gml.dtypes import SCALARS, DType
from gml.errors import FormatError, ShapeError, UnsupportedError
from gml.kernel_ir import Builder, Node
from gml.quants.codes import Codes, CodeTraits
from gml.quants.importance import Importance, Weights

#: elements that decode and encode work on at a time: temporaries of a few hundred kilobytes
CHUNK = 1 << 16


class QuantType(DType):
    """A block format: `block_size` elements in `type_size` bytes, whose fields are named by a numpy structured dtype.

    A subclass gives `decode_blocks` (and `encode_blocks` where gml writes the format), and `traits` with `unpack`, from
    which the compiler makes all its kernels; its one instance is registered.
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

    def pack(self, b: Builder, values: Sequence[Node], block: Node) -> None:
        """Kernel IR that encodes a block: f32 vectors of 16 neighbours each, to an address. The bits of `encode`."""
        raise UnsupportedError(f"{self.name}: kernels do not write the format")

    @property
    def can_pack(self) -> bool:
        """True where kernels write the format; others are encoded by a call into Python between kernels."""
        return type(self).pack is not QuantType.pack

    def decode(self, blocks: np.ndarray) -> np.ndarray:
        """Blocks of dtype `self.numpy`, shape [..., n_blocks], to float32 of shape [..., n_blocks * block_size].

        Works through pieces of `CHUNK` elements, so memory beside the result stays small and in cache. Infinite and NaN
        scales give infinite and NaN values. Raises `FormatError` for another dtype or a single block without an axis.
        """
        blocks = np.asarray(blocks)
        if blocks.dtype != self.numpy or blocks.ndim == 0:
            raise FormatError(
                f"{self.name}: decode needs an array [..., n_blocks] of its {self.type_size}-byte block dtype, found "
                f"{'a scalar' if blocks.ndim == 0 else blocks.dtype}; use `bytes.view(dtype.numpy)`"
            )
        flat = blocks.reshape(-1)
        out = np.empty((flat.size, self.block_size), np.float32)
        step = CHUNK // self.block_size
        with np.errstate(all="ignore"):
            for start in range(0, flat.size, step):
                self.decode_blocks(flat[start : start + step], out[start : start + step])
        return out.reshape(*blocks.shape[:-1], blocks.shape[-1] * self.block_size)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        """Write the values of blocks [n] to out, float32 [n, block_size]: what a format gives."""
        raise UnsupportedError(f"{self.name}: this build cannot decode the format")

    @property
    def can_encode(self) -> bool:
        """True where gml writes the format from values alone."""
        return type(self).encode_blocks is not QuantType.encode_blocks and not self.needs_weights

    #: formats too coarse to be encoded without importance weights, as in ggml
    needs_weights = False

    #: True where the importance weights are combined with the mean square of the whole row
    weighs_rows = False

    def encode(self, values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Real values of shape [..., n], rounded to float32, to blocks of shape [..., n / block_size].

        The same bits as ggml's quantiser. The importance weights have shape [n], or one that repeats to that of the
        values over all axes but the last; formats without a search (Q8_0, MXFP4, ...) check them and go without, as
        ggml does. Raises `ShapeError` where n is not a multiple of the block size or the weights do not fit,
        `FormatError` for values that are not finite or too large for the format's scale, for weights that are not
        finite or negative, and for missing ones where `needs_weights`.
        """
        if type(self).encode_blocks is QuantType.encode_blocks:
            raise UnsupportedError(f"{self.name}: gml reads the format but does not write it; use Q8_0, Q4_0 or Q4_1")
        values = np.asarray(values)
        if values.dtype.kind not in "fiu":
            raise FormatError(f"{self.name}: encode needs real numbers, found {values.dtype}")
        if values.ndim == 0 or values.shape[-1] % self.block_size:
            raise ShapeError(
                f"{self.name}: encode needs rows of a multiple of {self.block_size} values, found shape {values.shape}"
            )
        if weights is None and self.needs_weights:
            raise FormatError(f"{self.name}: encode needs importance weights; give them, or use IQ2_S, IQ1_M or Q2_K")
        shape, rows = values.shape, values.reshape(-1, self.block_size)
        blocks = np.empty(len(rows), self.numpy)
        importance = None
        if weights is not None:
            importance = Importance(self.name, weights, values, self.block_size, self.weighs_rows)
        step = CHUNK // self.block_size
        with np.errstate(all="ignore"):
            for start in range(0, len(rows), step):
                chunk = rows[start : start + step].astype(np.float32)
                out = blocks[start : start + step]
                self._refuse_values(chunk, start, shape)
                self.encode_blocks(chunk, out, importance and importance.blocks(start, start + len(chunk)))
                self._refuse_scales(chunk, out, start, shape)
        return blocks.reshape(*shape[:-1], shape[-1] // self.block_size)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """Write finite float32 values [n, block_size] to the fields of out, blocks [n]: what a format may give."""
        raise UnsupportedError(f"{self.name}: this build cannot encode the format")

    def _refuse_values(self, chunk: np.ndarray, first_row: int, shape: tuple[int, ...]) -> None:
        finite = np.isfinite(chunk)
        if not finite.all():
            at = int(np.argmin(finite))
            index = np.unravel_index(first_row * self.block_size + at, shape)
            raise FormatError(
                f"{self.name}: cannot encode {chunk.reshape(-1)[at]} at index {tuple(map(int, index))} of {shape}; "
                "values must be finite in float32"
            )

    def lost(self, values: np.ndarray, blocks: np.ndarray) -> Iterator[tuple[str, str, np.ndarray]]:
        """Scales that do not hold what they should: a field, what it must fit, and which of the n blocks it concerns.

        A scale that overflows f16 is stored as infinity, and every value of the block is lost.
        """
        for field in blocks.dtype.names or ():
            if blocks.dtype[field].kind == "f":
                yield field, str(blocks.dtype[field]), ~np.isfinite(blocks[field])

    def _refuse_scales(self, values: np.ndarray, blocks: np.ndarray, first_row: int, shape: tuple[int, ...]) -> None:
        for field, what, bad in self.lost(values, blocks):
            if bad.any():
                row = first_row + int(np.argmax(bad))
                index = np.unravel_index(row * self.block_size, shape)
                raise FormatError(
                    f"{self.name}: the {self.block_size} values from index {tuple(map(int, index))} of {shape} are too "
                    f"large: their scale `{field}` does not fit {what}; scale the tensor down"
                )


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


AnyType = TypeVar("AnyType", bound=DType)


def register(dtype: AnyType) -> AnyType:
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
