"""Ids and text equal llama.cpp's on every row of the test vectors."""

from __future__ import annotations

import json

import pytest

NAMES = (
    "gpt-2",
    "llama-bpe",
    "qwen2",
    "smollm2",
    "starcoder",
    "falcon",
    "deepseek-llm",
    "llama-spm",
    "phi-3",
    "gemma3",
    "bert-bge",
    "nomic-bert-moe",
)
IN_VOCAB = tuple(name for name in NAMES if name not in ("smollm2", "gemma3", "nomic-bert-moe"))

pytestmark = pytest.mark.filterwarnings("ignore:the vocabulary has no token")


def as_bytes(value: str | dict[str, str]) -> bytes:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode("utf-8")


@pytest.fixture
def rows(vectors):
    def read(name):
        lines = (vectors / "tokenizer" / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line]

    return read


def text_of(row) -> str | bytes:
    return bytes.fromhex(row["hex"]) if row["text"] is None else row["text"]


@pytest.mark.parametrize("name", NAMES)
def test_ids(name, load, rows):
    tokenizer, wrong = load(name), []
    for row in rows(name):
        ids = tokenizer.encode(text_of(row), parse_special=row["parse_special"], add_special=row["add_special"])
        # Where llama.cpp aborts there is no truth, but there must be an answer.
        if row["ids"] is not None and ids.tolist() != row["ids"]:
            wrong.append((row["id"], row["parse_special"], ids.tolist(), row["ids"]))
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_pieces_make_up_the_raw_text(name, load, rows):
    tokenizer = load(name)
    for row in rows(name):
        if row["ids"] is not None:
            raw = b"".join(tokenizer.piece(token) for token in row["ids"])
            assert raw == as_bytes(row.get("raw", row["detok"])), row["id"]


@pytest.mark.parametrize("name", NAMES)
def test_decode_for_people_is_llama_cpp_s(name, load, rows):
    """The space prefix is dropped, and the spaces that clean-up takes."""
    tokenizer = load(name)
    for row in rows(name):
        if row["ids"] is not None:
            assert tokenizer.decode_bytes(row["ids"], clean=True) == as_bytes(row["detok"]), row["id"]


@pytest.mark.parametrize("name", IN_VOCAB)
def test_ids_of_llama_cpp_s_own_vocabulary_tests(name, load, vectors):
    tokenizer = load(name)
    texts = (vectors / "vocab" / f"{name}.gguf.inp").read_bytes().decode("utf-8").split("\n__ggml_vocab_test__\n")
    lines = (vectors / "vocab" / f"{name}.gguf.out").read_text(encoding="utf-8").split("\n")
    assert len(texts) == len(lines) > 40
    for text, line in zip(texts, lines, strict=True):
        assert tokenizer.encode(text).tolist() == [int(word) for word in line.split()], text


def test_bytes_beyond_unicode_are_bad_bytes(load):
    assert load("gpt-2").encode(b"\xf4\x90\x80\x80").tolist() == load("gpt-2").encode("\ufffd" * 4).tolist()
    assert load("llama-spm").decode_bytes(load("llama-spm").encode(b"\xf4\x90\x80\x80")) == b"\xf4\x90\x80\x80"


def test_end_of_generation_and_flags(load):
    gpt2, llama3, phi3, spm = (load(name) for name in ("gpt-2", "llama-bpe", "phi-3", "llama-spm"))
    assert (gpt2.bos_id, gpt2.eos_id, gpt2.eog_ids) == (50256, 50256, {50256})
    assert (gpt2.add_bos, gpt2.add_eos, gpt2.n_vocab) == (False, False, 50257)
    assert llama3.eot_id == 128009 and llama3.eog_ids == {128001, 128009} and llama3.add_bos
    assert phi3.eog_ids == {32000, 32007, 2} and phi3.eot_id == 32007
    assert (spm.add_bos, spm.add_space_prefix, spm.bos_id, spm.eos_id) == (True, True, 1, 2)
    assert load("qwen2").eog_ids == {151643, 151645, 128247}


def test_missing_bytes_are_reported(load):
    tokenizer = load("falcon")
    assert len(tokenizer.missing_bytes) == 28 and 0xC0 in tokenizer.missing_bytes
    with pytest.warns(UserWarning, match="0x11"):
        assert tokenizer.encode("\x11 device control").tolist() == tokenizer.encode(" device control").tolist()
    assert load("gpt-2").missing_bytes == frozenset()
