"""Offsets: each token spells its span, and the spans are those of package `tokenizers`."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gml.errors import TokenizerError, UnsupportedError
from gml.models.tokenizer.pipeline_processors import Padding, Truncation
from gml.models.tokenizer.to_json import to_json

TEXTS = st.lists(
    st.sampled_from([" ", "  ", "\n", "the", " and", "é", "e\u0301", "中文", "😀", "▁", "1234", "!", "'s", "<s>", "\0"])
    | st.characters(exclude_categories=["Cs"]),
    max_size=16,
).map("".join)
EXAMPLES = settings(max_examples=100, deadline=None)


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "llama-spm", "phi-3"])
@EXAMPLES
@given(text=TEXTS)
def test_tokens_spell_their_spans(name, load, text):
    tokenizer = load(name)
    data, end = text.encode(), 0
    ids, spans = tokenizer.encode_with_offsets(text, add_special=True, parse_special=True)
    assert ids.tolist() == tokenizer.encode(text, add_special=True, parse_special=True).tolist()
    for token, (start, stop) in zip(ids.tolist(), spans.tolist(), strict=True):
        piece = tokenizer.piece(token)
        if start < stop:
            found = data[start:stop].replace("▁".encode(), b" ") if tokenizer.add_space_prefix else data[start:stop]
            assert found == piece or b" " + found == piece
        if name != "phi-3":  # its special tokens swallow white space
            assert start == end
        end = stop
    _, characters = tokenizer.encode_with_offsets(text, add_special=True, parse_special=True, unit="characters")
    for (start, stop), (first, last) in zip(spans.tolist(), characters.tolist(), strict=True):
        assert data[start:stop] in text[first:last].encode()
        assert len(text[:first].encode()) <= start and stop <= len(text[:last].encode())


@cache
def _package(name, load):
    tokenizers = pytest.importorskip("tokenizers")
    return tokenizers.Tokenizer.from_str(json.dumps(to_json(load(name))))


@EXAMPLES
@given(text=TEXTS)
def test_equal_to_the_package(load, text):
    encoding = _package("gpt-2", load).encode(text, add_special_tokens=False)
    ids, spans = load("gpt-2").encode_with_offsets(text, parse_special=True, unit="characters")
    if ids.tolist() == encoding.ids:  # they know different versions of Unicode
        assert [tuple(span) for span in spans.tolist()] == encoding.offsets


def test_refusals(load):
    with pytest.raises(UnsupportedError, match="a WordPiece changes text"):
        load("bert-bge").encode_with_offsets("a")
    with pytest.raises(TokenizerError, match="expected a unit of bytes or characters, found 'words'"):
        load("gpt-2").encode_with_offsets("a", unit="words")
    with pytest.raises(TokenizerError, match="not UTF-8"):
        load("gpt-2").encode_with_offsets(b"a\xff")
    assert load("llama-spm").encode_with_offsets(b"a\xff")[1].tolist() == [[0, 1], [1, 2]]


def test_batches(load):
    tokenizer = load("gpt-2")
    batch = tokenizer.encode_batch(["a b", "", b"c"])
    assert [ids.tolist() for ids in batch] == [tokenizer.encode(text).tolist() for text in ("a b", "", "c")]
    spm = load("llama-spm")
    whole = spm.encode("the quick brown fox").tolist()
    options = {"truncation": Truncation(4), "padding": Padding(pad_id=2, multiple_of=3)}
    batch = spm.encode_batch(["the quick brown fox", "a"], add_special=True, **options)
    assert [ids.tolist() for ids in batch] == [[1, *whole[:3], 2, 2], [1, *spm.encode("a").tolist(), 2, 2, 2, 2]]
