"""Model files with the sizes of a known model and random weights: what speed and memory are measured with.

Arrives: the name of a shape and of a quantisation; leaves: a GGUF file that gml and every other runtime open. Its text
means nothing, its speed is that of the real model. Next module: `models/benchmark.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from gml import DType, by_name
from gml.errors import UsageError
from gml.models.arch.base import expand_table, find_architecture
from gml.models.gguf import write_gguf
from gml.records import dataclass

#: values that are encoded once per type; tensors repeat them from random starts
POOL_VALUES = 1 << 20
#: bytes that are handed to the writer at once
PIECE_BYTES = 8 << 20
TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_BYTE = 1, 2, 3, 6


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a llama model."""

    n_vocab: int
    n_ctx_train: int
    n_embd: int
    n_layer: int
    n_ff: int
    n_head: int
    n_head_kv: int
    rope_base: float = 10000.0
    rms_eps: float = 1e-5


SHAPES = {
    "tinyllama-1.1b": ModelShape(32000, 2048, 2048, 22, 5632, 32, 4),
}


@dataclass(frozen=True)
class Recipe:
    """Which types the matrices of a quantised file have, as llama.cpp's quantiser chooses them.

    most    the type of the matrices
    output  the type of the output matrix
    more    the type of attn_v and ffn_down in the layers that get more bits; None: as the others
    """

    most: str
    output: str
    more: str | None = None


RECIPES = {
    "Q4_0": Recipe("Q4_0", "Q6_K"),
    "Q4_1": Recipe("Q4_1", "Q6_K"),
    "Q5_0": Recipe("Q5_0", "Q6_K"),
    "Q8_0": Recipe("Q8_0", "Q8_0"),
    "Q4_K_M": Recipe("Q4_K", "Q6_K", "Q6_K"),
    "Q5_K_M": Recipe("Q5_K", "Q6_K", "Q6_K"),
    "Q6_K": Recipe("Q6_K", "Q6_K"),
    "F16": Recipe("F16", "F16"),
    "BF16": Recipe("BF16", "BF16"),
}


def parse_shape(text: str) -> tuple[str, str] | None:
    """The shape and the recipe of `tinyllama-1.1b:Q4_0`, or None for a text that names no shape.

    Raises `UsageError` for a known shape with a recipe that is not known.
    """
    name, colon, recipe = text.partition(":")
    if not colon or name not in SHAPES:
        return None
    if recipe.upper() not in RECIPES:
        raise UsageError(f"{text}: expected one of {', '.join(RECIPES)} behind the colon, found {recipe!r}")
    return name, recipe.upper()


def write_shape(path: str | Path, shape: str, recipe: str) -> None:
    """Write the file. Raises `UsageError` for unknown names, `Error` where the system refuses to write."""
    if shape not in SHAPES or recipe not in RECIPES:
        raise UsageError(
            f"expected a shape of {', '.join(SHAPES)} and a recipe of {', '.join(RECIPES)}, found {shape!r}, {recipe!r}"
        )
    s, types = SHAPES[shape], RECIPES[recipe]
    metadata = _metadata(s, f"{shape} shape, random, {recipe}")
    arch = find_architecture("llama")
    hparams = arch.hparams(metadata, s.n_vocab)
    random = np.random.default_rng(1)
    pools: dict[str, np.ndarray] = {}
    tensors: list[tuple[str, DType, tuple[int, ...], Callable[[], Iterator[np.ndarray]]]] = []
    for row in expand_table(arch.weights(hparams), s.n_layer):
        if row.optional and row.name != "output.weight":
            continue
        kind = _type_of(row.name, len(row.ne), types, s.n_layer)
        if kind.name not in pools:
            pools[kind.name] = _pool(kind, random)
        start = int(random.integers(len(pools[kind.name])))
        n_blocks = prod(row.ne) // kind.block_size
        tensors.append((row.name, kind, row.ne, _repeated(pools[kind.name], start, n_blocks)))
    write_gguf(path, metadata, tensors)


def _metadata(s: ModelShape, name: str) -> dict[str, Any]:
    special = ["<unk>", "<s>", "</s>"]
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    words = ["\u2581" + _letters(i) for i in range(s.n_vocab - len(special) - len(bytes_))]
    kinds = [TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_CONTROL, *[TOKEN_BYTE] * 256, *[TOKEN_NORMAL] * len(words)]
    return {
        "general.architecture": "llama",
        "general.name": name,
        "llama.vocab_size": s.n_vocab,
        "llama.context_length": s.n_ctx_train,
        "llama.embedding_length": s.n_embd,
        "llama.block_count": s.n_layer,
        "llama.feed_forward_length": s.n_ff,
        "llama.attention.head_count": s.n_head,
        "llama.attention.head_count_kv": s.n_head_kv,
        "llama.attention.layer_norm_rms_epsilon": s.rms_eps,
        "llama.rope.dimension_count": s.n_embd // s.n_head,
        "llama.rope.freq_base": s.rope_base,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*special, *bytes_, *words],
        "tokenizer.ggml.scores": np.array([0.0] * 259 + [-float(i) for i in range(len(words))], dtype=np.float32),
        "tokenizer.ggml.token_type": np.array(kinds, dtype=np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def _letters(i: int) -> str:
    """A different word for every number."""
    text = ""
    while True:
        i, digit = divmod(i, 26)
        text = chr(97 + digit) + text
        if i == 0:
            return text
        i -= 1


def _type_of(name: str, n_dims: int, types: Recipe, n_layer: int) -> DType:
    if n_dims == 1:
        return by_name("F32")
    if name == "output.weight":
        return by_name(types.output)
    layer = re.match(r"blk\.(\d+)\.(?:attn_v|ffn_down)\.", name)
    if types.more and layer and _more_bits(int(layer[1]), n_layer):
        return by_name(types.more)
    return by_name(types.most)


def _more_bits(i: int, n_layer: int) -> bool:
    """Which layers llama.cpp gives more bits: the first and the last eighth and every third between."""
    return i < n_layer // 8 or i >= 7 * n_layer // 8 or (i - n_layer // 8) % 3 == 2


def _pool(kind: DType, random: np.random.Generator) -> np.ndarray:
    """Blocks of a type: normal values with the spread of real weights."""
    values = random.standard_normal((POOL_VALUES // 4096, 4096), dtype=np.float32) * np.float32(0.02)
    return kind.encode(values).reshape(-1)


def _repeated(pool: np.ndarray, start: int, n_blocks: int) -> Callable[[], Iterator[np.ndarray]]:
    def pieces() -> Iterator[np.ndarray]:
        at, left = start, n_blocks
        while left:
            piece = pool[at : at + min(left, PIECE_BYTES // pool.itemsize)]
            yield piece
            left -= len(piece)
            at = (at + len(piece)) % len(pool)

    return pieces
