"""Added tokens of a tokenizer.json: which parts of a text are tokens as they stand.

Arrives: the list `added_tokens`, then text. Leaves: fragments, each normalised text or an id. Tokens with
`normalized: false` are searched in the text as it is, the others in what the normalizer made of it, in both the longest
of those that begin leftmost. Source: huggingface/tokenizers tokenizers/src/tokenizer/added_vocabulary.rs; details as in
version 0.23. Next module: `pipeline_pretokenizers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import regex

from gml.errors import TokenizerError
from gml.models.tokenizer.pipeline_parts import WHITE_SPACE, setting
from gml.records import dataclass

_WORD = r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d]"
_ends_with_word = regex.compile(rf"(?r){_WORD}").match
_begins_with_word = regex.compile(_WORD).match
_spaces_before = regex.compile(f"(?r)[{WHITE_SPACE}]+").match
_spaces_after = regex.compile(f"[{WHITE_SPACE}]+").match


@dataclass(frozen=True)
class AddedToken:
    """One entry of `added_tokens`."""

    id: int
    content: str
    special: bool
    normalized: bool
    single_word: bool
    lstrip: bool
    rstrip: bool

    @classmethod
    def from_json(cls, part: Any) -> AddedToken:
        """Reads and checks an entry."""
        if not isinstance(part, Mapping):
            raise TokenizerError(f"tokenizer.json: expected an added token as an object, found {type(part).__name__}")
        part = {"type": "added token", **part}
        number, content = setting(part, "id", int), setting(part, "content", str)
        if not 0 <= number < 1 << 26:
            raise TokenizerError(f"tokenizer.json: added token {content[:80]!r} has the id {number}")
        special = setting(part, "special", bool, False)
        return cls(
            number,
            content,
            special,
            setting(part, "normalized", bool, not special),
            setting(part, "single_word", bool, False),
            setting(part, "lstrip", bool, False),
            setting(part, "rstrip", bool, False),
        )


class AddedTokens:
    """The added tokens of a file; ids: content to id; spellings: id to content; special: ids."""

    def __init__(self, parts: Any, vocabulary: Mapping[str, int], normalize: Callable[[str], str]):
        if parts is not None and not isinstance(parts, list):
            raise TokenizerError(f"tokenizer.json: expected added_tokens as a list, found {type(parts).__name__}")
        self.tokens = [AddedToken.from_json(part) for part in parts or []]
        self.ids: dict[str, int] = {}
        for token in self.tokens:
            # What the model knows keeps the model's id.
            self.ids[token.content] = vocabulary.get(token.content, token.id)
        self.spellings = {self.ids[token.content]: token.content for token in self.tokens}
        self.special = frozenset(self.ids[token.content] for token in self.tokens if token.special)
        self._normalize = normalize
        whole = [(token.content, token) for token in self.tokens if token.content and not token.normalized]
        changed = [(normalize(token.content), token) for token in self.tokens if token.content and token.normalized]
        self._raw, self._normal = _Search(whole), _Search([pair for pair in changed if pair[0]])

    def partition(self, text: str, *, parse_special: bool) -> list[str | int]:
        """The text as normalised pieces of text and ids, in order."""
        fragments: list[str | int] = []
        for piece in self._raw.partition(text, parse_special):
            if isinstance(piece, AddedToken):
                fragments.append(self.ids[piece.content])
                continue
            for part in self._normal.partition(self._normalize(piece), parse_special):
                fragments.append(self.ids[part.content] if isinstance(part, AddedToken) else part)
        return fragments


class _Search:
    """Finds the longest of the leftmost tokens."""

    def __init__(self, tokens: list[tuple[str, AddedToken]]):
        self._tokens: dict[str, AddedToken] = {}
        for spelling, token in tokens:
            self._tokens.setdefault(spelling, token)
        longest_first = sorted(self._tokens, key=lambda spelling: -len(spelling))
        self._find = regex.compile("|".join(map(regex.escape, longest_first))).finditer if longest_first else None

    def partition(self, text: str, parse_special: bool) -> list[str | AddedToken]:
        """Text and tokens in order; empty pieces of text are left out."""
        if self._find is None:
            return [text] if text else []
        parts: list[str | AddedToken] = []
        end = 0
        for match in self._find(text):
            token = self._tokens[match.group()]
            start, stop = match.span()
            if token.special and not parse_special:
                continue
            if token.single_word and not _stands_alone(text, start, stop):
                continue
            if token.lstrip and (spaces := _spaces_before(text, 0, start)):
                start = max(end, spaces.start())
            if token.rstrip and (spaces := _spaces_after(text, stop)):
                stop = spaces.end()
            if start > end:
                parts.append(text[end:start])
            parts.append(token)
            end = stop
        if end < len(text):
            parts.append(text[end:])
        return parts


def _stands_alone(text: str, start: int, stop: int) -> bool:
    before = start and _ends_with_word(text, 0, start)
    return not before and not _begins_with_word(text, stop)
