"""Opens a GGUF file: metadata, and tensors as views into the mapped file.

Arrives: a path; leaves: a `GGUFFile`. Nothing in a file is believed: every count is compared with the bytes that are left before
anything is allocated, every offset with the file's size. Source: the GGUF specification,
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Next module: `models/loader.py`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np

from gml import DType
from gml.errors import FormatError, UnsupportedError
from gml.quants import by_id

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4
MAX_NAME_BYTES = 1 << 16
STRING, ARRAY, BOOL = 8, 9, 7

#: value types with a fixed size: struct code, bytes, numpy dtype
FIXED = {
    0: ("B", 1, "u1"), 1: ("b", 1, "i1"), 2: ("H", 2, "<u2"), 3: ("h", 2, "<i2"), 4: ("I", 4, "<u4"), 5: ("i", 4, "<i4"),
    6: ("f", 4, "<f4"), 7: ("B", 1, "u1"), 10: ("Q", 8, "<u8"), 11: ("q", 8, "<i8"), 12: ("d", 8, "<f8"),
}  # fmt: skip
TYPE_NAMES = ("U8", "I8", "U16", "I16", "U32", "I32", "F32", "BOOL", "STRING", "ARRAY", "U64", "I64", "F64")


class Strings(Sequence):
    """An array of strings in a file, decoded when asked for. Bytes that are not UTF-8 are kept as surrogates."""

    def __init__(self, data: bytes | mmap.mmap, starts: np.ndarray, ends: np.ndarray) -> None:
        self._data, self._starts, self._ends = data, starts, ends

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.raw(index).decode("utf-8", "surrogateescape")

    def raw(self, index: int) -> bytes:
        """One string's bytes."""
        return self._data[int(self._starts[index]) : int(self._ends[index])]

    def __iter__(self) -> Iterator[str]:
        data = self._data
        for start, end in zip(self._starts.tolist(), self._ends.tolist(), strict=True):
            yield data[start:end].decode("utf-8", "surrogateescape")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} strings>"


@dataclass(frozen=True, eq=False)
class GGUFTensor:
    """A tensor of a file.

    ne      sizes as in the file, fastest first, 1 to 4 of them
    offset  bytes from the start of the file's tensor data
    data    read-only blocks in the mapped file, of dtype `type.numpy` and shape [..., ne[1], ne[0] / block size]
    """

    name: str
    type: DType
    ne: tuple[int, ...]
    offset: int
    n_bytes: int
    data: np.ndarray = field(repr=False)

    def decode(self) -> np.ndarray:
        """The values in numpy's order, float32 (integers as they are)."""
        return self.type.decode(self.data)


