"""Byte-level BPE (`tokenizer.ggml.model` = gpt2): words to ids by merging pairs of tokens, lowest rank first.

Arrives: fragments of text between special tokens. Leaves: ids as packed int32. A word starts as the tokens of its UTF-8
bytes; as long as some neighbours are a merge, the pair with the lowest rank (of equals the leftmost) becomes one token.
Source: Sennrich et al. 2016, openai/gpt-2 encoder.py; details as in llama.cpp. Next module: `tokenizer.py`.
"""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gml.errors import TokenizerError
from gml.models.tokenizer.memo import WordMemo
from gml.models.tokenizer.pretokenizers import PreTokenizer
from gml.models.tokenizer.text import BYTE_ALPHABET, from_byte_alphabet, readable, to_byte_alphabet
from gml.models.tokenizer.vocabulary import TokenType, Vocabulary, byte_of_token, string_list

# Up to this many bytes a word is merged in plain lists (quadratic, but fastest), beyond with a heap (n log n).
SHORT_WORD = 128


class MergeTable:
    """The merges of a vocabulary over ids.

    A pair (left, right) has the key `left * radix + right`; `packed[key] = rank * radix + merged id`, so the least of
    several values is the pair to merge next and holds its result. `radix` is one more than the number of tokens: the id
    `radix - 1` stands for a byte that has no token, merges with nothing and is dropped at the end.
    """

    def __init__(self, packed: dict[int, int], radix: int):
        self.packed = packed
        self.radix = radix

    @classmethod
    def from_strings(cls, merges: Sequence[Any], ids: dict[str, int], n_vocab: int) -> MergeTable:
        """From the lines of `tokenizer.ggml.merges`: "left right", parted by the first space after position 0.

        Raises TokenizerError where a line has no such space or names tokens that the vocabulary lacks.
        """
        lines = string_list(merges, "tokenizer.ggml.merges")
        radix = n_vocab + 1
        try:
            # In bulk, without a list for each line: a third of the time. Right only if each line has one space.
            parts = " ".join(lines).split(" ")
            firsts, seconds = parts[::2], parts[1::2]
            if list(map(" ".join, zip(firsts, seconds, strict=False))) != lines:
                raise KeyError
            left, right = (list(map(ids.__getitem__, column)) for column in (firsts, seconds))
            merged = [ids[first + second] for first, second in zip(firsts, seconds, strict=True)]
        except KeyError:
            left, right, merged = cls._ids_checked(lines, ids)
        # Of a merge that stands there twice the first counts: the dict is filled from the end.
        keys = np.array(left, np.int64)[::-1] * radix + np.array(right, np.int64)[::-1]
        values = np.arange(len(lines) - 1, -1, -1, dtype=np.int64) * radix + np.array(merged, np.int64)[::-1]
        return cls(dict(zip(keys.tolist(), values.tolist(), strict=True)), radix)

    @staticmethod
    def _ids_checked(lines: list[str], ids: dict[str, int]) -> tuple[list[int], list[int], list[int]]:
        """The slow way, that copes with spaces in tokens and names the line at fault."""
        columns: tuple[list[int], list[int], list[int]] = ([], [], [])
        for n, line in enumerate(lines):
            space = line.find(" ", 1)
            if space < 0:
                raise TokenizerError(
                    f"tokenizer.ggml.merges: entry {n} is {line[:80]!r}, expected two tokens parted by a space"
                )
            parts = line[:space], line[space + 1 :]
            for column, token in zip(columns, (*parts, parts[0] + parts[1]), strict=True):
                if token not in ids:
                    raise TokenizerError(
                        f"tokenizer.ggml.merges: entry {n} ({line[:80]!r}) needs the token {token[:80]!r}, which "
                        "tokenizer.ggml.tokens lacks; merges and tokens are of different models"
                    )
                column.append(ids[token])
        return columns

    def merge(self, ids: list[int]) -> list[int]:
        """Merges a word's byte tokens as far as the table goes; the list given may be changed."""
        if len(ids) <= SHORT_WORD:
            return self._merge_short(ids)
        return self._merge_long(ids)

    def _merge_short(self, ids: list[int]) -> list[int]:
        packed, radix = self.packed.get, self.radix
        none = len(self.packed) * radix + (1 << 62)
        values = [packed(a * radix + b, none) for a, b in pairwise(ids)]
        while values:
            best = min(values)
            if best == none:
                break
            at = values.index(best)
            ids[at] = best % radix
            del ids[at + 1], values[at]
            if at:
                values[at - 1] = packed(ids[at - 1] * radix + ids[at], none)
            if at < len(values):
                values[at] = packed(ids[at] * radix + ids[at + 1], none)
        return ids

    def _merge_long(self, ids: list[int]) -> list[int]:
        """The same with a linked list and a heap of (value, position), packed into one integer each."""
        packed, radix = self.packed.get, self.radix
        n = len(ids)
        following = list(range(1, n + 1))
        previous = list(range(-1, n - 1))
        shift = n.bit_length()
        mask = (1 << shift) - 1
        heap = []
        for at in range(n - 1):
            value = packed(ids[at] * radix + ids[at + 1])
            if value is not None:
                heap.append(value << shift | at)
        heapq.heapify(heap)
        gone = -1
        while heap:
            entry = heapq.heappop(heap)
            at, value = entry & mask, entry >> shift
            after = following[at]
            # An entry is stale if its tokens have been merged since.
            if ids[at] == gone or after == n or packed(ids[at] * radix + ids[after]) != value:
                continue
            ids[at], ids[after] = value % radix, gone
            after = following[at] = following[after]
            if after < n:
                previous[after] = at
                value = packed(ids[at] * radix + ids[after])
                if value is not None:
                    heapq.heappush(heap, value << shift | at)
            before = previous[at]
            if before >= 0:
                value = packed(ids[before] * radix + ids[at])
                if value is not None:
                    heapq.heappush(heap, value << shift | before)
        return [token for token in ids if token != gone]


