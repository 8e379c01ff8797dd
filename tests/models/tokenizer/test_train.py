"""Training gives what tokenizers' BpeTrainer gives, and what the definition says."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gml.errors import TokenizerError, UnsupportedError
from gml.models.tokenizer import train
from gml.models.tokenizer.text import BYTE_ALPHABET
from gml.models.tokenizer.train import SPECIAL_TOKENS, bits_per_byte, count_words, train_bpe


@pytest.fixture(scope="session")
def cases(vectors):
    rows = json.loads((vectors / "tokenizer" / "train_small.json").read_text(encoding="utf-8"))
    texts = {}
    for row in rows:
        texts[row["name"]] = row["texts"] if row["texts"] is not None else texts.get(row["name"])
        row["texts"] = texts[row["name"]]
    return [row for row in rows if row["texts"] is not None]


def test_equal_to_the_trainer_of_tokenizers(cases):
    assert len(cases) > 8
    for row in cases:
        options = {"min_frequency": row["min_frequency"], "special_tokens": row["special_tokens"]}
        trained = train_bpe(row["texts"], row["vocab_size"], **options)
        assert [list(merge) for merge in trained.merges] == row["merges"], row["name"]
        assert len(trained.tokens) == row["n_vocab"]
        assert {token: trained.tokens.index(token) for token in row["first_ids"]} == row["first_ids"]
        assert trained.tokenizer.encode(row["probe"]).tolist() == row["probe_ids"]


def twin_train(texts: list[str], n_merges: int) -> list[tuple[str, str]]:
    """As the definition says: count all pairs, merge the most frequent, start over."""
    order = {character: n for n, character in enumerate(sorted(BYTE_ALPHABET))}
    tokens = sorted(BYTE_ALPHABET)
    words = {word: [order[character] for character in word] for word in count_words(texts)}
    counts = count_words(texts)
    merges = []
    while len(merges) < n_merges:
        pairs: Counter[tuple[int, int]] = Counter()
        for word, ids in words.items():
            for pair in pairwise(ids):
                pairs[pair] += counts[word]
        if not pairs:
            break
        pair = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append((tokens[pair[0]], tokens[pair[1]]))
        tokens.append(tokens[pair[0]] + tokens[pair[1]])
        for word, ids in words.items():
            merged, at = [], 0
            while at < len(ids):
                found = at + 1 < len(ids) and (ids[at], ids[at + 1]) == pair
                merged.append(len(tokens) - 1 if found else ids[at])
                at += 1 + found
            words[word] = merged
    return merges


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(alphabet="abc é", max_size=30), max_size=4))
def test_equal_to_the_twin(texts):
    trained = train_bpe(texts, 256 + 12, special_tokens=())
    slow = twin_train(texts, 12)
    # Where two merges make the same token the twin gives it two ids.
    if len(set(trained.tokens)) == len(trained.tokens) == 256 + len(slow):
        assert trained.merges == slow


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(st.text(max_size=30), max_size=4), vocab_size=st.integers(262, 300))
def test_round_trip_and_equal_to_the_package(texts, vocab_size):
    tokenizers = pytest.importorskip("tokenizers")
    other = tokenizers.Tokenizer(tokenizers.models.BPE())
    other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    special = list(SPECIAL_TOKENS)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    texts = [text for text in texts if all(_known(character) for character in text)]
    other.train_from_iterator(texts, trainer)
    trained = train_bpe(texts, vocab_size)
    assert [list(merge) for merge in trained.merges] == [list(m) for m in json.loads(other.to_str())["model"]["merges"]]
    tokenizer = trained.tokenizer
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert not set(tokenizer.encode(text + "<|user|>").tolist()) & set(range(len(SPECIAL_TOKENS)))


def test_long_words_are_merged_alike(monkeypatch):
    """And a word of 100,000 characters costs no more than its length."""
    texts = ["ab" * 40 + "aaab" * 30 + " xyxyxyx" * 3]
    short = train_bpe(texts, 290)
    monkeypatch.setattr(train, "LONG_WORD", 2)
    assert train_bpe(texts, 290) == short
    assert train_bpe(["a" * 100_000], 266).tokens[-1] == "a" * 16


def _known(character: str) -> bool:
    import unicodedata

    return unicodedata.category(character) not in ("Cn", "Cs")


def test_special_tokens_and_flags():
    trained = train_bpe(["low lower lowest"] * 3, 300, pre="llama-bpe", min_frequency=2)
    tokenizer = trained.tokenizer
    assert trained.tokens[:6] == list(SPECIAL_TOKENS)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)
    assert tokenizer.encode("<|user|>low", parse_special=True).tolist()[0] == 3
    assert len(tokenizer.encode(" lower")) == 1
    assert tokenizer.model.row.name == "llama-bpe"
    assert 0 < bits_per_byte(tokenizer, "low lower") < 8
    seen = []
    train_bpe(["abab"], 300, progress=lambda n, of: seen.append((n, of)))
    assert seen[-1] == (300, 300)


def test_refusals():
    with pytest.raises(TokenizerError, match="of 200 tokens is too small, 262 at least"):
        train_bpe([], 200)
    with pytest.raises(TokenizerError, match="special tokens that differ"):
        train_bpe([], 300, special_tokens=["<a>", "<a>"])
    with pytest.raises(TokenizerError, match="'gemma4' is not byte-level"):
        train_bpe([], 300, pre="gemma4")
    with pytest.raises(UnsupportedError, match="'nonesuch' is unknown"):
        train_bpe([], 300, pre="nonesuch")
