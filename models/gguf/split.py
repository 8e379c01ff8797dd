"""Models split over several files: names of the shards, and which of them belong together.

Arrives: the metadata and path of one shard. Leaves: the paths of all shards in order. Naming and keys as in llama.cpp's
gguf-split: NAME-00001-of-00003.gguf has split.no 0, split.count 3 and split.tensors.count, the tensors of all shards
together. Next module: `reader.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gml.errors import FormatError
from gml.models.gguf import keys

MAX_SHARDS = 65535  # split.count is a u16
_NAME = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
SPLIT_KEYS = frozenset((keys.SPLIT_NO, keys.SPLIT_COUNT, keys.SPLIT_TENSORS_COUNT))


def shard_name(prefix: str, number: int, count: int) -> str:
    """The file name of shard `number`, counted from 0, of `count`."""
    return f"{prefix}-{number + 1:05d}-of-{count:05d}.gguf"


def split_count(path: Path, metadata: Mapping[str, Any]) -> int:
    """In how many files the model lies: 1 where the keys say nothing of a split."""
    count = _split_key(path, metadata, keys.SPLIT_COUNT, 0)
    return max(count, 1)


def shard_paths(path: Path, metadata: Mapping[str, Any]) -> list[Path]:
    """The paths of all shards, in order, given any one of them and its metadata.

    Raises `FormatError` where the file's name does not fit its keys, or shards are missing beside it.
    """
    count = split_count(path, metadata)
    number = _split_key(path, metadata, keys.SPLIT_NO)
    match = _NAME.fullmatch(path.name)
    expected = f"NAME-{number + 1:05d}-of-{count:05d}.gguf"
    if match is None or (int(match["number"]), int(match["count"])) != (number + 1, count):
        raise FormatError(
            f"{path}: expected a name like {expected}, as the file is shard {number + 1} of {count}; rename it, and "
            "put the other shards beside it"
        )
    paths = [path.with_name(shard_name(match["prefix"], n, count)) for n in range(count)]
    missing = [shard.name for shard in paths if not shard.is_file()]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise FormatError(
            f"{path}: {len(missing)} of {count} shards are missing: {', '.join(missing[:5])}{more}; put them into "
            f"{path.parent}"
        )
    return paths


def check_shard(path: Path, metadata: Mapping[str, Any], number: int, count: int) -> None:
    """Refuse a shard whose keys say that it is another one."""
    found = _split_key(path, metadata, keys.SPLIT_NO), _split_key(path, metadata, keys.SPLIT_COUNT)
    if found != (number, count):
        raise FormatError(
            f"{path}: expected {keys.SPLIT_NO} = {number} and {keys.SPLIT_COUNT} = {count}, found {found[0]} and "
            f"{found[1]}; the shard belongs to another split"
        )


def check_tensor_count(path: Path, metadata: Mapping[str, Any], n_tensors: int) -> None:
    """Refuse shards that together have another number of tensors than the first one says."""
    expected = _split_key(path, metadata, keys.SPLIT_TENSORS_COUNT, n_tensors)
    if expected != n_tensors:
        raise FormatError(
            f"{path}: expected {expected} tensors in all shards ({keys.SPLIT_TENSORS_COUNT}), found {n_tensors}; the "
            "shards are of different models or versions"
        )


def _split_key(path: Path, metadata: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = metadata.get(key, default)
    limit = keys.MAX_INT64 if key == keys.SPLIT_TENSORS_COUNT else MAX_SHARDS
    if type(value) is not int or not 0 <= value <= limit:
        found = "nothing" if value is None else f"{value!r:.40}"
        raise FormatError(
            f"{path}: metadata key {key!r}: expected a number from 0 to {limit}, found {found}; the file is damaged"
        )
    return value
