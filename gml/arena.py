"""Memory for tensors that live as long as their context: a bump allocator.

Arrives: a number of bytes; leaves: a writable numpy byte array inside one of the arena's chunks. Allocation moves a pointer,
`release` moves it back to a mark and `reset` to the start, both in constant time. Chunks never move, so addresses stay valid
while the arena grows. Next module: `gml/tensor.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gml.debug import knobs
from gml.errors import ArenaError

ALIGNMENT = 64
DEFAULT_CHUNK_BYTES = 1 << 20
#: more than any machine's memory: a request above it is a mistake in sizes, not a big tensor
MAX_REQUEST_BYTES = 1 << 46


@dataclass(frozen=True)
class Mark:
    """A point in an arena's life that `Arena.release` goes back to."""

    chunk: int
    offset: int
    used_bytes: int
    generation: int


class Arena:
    """A bump allocator that grows in chunks, or has a hard limit.

    limit_bytes  refuse to hold more than this (None: grow as needed)
    chunk_bytes  smallest chunk asked of the system
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
        self._chunk = 0
        self._offset = 0

    @property
    def capacity_bytes(self) -> int:
        """Bytes held from the system."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def alloc(self, n_bytes: int, what: str = "a tensor") -> np.ndarray:
        """`n_bytes` of memory aligned to 64 bytes, as a uint8 array; contents are undefined.

        `what` names the tensor in the error. Raises `ArenaError` when the limit, or the system's memory, is exceeded.
        """
        if not 0 <= n_bytes <= MAX_REQUEST_BYTES:
            raise ArenaError(f"{what}: cannot allocate {n_bytes} bytes; sizes must give between 0 and 2^46 bytes")
        padded = -(-n_bytes // ALIGNMENT) * ALIGNMENT
        if self.limit_bytes is not None and self.used_bytes + padded > self.limit_bytes:
            left = self.limit_bytes - self.used_bytes
            raise ArenaError(
                f"{what}: asked for {n_bytes} bytes, {left} of the arena's {self.limit_bytes} are left; "
                "raise limit_bytes or release tensors"
            )
        while self._chunk < len(self._chunks) and self._offset + padded > self._chunks[self._chunk].nbytes:
            self._chunk += 1
            self._offset = 0
        if self._chunk == len(self._chunks):
            self._chunks.append(aligned_bytes(max(padded, self.chunk_bytes), what))
            self._offset = 0
        memory = self._chunks[self._chunk][self._offset : self._offset + n_bytes]
        self._offset += padded
        self.used_bytes += padded
        self.high_water_bytes = max(self.high_water_bytes, self.used_bytes)
        return memory

    def mark(self) -> Mark:
        """The present point, to go back to with `release`."""
        return Mark(self._chunk, self._offset, self.used_bytes, self.generation)

    def release(self, mark: Mark) -> None:
        """Give up everything allocated since `mark`. Raises `ArenaError` for a mark from before a reset or already passed."""
        if mark.generation != self.generation or (mark.chunk, mark.offset) > (self._chunk, self._offset):
            raise ArenaError("this mark is no longer part of the arena: it was released past or the arena was reset")
        self._poison(mark.chunk, mark.offset)
        self._chunk, self._offset, self.used_bytes = mark.chunk, mark.offset, mark.used_bytes

    def reset(self) -> None:
        """Give up everything; the chunks are kept for the next use."""
        self._poison(0, 0)
        self._chunk = self._offset = self.used_bytes = 0
        self.generation += 1

    def _poison(self, chunk: int, offset: int) -> None:
        """With GML_POISON, fill what is given up with 0xFF: NaN in every float format."""
        if not knobs.poison:
            return
        for index in range(chunk, min(self._chunk + 1, len(self._chunks))):
            start = offset if index == chunk else 0
            end = self._offset if index == self._chunk else self._chunks[index].nbytes
            self._chunks[index][start:end] = 0xFF


def aligned_bytes(n_bytes: int, what: str = "a buffer") -> np.ndarray:
    """A fresh uint8 array of `n_bytes` whose address is a multiple of 64. Raises `ArenaError` when memory is out."""
    try:
        raw = np.empty(n_bytes + ALIGNMENT, dtype=np.uint8)
    except (MemoryError, ValueError):
        raise ArenaError(f"{what}: the system has no {n_bytes} bytes of memory left") from None
    shift = -raw.ctypes.data % ALIGNMENT
    return raw[shift : shift + n_bytes]
