"""Write a GGUF file, version 3.

Arrives: metadata, and tensors as arrays, bytes or streams of bytes. Leaves: a file that appears under its name only
when it is complete. What this module writes, `reader.py` and ggml read. Next module: `models/loader.py`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from gml import DType
from gml.errors import Error, ShapeError, UsageError
from gml.models.gguf import keys
from gml.models.gguf.header import size_problem
from gml.models.gguf.keys import MetadataType, ValueType
from gml.models.gguf.strings import StringArray

Bytes = bytes | bytearray | memoryview | np.ndarray


class TensorSource(NamedTuple):
    """A tensor to write.

    ne    sizes, fastest first, 1 to 4 of them
    data  an array of blocks (dtype `type.numpy`, shape [ne[..1], ne[0] / block_size]), the raw bytes, an iterable of
          pieces of them, or a function that gives one of these when the tensor's turn comes
    """

    name: str
    type: DType
    ne: Sequence[int]
    data: Bytes | Iterable[Bytes] | Callable[[], Any]


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    tensors: Iterable[TensorSource | tuple[str, DType, Sequence[int], Any]] = (),
    *,
    types: Mapping[str, MetadataType | ValueType] | None = None,
    alignment: int | None = None,
) -> None:
    """Write a file; one of that name is replaced in the moment the new one is complete.

    types      metadata types by key (a file's `types` serve as they are; a plain `ValueType` for an array is
               that of its items). Otherwise: bool, str, float as FLOAT32, int as the first of UINT32, INT32, UINT64,
               INT64 that holds it, numpy arrays and scalars as they are, lists by their items
    alignment  of tensor data, in bytes: a power of two; default `general.alignment` of the metadata, else 32

    Raises `UsageError` for names and values that GGUF does not hold, `ShapeError` for data that does not fit its
    tensor, `Error` where the system refuses to write; then no file is left behind.
    """
    path = Path(path)
    metadata, types = dict(metadata), dict(types or {})
    alignment = _set_alignment(metadata, types, alignment)
    sources = [TensorSource(*source) for source in tensors]
    header = _header(metadata, types, sources, alignment)
    partial = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        with open(partial, "xb") as file:
            file.write(header)
            for source in sources:
                _pad(file, alignment)
                _write_data(file, source)
        os.replace(partial, path)
    except OSError as error:
        _remove(partial)
        raise Error(
            f"{path}: cannot be written: {error.strerror or error}; check the folder and its free space"
        ) from None
    except BaseException:
        _remove(partial)
        raise


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # the error that is on its way says more
        path.unlink(missing_ok=True)


def _pad(file: BinaryIO, alignment: int) -> None:
    file.write(bytes(-file.tell() % alignment))


def _set_alignment(metadata: dict[str, Any], types: dict[str, Any], alignment: int | None) -> int:
    """The alignment to use; it stands in the metadata where it is not the default."""
    found: Any = metadata.get(keys.ALIGNMENT, keys.DEFAULT_ALIGNMENT) if alignment is None else alignment
    value = int(found) if isinstance(found, (int, np.integer)) and not isinstance(found, bool) else 0
    if not 0 < value < 2**32 or value & (value - 1):
        raise UsageError(f"alignment: expected a power of two below 2^32, found {found!r:.40}")
    if keys.ALIGNMENT in metadata or value != keys.DEFAULT_ALIGNMENT:
        metadata[keys.ALIGNMENT] = value
        types[keys.ALIGNMENT] = MetadataType(ValueType.UINT32)
    return value


def _header(metadata: dict[str, Any], types: dict[str, Any], sources: list[TensorSource], alignment: int) -> bytes:
    parts = [keys.MAGIC, struct.pack("<IQQ", keys.WRITE_VERSION, len(sources), len(metadata))]
    for key, value in metadata.items():
        parts.append(_string(key, "metadata key", 1, keys.MAX_KEY_BYTES))
        parts.append(_pair(value, types.get(key), f"metadata key {key!r:.80}"))
    offset, names = 0, set()
    for source in sources:
        if source.name in names:
            raise UsageError(f"tensor {source.name!r:.80}: a second one of this name; names must differ")
        names.add(source.name)
        n_bytes = _check_sizes(source)
        parts.append(_string(source.name, "tensor name", 0, keys.MAX_WRITTEN_NAME_BYTES))
        parts.append(struct.pack(f"<I{len(source.ne)}QIQ", len(source.ne), *source.ne, source.type.ggml_id, offset))
        offset += n_bytes + -n_bytes % alignment
    header = b"".join(parts)
    if len(header) > keys.MAX_HEADER_BYTES:
        raise UsageError(f"metadata of {len(header)} bytes; gml reads headers of at most {keys.MAX_HEADER_BYTES}")
    return header


def _string(text: Any, what: str, least: int = 0, most: int = keys.MAX_HEADER_BYTES) -> bytes:
    if isinstance(text, str):
        try:
            text = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise UsageError(f"{what}: {text!r:.80} is not valid Unicode; write UTF-8 text or bytes") from None
    if not isinstance(text, bytes):
        raise UsageError(f"{what}: expected a string, found {type(text).__name__}")
    if not least <= len(text) <= most:
        raise UsageError(f"{what}: expected {least} to {most} bytes, found {len(text)}: {text!r:.80}")
    return struct.pack("<Q", len(text)) + text


def _pair(value: Any, kind: MetadataType | ValueType | None, what: str) -> bytes:
    """The type and the value of a metadata key."""
    is_array = isinstance(value, (list, tuple, StringArray)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    if isinstance(kind, ValueType):
        kind = MetadataType(ValueType.ARRAY, kind) if is_array else MetadataType(kind)
    elif kind is None and is_array:
        kind = MetadataType(ValueType.ARRAY, _item_type(value, what))
    elif kind is None:
        kind = MetadataType(_type_of(value, what))
    if is_array != (kind.type == ValueType.ARRAY):
        raise UsageError(f"{what}: expected a value of type {kind}, found {type(value).__name__}")
    if not is_array:
        if kind.type == ValueType.STRING:
            return struct.pack("<I", kind.type) + _string(value, what)
        return struct.pack("<I", kind.type) + _numbers([value], kind.type, what)
    if kind.item is None or kind.item == ValueType.ARRAY:
        raise UsageError(f"{what}: an array needs the type of its items, which are no arrays; found {kind.item}")
    head = struct.pack("<IIQ", kind.type, kind.item, len(value))
    if kind.item != ValueType.STRING:
        return head + _numbers(value, kind.item, what)
    if isinstance(value, StringArray):
        return head + value.blob
    return head + b"".join(_string(item, f"{what}, entry {n}") for n, item in enumerate(value))


_NUMPY_TYPES = {dtype: kind for kind, dtype in keys.NUMBERS.items() if kind != ValueType.BOOL}
_NUMPY_TYPES[np.dtype(bool)] = ValueType.BOOL


def _type_of(value: Any, what: str) -> ValueType:
    """The type in which a single value is written when nothing says."""
    if isinstance(value, (str, bytes)):
        return ValueType.STRING
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, (np.generic, np.ndarray)):
        if value.dtype.newbyteorder("<") in _NUMPY_TYPES:
            return _NUMPY_TYPES[value.dtype.newbyteorder("<")]
        raise UsageError(f"{what}: GGUF has no type for numpy's {value.dtype}; convert it")
    if isinstance(value, float):
        return ValueType.FLOAT32
    if isinstance(value, int):
        return _integer_type(value, value, (ValueType.UINT32, ValueType.INT32, ValueType.UINT64, ValueType.INT64), what)
    raise UsageError(f"{what}: expected a number, a string or an array of these, found {type(value).__name__}")


def _integer_type(least: int, most: int, candidates: Sequence[ValueType], what: str) -> ValueType:
    for kind in candidates:
        limits = np.iinfo(keys.NUMBERS[kind])
        if limits.min <= least and most <= limits.max:
            return kind
    raise UsageError(f"{what}: {least if least < 0 else most} does not fit 64 bits")


def _item_type(value: Any, what: str) -> ValueType:
    """The type of an array's items when nothing says: ints in a list are INT32 where they fit, as in files of ggml."""
    if isinstance(value, StringArray):
        return ValueType.STRING
    if isinstance(value, np.ndarray):
        return _type_of(value, what)
    if not value:
        raise UsageError(f"{what}: an empty list says nothing of its type; give it in `types`, or a numpy array")
    if all(type(item) is int for item in value):
        order = (ValueType.INT32, ValueType.UINT32, ValueType.INT64, ValueType.UINT64)
        return _integer_type(min(value), max(value), order, what)
    if any(isinstance(item, (list, tuple, np.ndarray)) for item in value):
        raise UsageError(f"{what}: GGUF arrays are flat; found an array of arrays")
    found = {_type_of(item, what) for item in value}
    if found & keys.FLOATS and found <= keys.INTEGERS | keys.FLOATS:
        return ValueType.FLOAT32
    if len(found) > 1:
        raise UsageError(f"{what}: items of one type expected, found {', '.join(sorted(kind.name for kind in found))}")
    return found.pop()


