"""Special tokens in text: which parts of a text are tokens as they stand, before any word is cut.

Arrives: text. Leaves: fragments, each a piece of text or the id of a special token. Order matters where texts of tokens
overlap: the longest token takes all its matches first (from the left), then the next longest in what is left, as in
llama.cpp (tokenizer_st_partition). Next modules: `bpe.py` and `spm.py`, for the pieces of text.
"""

from __future__ import annotations

import re
from collections import defaultdict

from gml.models.tokenizer.vocabulary import Vocabulary
from gml.records import dataclass

# What C's isspace counts.
_WHITE_SPACE = " \t\n\v\f\r"


# As many tokens with the same first two characters are searched one by one; beyond, at each place where those stand.
FEW = 64


@dataclass(frozen=True)
class _Probe:
    """Many tokens that begin with the same characters."""

    head: re.Pattern[str]
    tokens: dict[str, int]
    lengths: list[int]

    @classmethod
    def of(cls, head: str, tokens: dict[str, int]) -> _Probe:
        # The look-ahead lets matches overlap.
        return cls(re.compile(f"(?={re.escape(head)})"), tokens, sorted({len(spelling) for spelling in tokens}))

    def occurring(self, text: str) -> set[int]:
        found = set()
        for match in self.head.finditer(text):
            at = match.start()
            for length in self.lengths:
                token = self.tokens.get(text[at : at + length])
                if token is not None:
                    found.add(token)
        return found


class SpecialMatcher:
    """Finds a set of special tokens in text."""

    def __init__(self, vocabulary: Vocabulary, tokens: list[int]):
        self._strip_left = vocabulary.strip_left
        self._strip_right = vocabulary.strip_right
        self._spellings = {token: vocabulary.tokens[token] for token in tokens}
        self._order = {token: n for n, token in enumerate(tokens)}
        by_head: dict[str, dict[str, int]] = defaultdict(dict)
        for token, spelling in self._spellings.items():
            by_head[spelling[:2]][spelling] = token
        self._searched = [(head, found) for head, found in by_head.items() if len(found) <= FEW]
        self._probed = [_Probe.of(head, found) for head, found in by_head.items() if len(found) > FEW]

    def _occurring(self, text: str) -> list[int]:
        """The tokens whose spelling occurs at all, in the order they are searched: a vocabulary may have thousands."""
        found: set[int] = set()
        for head, tokens in self._searched:
            if head in text:
                found.update(token for spelling, token in tokens.items() if spelling in text)
        for probe in self._probed:
            found |= probe.occurring(text)
        return sorted(found, key=self._order.__getitem__)

    def partition(self, text: str) -> list[str | int]:
        """The text as pieces of text and ids of special tokens, in order. Empty pieces are left out."""
        fragments: list[str | int] = [text] if text else []
        if not text:
            return fragments
        for token in self._occurring(text):
            divided: list[str | int] = []
            for fragment in fragments:
                if isinstance(fragment, int) or self._spellings[token] not in fragment:
                    divided.append(fragment)
                else:
                    divided += self._divide(fragment, self._spellings[token], token)
            fragments = divided
        return fragments

    def _divide(self, text: str, spelling: str, token: int) -> list[str | int]:
        parts = text.split(spelling)
        divided: list[str | int] = []
        for n, part in enumerate(parts):
            if n and token in self._strip_right:
                part = part.lstrip(_WHITE_SPACE)
            if n < len(parts) - 1 and token in self._strip_left:
                part = part.rstrip(_WHITE_SPACE)
            if n:
                divided.append(token)
            if part:
                divided.append(part)
        return divided
