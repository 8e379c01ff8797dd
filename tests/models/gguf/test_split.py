"""Models split over several files."""

from __future__ import annotations

import numpy as np
import pytest

import gml
from gml.errors import FormatError
from gml.models.gguf import GGUFFile, ValueType, shard_name, write_gguf

U16, I32 = ValueType.UINT16, ValueType.INT32


def write_shard(folder, number, count, tensors, total, name=None, prefix="model"):
    metadata = {"split.no": number, "split.count": count, "split.tensors.count": total}
    if number == 0:
        metadata = {"general.architecture": "llama", **metadata}
    rows = [(t, gml.F32, (2,), np.array([number, i], np.float32)) for i, t in enumerate(tensors)]
    path = folder / (name or shard_name(prefix, number, count))
    write_gguf(path, metadata, rows, types={"split.no": U16, "split.count": U16, "split.tensors.count": I32})
    return path


def test_any_shard_opens_the_whole(tmp_path):
    shards = [write_shard(tmp_path, n, 3, names, 3) for n, names in enumerate((["a"], ["b", "c"], []))]
    assert shards[2].name == "model-00003-of-00003.gguf"
    for shard in shards:
        with GGUFFile.open(shard) as file:
            assert file.metadata == {"general.architecture": "llama"} and list(file.types) == list(file.metadata)
            assert {n: t.decode().tolist() for n, t in file.tensors.items()} == {"a": [0, 0], "b": [1, 0], "c": [1, 1]}
            assert list(file.shard_paths) == shards and file.n_bytes == sum(s.stat().st_size for s in shards)
            tensor = file.tensors["c"]
        with pytest.raises(gml.Error, match="closed"):
            _ = tensor.data


def test_missing_shards_are_named(tmp_path):
    shard = write_shard(tmp_path, 1, 3, ["b"], 3)
    with pytest.raises(
        FormatError, match=r"2 of 3 shards are missing: model-00001-of-00003.gguf, model-00003-of-00003"
    ):
        GGUFFile.open(shard)


def test_the_name_must_fit_the_keys(tmp_path):
    for name in ("model.gguf", "model-00002-of-00002.gguf", "model-00001-of-00003.gguf"):
        shard = write_shard(tmp_path, 0, 2, ["a"], 2, name=name)
        with pytest.raises(FormatError, match=r"expected a name like NAME-00001-of-00002.gguf"):
            GGUFFile.open(shard)


def test_shards_of_different_splits_are_refused(tmp_path):
    first = write_shard(tmp_path, 0, 2, ["a"], 2)
    write_shard(tmp_path, 1, 2, ["a"], 2)
    with pytest.raises(FormatError, match=r"tensor 'a' is in model-00001-of-00002.gguf too"):
        GGUFFile.open(first)
    write_shard(tmp_path, 1, 2, ["b", "c"], 2)
    with pytest.raises(FormatError, match=r"expected 2 tensors in all shards .*, found 3"):
        GGUFFile.open(first)
    write_shard(tmp_path, 1, 3, ["b"], 2, name=shard_name("model", 1, 2))
    with pytest.raises(FormatError, match=r"split.no = 1 and split.count = 2, found 1 and 3"):
        GGUFFile.open(first)


def test_wrong_split_keys_are_refused(tmp_path):
    for value in ("two", -1, 2**40, 1.5, [2]):
        write_gguf(tmp_path / "m.gguf", {"split.count": value})
        with pytest.raises(FormatError, match=r"metadata key 'split.count': expected a number"):
            GGUFFile.open(tmp_path / "m.gguf")


def test_a_split_of_one_is_whole(tmp_path):
    write_gguf(tmp_path / "m.gguf", {"split.count": 1})
    assert GGUFFile.open(tmp_path / "m.gguf").metadata == {"split.count": 1}