class _Cursor:
    """Reads the header front to back and knows what it is reading, for messages."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path, self.size = data, path, len(data)
        self.at = 0
        self.what = "header"

    def fail(self, expected: str, found: object, advice: str, at: int | None = None) -> FormatError:
        """The error for what is being read."""
        place = self.at if at is None else at
        return FormatError(f"{self.path}: {self.what}: expected {expected}, found {found} at byte {place}; {advice}")

    def need(self, n_bytes: int, what: str) -> None:
        """Raise unless so many bytes are left."""
        left = self.size - self.at
        if n_bytes > left:
            raise self.fail(f"{n_bytes} bytes for {what}", f"{left}", "the file is truncated or damaged; fetch it again")

    def number(self, code: str, n_bytes: int, what: str) -> int:
        self.need(n_bytes, what)
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += n_bytes
        return value

    def u32(self, what: str) -> int:
        return self.number("I", 4, what)

    def u64(self, what: str) -> int:
        return self.number("Q", 8, what)

    def string(self, what: str) -> bytes:
        n = self.u64(f"the length of {what}")
        self.need(n, what)
        value = self.data[self.at : self.at + n]
        self.at += n
        return value

    def text(self, what: str) -> str:
        start = self.at
        raw = self.string(what)
        if len(raw) > MAX_NAME_BYTES:
            raise self.fail(f"{what} of at most {MAX_NAME_BYTES} bytes", len(raw), "the file is damaged", start)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail(f"{what} in UTF-8", repr(raw[:40]), "the file is damaged", start) from None


class GGUFFile:
    """A GGUF file (or all shards of a split one), open for reading. Close it, or use it in a `with` statement.

    path      the file
    version   2 or 3
    metadata  keys and values in file order; numbers and strings as Python's, arrays as numpy arrays or `Strings`
    types     value type of each key: a name of `TYPE_NAMES`, arrays as (ARRAY, element type)
    tensors   `GGUFTensor`s by name in file order
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.metadata: dict[str, Any] = {}
        self.types: dict[str, Any] = {}
        self.tensors: dict[str, GGUFTensor] = {}
        self._shards: list[GGUFFile] = []
        self._map = _map_file(self.path)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Open a file; of a split one, given any shard, all shards as one.

        Raises `FormatError` for anything that breaks the format, naming key or tensor, what was expected and found, and the
        byte; `UnsupportedError` for versions and byte orders that gml does not read.
        """
        from gml.models.gguf.split import open_split

        file = cls(path)
        try:
            return open_split(file)
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        """Forget the tensors. The map itself goes when the last view into it does."""
        self.tensors = {}
        for shard in self._shards:
            shard.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- header -----------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        cursor = _Cursor(self._map, self.path)
        magic = cursor.data[:4]
        if magic != MAGIC:
            raise cursor.fail("the magic bytes 'GGUF'", repr(magic), "this is not a GGUF file")
        cursor.at = 4
        self.version = self._version(cursor)
        n_tensors, n_keys = cursor.u64("the number of tensors"), cursor.u64("the number of keys")
        left = cursor.size - cursor.at
        # a key needs at least 8 + 4 + 1 bytes, a tensor 8 + 4 + 8 + 4 + 8
        if n_keys * 13 + n_tensors * 32 > left:
            raise cursor.fail(f"{n_keys} keys and {n_tensors} tensors", f"{left} bytes left", "the file is damaged", 8)
        for _ in range(n_keys):
            self._read_key(cursor)
        cursor.what = "metadata key general.alignment"
        alignment = self._alignment(cursor)
        infos = [self._read_info(cursor, i) for i in range(n_tensors)]
        start = -(-cursor.at // alignment) * alignment
        self._place(cursor, infos, start, alignment)

    def _version(self, cursor: _Cursor) -> int:
        version = cursor.u32("the version")
        if version in VERSIONS:
            return version
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise UnsupportedError(f"{self.path}: the file is big endian, which gml does not read; convert it to little endian")
        raise cursor.fail("version 2 or 3", f"version {version}", "convert the model again with a current converter", 4)

    def _read_key(self, cursor: _Cursor) -> None:
        cursor.what = "header"
        start = cursor.at
        key = cursor.text("a key")
        cursor.what = f"metadata key {key}"
        if key in self.metadata:
            raise cursor.fail("each key once", "a second value", "the file is damaged or ambiguous", start)
        self.metadata[key], self.types[key] = self._read_value(cursor, cursor.u32("its type"))

    def _read_value(self, cursor: _Cursor, kind: int) -> tuple[Any, Any]:
        if kind == STRING:
            return cursor.string("the string").decode("utf-8", "surrogateescape"), "STRING"
        if kind == ARRAY:
            return self._read_array(cursor)
        if kind not in FIXED:
            raise cursor.fail("a value type from 0 to 12", kind, "the file is damaged", cursor.at - 4)
        code, n_bytes, _ = FIXED[kind]
        value: Any = cursor.number(code, n_bytes, "the value")
        if kind == BOOL:
            if value not in (0, 1):
                raise cursor.fail("a boolean of 0 or 1", value, "the file is damaged", cursor.at - 1)
            value = bool(value)
        return value, TYPE_NAMES[kind]

    def _read_array(self, cursor: _Cursor) -> tuple[Any, Any]:
        kind, n = cursor.u32("the array's type"), cursor.u64("the array's length")
        if kind == STRING:
            return self._read_strings(cursor, n), ("ARRAY", "STRING")
        if kind == ARRAY:
            raise cursor.fail("an array of plain values", "an array of arrays", "gml does not read nested arrays", cursor.at - 12)
        if kind not in FIXED:
            raise cursor.fail("an element type from 0 to 12", kind, "the file is damaged", cursor.at - 12)
        _, n_bytes, dtype = FIXED[kind]
        cursor.need(n * n_bytes, f"{n} elements")
        values = np.frombuffer(cursor.data, dtype, n, cursor.at)
        if kind == BOOL:
            if n and values.max() > 1:
                raise cursor.fail("booleans of 0 or 1", int(values.max()), "the file is damaged")
            values = values.astype(bool)
        cursor.at += n * n_bytes
        return values, ("ARRAY", TYPE_NAMES[kind])

    def _read_strings(self, cursor: _Cursor, n: int) -> Strings:
        """Find where each string lies without decoding any."""
        if n * 8 > cursor.size - cursor.at:
            raise cursor.fail(f"{n} strings", f"{cursor.size - cursor.at} bytes left", "the file is truncated or damaged")
        starts, ends = [0] * n, [0] * n
        unpack, data, size, at = struct.Struct("<Q").unpack_from, cursor.data, cursor.size, cursor.at
        for i in range(n):
            if at + 8 > size:
                cursor.at = at
                cursor.need(8, f"the length of string {i}")
            (length,) = unpack(data, at)
            at += 8
            starts[i] = at
            at += length
            if at > size:
                cursor.at = starts[i]
                cursor.need(length, f"string {i}")
            ends[i] = at
        cursor.at = at
        return Strings(data, np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))

    def _alignment(self, cursor: _Cursor) -> int:
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        kind = self.types.get("general.alignment", "U32")
        good = kind in ("U32", "U64", "I32") and 0 < alignment <= 1 << 20 and alignment & (alignment - 1) == 0
        if not good:
            raise cursor.fail("a power of two as U32", f"{alignment!r:.40} ({kind})", "the file is damaged")
        return int(alignment)

    # -- tensors ----------------------------------------------------------------------------------------------------------

    def _read_info(self, cursor: _Cursor, number: int) -> tuple[str, DType, tuple[int, ...], int]:
        cursor.what = f"tensor {number}"
        start = cursor.at
        name = cursor.text("its name")
        cursor.what = f"tensor {name}"
        if name in self.tensors:
            raise cursor.fail("each name once", "a second tensor", "the file is damaged or ambiguous", start)
        self.tensors[name] = None  # type: ignore[assignment]  # placed when all are known
        n_dims = cursor.u32("its number of dimensions")
        if not 1 <= n_dims <= MAX_DIMS:
            raise cursor.fail(f"1 to {MAX_DIMS} dimensions", n_dims, "the file is damaged", cursor.at - 4)
        ne = tuple(cursor.u64("a size") for _ in range(n_dims))
        at_type = cursor.at
        try:
            dtype = by_id(cursor.u32("its type"))
        except UnsupportedError as error:
            raise cursor.fail("a storage type that gml knows", str(error), "", at_type) from None
        if ne[0] % dtype.block_size:
            raise cursor.fail(f"rows of whole blocks ({dtype.name}: {dtype.block_size})", f"ne[0] = {ne[0]}", "the file is damaged")
        return name, dtype, ne, cursor.u64("its offset")

    def _place(self, cursor: _Cursor, infos: list, start: int, alignment: int) -> None:
        """Make each tensor a view, once its bytes are known to lie in the file, apart from the others."""
        ends: list[tuple[int, int, str]] = []
        buffer = np.frombuffer(cursor.data, dtype=np.uint8)
        for name, dtype, ne, offset in infos:
            cursor.what = f"tensor {name}"
            n_bytes = ne[0] // dtype.block_size * dtype.type_size
            for n in ne[1:]:
                n_bytes *= n
            if offset % alignment:
                raise cursor.fail(f"an offset that is a multiple of {alignment}", offset, "the file is damaged")
            if start + offset + n_bytes > cursor.size:
                raise cursor.fail(
                    f"{n_bytes} bytes of data at offset {offset}",
                    f"{max(cursor.size - start - offset, 0)}",
                    "the file is truncated or damaged; fetch it again",
                    start + offset,
                )
            raw = buffer[start + offset : start + offset + n_bytes]
            shape = (*reversed(ne[1:]), ne[0] // dtype.block_size)
            self.tensors[name] = GGUFTensor(name, dtype, ne, offset, n_bytes, raw.view(dtype.numpy).reshape(shape))
            if n_bytes:
                ends.append((offset, offset + n_bytes, name))
        ends.sort()
        for (_, end, one), (begin, _, two) in zip(ends, ends[1:], strict=False):
            if begin < end:
                cursor.what = f"tensor {two}"
                raise cursor.fail(f"data behind tensor {one}'s, from offset {end}", f"offset {begin}", "the file is damaged")


def _map_file(path: Path) -> mmap.mmap:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise FormatError(f"{path}: expected a GGUF file, found no bytes at all; fetch it again")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened: {error.strerror or error}; check the path") from None


Metadata = Mapping[str, Any]
