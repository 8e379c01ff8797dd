"""Training of byte-level BPE: texts to merges.

Arrives: texts. Leaves: a `TrainedBpe`, whose metadata makes a `Tokenizer` and can be saved. Words and how often they
occur are counted first; then the pair of neighbours that occurs most often (of equals the one of the smallest ids)
becomes a token, from the left and without overlaps, until the vocabulary is full or no pair is frequent enough. Counts
are kept up to date instead of made anew, and a heap holds the pairs. The result is that of tokenizers' BpeTrainer.
Source: Sennrich et al. 2016; huggingface/tokenizers bpe/trainer.rs. Next modules: `tokenizer.py`, `to_gguf.py`.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from gml.errors import TokenizerError
from gml.models.tokenizer.pretokenizers import find_pretokenizer
from gml.models.tokenizer.text import BYTE_ALPHABET, to_byte_alphabet
from gml.models.tokenizer.tokenizer import Tokenizer
from gml.models.tokenizer.vocabulary import PREFIX, TokenType
from gml.records import dataclass

# Names of the reserved tokens where none are given; text never becomes one of them.
SPECIAL_TOKENS = ("<|pad|>", "<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>", "<|system|>")
_ROLES = {"<|pad|>": "padding_token_id", "<|bos|>": "bos_token_id", "<|eos|>": "eos_token_id"}

# Words of more tokens than this are merged into a new list.
LONG_WORD = 256

# Called with the number of tokens made and wanted.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class TrainedBpe:
    """What training found. tokens: special ones, the 256 bytes in the order of their characters, then one a merge."""

    tokens: list[str]
    merges: list[tuple[str, str]]
    special_tokens: tuple[str, ...]
    pre: str

    @property
    def metadata(self) -> dict[str, Any]:
        """The keys `tokenizer.ggml.*` of a GGUF file."""
        n_special = len(self.special_tokens)
        keys: dict[str, Any] = {
            "model": "gpt2",
            "pre": self.pre,
            "tokens": self.tokens,
            "token_type": [int(TokenType.CONTROL)] * n_special + [1] * (len(self.tokens) - n_special),
            "merges": [f"{left} {right}" for left, right in self.merges],
            "add_bos_token": False,
        }
        keys |= {key: self.special_tokens.index(name) for name, key in _ROLES.items() if name in self.special_tokens}
        return {PREFIX + key: value for key, value in keys.items()}

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of what was found."""
        return Tokenizer.from_metadata(self.metadata)


def count_words(texts: Iterable[str], pre: str = "gpt-2") -> Counter[str]:
    """Words in GPT-2's byte alphabet and how often they occur, in the order of their first occurrence."""
    row = find_pretokenizer(pre)
    if not row.byte_level:
        raise TokenizerError(f"training: the pre-tokenizer {pre!r} is not byte-level; take one that is, as gpt-2")
    words: Counter[str] = Counter()
    for text in texts:
        words.update(row.split(text))
    spelled: Counter[str] = Counter()
    for word, count in words.items():
        spelled[to_byte_alphabet(word.encode("utf-8", "surrogatepass"))] += count
    return spelled


def train_bpe(
    texts: Iterable[str],
    vocab_size: int,
    *,
    pre: str = "gpt-2",
    min_frequency: int = 0,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    progress: Progress | None = None,
) -> TrainedBpe:
    """Byte-level BPE of at most vocab_size tokens, special ones and the 256 bytes included.

    pre: the row of the table that cuts words. min_frequency: a pair that occurs less often is not merged. Raises
    TokenizerError for a vocab_size that does not hold the bytes and for special tokens that are no names of their own.
    """
    specials = tuple(special_tokens)
    least = len(specials) + 256
    if vocab_size < least:
        raise TokenizerError(f"training: a vocabulary of {vocab_size} tokens is too small, {least} at least are needed")
    if len(set(specials)) < len(specials) or any(len(name) < 2 for name in specials):
        raise TokenizerError("training: expected special tokens that differ, of two characters or more")
    tokens = [*specials, *sorted(BYTE_ALPHABET)]
    merger = _Merger(count_words(texts, pre), tokens, len(specials))
    merges: list[tuple[str, str]] = []
    while len(tokens) < vocab_size:
        pair = merger.next_pair(min_frequency)
        if pair is None:
            break
        merges.append((tokens[pair[0]], tokens[pair[1]]))
        merger.merge(pair)
        if progress is not None and len(tokens) % 64 == 0:
            progress(len(tokens), vocab_size)
    if progress is not None:
        progress(vocab_size, vocab_size)
    return TrainedBpe(tokens, merges, specials, pre)