def _numbers(values: Any, kind: ValueType, what: str) -> bytes:
    """Numbers as they lie in the file. Refuses what the type does not hold exactly; only floats are rounded."""
    dtype = keys.NUMBERS[kind]
    if not isinstance(values, np.ndarray):
        # As Python's own objects: numpy would make floats of [0, 2**63].
        values = [value.item() if isinstance(value, (np.generic, np.ndarray)) else value for value in values]
        allowed = (int, float) if kind in keys.FLOATS else bool if kind == ValueType.BOOL else int
        bools = kind == ValueType.BOOL
        if not all(isinstance(value, allowed) and isinstance(value, bool) == bools for value in values):
            raise UsageError(f"{what}: expected values of type {kind.name}, found {values!r:.80}")
    array = np.asarray(values, dtype=None if isinstance(values, np.ndarray) else object)
    letters = "bO" if kind == ValueType.BOOL else "iufO" if kind in keys.FLOATS else "iuO"
    if array.ndim != 1 or array.dtype.kind not in letters:
        raise UsageError(f"{what}: expected values of type {kind.name}, found {array.dtype} of shape {array.shape}")
    try:
        if kind not in keys.FLOATS and array.size:
            limits = np.iinfo(dtype)
            least, most = (0, 1) if kind == ValueType.BOOL else (limits.min, limits.max)
            if int(array.min()) < least or int(array.max()) > most:
                raise UsageError(f"{what}: expected {kind.name} of {least} to {most}, found {values!r:.80}")
        with np.errstate(over="ignore"):
            return array.astype(dtype).tobytes()
    except OverflowError:
        raise UsageError(f"{what}: expected values of type {kind.name}, found {values!r:.80}") from None


