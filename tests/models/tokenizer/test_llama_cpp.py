"""Every row of the table and every model of GGUF files against llama.cpp's ids.

`llama_cpp.json` was written with llama.cpp b11549 (package xllamacpp): `texts`; `pre`: for each row of the table the
FNV-1a hashes of the texts' ids with GPT-2's vocabulary under that row's name; `models`: ids of the texts with the small
vocabularies below.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gml.models.tokenizer import Tokenizer
from gml.models.tokenizer.pretokenizers import PRETOKENIZERS, TABLE

G = "tokenizer.ggml."
TRUTH = json.loads(Path(__file__).with_name("llama_cpp.json").read_text(encoding="utf-8"))
BYTE_LEVEL = [row.name for row in TABLE if row.byte_level]

pytestmark = pytest.mark.filterwarnings("ignore:the vocabulary has no token")


def fnv1a(ids: list[int]) -> int:
    """The 32-bit FNV-1a hash of ids as little-endian int32."""
    result = 0x811C9DC5
    for byte in b"".join(token.to_bytes(4, "little") for token in ids):
        result = (result ^ byte) * 0x01000193 & 0xFFFFFFFF
    return result


def small_metadata(name: str) -> dict[str, Any]:
    """Vocabularies of about 330 tokens: words of the texts, merged from the left."""
    words = [
        "▁and",
        "▁the",
        "Hello",
        "WORLD",
        "camel",
        "Case",
        "def",
        "return",
        "123",
        "12",
        "▁▁▁",
        "\n\n",
        "▁\n",
        "中文",
        "  ",
    ]
    pieces = list(
        dict.fromkeys([word[:n] for word in words for n in range(1, len(word) + 1)] + list("Wasehlrtnocm1234é"))
    )
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    known = set(pieces)
    merges = [f"{piece[:-1]} {piece[-1]}" for piece in pieces if " " not in piece and {piece[:-1], piece[-1]} <= known]
    metadata = {
        G + "model": name.split("/")[0],
        G + "tokens": tokens,
        G + "token_type": [2, 3, 3] + [6] * 256 + [1] * len(pieces),
        G + "scores": [0.0] * 259 + [-1.0 - n % 7 - 1 / (n + 2) for n in range(len(pieces))],
        G + "merges": merges,
        G + "bos_token_id": 1,
        G + "eos_token_id": 2,
        G + "unknown_token_id": 0,
    }
    if name.startswith(("gpt2/", "whitespace/")):
        metadata[G + "pre"] = name.split("/")[1]
    if name == "t5/merged":
        metadata |= {G + "add_space_prefix": True, G + "remove_extra_whitespaces": True}
    if name == "t5/prefixed":
        metadata |= {G + "add_space_prefix": True, G + "remove_extra_whitespaces": False}
    if name == "bert":
        bare = [token for token in tokens if len(token) > 1 or token.isalnum()]
        marked = ["▁a", "▁e", "▁h", "▁w", "▁1", "▁!", "▁中", "▁hello", "orld", "▁'"]
        metadata[G + "tokens"] = bare = list(dict.fromkeys(bare + marked))
        metadata[G + "token_type"] = [2, 3, 3] + [1] * (len(bare) - 3)
        metadata |= {G + "seperator_token_id": 2, G + "scores": [0.0] * len(bare)}
    if name == "rwkv":
        plain = [chr(byte) for byte in range(33, 127) if chr(byte) != "\\"]
        escaped = [f"\\x{byte:02x}" for byte in (*range(1, 9), *range(11, 13), *range(14, 33), *range(127, 256))]
        words = [piece.replace("▁", " ").replace("\n", "\\n") for piece in pieces if len(piece) > 1 and piece.isascii()]
        metadata[G + "tokens"] = bare = list(
            dict.fromkeys(["<s>", "\\t", "\\n", "\\r", "\\\\", *plain, *escaped, *words])
        )
        metadata |= {G + "token_type": [3] + [1] * (len(bare) - 1), G + "scores": [0.0] * len(bare)}
    return metadata


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_words_of_every_row(name, load):
    # GPT-2's merges, which take a while to read, under another row.
    model = copy.copy(load("gpt-2").model)
    model.row = PRETOKENIZERS[name]
    wrong = [
        (text, model.split(text))
        for text, expected in zip(TRUTH["texts"], TRUTH["pre"][name], strict=True)
        if fnv1a([token for word in model.split(text) for token in model.encode_word(word)]) != expected
    ]
    assert wrong == []
    assert model.row.add_bos == TRUTH["add_bos"][name]


@pytest.mark.parametrize("name", list(TRUTH["models"]))
def test_small_vocabularies(name):
    tokenizer = Tokenizer.from_metadata(small_metadata(name))
    for text, expected in zip(TRUTH["texts"], TRUTH["models"][name]["ids"], strict=True):
        assert tokenizer.encode(text).tolist() == expected, text
    assert tokenizer.encode("a", add_special=True).tolist() == TRUTH["models"][name]["added"]


def test_all_names_that_llama_cpp_knows_have_a_row():
    assert set(TRUTH["names"]) <= set(PRETOKENIZERS)
    assert len(PRETOKENIZERS) >= 90
