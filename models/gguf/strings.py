"""String arrays of a GGUF header, read in bulk and decoded when asked for.

Arrives: the header's bytes and where an array begins. Leaves: a `StringArray`, a sequence of str over one copy of the
array's bytes. A vocabulary of 262144 tokens becomes two objects, not 262144. Next module: `header.py`.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np

_unpack_length = struct.Struct("<Q").unpack_from
# The header is read through windows: numbers taken from a map one by one cost twice as much as from bytes.
_WINDOW_BYTES = 1 << 17


class StringArray(Sequence[str]):
    """Strings as they lie in the file: each a length (u64) and that many bytes, UTF-8 as a rule.

    Indexing, slicing and iterating give `str`, with surrogate escapes for bytes that are not UTF-8; `raw(i)` gives the
    bytes. Independent of the file: it may be closed.
    """

    __slots__ = ("_blob", "_starts")

    def __init__(self, blob: bytes, starts: np.ndarray) -> None:
        """`blob`: length-prefixed strings without gaps; `starts`: int64[n + 1], where each string's bytes begin in it,
        and 8 more than the end of the last one."""
        self._blob, self._starts = blob, starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    def raw(self, index: int) -> bytes:
        """The bytes of one string. Raises IndexError like a list."""
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"string {index} of an array of {n}")
        index %= n
        return self._blob[int(self._starts[index]) : int(self._starts[index + 1]) - 8]

    def iter_raw(self) -> Iterator[bytes]:
        """The bytes of every string in order."""
        blob, bounds = self._blob, self._starts.tolist()
        for start, following in pairwise(bounds):
            yield blob[start : following - 8]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.raw(index).decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[str]:
        """All strings as a list."""
        starts = self._starts[:-1]
        if not len(starts):
            return []
        # all at once: of each length one zero byte is left, to part the text at
        kept = np.ones(len(self._blob), dtype=bool)
        for back in range(2, 9):
            kept[starts - back] = False
        text = np.frombuffer(self._blob, dtype=np.uint8).copy()
        text[starts - 1] = 0
        strings = text[kept].tobytes().decode("utf-8", "surrogateescape").split("\0")[1:]
        if len(strings) != len(starts):  # some string has a zero in it
            return [raw.decode("utf-8", "surrogateescape") for raw in self.iter_raw()]
        return strings

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, StringArray):
            return self._blob == other._blob
        if isinstance(other, (list, tuple)):
            return self.tolist() == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        more = ", ..." if len(self) > 4 else ""
        return f"StringArray({len(self)}: {', '.join(map(repr, self[:4]))}{more})"

    @property
    def blob(self) -> bytes:
        """The strings with their lengths, as in a file."""
        return self._blob


def scan_strings(buffer: Any, at: int, count: int, end: int) -> tuple[array[int], int]:
    """Where `count` length-prefixed strings from byte `at` begin, and where the last one ends.

    Stops early where a string begins or ends past `end`: then fewer starts than `count` come back, or an end past
    `end`. One start per string is all that is stored; the caller has checked that 8 * count bytes are there.
    """
    starts = array("q")
    while len(starts) < count and at + 8 <= end:
        window = bytes(buffer[at : min(at + _WINDOW_BYTES, end)])
        first = len(starts)
        scanned = _scan_short(window, count - first, starts, at)
        # Strings that are long or hold zero bytes stop the fast way; some steps of the slow one lead past them.
        n_slow = 16 if len(starts) - first > 1000 else 1024
        at += _scan_any(window, scanned, min(n_slow, count - len(starts)), starts, at)
    return starts, at


def _scan_short(window: bytes, count: int, starts: array[int], base: int) -> int:
    """Up to `count` strings from the window's beginning, all at once, while they are short and hold no zero bytes.

    A length below 256 is one byte and seven zeros, and text has no zeros: so every place with seven zeros behind it may
    be a length, and it is one if the length before it leads there. Gives where the next string begins.
    """
    values = np.frombuffer(window, np.uint8)
    zeros = values == 0
    n = len(values) - 7
    if n <= 0:
        return 0
    places = zeros[1 : n + 1].copy()
    for shift in range(2, 8):
        places &= zeros[shift : n + shift]
    at = np.flatnonzero(places)
    if not len(at) or at[0] != 0:
        return 0
    following = at + 8 + values[at]
    broken = np.flatnonzero(following[:-1] != at[1:])
    n_found = min(int(broken[0]) + 1 if len(broken) else len(at), count)
    starts.frombytes((at[:n_found] + (base + 8)).astype(np.int64).tobytes())
    return int(following[n_found - 1])


def _scan_any(window: bytes, at: int, count: int, starts: array[int], base: int) -> int:
    """Up to `count` strings from window[at:], one by one. Gives where the next string begins."""
    append, last, base = starts.append, len(window) - 8, base + 8
    for _ in range(count):
        if at > last:
            break
        append(base + at)
        at += _unpack_length(window, at)[0] + 8
    return at


def string_array(buffer: Any, at: int, starts: array[int], end: int) -> StringArray:
    """The array whose strings lie in buffer[at:end] and begin at `starts` (of the buffer)."""
    bounds = np.empty(len(starts) + 1, np.int64)
    bounds[:-1] = starts
    bounds[-1] = end + 8
    bounds -= at
    return StringArray(bytes(buffer[at:end]), bounds)
