"""The header of one GGUF file: from bytes to metadata and a checked table of tensors.

Arrives: the file's bytes (a map or a buffer). Leaves: a `Header`, in which every number has been checked: no count is
believed before the bytes for it are seen, every tensor lies inside the file and over no other. Numbers are Python's, so
nothing wraps. Next module: `split.py`.

    "GGUF" | version u32 | n_tensors u64 | n_kv u64
    n_kv      x  key string | type u32 | value                   a string is a u64 length and its bytes
    n_tensors x  name string | n_dims u32 | ne u64 x n_dims | type u32 | offset u64
    zeros up to a multiple of general.alignment, then the tensors' data, which the offsets count from
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from gml import DType, quants
from gml.errors import Error, FormatError, UnsupportedError
from gml.models.gguf import keys
from gml.models.gguf.keys import MetadataType, ValueType
from gml.models.gguf.strings import scan_strings, string_array
from gml.records import dataclass

DAMAGED = "the file is damaged or cut short; fetch it again"
# bytes that the shortest possible key-value pair and tensor entry take
_MIN_PAIR_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8


@dataclass(frozen=True)
class TensorInfo:
    """One entry of the tensor table: ne is fastest first, offset counts from the data's start, n_bytes is exact."""

    name: str
    type: DType
    ne: tuple[int, ...]
    offset: int
    n_bytes: int


@dataclass(frozen=True)
class Header:
    """What a file says before its data. `data_start` is the byte where tensor data begins."""

    version: int
    metadata: Mapping[str, Any]
    types: Mapping[str, MetadataType]
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data_start: int


class Cursor:
    """A position in the header's bytes; every read says what it is for, so that a refusal can name it."""

    def __init__(self, buffer: Any, path: str) -> None:
        self.buffer, self.path = buffer, path
        self.size = len(buffer)
        self.end = min(self.size, keys.MAX_HEADER_BYTES)
        self.at = 0

    def fail(self, what: str, problem: str, at: int | None = None, error: type[Error] = FormatError) -> NoReturn:
        raise error(f"{self.path}: {what} (byte {self.at if at is None else at}): {problem}")

    def need(self, n: int, what: str, unit: str = "") -> None:
        """Refuse unless n more bytes are there; `unit` says what they would hold."""
        if n <= self.end - self.at:
            return
        left = self.size - self.at
        if n > left:
            self.fail(what, f"expected {n} bytes{unit}, but the file ends after {left}; {DAMAGED}")
        self.fail(what, f"the header is larger than {keys.MAX_HEADER_BYTES} bytes, more than gml reads; {DAMAGED}")

    def number(self, kind: ValueType, what: str) -> Any:
        """A scalar as a Python int or float; a boolean as 0..255."""
        n_bytes = keys.NUMBERS[kind].itemsize
        self.need(n_bytes, what)
        (value,) = struct.unpack_from("<" + keys.STRUCT_CODES[kind], self.buffer, self.at)
        self.at += n_bytes
        return value

    def u32(self, what: str) -> int:
        return self.number(ValueType.UINT32, what)

    def u64(self, what: str) -> int:
        return self.number(ValueType.UINT64, what)

    def string(self, what: str, limit: int = keys.MAX_HEADER_BYTES) -> str:
        """A string of at most `limit` bytes; bytes that are not UTF-8 become surrogate escapes."""
        start = self.at
        length = self.u64(what)
        self.need(length, what, " of text")
        if length > limit:
            self.fail(what, f"expected at most {limit} bytes of text, found {length}; {DAMAGED}", start)
        self.at += length
        return bytes(self.buffer[self.at - length : self.at]).decode("utf-8", "surrogateescape")

    def count(self, what: str, item_bytes: int, limit: int) -> int:
        """A u64 count of things that take at least `item_bytes` each."""
        start = self.at
        n = self.u64(what)
        left = self.size - self.at
        if n * item_bytes > left:
            self.fail(what, f"found {n}, for which {left} bytes are left in the file; {DAMAGED}", start)
        if n > limit:
            self.fail(what, f"expected at most {limit}, found {n}; {DAMAGED}", start)
        return n


