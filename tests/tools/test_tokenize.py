"""`gml tokenize`: ids and pieces of vocabulary-only files, as llama.cpp gives them."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "qwen2"])
def test_ids_are_llama_cpps(gml, vectors, name):
    file = vectors / "vocab" / f"{name}.gguf"
    texts = file.with_name(f"{name}.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    ids = [[int(i) for i in line.split()] for line in file.with_name(f"{name}.gguf.out").read_text().splitlines()]
    for text, expected in list(zip(texts, ids, strict=False))[:20:7]:
        assert json.loads(gml("tokenize", str(file), "--json", stdin=text.encode()).out)["ids"] == expected


def test_json_pieces(gml, tiny):
    done = gml("tokenize", "--json", tiny, "hé")
    assert json.loads(done.out) == {"ids": [*"hé".encode()], "pieces": ["h", [0xC3], [0xA9]]}
    assert done.err == ""


def test_sources_of_text(gml, tiny, tmp_path):
    path = tmp_path / "text.bin"
    path.write_bytes(b"a\xff\n")
    expected = gml("tokenize", "--ids", tiny, "--file", str(path)).out
    assert expected == gml("tokenize", "--ids", tiny, stdin=b"a\xff\n").out
    assert gml("tokenize", "--ids", tiny, "a\n").out == "97 10\n"
    assert gml("tokenize", "--ids", tiny, "-", stdin=b"a\n").out == "97 10\n"
    assert gml("tokenize", "--ids", tiny, "").out == "\n"


def test_special_tokens_on_request(gml, tiny):
    assert gml("tokenize", "--ids", tiny, "<s>").out == "60 115 62\n"
    assert gml("tokenize", "--ids", "--special", tiny, "<s>").out == "256\n"
    assert gml("tokenize", "--ids", "--bos", tiny, "a").out == "256 97\n"


def test_lines_for_people(gml, tiny):
    assert gml("tokenize", tiny, "a\né").out.splitlines() == [
        '      97  "a"',
        '      10  "\\n"',
        "     195  '\\xc3'",
        "     169  '\\xa9'",
    ]


def test_counts_and_comparison(gml, tiny):
    done = gml("tokenize", "--counts", "--json", tiny, "hé")
    row = {"bytes": 3, "characters": 2, "tokens": 3, "bytes_per_token": 1.0}
    assert json.loads(done.out) == {str(tiny): row}
    lines = gml("tokenize", "--compare", tiny, tiny, "abab").out.splitlines()
    assert lines[0].split() == ["bytes", "characters", "tokens", "bytes/token"]
    assert [line.split()[1:] for line in lines[1:]] == [["4", "4", "2", "2.000"]]


def test_other_tokenizers(gml, tmp_path):
    settings = {"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "b"}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**settings, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    assert gml("tokenize", "--ids", str(path), "a x a").out == "0 1 0\n"
    assert gml("tokenize", "--ids", str(tmp_path), "b").out == "1\n"
    path.write_text(json.dumps({"model": {"type": "Nonesuch"}}))
    done = gml("tokenize", str(path), "a")
    assert done.status == 1 and "'Nonesuch' is not known" in done.error


def test_an_unknown_pre_tokenizer_is_refused(gml, tiny):
    done = gml("tokenize", tiny, "a", "--pre", "nonesuch")
    assert done.status == 1
    assert "nonesuch" in done.error
