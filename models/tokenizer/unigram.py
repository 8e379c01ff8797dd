"""Unigram (`tokenizer.ggml.model` = t5): the cut of a text into tokens whose scores have the largest sum.

Arrives: fragments of text between special tokens. Leaves: ids as packed int32. Text is normalised by the file's
character map, spaces are merged and become U+2581, then the best path is found from left to right (Viterbi). A
character that no token spells is the unknown token, runs of them one. Source: Kudo 2018, sentencepiece
unigram_model.cc; details as in llama.cpp (llm_tokenizer_ugm). Next module: `tokenizer.py`.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from gml.errors import TokenizerError
from gml.models.tokenizer.charsmap import CharsMap
from gml.models.tokenizer.memo import INT32, WordMemo
from gml.models.tokenizer.spm import SPACE, spelt_piece, splitter
from gml.models.tokenizer.vocabulary import TokenType, Vocabulary

UNKNOWN_PENALTY = 10.0


class Lattice:
    """Tokens with scores, and the best way to spell a word with them."""

    def __init__(self, tokens: Mapping[str, tuple[int, float]], unk: int, unknown_score: float):
        self.tokens = dict(tokens)
        self.unk = unk
        self.unknown_score = unknown_score
        lengths: dict[str, set[int]] = defaultdict(set)
        for token in self.tokens:
            lengths[token[:1]].add(len(token))
        self._lengths = {first: sorted(found) for first, found in lengths.items()}

    def best(self, word: str) -> list[tuple[int, int]]:
        """The best path: (id, where its text ends), in order; runs of the unknown token are not joined.

        Of equal sums the path whose last token is longest wins, as in sentencepiece.
        """
        n = len(word)
        sums = [0.0] + [-np.inf] * n
        starts, ids = [0] * (n + 1), [self.unk] * (n + 1)
        for at in range(n):
            here = sums[at]
            alone = False
            for length in self._lengths.get(word[at], ()):
                end = at + length
                if end > n:
                    break
                found = self.tokens.get(word[at:end])
                if found is None:
                    continue
                alone = alone or length == 1
                if here + found[1] > sums[end]:
                    sums[end], starts[end], ids[end] = here + found[1], at, found[0]
            if not alone and here + self.unknown_score > sums[at + 1]:
                sums[at + 1], starts[at + 1], ids[at + 1] = here + self.unknown_score, at, self.unk
        path = []
        while n:
            path.append((ids[n], n))
            n = starts[n]
        return path[::-1]


class Unigram:
    """The model part of a Unigram tokenizer."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        charsmap: CharsMap | None,
        *,
        add_space_prefix: bool,
        remove_extra_whitespaces: bool,
        escape_whitespaces: bool = True,
    ):
        if vocabulary.scores is None:
            raise TokenizerError("tokenizer.ggml.scores is missing: a vocabulary of type t5 needs them")
        unk = vocabulary.specials.get("unk")
        if unk is None:
            raise TokenizerError("tokenizer.ggml.unknown_token_id names no token: a t5 vocabulary needs one")
        self.charsmap = charsmap
        self.add_space_prefix = add_space_prefix
        self.merge_spaces = remove_extra_whitespaces
        self._space = SPACE if escape_whitespaces else " "
        kinds = vocabulary.types
        normal = vocabulary.scores[kinds == TokenType.NORMAL]
        lowest = np.float32(normal.min() if len(normal) else 0.0)
        scores = np.where(kinds == TokenType.USER_DEFINED, 0.0, vocabulary.scores).tolist()
        used = np.flatnonzero(np.isin(kinds, [TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED])).tolist()
        spellings = vocabulary.tokens
        tokens = {spellings[token]: (token, scores[token]) for token in used}
        self.lattice = Lattice(tokens, unk, float(lowest - np.float32(UNKNOWN_PENALTY)))
        self.split = splitter(list(tokens))
        self._unknown = array(INT32, [unk]).tobytes()
        self._memo = WordMemo(self.encode_word)

    @property
    def missing_bytes(self) -> frozenset[int]:
        """None: what cannot be spelled is the unknown token."""
        return frozenset()

    def encode_word(self, word: str) -> list[int]:
        """The ids of one word, normalised text with U+2581 for spaces."""
        ids: list[int] = []
        for token, _ in self.lattice.best(word):
            if not (token == self.lattice.unk and ids and ids[-1] == token):
                ids.append(token)
        return ids

    def normalize(self, fragment: str) -> str:
        """The fragment as the vocabulary spells it; bytes that are not UTF-8 become U+FFFD."""
        text = self.charsmap.normalize(fragment) if self.charsmap else fragment
        if not text.isascii():
            text = re.sub("[\udc80-\udcff]", "\ufffd", text)
        if self.merge_spaces:
            return "".join([self._space + word for word in text.split(" ") if word])
        stripped = text.lstrip(" ")
        if self.add_space_prefix and stripped:
            # Real spaces come before the one that is put there.
            text = " " * (len(text) - len(stripped) + 1) + stripped
        return text.replace(" ", self._space)

    def encode(self, fragment: str, *, starts: bool) -> bytes:
        """The ids of a fragment (invalid UTF-8 as surrogate escapes) as packed int32. `starts` has no effect."""
        del starts
        parts: list[bytes] = []
        for word in self.split(self.normalize(fragment)):
            packed = self._memo[word]
            # Runs of unknown characters are one token across words too.
            if parts and packed.startswith(self._unknown) and parts[-1].endswith(self._unknown):
                packed = packed[len(self._unknown) :]
            if packed:
                parts.append(packed)
        return b"".join(parts)

    def piece(self, token: str, kind: TokenType) -> bytes:
        """The bytes that a token stands for in text."""
        return spelt_piece(token, kind)
