"""BPE over characters (`tokenizer.ggml.model` = gemma4, or a row of the table without byte level).

Arrives: fragments of text between special tokens. Leaves: ids as packed int32. A word (often a whole line) starts as
its characters; those without a token merge with nothing and are spelled by byte tokens. Source: llama.cpp
(llm_tokenizer_bpe_session without byte encoding). Next module: `tokenizer.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gml.models.tokenizer.bpe import MergeTable
from gml.models.tokenizer.memo import WordMemo
from gml.models.tokenizer.pretokenizers import PreTokenizer
from gml.models.tokenizer.text import class_ranges, lowercase_map, readable
from gml.models.tokenizer.vocabulary import TokenType, Vocabulary, byte_of_token

SPACE = "\u2581"


class CharacterBpe:
    """The model part. `drop_spaces`: white space parts words and is left out; `lowercase`: of what remains."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        merges: Sequence[Any],
        row: PreTokenizer,
        *,
        drop_spaces: bool = False,
        lowercase: bool = False,
    ):
        self.row = row
        self.ids = vocabulary.ids
        self.table = MergeTable.from_strings(merges, vocabulary.ids, vocabulary.n_vocab)
        self.byte_ids = [vocabulary.ids.get(f"<0x{byte:02X}>") for byte in range(256)]
        self.drop_spaces, self.lowercase = drop_spaces, lowercase
        self._lowercase = lowercase_map() if lowercase else {}
        self._split = _words if drop_spaces else row.split
        self._memo = WordMemo(self.encode_word)

    @property
    def missing_bytes(self) -> frozenset[int]:
        """Bytes that no token stands for."""
        return frozenset(byte for byte, token in enumerate(self.byte_ids) if token is None)

    @property
    def split(self) -> Callable[[str], list[str]]:
        return self._split

    def encode_word(self, word: str) -> list[int]:
        """The ids of one word."""
        if self.row.ignore_merges or (self.row.whole_newlines and not word.strip("\n")):
            whole = self.ids.get(word)
            if whole is not None:
                return [whole]
        ids: list[int] = []
        run: list[int] = []
        for character in word:
            token = self.ids.get(character)
            if token is not None:
                run.append(token)
                continue
            ids += self.table.merge(run)
            ids += self._spell(character)
            run = []
        return ids + self.table.merge(run)

    def _spell(self, character: str) -> list[int]:
        tokens = [self.byte_ids[byte] for byte in character.encode("utf-8", "surrogatepass")]
        if None in tokens:
            warnings.warn(f"the vocabulary has no token for {character!r}; it is left out", stacklevel=2)
        return [token for token in tokens if token is not None]

    def encode(self, fragment: str, *, starts: bool) -> bytes:
        """The ids of a fragment (invalid UTF-8 as surrogate escapes) as packed int32. `starts` has no effect."""
        del starts
        text = readable(fragment)
        if self._lowercase:
            text = text.translate(self._lowercase)
        if self.row.escape_spaces:
            text = text.replace(" ", SPACE)
        return self._memo.encode(self.split(text))

    def piece(self, token: str, kind: TokenType) -> bytes:
        """The bytes that a token stands for in text."""
        if kind == TokenType.NORMAL:
            text = token.replace(SPACE, " ") if self.row.escape_spaces else token
            return text.encode("utf-8", "surrogateescape")
        if kind == TokenType.BYTE:
            return byte_of_token(token)
        if kind in (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN):
            return token.encode("utf-8", "surrogateescape")
        return b""


def _words(text: str) -> list[str]:
    """What stands between white space; str.split would count U+001C to U+001F."""
    return [word for word in text.translate(_spaces()).split(" ") if word]


_SPACES: dict[int, str] = {}


def _spaces() -> dict[int, str]:
    if not _SPACES:
        for first, last in class_ranges("whitespace"):
            _SPACES.update(dict.fromkeys(range(first, last + 1), " "))
    return _SPACES