class ByteLevelBpe:
    """The model part of a byte-level BPE tokenizer."""

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[Any], row: PreTokenizer):
        self.row = row
        self.ids = vocabulary.ids
        self.table = MergeTable.from_strings(merges, vocabulary.ids, vocabulary.n_vocab)
        self.byte_ids = [vocabulary.ids.get(character, vocabulary.n_vocab) for character in BYTE_ALPHABET]
        self._missing = vocabulary.n_vocab
        self._memo = WordMemo(self.encode_word)

    @property
    def missing_bytes(self) -> frozenset[int]:
        """Bytes that no token stands for: encoding loses them, as llama.cpp does."""
        return frozenset(byte for byte, token in enumerate(self.byte_ids) if token == self._missing)

    @property
    def split(self) -> Callable[[str], list[str]]:
        return self.row.split

    def encode_word(self, word: str) -> list[int]:
        """The ids of one word."""
        data = word.encode("utf-8", "surrogatepass")
        if self.row.ignore_merges:
            whole = self.ids.get(to_byte_alphabet(data))
            if whole is not None:
                return [whole]
        byte_ids = self.byte_ids
        ids = self.table.merge([byte_ids[byte] for byte in data])
        if self._missing in ids:
            lost = sorted({byte for byte in data if byte_ids[byte] == self._missing})
            warnings.warn(
                f"the vocabulary has no token for the bytes {', '.join(f'0x{byte:02x}' for byte in lost)}; "
                "they are left out",
                stacklevel=2,
            )
            ids = [token for token in ids if token != self._missing]
        return ids

    def encode(self, fragment: str, *, starts: bool) -> bytes:
        """The ids of a fragment (invalid UTF-8 as surrogate escapes) as packed int32. `starts` has no effect."""
        del starts
        return self._memo.encode(self.split(readable(fragment)))

    def piece(self, token: str, kind: TokenType) -> bytes:
        """The bytes that a token stands for in text."""
        if kind == TokenType.NORMAL:
            return from_byte_alphabet(token)
        if kind == TokenType.BYTE:
            return byte_of_token(token)
        if kind in (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN):
            return token.encode("utf-8", "surrogateescape")
        return b""