def parse_header(buffer: Any, path: str) -> Header:
    """Read and check everything before the tensor data of `buffer` (bytes or mmap, the whole file).

    Raises `FormatError` for what breaks the format, `UnsupportedError` for versions, byte orders and types gml lacks.
    """
    cursor = Cursor(buffer, path)
    version = _read_version(cursor)
    n_tensors = cursor.count("number of tensors", _MIN_TENSOR_BYTES, keys.MAX_TENSORS)
    n_pairs = cursor.count("number of metadata keys", _MIN_PAIR_BYTES, keys.MAX_KEYS)
    metadata: dict[str, Any] = {}
    types: dict[str, MetadataType] = {}
    for n in range(n_pairs):
        _read_pair(cursor, f"metadata key {n + 1} of {n_pairs}", metadata, types)
    alignment = _alignment(cursor, metadata, types)
    tensors: dict[str, TensorInfo] = {}
    for n in range(n_tensors):
        what, start = f"tensor {n + 1} of {n_tensors}", cursor.at
        info = _read_tensor(cursor, what, alignment)
        if info.name in tensors:
            cursor.fail(what, f"a second tensor named {info.name!r}; names must differ, {DAMAGED}", start)
        tensors[info.name] = info
    data_start = -(-cursor.at // alignment) * alignment
    table = tuple(tensors.values())
    _check_layout(cursor, table, data_start)
    return Header(version, MappingProxyType(metadata), MappingProxyType(types), table, alignment, data_start)


def _read_version(cursor: Cursor) -> int:
    magic = bytes(cursor.buffer[:4])
    if magic != keys.MAGIC:
        found = repr(magic) if magic else "an empty file"
        cursor.fail("magic number", f"expected {keys.MAGIC!r}, found {found}; this is not a GGUF file", 0)
    cursor.at = 4
    version = cursor.u32("version")
    if version in keys.VERSIONS:
        return version
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, *keys.VERSIONS):
        advice = "gml reads little endian; convert it with llama.cpp's gguf_convert_endian.py"
        cursor.fail("version", f"the file is big endian; {advice}", 4, UnsupportedError)
    advice = "convert the model again with a current converter" if version == 1 else "a newer gml may read it"
    cursor.fail("version", f"expected GGUF version 2 or 3, found version {version}; {advice}", 4, UnsupportedError)


def _read_pair(cursor: Cursor, what: str, metadata: dict[str, Any], types: dict[str, MetadataType]) -> None:
    start = cursor.at
    key = cursor.string(what, keys.MAX_KEY_BYTES)
    if not key:
        cursor.fail(what, f"expected a name, found an empty one; {DAMAGED}", start)
    what = f"metadata key {key!r:.80}"
    if key in metadata:
        cursor.fail(what, f"the key is there twice; keys must differ, {DAMAGED}", start)
    kind = _value_type(cursor, what)
    if kind == ValueType.ARRAY:
        item = _value_type(cursor, what)
        types[key] = MetadataType(kind, item)
        metadata[key] = _read_array(cursor, what, item)
    else:
        types[key] = MetadataType(kind)
        metadata[key] = _read_scalar(cursor, what, kind)


def _value_type(cursor: Cursor, what: str) -> ValueType:
    start = cursor.at
    number = cursor.u32(what)
    try:
        return ValueType(number)
    except ValueError:
        cursor.fail(what, f"expected a value type from 0 to {max(ValueType)}, found {number}; {DAMAGED}", start)


def _read_scalar(cursor: Cursor, what: str, kind: ValueType) -> Any:
    start = cursor.at
    if kind == ValueType.STRING:
        return cursor.string(what)
    value = cursor.number(kind, what)
    if kind != ValueType.BOOL:
        return value
    if value > 1:
        cursor.fail(what, f"expected a boolean, 0 or 1, found {value}; {DAMAGED}", start)
    return bool(value)


def _read_array(cursor: Cursor, what: str, item: ValueType) -> Any:
    """Numbers as a read-only numpy array, booleans as bool, strings as a `StringArray`. All are copies of what lies in
    the file, at most `MAX_HEADER_BYTES` together, so they outlive it."""
    if item == ValueType.ARRAY:
        advice = "gml, like ggml, reads flat arrays only; write the metadata flat"
        cursor.fail(what, f"found an array of arrays; {advice}", cursor.at - 4, UnsupportedError)
    item_bytes = 8 if item == ValueType.STRING else keys.NUMBERS[item].itemsize
    count = cursor.count(f"{what}, array length", item_bytes, keys.MAX_HEADER_BYTES)
    cursor.need(count * item_bytes, what)
    start = cursor.at
    if item == ValueType.STRING:
        starts, end = scan_strings(cursor.buffer, start, count, cursor.end)
        if len(starts) < count or end > cursor.end:
            n = max(len(starts) - 1, 0)
            cursor.at = starts[n] if starts else start
            cursor.need(end + 8 - cursor.at, f"{what}, string {n} of {count} or the one after", " of text")
        cursor.at = end
        return string_array(cursor.buffer, start, starts, end)
    cursor.at += count * item_bytes
    values = np.frombuffer(bytes(cursor.buffer[start : cursor.at]), keys.NUMBERS[item])
    if item != ValueType.BOOL:
        return values
    if values.size and values.max() > 1:
        n = int(np.argmax(values > 1))
        cursor.fail(what, f"entry {n}: expected a boolean, 0 or 1, found {values[n]}; {DAMAGED}", start + n)
    return values.view(np.bool_)


