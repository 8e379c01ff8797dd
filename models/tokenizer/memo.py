"""A bounded memo from words to their ids, and from ids to their bytes: what makes repeated text cheap.

Both are dicts that make what they lack, so that `map(memo.__getitem__, words)` runs without Python code for words seen
before. Values are packed int32: joining bytes is several times cheaper than a list of Python integers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

# Bounds on memory: words kept, and the longest word kept (in characters). About 200 bytes a word.
MAX_WORDS = 1 << 18
MAX_LENGTH = 64

# array's typecode for 32-bit integers: "i" is one on every platform that CPython 3.10 or newer supports.
INT32 = "i"
assert array(INT32).itemsize == 4


class WordMemo(dict[str, bytes]):
    """word -> packed ids, made by `encode_word` on first sight."""

    def __init__(self, encode_word: Callable[[str], list[int]]):
        super().__init__()
        self._encode_word = encode_word

    def __missing__(self, word: str) -> bytes:
        packed = array(INT32, self._encode_word(word)).tobytes()
        if len(word) <= MAX_LENGTH:
            if len(self) >= MAX_WORDS:
                self.clear()
            self[word] = packed
        return packed

    def encode(self, words: Iterable[str]) -> bytes:
        """The ids of words in turn, packed."""
        return b"".join(map(self.__getitem__, words))


class PieceMemo(dict[int, bytes]):
    """id -> bytes, made by `make` on first sight; it refuses ids outside the vocabulary, which bounds the memo."""

    def __init__(self, make: Callable[[int], bytes]):
        super().__init__()
        self._make = make

    def __missing__(self, token: int) -> bytes:
        piece = self[token] = self._make(token)
        return piece
