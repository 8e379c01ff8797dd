"""Storage types: how the elements of a tensor lie in memory.

A `DType` is a row of the table below: ggml's id and name, the number of elements in a block and a block's size in
bytes. Scalar types have blocks of one element and are all defined here; the block-quantised formats are subclasses'
instances with one file each in `gml/quants/` (the next module to read). Ids and names: ggml's `enum ggml_type`, as in
the GGUF specification.
"""

from __future__ import annotations

import numpy as np

from gml.records import dataclass


@dataclass(frozen=True, eq=False)
class DType:
    """A storage type.

    name        ggml's name in upper case ("F32", "Q4_K")
    ggml_id     ggml's number for the type, as written in GGUF files
    block_size  elements per block (1 for scalars)
    type_size   bytes per block
    numpy       the numpy dtype of one block; for BF16 the raw 16 bits (`uint16`)
    """

    name: str
    ggml_id: int
    block_size: int
    type_size: int
    numpy: np.dtype

    @property
    def is_scalar(self) -> bool:
        """True when every element has its own bytes."""
        return self.block_size == 1

    @property
    def is_float(self) -> bool:
        """True for types whose elements are real numbers (block formats included)."""
        return not self.is_integer

    @property
    def is_integer(self) -> bool:
        """True for I8, I16, I32 and I64."""
        return self.is_scalar and self.numpy.kind == "i"

    @property
    def can_encode(self) -> bool:
        """True when values can be stored in this type (not every block format is written by gml)."""
        return True

    def row_bytes(self, n: int) -> int:
        """Bytes of a contiguous row of `n` elements (`n` a multiple of `block_size`)."""
        return n // self.block_size * self.type_size

    def decode(self, blocks: np.ndarray) -> np.ndarray:
        """Blocks of dtype `self.numpy`, shape [..., n_blocks], to float32 values of shape [..., n_blocks * block_size].

        Integer types keep their own dtype; these and F32 are not copied.
        """
        if self.is_integer:
            return blocks
        return blocks.astype(np.float32, copy=False)

    def encode(self, values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """float32 (or integer) values of shape [..., n] to blocks of shape [..., n // block_size].

        Importance weights steer the search of block formats; scalars are rounded without.
        """
        return np.asarray(values).astype(self.numpy)

    def __repr__(self) -> str:
        return self.name


class _BFloat16(DType):
    """The upper half of a float32."""

    def decode(self, blocks: np.ndarray) -> np.ndarray:
        return (blocks.astype(np.uint32) << 16).view(np.float32)

    def encode(self, values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Round to nearest even; a NaN stays a (quiet) NaN. Source: ggml's `ggml_compute_fp32_to_bf16`."""
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
        nan = (bits & 0x7FFFFFFF) > 0x7F800000
        return np.where(nan, (bits >> 16) | 64, rounded).astype(np.uint16)


F32 = DType("F32", 0, 1, 4, np.dtype("<f4"))
F16 = DType("F16", 1, 1, 2, np.dtype("<f2"))
I8 = DType("I8", 24, 1, 1, np.dtype("i1"))
I16 = DType("I16", 25, 1, 2, np.dtype("<i2"))
I32 = DType("I32", 26, 1, 4, np.dtype("<i4"))
I64 = DType("I64", 27, 1, 8, np.dtype("<i8"))
F64 = DType("F64", 28, 1, 8, np.dtype("<f8"))
BF16 = _BFloat16("BF16", 30, 1, 2, np.dtype("<u2"))

SCALARS = (F32, F16, I8, I16, I32, I64, F64, BF16)