def _alignment(cursor: Cursor, metadata: Mapping[str, Any], types: Mapping[str, MetadataType]) -> int:
    if keys.ALIGNMENT not in metadata:
        return keys.DEFAULT_ALIGNMENT
    what = f"metadata key {keys.ALIGNMENT!r}"
    if types[keys.ALIGNMENT] != MetadataType(ValueType.UINT32):
        cursor.fail(what, f"expected a UINT32, found {types[keys.ALIGNMENT]}; {DAMAGED}")
    alignment = metadata[keys.ALIGNMENT]
    if alignment == 0 or alignment & (alignment - 1):
        cursor.fail(what, f"expected a power of two, found {alignment}; {DAMAGED}")
    return alignment


def _read_tensor(cursor: Cursor, what: str, alignment: int) -> TensorInfo:
    name = cursor.string(f"{what}, name", keys.MAX_NAME_BYTES)
    what = f"tensor {name!r}"
    start = cursor.at
    n_dims = cursor.u32(what)
    if not 1 <= n_dims <= keys.MAX_DIMS:
        cursor.fail(what, f"expected 1 to {keys.MAX_DIMS} dimensions, found {n_dims}; {DAMAGED}", start)
    start = cursor.at
    ne = tuple(cursor.u64(f"{what}, sizes") for _ in range(n_dims))
    type_at = cursor.at
    type_id = cursor.u32(f"{what}, type")
    try:
        dtype = quants.by_id(type_id)
    except UnsupportedError as error:
        cursor.fail(what, str(error), type_at, UnsupportedError)
    problem = size_problem(dtype, ne)
    if problem:
        cursor.fail(what, f"{problem}; {DAMAGED}", start)
    start = cursor.at
    offset = cursor.u64(f"{what}, offset")
    if offset % alignment:
        cursor.fail(what, f"expected an offset that is a multiple of {alignment}, found {offset}; {DAMAGED}", start)
    return TensorInfo(name, dtype, ne, offset, dtype.row_bytes(ne[0]) * prod(ne[1:]))


def size_problem(dtype: DType, ne: tuple[int, ...]) -> str | None:
    """What is wrong with sizes `ne` for a tensor of this type, if anything.

    Sizes of 0 are allowed, but the other sizes must be possible without them: numpy and ggml multiply those too.
    """
    if ne[0] % dtype.block_size:
        return f"{dtype.name} needs rows of a multiple of {dtype.block_size} values, found ne = {list(ne)}"
    if prod(max(n, 1) for n in ne) * max(dtype.type_size, 1) > keys.MAX_INT64:
        return f"ne = {list(ne)} makes more bytes than 63 bits count"
    return None


def _check_layout(cursor: Cursor, tensors: tuple[TensorInfo, ...], data_start: int) -> None:
    """Every tensor's bytes lie inside the file, and no two share any."""
    data_bytes = max(cursor.size - data_start, 0)
    for info in tensors:
        if info.offset + info.n_bytes > data_bytes:
            problem = f"expected {info.n_bytes} bytes of data from here, but the file ends at byte {cursor.size}"
            cursor.fail(f"tensor {info.name!r}", f"{problem}; {DAMAGED}", data_start + info.offset)
    placed = sorted((info for info in tensors if info.n_bytes), key=lambda info: info.offset)
    for before, after in pairwise(placed):
        if before.offset + before.n_bytes > after.offset:
            problem = f"its data overlaps that of tensor {before.name!r} ({before.n_bytes} bytes from {before.offset})"
            cursor.fail(f"tensor {after.name!r}", f"{problem}; {DAMAGED}", data_start + after.offset)
