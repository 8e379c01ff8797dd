"""Vocabularies for the tokenizer tests, read by a small reader of their own: the tests stand beside models/gguf."""

from __future__ import annotations

import os
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gml.models.tokenizer import Tokenizer, TokenType
from gml.models.tokenizer.vocabulary import Vocabulary

PULLED = {"smollm2": "smollm2", "gemma3": "gemma3-270m"}
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def read_metadata(path: Path) -> dict[str, Any]:
    """The key-value pairs of a little-endian GGUF file of version 2 or 3."""
    data = np.memmap(path, dtype=np.uint8, mode="r").data
    at = 8

    def scalar(code: str) -> Any:
        nonlocal at
        (value,) = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize(code)
        return value

    def string() -> str:
        nonlocal at
        length = scalar("Q")
        at += length
        return bytes(data[at - length : at]).decode("utf-8", "surrogateescape")

    def value(kind: int) -> Any:
        nonlocal at
        if kind == 8:
            return string()
        if kind != 9:
            return scalar(_SCALARS[kind])
        item, count = scalar("I"), scalar("Q")
        if item in (8, 9):
            return [value(item) for _ in range(count)]
        array = np.frombuffer(data, dtype="<" + np.dtype(_SCALARS[item]).str[1:], count=count, offset=at)
        at += array.nbytes
        return array

    _, n_pairs = scalar("Q"), scalar("Q")
    return {string(): value(scalar("I")) for _ in range(n_pairs)}


def _path(name: str, vectors: Path) -> Path:
    if name not in PULLED:
        return vectors / "vocab" / f"{name}.gguf"
    cache = pytest.importorskip("gml.models.cache", reason="the module that finds pulled models is missing")
    if not cache.is_pulled(PULLED[name]) and not os.environ.get("GML_REQUIRE_ALL"):
        pytest.skip(f"the model is not here; run `gml pull {PULLED[name]}`")
    return Path(cache.resolve(PULLED[name]))


_metadata = cache(read_metadata)


@cache
def _tokenizer(path: Path) -> Tokenizer:
    return Tokenizer.from_metadata(_metadata(path))


@pytest.fixture(scope="session")
def load_metadata(vectors):
    """name of a vocabulary -> its file's metadata."""
    return lambda name: dict(_metadata(_path(name, vectors)))


@pytest.fixture(scope="session")
def load(vectors):
    """name of a vocabulary -> its tokenizer."""
    return lambda name: _tokenizer(_path(name, vectors))


@pytest.fixture(scope="session")
def make_vocabulary():
    """Spellings of control tokens -> a vocabulary of them and a few letters."""

    def make(spellings: list[str]) -> Vocabulary:
        tokens = [f"letter-{letter}" for letter in "xyz"] + spellings
        types = [TokenType.NORMAL] * 3 + [TokenType.CONTROL] * len(spellings)
        metadata = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [int(kind) for kind in types]}
        return Vocabulary.from_metadata(metadata, {})

    return make
