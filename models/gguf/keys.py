"""Names and numbers of the GGUF format: value types, well-known keys, and the limits that gml sets.

Imports nothing of this package. Next module: `strings.py`. Source: the GGUF specification in ggml's repository
(docs/gguf.md) and `gguf.h`.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from gml.records import dataclass

MAGIC = b"GGUF"
VERSIONS = (2, 3)
WRITE_VERSION = 3

ARCHITECTURE = "general.architecture"
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32

SPLIT_NO = "split.no"
SPLIT_COUNT = "split.count"
SPLIT_TENSORS_COUNT = "split.tensors.count"

#: dimensions of a tensor (ggml's GGML_MAX_DIMS)
MAX_DIMS = 4
#: bytes of a tensor name: the specification allows 64, ggml reads at most 63, so files are written with 63
MAX_NAME_BYTES = 64
MAX_WRITTEN_NAME_BYTES = 63
#: bytes of a key, as the specification says
MAX_KEY_BYTES = 65535
#: ggml counts bytes and elements in signed 64-bit numbers
MAX_INT64 = 2**63 - 1

# Bounds on what a hostile file can make the reader allocate. The largest real headers have about 15 MB, 100 keys and
# 50,000 tensors.
MAX_HEADER_BYTES = 256 << 20
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 18


class ValueType(IntEnum):
    """Types of metadata values, as `enum gguf_type` numbers them."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


#: how numbers lie in the file; a boolean is a byte of 0 or 1
NUMBERS: dict[ValueType, np.dtype] = {
    ValueType.UINT8: np.dtype("u1"),
    ValueType.INT8: np.dtype("i1"),
    ValueType.UINT16: np.dtype("<u2"),
    ValueType.INT16: np.dtype("<i2"),
    ValueType.UINT32: np.dtype("<u4"),
    ValueType.INT32: np.dtype("<i4"),
    ValueType.FLOAT32: np.dtype("<f4"),
    ValueType.BOOL: np.dtype("u1"),
    ValueType.UINT64: np.dtype("<u8"),
    ValueType.INT64: np.dtype("<i8"),
    ValueType.FLOAT64: np.dtype("<f8"),
}

#: codes of Python's struct for the same (numpy's letters for sizes differ between systems)
STRUCT_CODES = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "B",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}

INTEGERS = frozenset(kind for kind, dtype in NUMBERS.items() if dtype.kind in "iu" and kind != ValueType.BOOL)
FLOATS = frozenset((ValueType.FLOAT32, ValueType.FLOAT64))


@dataclass(frozen=True)
class MetadataType:
    """The type of one metadata value: a scalar or string type, or `ARRAY` with the type of its items."""

    type: ValueType
    item: ValueType | None = None

    def __str__(self) -> str:
        return self.type.name if self.item is None else f"ARRAY[{self.item.name}]"
