"""Special tokens in text: which parts of a text are tokens as they stand, before any word is cut.

Arrives: text. Leaves: fragments, each a piece of text or the id of a special token. Order matters where texts of tokens
overlap: the longest token takes all its matches first (from the left), then the next longest in what is left, as in
llama.cpp (tokenizer_st_partition). Next modules: `bpe.py` and `spm.py`, for the pieces of text.
"""

from __future__ import annotations

import re
from collections import defaultdict

from gml.models.tokenizer.vocabulary import Vocabulary

# What C's isspace counts.
_WHITE_SPACE = " \t\n\v\f\r"


class SpecialMatcher:
    """Finds a set of special tokens in text."""

    def __init__(self, vocabulary: Vocabulary, tokens: list[int]):
        self._strip_left = vocabulary.strip_left
        self._strip_right = vocabulary.strip_right
        self._texts = {vocabulary.tokens[token]: token for token in tokens}
        self._order = {token: n for n, token in enumerate(tokens)}
        lengths: dict[str, set[int]] = defaultdict(set)
        for text in self._texts:
            lengths[text[:2]].add(len(text))
        self._lengths = {head: sorted(found) for head, found in lengths.items()}
        heads = "|".join(re.escape(head) for head in sorted(lengths, key=len, reverse=True))
        # The look-ahead lets matches overlap; two characters tell most text apart from any special token.
        self._heads = re.compile(f"(?=({heads}))") if heads else None

    def _occurring(self, text: str) -> list[int]:
        """The tokens whose text occurs at all, in the order they are searched: a vocabulary may have thousands."""
        if self._heads is None:
            return []
        found = set()
        for match in self._heads.finditer(text):
            at = match.start()
            for head in {match.group(1), match.group(1)[:1]}:
                for length in self._lengths.get(head, ()):
                    token = self._texts.get(text[at : at + length])
                    if token is not None:
                        found.add(token)
        return sorted(found, key=self._order.__getitem__)

    def partition(self, text: str) -> list[str | int]:
        """The text as pieces of text and ids of special tokens, in order. Empty pieces are left out."""
        fragments: list[str | int] = [text] if text else []
        if not text:
            return fragments
        spelling = {token: spelled for spelled, token in self._texts.items()}
        for token in self._occurring(text):
            divided: list[str | int] = []
            for fragment in fragments:
                if isinstance(fragment, int) or spelling[token] not in fragment:
                    divided.append(fragment)
                else:
                    divided += self._divide(fragment, spelling[token], token)
            fragments = divided
        return fragments

    def _divide(self, text: str, spelling: str, token: int) -> list[str | int]:
        parts = text.split(spelling)
        divided: list[str | int] = []
        for n, part in enumerate(parts):
            # llama.cpp strips to the right of a match before it searches on, to the left only up to the last match.
            if n and token in self._strip_right:
                part = part.lstrip(_WHITE_SPACE)
            if n < len(parts) - 1 and token in self._strip_left:
                part = part.rstrip(_WHITE_SPACE)
            if n:
                divided.append(token)
            if part:
                divided.append(part)
        return divided
