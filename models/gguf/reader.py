"""A GGUF file, opened: metadata as values, tensors as read-only views into the mapped file.

Arrives: a path (any shard of a split model) or a buffer. Leaves: a `GGUFFile`. Next module: `models/loader.py`, which
makes a model of it; `writer.py` goes the other way.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gml import DType
from gml.errors import Error, FormatError
from gml.models.gguf import split
from gml.models.gguf.header import Header, parse_header
from gml.models.gguf.keys import MetadataType
from gml.records import dataclass, field


class Shard:
    """One file: its bytes, mapped or in memory, and its header."""

    def __init__(self, path: Path, buffer: Any) -> None:
        self.path = path
        self.map = buffer if isinstance(buffer, mmap.mmap) else None
        self.n_bytes = len(buffer)
        try:
            self.header: Header = parse_header(buffer, str(path))
            self.bytes: np.ndarray | None = np.frombuffer(buffer, np.uint8)
        except BaseException:
            if self.map is not None:
                self.map.close()
            raise
        self.bytes.flags.writeable = False

    @classmethod
    def open(cls, path: Path) -> Shard:
        """Map a file. Raises `Error` where the system refuses, `FormatError` where the file is no good GGUF."""
        try:
            mode = os.stat(path).st_mode
            if not stat.S_ISREG(mode):
                found = "a directory" if stat.S_ISDIR(mode) else "a device or pipe"
                raise FormatError(f"{path}: expected a GGUF file, found {found}; give the path of the file itself")
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    raise FormatError(f"{path}: expected a GGUF file, found an empty one (0 bytes); fetch it again")
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise Error(f"{path}: no such file; check the path") from None
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Error(f"{path}: cannot be opened for reading: {reason}; check the path and its permissions") from None
        return cls(path, mapped)

    def view(self, start: int, n_bytes: int, what: str) -> np.ndarray:
        """Bytes of the file, without a copy. Raises `Error` after `close`, `FormatError` if the file has shrunk."""
        if self.bytes is None:
            raise Error(
                f"{self.path}: {what}: the file was closed; read data before, or keep the array that `data` gave"
            )
        # Touching a page behind the end of a file that was cut after mapping would end the process.
        if self.map is not None and self.map.size() < self.n_bytes:
            found = f"expected {self.n_bytes} bytes, found {self.map.size()}"
            raise FormatError(f"{self.path}: {what}: the file was cut short while open: {found}; fetch it again")
        return self.bytes[start : start + n_bytes]

    def close(self) -> None:
        """Forget the bytes. The map goes when no array shows it any more."""
        self.bytes = None
        if self.map is not None:
            try:
                self.map.close()
            except BufferError:  # arrays still show it; the last one takes it along
                self.map = None


@dataclass(frozen=True, eq=False)
class GGUFTensor:
    """A tensor of a file.

    name     as in the file
    type     storage type
    ne       sizes as in the file, fastest first, 1 to 4 of them
    offset   bytes from the start of the (shard's) tensor data
    n_bytes  bytes of data
    """

    name: str
    type: DType
    ne: tuple[int, ...]
    offset: int
    n_bytes: int
    _shard: Shard = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The values' shape in numpy's order: ne reversed."""
        return self.ne[::-1]

    @property
    def data(self) -> np.ndarray:
        """The blocks where they lie in the file: read-only, dtype `type.numpy`, shape [ne[..1], ne[0] / block_size].

        Raises `Error` when the file was closed, `FormatError` when it was cut short since it was opened.
        """
        start = self._shard.header.data_start + self.offset
        blocks = self._shard.view(start, self.n_bytes, f"tensor {self.name!r}").view(self.type.numpy)
        return blocks.reshape(*self.shape[:-1], self.ne[0] // self.type.block_size)

    def decode(self) -> np.ndarray:
        """The values, shape `shape`: float32, or the tensor's own dtype for integer types. Raises as `data` does."""
        with np.errstate(all="ignore"):
            return self.type.decode(self.data)


class GGUFFile:
    """A GGUF model file, or all shards of a split one: `with GGUFFile.open("model.gguf") as file: ...`.

    path       what was opened
    version    2 or 3
    metadata   key to int, float, bool, str, numpy array or `StringArray`; stays valid after `close`
    types      key to `MetadataType`: the values' types in the file
    alignment  bytes that tensor data is aligned to
    tensors    name to `GGUFTensor`, in the file's order
    """

    def __init__(self, path: Path, shards: list[Shard]) -> None:
        """Of mapped shards, in order: use `open` or `from_buffer`."""
        self.path = path
        self._shards = shards
        first = shards[0].header
        self.version: int = first.version
        self.alignment: int = first.alignment
        self.metadata: Mapping[str, Any] = first.metadata
        self.types: Mapping[str, MetadataType] = first.types
        if len(shards) > 1:  # the whole is not split any more
            self.metadata = _without_split(first.metadata)
            self.types = _without_split(first.types)
        self.tensors: Mapping[str, GGUFTensor] = MappingProxyType(_collect(shards))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GGUFFile:
        """Map and check a file, or all shards of a split model, given any of them.

        Raises `Error` for files that cannot be read, `FormatError` for files that break the format, `UnsupportedError`
        for versions, byte orders and tensor types that gml does not read.
        """
        path = Path(path)
        with ExitStack() as undo:
            shard = Shard.open(path)
            undo.callback(shard.close)
            shards = [shard]
            if split.split_count(path, shard.header.metadata) > 1:
                shards = _open_siblings(shard, undo)
            file = cls(path, shards)
            undo.pop_all()
        return file

    @classmethod
    def from_buffer(cls, buffer: bytes | bytearray | memoryview, name: str = "<buffer>") -> GGUFFile:
        """Read a whole, unsplit file that is in memory. Raises as `open` does; `name` stands for the path in errors."""
        view = memoryview(buffer).cast("B")
        path = Path(name)
        if not len(view):
            raise FormatError(f"{name}: expected a GGUF file, found an empty one (0 bytes); fetch it again")
        shard = Shard(path, view)
        count = split.split_count(path, shard.header.metadata)
        if count > 1:
            raise FormatError(f"{name}: expected a whole model, found a shard of {count}; open it by its path")
        return cls(path, [shard])

    @property
    def shard_paths(self) -> tuple[Path, ...]:
        """The files that the model lies in."""
        return tuple(shard.path for shard in self._shards)

    @property
    def n_bytes(self) -> int:
        """Bytes of all files."""
        return sum(shard.n_bytes for shard in self._shards)

    def close(self) -> None:
        """Release the files. Arrays that `data` gave stay valid; the memory goes with the last one."""
        for shard in self._shards:
            shard.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"GGUFFile({str(self.path)!r}, {len(self.metadata)} keys, {len(self.tensors)} tensors)"


def _without_split(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType({key: value for key, value in mapping.items() if key not in split.SPLIT_KEYS})


def _open_siblings(opened: Shard, undo: ExitStack) -> list[Shard]:
    """All shards in order, the opened one among them."""
    shards = []
    paths = split.shard_paths(opened.path, opened.header.metadata)
    for number, path in enumerate(paths):
        shard = opened
        if path != opened.path:
            shard = Shard.open(path)
            undo.callback(shard.close)
        split.check_shard(path, shard.header.metadata, number, len(paths))
        shards.append(shard)
    n_tensors = sum(len(shard.header.tensors) for shard in shards)
    split.check_tensor_count(paths[0], shards[0].header.metadata, n_tensors)
    return shards


def _collect(shards: list[Shard]) -> dict[str, GGUFTensor]:
    tensors: dict[str, GGUFTensor] = {}
    for shard in shards:
        for info in shard.header.tensors:
            if info.name in tensors:
                other = tensors[info.name]._shard.path
                raise FormatError(
                    f"{shard.path}: tensor {info.name!r} is in {other.name} too; the shards are of different splits"
                )
            tensors[info.name] = GGUFTensor(info.name, info.type, info.ne, info.offset, info.n_bytes, shard)
    return tensors
