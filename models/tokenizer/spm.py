"""SentencePiece BPE (`tokenizer.ggml.model` = llama): text to ids by merging neighbours into the best-scored token.

Arrives: fragments of text between special tokens. Leaves: ids as packed int32. Spaces become U+2581, each code point is
a symbol, and as long as two neighbours make up a token, the pair whose token has the highest score (of equals the
leftmost) becomes one symbol. Symbols that are no token are spelled by byte tokens. Source: sentencepiece
bpe_model.cc; details as in llama.cpp (llm_tokenizer_spm). Next module: `tokenizer.py`.

The text is not cut into words first, but where no token spans two neighbouring characters no merge can, and the
sides are independent: that makes words which can be memoised, with the same ids.
"""

from __future__ import annotations

import heapq
import re
import warnings
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from gml.errors import TokenizerError
from gml.models.tokenizer.memo import WordMemo
from gml.models.tokenizer.vocabulary import TokenType, Vocabulary, byte_of_token

SPACE = "\u2581"
SHORT_WORD = 96

# A multi-byte symbol is as long as its first byte says, whatever follows; only the end of the text cuts it short.
_SYMBOL = re.compile(rb"[\x00-\xbf]|[\xc0-\xdf].{0,1}|[\xe0-\xef].{0,2}|[\xf0-\xff].{0,3}", re.DOTALL)


class SentencePieceBpe:
    """The model part of a SentencePiece BPE tokenizer."""

    def __init__(self, vocabulary: Vocabulary, *, add_space_prefix: bool):
        if vocabulary.scores is None:
            raise TokenizerError("tokenizer.ggml.scores is missing: a vocabulary of type llama merges by scores")
        self.ids = vocabulary.ids
        self.add_space_prefix = add_space_prefix
        self.unk = vocabulary.specials.get("unk")
        # Equal scores get equal ranks, the highest score the lowest.
        ranks = np.unique(-vocabulary.scores, return_inverse=True)[1].reshape(-1)
        self.ranks: dict[str, int] = dict(zip(vocabulary.tokens, ranks.tolist(), strict=True))
        self.byte_ids = [self._byte_id(byte) for byte in range(256)]
        self.split = splitter(vocabulary.tokens)
        self._memo = WordMemo(self.encode_word)

    def _byte_id(self, byte: int) -> int | None:
        for spelling in (f"<0x{byte:02X}>", bytes([byte]).decode("utf-8", "surrogateescape")):
            if spelling in self.ids:
                return self.ids[spelling]
        return self.unk

    @property
    def missing_bytes(self) -> frozenset[int]:
        """Bytes that have neither a token of their own nor an unknown token: encoding loses them."""
        return frozenset(byte for byte, token in enumerate(self.byte_ids) if token is None)

    def _spell(self, data: bytes) -> list[int]:
        tokens = [self.byte_ids[byte] for byte in data]
        if None in tokens:
            warnings.warn(f"the vocabulary lacks tokens for bytes of {data[:40]!r}; they are left out", stacklevel=2)
        return [token for token in tokens if token is not None]

    def encode_word(self, word: str) -> list[int]:
        """The ids of one word, valid Unicode with U+2581 for spaces."""
        tokens: list[int] = []
        for symbol in self.merge(word):
            token = self.ids.get(symbol)
            if token is None:
                tokens += self._spell(symbol.encode("utf-8"))
            else:
                tokens.append(token)
        return tokens

    def merge(self, word: str) -> list[str]:
        """A word's characters, merged as far as the tokens go."""
        return self._merge_short(list(word)) if len(word) <= SHORT_WORD else self._merge_long(list(word))

    def _merge_short(self, symbols: list[str]) -> list[str]:
        rank, none = self.ranks.get, len(self.ranks)
        values = [rank(a + b, none) for a, b in pairwise(symbols)]
        while values:
            best = min(values)
            if best == none:
                break
            at = values.index(best)
            symbols[at] += symbols[at + 1]
            del symbols[at + 1], values[at]
            if at:
                values[at - 1] = rank(symbols[at - 1] + symbols[at], none)
            if at < len(values):
                values[at] = rank(symbols[at] + symbols[at + 1], none)
        return symbols

    def _merge_long(self, symbols: list[str]) -> list[str]:
        """The same with a linked list and a heap of (rank, position), packed into one integer each: n log n."""
        rank = self.ranks.get
        n = len(symbols)
        following = list(range(1, n + 1))
        previous = list(range(-1, n - 1))
        shift = n.bit_length()
        mask = (1 << shift) - 1
        heap = []
        for at in range(n - 1):
            value = rank(symbols[at] + symbols[at + 1])
            if value is not None:
                heap.append(value << shift | at)
        heapq.heapify(heap)
        while heap:
            entry = heapq.heappop(heap)
            at = entry & mask
            after = following[at]
            # An entry is stale if its symbols have been merged since.
            if not symbols[at] or after == n or rank(symbols[at] + symbols[after]) != entry >> shift:
                continue
            symbols[at] += symbols[after]
            symbols[after] = ""
            after = following[at] = following[after]
            if after < n:
                previous[after] = at
                value = rank(symbols[at] + symbols[after])
                if value is not None:
                    heapq.heappush(heap, value << shift | at)
            before = previous[at]
            if before >= 0:
                value = rank(symbols[before] + symbols[at])
                if value is not None:
                    heapq.heappush(heap, value << shift | before)
        return [symbol for symbol in symbols if symbol]

    def encode(self, fragment: str, *, starts: bool) -> bytes:
        """The ids of a fragment as packed int32. `starts`: it is the first, or follows a special token.

        Invalid UTF-8 arrives as surrogate escapes, and its bytes become byte tokens.
        """
        if starts and self.add_space_prefix:
            fragment = " " + fragment
        text = fragment.replace(" ", SPACE)
        if not text.isascii():
            data = text.encode("utf-8", "surrogateescape")
            try:
                data.decode("utf-8")
            except UnicodeDecodeError:
                return self._encode_invalid(data)
        return self._memo.encode(self.split(text))

    def _encode_invalid(self, data: bytes) -> bytes:
        """Symbols that are no characters merge with nothing, so the valid text between them stands alone."""
        parts: list[bytes] = []
        valid: list[str] = []
        for symbol in _SYMBOL.findall(data):
            try:
                valid.append(symbol.decode("utf-8"))
            except UnicodeDecodeError:
                parts.append(self._memo.encode(self.split("".join(valid))))
                parts.append(np.array(self._spell(symbol), np.int32).tobytes())
                valid = []
        parts.append(self._memo.encode(self.split("".join(valid))))
        return b"".join(parts)

    def piece(self, token: str, kind: TokenType) -> bytes:
        """The bytes that a token stands for in text."""
        return spelt_piece(token, kind)


