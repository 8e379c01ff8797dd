"""Split files: NAME-00001-of-00003.gguf and its siblings, opened as one.

Arrives: one shard; leaves: a file whose tensors are those of all shards. The keys `split.no`, `split.count` and
`split.tensors.count` say what belongs together. Source: llama.cpp's `gguf-split`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gml.errors import FormatError

if TYPE_CHECKING:
    from gml.models.gguf.reader import GGUFFile

MAX_SHARDS = 99999
_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


def shard_path(path: Path, number: int) -> Path:
    """The path of shard `number` (from 1) beside one of its siblings."""
    found = _NAME.match(path.name)
    assert found is not None
    return path.with_name(f"{found['stem']}-{number:05d}-of-{found['count']}.gguf")


def open_split(file: GGUFFile) -> GGUFFile:
    """The file itself, or the first shard with the tensors of all.

    Raises `FormatError` naming a missing shard, or one that belongs elsewhere.
    """
    count = file.metadata.get("split.count", 0)
    if not isinstance(count, int) or isinstance(count, bool) or count <= 1:
        return file
    found = _NAME.match(file.path.name)
    if count > MAX_SHARDS or found is None or int(found["count"]) != count:
        raise FormatError(
            f"{file.path}: metadata key split.count: expected a file called NAME-00001-of-{min(count, MAX_SHARDS):05d}.gguf, "
            f"found {file.path.name}; give the shards their original names"
        )
    shards = [_shard(file, number, count) for number in range(1, count + 1)]
    whole = shards[0]
    for shard in shards[1:]:
        for name, tensor in shard.tensors.items():
            if name in whole.tensors:
                raise FormatError(f"{shard.path}: tensor {name} is in {whole.path.name} too; the shards do not belong together")
            whole.tensors[name] = tensor
    expected = whole.metadata.get("split.tensors.count", len(whole.tensors))
    if expected != len(whole.tensors):
        raise FormatError(f"{whole.path}: split.tensors.count is {expected}, the {count} shards have {len(whole.tensors)} tensors")
    whole._shards = shards[1:]
    return whole


def _shard(file: GGUFFile, number: int, count: int) -> GGUFFile:
    path = shard_path(file.path, number)
    if path == file.path:
        shard = file
    elif path.exists():
        shard = type(file)(path)
    else:
        raise FormatError(f"{path}: shard {number} of {count} is missing; put all shards into one folder")
    at = (shard.metadata.get("split.no"), shard.metadata.get("split.count"))
    if at != (number - 1, count):
        raise FormatError(f"{path}: expected split.no = {number - 1} of {count}, found {at[0]!r} of {at[1]!r}")
    return shard