def _check_sizes(source: TensorSource) -> int:
    """Bytes of a tensor's data. Refuses sizes that the format or the type does not have."""
    what, ne = f"tensor {source.name!r:.80}", source.ne
    if not 1 <= len(ne) <= keys.MAX_DIMS or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in ne):
        raise ShapeError(f"{what}: expected 1 to {keys.MAX_DIMS} sizes of 0 or more, found ne = {list(ne)}")
    sizes = tuple(int(n) for n in ne)
    problem = size_problem(source.type, sizes)
    if problem:
        raise ShapeError(f"{what}: {problem}")
    return source.type.row_bytes(sizes[0]) * prod(sizes[1:])


def _write_data(file: BinaryIO, source: TensorSource) -> None:
    """Write exactly the tensor's bytes; a stream is never held whole."""
    what, expected, written = f"tensor {source.name!r:.80}", _check_sizes(source), 0
    data = source.data() if callable(source.data) else source.data
    for piece in _pieces(data, source, what):
        written += piece.nbytes
        if written > expected:
            break
        file.write(piece)
    if written != expected:
        found = f"more than {expected}" if written > expected else str(written)
        raise ShapeError(
            f"{what}: expected {expected} bytes for {source.type.name} of ne = {list(source.ne)}, found {found}"
        )


def _pieces(data: Any, source: TensorSource, what: str) -> Iterator[memoryview]:
    if isinstance(data, np.ndarray):
        blocks = (*(int(n) for n in source.ne[:0:-1]), int(source.ne[0]) // source.type.block_size)
        if data.dtype not in (source.type.numpy, np.dtype(np.uint8)):
            raise ShapeError(
                f"{what}: expected blocks of {source.type.name} or bytes, found {data.dtype}; encode values by "
                f"`type.encode(values)`"
            )
        if data.dtype == source.type.numpy and data.shape != blocks:
            raise ShapeError(
                f"{what}: expected blocks of shape {blocks} for ne = {list(source.ne)}, found {data.shape}"
            )
        yield _bytes_of(data)
    elif isinstance(data, (bytes, bytearray, memoryview)):
        yield memoryview(data).cast("B")
    elif isinstance(data, Iterable) and not isinstance(data, str):
        for piece in data:
            if isinstance(piece, np.ndarray):
                yield _bytes_of(piece)
            elif isinstance(piece, (bytes, bytearray, memoryview)):
                yield memoryview(piece).cast("B")
            else:
                raise UsageError(f"{what}: expected a stream of bytes, found a {type(piece).__name__} in it")
    else:
        raise UsageError(f"{what}: expected an array, bytes, or an iterable of bytes, found {type(data).__name__}")


def _bytes_of(array: np.ndarray) -> memoryview:
    """An array's bytes in C order; copied only where they do not lie so."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