Pair = tuple[int, int]


class _Merger:
    """Words as lists of ids, how often each pair occurs, and in which words."""

    def __init__(self, words: Counter[str], tokens: list[str], n_special: int):
        self.tokens = tokens
        self.ids = {token: n for n, token in enumerate(tokens) if n >= n_special}
        self.words = [[self.ids[character] for character in word] for word in words]
        self.frequencies = list(words.values())
        self.counts: dict[Pair, int] = defaultdict(int)
        places: dict[Pair, set[int]] = defaultdict(set)
        for n, (word, frequency) in enumerate(zip(self.words, self.frequencies, strict=True)):
            for pair in pairwise(word):
                self.counts[pair] += frequency
                places[pair].add(n)
        # (-count, pair, number of the entry in `places`): the most frequent first, then the smallest ids.
        self.places: list[set[int]] = []
        self.heap: list[tuple[int, Pair, int]] = []
        self._push(places)
        self._at: set[int] = set()

    def _push(self, places: dict[Pair, set[int]]) -> None:
        for pair, words in places.items():
            if self.counts[pair] > 0:
                heapq.heappush(self.heap, (-self.counts[pair], pair, len(self.places)))
                self.places.append(words)

    def next_pair(self, min_frequency: int) -> Pair | None:
        """The pair to merge next, or None where none is frequent enough."""
        while self.heap:
            count, pair, entry = heapq.heappop(self.heap)
            now = self.counts[pair]
            if now != -count:
                # Has changed since it was pushed; its words are still the right ones.
                heapq.heappush(self.heap, (-now, pair, entry))
                continue
            if now < 1 or now < min_frequency:
                return None
            self._at = self.places[entry]
            return pair
        return None

    def merge(self, pair: Pair) -> None:
        """Makes a token of a pair, in all words that `next_pair` found it in."""
        token = self.tokens[pair[0]] + self.tokens[pair[1]]
        joined = self.ids.get(token)
        if joined is None:
            joined = self.ids[token] = len(self.tokens)
            self.tokens.append(token)
        places: dict[Pair, set[int]] = defaultdict(set)
        for n in self._at:
            frequency = self.frequencies[n]
            for changed, by in _merge_word(self.words[n], pair, joined):
                self.counts[changed] += by * frequency
                if by > 0:
                    places[changed].add(n)
        self._push(places)


def _merge_word(word: list[int], pair: Pair, joined: int) -> list[tuple[Pair, int]]:
    """Merges a pair in one word, from the left; returns how the counts of its neighbours change."""
    left, right = pair
    changes: list[tuple[Pair, int]] = []
    if len(word) > LONG_WORD:
        return _merge_long_word(word, pair, joined)
    at = 0
    while True:
        try:
            at = word.index(left, at)
        except ValueError:
            return changes
        if at + 1 < len(word) and word[at + 1] == right:
            word[at : at + 2] = [joined]
            if at:
                changes.append(((word[at - 1], left), -1))
                changes.append(((word[at - 1], joined), 1))
            if at + 1 < len(word):
                changes.append(((right, word[at + 1]), -1))
                changes.append(((joined, word[at + 1]), 1))
        at += 1


def _merge_long_word(word: list[int], pair: Pair, joined: int) -> list[tuple[Pair, int]]:
    """The same into a new list: cutting a long one again and again would be quadratic."""
    left, right = pair
    changes: list[tuple[Pair, int]] = []
    merged: list[int] = []
    at, n = 0, len(word)
    while at < n:
        if word[at] == left and at + 1 < n and word[at + 1] == right:
            if merged:
                changes.append(((merged[-1], left), -1))
                changes.append(((merged[-1], joined), 1))
            if at + 2 < n:
                changes.append(((right, word[at + 2]), -1))
                changes.append(((joined, word[at + 2]), 1))
            merged.append(joined)
            at += 2
        else:
            merged.append(word[at])
            at += 1
    word[:] = merged
    return changes


def bits_per_byte(tokenizer: Tokenizer, text: str) -> float:
    """Bits per byte of a held-out text, coded by how often each of its tokens occurs in it.

    Comparable between vocabularies of different sizes, which losses per token are not. Raises TokenizerError for an
    empty text.
    """
    ids = tokenizer.encode(text).tolist()
    n_bytes = len(text.encode("utf-8"))
    if not n_bytes:
        raise TokenizerError("bits per byte: expected a text, found none")
    return sum(-n * math.log2(n / len(ids)) for n in Counter(ids).values()) / n_bytes
