"""Memory for tensors that live as long as their context: a bump allocator.

Arrives: a number of bytes; leaves: a writable numpy byte array inside one of the arena's chunks. Allocation moves a
pointer, `release` moves it back to a mark and `reset` to the start, both in constant time. Chunks never move, so
addresses stay valid while the arena grows. Next module: `gml/tensor.py`.
"""

from __future__ import annotations

import numpy as np

from gml.debug import knobs
from gml.errors import ArenaError
from gml.records import dataclass

ALIGNMENT = 64
DEFAULT_CHUNK_BYTES = 1 << 20
#: more than any machine's memory: a request above it is a mistake in sizes, not a big tensor
MAX_REQUEST_BYTES = 1 << 46


@dataclass(frozen=True)
class Mark:
    """A point in an arena's life that `Arena.release` goes back to; `depth` numbers the arena's open marks."""

    chunk: int
    offset: int
    used_bytes: int
    depth: int


class Arena:
    """A bump allocator that grows in chunks, or has a hard limit.

    limit_bytes  refuse to hold more than this (None: grow as needed)
    chunk_bytes  smallest chunk asked of the system

    `used_bytes` counts padding and the unused ends of chunks too, so that the limit is what the arena holds at most.
    """

    def __init__(self, limit_bytes: int | None = None, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        if limit_bytes is not None and limit_bytes < 0:
            raise ArenaError(f"an arena's limit must be at least 0 bytes, found {limit_bytes}")
        self.limit_bytes = limit_bytes
        self.chunk_bytes = max(chunk_bytes, ALIGNMENT)
        self.generation = 0
        self.used_bytes = 0
        self.high_water_bytes = 0
        self._chunks: list[np.ndarray] = []
        #: per chunk how far it was ever handed out: behind that its bytes are still the system's zeros
        self._used: list[int] = []
        self._chunk = 0
        self._offset = 0
        self._marks: list[Mark] = []

    @property
    def capacity_bytes(self) -> int:
        """Bytes held from the system."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def alloc(self, n_bytes: int, what: str = "a tensor", *, zero: bool = False) -> np.ndarray:
        """`n_bytes` of memory aligned to 64 bytes, as a uint8 array; contents are undefined, or zeros if asked for.

        Zeros that come from the system are not written: such memory takes room only when it is used. `what` names the
        tensor in the error. Raises `ArenaError` when the limit, or the system's memory, is exceeded.
        """
        if not 0 <= n_bytes <= MAX_REQUEST_BYTES:
            raise ArenaError(f"{what}: cannot allocate {n_bytes} bytes; sizes must give between 0 and 2^46 bytes")
        padded = -(-n_bytes // ALIGNMENT) * ALIGNMENT
        rest = self._chunks[self._chunk].nbytes - self._offset if self._chunks else 0
        fits = bool(self._chunks) and padded <= rest
        used_bytes = self.used_bytes + (0 if fits else rest) + padded
        if self.limit_bytes is not None and used_bytes > self.limit_bytes:
            left = max(rest, self.limit_bytes - self.used_bytes - rest)
            raise ArenaError(
                f"{what}: asked for {n_bytes} bytes, {left} of the arena's {self.limit_bytes} are left in one piece; "
                "raise limit_bytes or release tensors"
            )
        if not fits:
            self._next_chunk(padded, used_bytes - padded, what)
        start, used = self._offset, self._used[self._chunk]
        memory = self._chunks[self._chunk][start : start + n_bytes]
        if zero and start < used:
            memory[: used - start] = 0
        self._offset += padded
        self._used[self._chunk] = max(used, self._offset)
        self.used_bytes = used_bytes
        self.high_water_bytes = max(self.high_water_bytes, used_bytes)
        return memory

    def _next_chunk(self, n_bytes: int, used_bytes: int, what: str) -> None:
        """Go on at the start of a chunk with room for `n_bytes`: the next one kept from earlier use, or a new one."""
        following = self._chunk + 1 if self._chunks else 0
        if following == len(self._chunks) or self._chunks[following].nbytes < n_bytes:
            # nothing lives in the chunks behind this one: those kept from earlier use are too small and make way
            del self._chunks[following:], self._used[following:]
            size = self.chunk_bytes
            if self.limit_bytes is not None:
                size = min(size, self.limit_bytes - used_bytes)
            self._chunks.append(aligned_bytes(max(n_bytes, size), what, zero=True))
            self._used.append(0)
        self._chunk, self._offset = following, 0

    def mark(self) -> Mark:
        """The present point, to go back to with `release`."""
        if self._marks and (self._marks[-1].chunk, self._marks[-1].offset) == (self._chunk, self._offset):
            return self._marks[-1]
        self._marks.append(Mark(self._chunk, self._offset, self.used_bytes, len(self._marks)))
        return self._marks[-1]

    def release(self, mark: Mark) -> None:
        """Give up everything allocated since `mark`.

        Raises `ArenaError` for a mark released past, or from before a reset.
        """
        if mark.depth >= len(self._marks) or self._marks[mark.depth] is not mark:
            raise ArenaError("this mark is no longer part of the arena: it was released past or the arena was reset")
        del self._marks[mark.depth + 1 :]
        self._poison(mark.chunk, mark.offset)
        self._chunk, self._offset, self.used_bytes = mark.chunk, mark.offset, mark.used_bytes

    def reset(self) -> None:
        """Give up everything; the chunks are kept for the next use."""
        self._poison(0, 0)
        self._chunk = self._offset = self.used_bytes = 0
        self._marks.clear()
        self.generation += 1

    def _poison(self, chunk: int, offset: int) -> None:
        """With GML_POISON, fill what is given up with 0xFF: NaN in every float format."""
        if not knobs.poison:
            return
        for index in range(chunk, min(self._chunk + 1, len(self._chunks))):
            start = offset if index == chunk else 0
            end = self._offset if index == self._chunk else self._chunks[index].nbytes
            self._chunks[index][start:end] = 0xFF


def aligned_bytes(n_bytes: int, what: str = "a buffer", *, zero: bool = False) -> np.ndarray:
    """A fresh uint8 array of `n_bytes` whose address is a multiple of 64, with zeros in it if asked for.

    Raises `ArenaError` when memory is out.
    """
    try:
        raw = (np.zeros if zero else np.empty)(n_bytes + ALIGNMENT, dtype=np.uint8)
    except (MemoryError, ValueError):
        raise ArenaError(f"{what}: the system has no {n_bytes} bytes of memory left") from None
    shift = -raw.ctypes.data % ALIGNMENT
    return raw[shift : shift + n_bytes]