def spelt_piece(token: str, kind: TokenType) -> bytes:
    """The bytes that a token of a SentencePiece vocabulary stands for in text."""
    if kind == TokenType.NORMAL:
        return token.replace(SPACE, " ").encode("utf-8", "surrogateescape")
    if kind == TokenType.BYTE:
        return byte_of_token(token)
    if kind in (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN):
        return token.encode("utf-8", "surrogateescape")
    return b""


def splitter(tokens: list[str], *, cut_newlines: bool = True) -> Callable[[str], list[str]]:
    """Cuts text where no token spans the cut: before U+2581, and around runs of newlines if asked for.

    Holds only for cuts that the vocabulary allows. Characters after which some token has a U+2581 inside it keep
    theirs, and a newline is cut off only if no token has one beside another character.
    """
    joined = "\0".join(tokens)
    newlines = "\n" if cut_newlines and not re.search(r"[^\0\n]\n|\n[^\0\n]", joined) else ""
    before_space = set(re.findall(f"([^{SPACE}\0]){SPACE}", joined))
    if not before_space:
        run = f"{SPACE}*[^{SPACE}{newlines}]+|{SPACE}+"
        return re.compile(rf"\n+|{run}" if newlines else run).findall
    held = "".join(re.escape(character) for character in sorted(before_space))
    cut = f"(?<=[^{SPACE}{held}])(?={SPACE})"
    if newlines:
        cut += r"|(?<=\n)(?!\n)|(?<!\n)(?=\n)"
    divide = re.compile(cut).split
    return lambda text: [part for part in divide(text) if part]
