"""SentencePiece's precompiled character map: a normaliser as a double-array trie of byte strings to replacements.

Arrives: the bytes of `tokenizer.ggml.precompiled_charsmap` (also in tokenizer.json and in SentencePiece models).
Leaves: a `CharsMap` that replaces, at each place of a text, the longest key that stands there. Layout, little endian:
uint32 size of the trie in bytes; the trie, uint32 units; replacements, each ended by a zero byte. A unit holds bits 0-7
its label, 8 "a value follows", 9 "offset is times 256", 10-30 offset, 31 "this is a value". The map of NFKC has 224,711
keys, so they are looked up, never listed. Source: sentencepiece normalizer.cc, darts-clone. Next modules: `unigram.py`,
`normalizers.py`.
"""

from __future__ import annotations

from operator import add

import numpy as np

from gml.errors import TokenizerError

# No key is longer (in characters; NFKC's longest is 10 bytes): a bound for tries that go in circles.
MAX_KEY = 64

_LABEL, _HAS_VALUE, _IS_VALUE = 0xFF, 1 << 8, 1 << 31


class CharsMap:
    """Replaces, from left to right, the longest key at each place.

    Works on str with surrogate escapes. Raises TokenizerError where the bytes do not fit together; a trie that leads
    outside itself is found when a text goes there.
    """

    def __init__(self, data: bytes):
        if len(data) < 4:
            raise TokenizerError(f"precompiled charsmap: expected at least 4 bytes, found {len(data)}")
        n_bytes = int.from_bytes(data[:4], "little")
        if n_bytes % 4 or n_bytes + 4 > len(data) or not n_bytes:
            raise TokenizerError(f"precompiled charsmap: a trie of {n_bytes} bytes does not fit into {len(data)} bytes")
        self.data = data
        self._units: list[int] = np.frombuffer(data, "<u4", n_bytes // 4, 4).tolist()
        self._texts = data[4 + n_bytes :]
        self._pairs = _Pairs(self)

    def _values(self, key: bytes) -> tuple[list[tuple[int, int]], bool]:
        """(length, node of the value) of all keys that the bytes begin with, and whether longer ones may follow."""
        units, found = self._units, []
        n_units = len(units)
        node = _offset(units[0])
        for n, byte in enumerate(key):
            node ^= byte
            # The trie ends keys with a zero byte.
            if not byte or node >= n_units:
                return found, False
            unit = units[node]
            if unit & (_IS_VALUE | _LABEL) != byte:
                return found, False
            node ^= _offset(unit)
            if unit & _HAS_VALUE:
                found.append((n + 1, node))
        return found, True

    def _text(self, node: int) -> str:
        if node >= len(self._units):
            raise TokenizerError(f"precompiled charsmap: unit {node} is outside a trie of {len(self._units)} units")
        start = self._units[node] & ~_IS_VALUE
        end = self._texts.find(b"\0", start)
        if start >= len(self._texts) or end < 0:
            raise TokenizerError(f"precompiled charsmap: no replacement ends after byte {start} of {len(self._texts)}")
        return self._texts[start:end].decode("utf-8", "surrogateescape")

    def shortest(self, text: str) -> str | None:
        """What replaces the shortest key that the text begins with, or None."""
        found, _ = self._values(text.encode("utf-8", "surrogateescape"))
        return self._text(found[0][1]) if found else None

    def longest(self, text: str, at: int) -> tuple[int, str] | None:
        """The longest key at a place: where it ends and what replaces it, or None."""
        longest = None
        n_bytes, end, key = 0, at, b""
        while end < min(len(text), at + MAX_KEY):
            # A few characters at a time: keys are short.
            key += text[end : end + 4].encode("utf-8", "surrogateescape")
            end += 4
            found, alive = self._values(key)
            if not alive:
                break
        else:
            found, _ = self._values(key)
        ends = dict(found)
        for n, character in enumerate(text[at:end]):
            n_bytes += len(character.encode("utf-8", "surrogateescape"))
            if n_bytes in ends:
                longest = at + n + 1, self._text(ends[n_bytes])
        return longest

    def begins(self, pair: str) -> bool:
        """Whether a key may stand at the first of two characters."""
        found, alive = self._values(pair.encode("utf-8", "surrogateescape"))
        return alive or bool(found)

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Where keys stand and what replaces them: (start, end, replacement), in order."""
        found: list[tuple[int, int, str]] = []
        end = 0
        candidates = map(self._pairs.__getitem__, map(add, text, text[1:] + "\0"))
        for at in [at for at, candidate in enumerate(candidates) if candidate]:
            if at >= end:
                match = self.longest(text, at)
                if match is not None:
                    end = match[0]
                    found.append((at, end, match[1]))
        return found

    def normalize(self, text: str) -> str:
        """The text with all replacements made."""
        parts: list[str] = []
        end = 0
        for start, stop, replacement in self.spans(text):
            parts += [text[end:start], replacement]
            end = stop
        return "".join([*parts, text[end:]]) if parts else text


# Pairs of characters kept: a bound on memory.
MAX_PAIRS = 1 << 18


class _Pairs(dict[str, bool]):
    """Two characters -> whether a key may stand at the first: most text has none, and then costs no Python code."""

    def __init__(self, charsmap: CharsMap):
        super().__init__()
        self._begins = charsmap.begins

    def __missing__(self, pair: str) -> bool:
        if len(self) >= MAX_PAIRS:
            self.clear()
        self[pair] = result = self._begins(pair)
        return result


def _offset(unit: int) -> int:
    return (unit >> 10 & 0x1FFFFF) << ((unit & 0x200) >> 6)
