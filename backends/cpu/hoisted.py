"""What is computed once from constants alone (packed weights): its memory, one copy for all programs of the process.

Arrives: tensors and the bytes that a setup made of them; leaves: the same bytes for the next program over the same
weights. Next module: `executable.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import mmap
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gml.arena import ALIGNMENT, aligned_bytes
from gml.backends.cpu.runtime import is_inside_step
from gml.errors import ArenaError
from gml.tensor import Tensor

HUGE_PAGE_BYTES = 2 << 20


class Origin:
    """How a tensor was made, down to the identities of its leaves.

    key     equal for tensors that were made alike from the same leaves
    leaves  what it was made from
    alive   objects whose identity is part of the key
    """

    def __init__(self, tensor: Tensor, known: dict[Tensor, bytes]) -> None:
        self.leaves: list[Tensor] = []
        self.alive: list[Any] = []
        nodes = _ancestors(tensor)
        for node in nodes:
            if node.is_leaf:
                self.leaves.append(node)
            else:
                self.alive += [node.op, node.attrs, node.type]
            if node not in known:
                known[node] = _digest(node, known)
        self.key = known[tensor]


def _ancestors(tensor: Tensor) -> list[Tensor]:
    """The tensor and all that it depends on, sources first."""
    found: set[Tensor] = set()
    pending = [tensor]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.src)
    return sorted(found, key=lambda t: t.serial)


def _digest(node: Tensor, known: dict[Tensor, bytes]) -> bytes:
    if node.is_leaf:
        return hashlib.sha256(f"leaf {id(node)}".encode()).digest()
    looks = (node.nb, node.offset) if node.view_of is not None else ()
    row = f"{id(node.op)} {node.attrs!r} {id(node.type)} {node.ne} {looks}"
    return hashlib.sha256(row.encode() + b"".join(known[s] for s in node.src)).digest()


class _Entry:
    """A buffer that was made from some leaves; the entry goes when one of them does."""

    def __init__(self, origin: Origin, buffer: np.ndarray) -> None:
        self.buffer, self._alive = buffer, origin.alive
        key = origin.key
        self._watch = [weakref.ref(leaf, lambda _: _entries.pop(key, None)) for leaf in origin.leaves]


_entries: dict[bytes, _Entry] = {}
_lock = threading.Lock()
_turn = threading.Lock()


def find(origin: Origin) -> np.ndarray | None:
    """What another program has made already, or None."""
    entry = _entries.get(origin.key)
    return None if entry is None else entry.buffer


def share(origin: Origin, buffer: np.ndarray) -> np.ndarray:
    """Offer a finished buffer to other programs; gives the one to use, which is another's when that was there first."""
    if not origin.leaves:
        return buffer
    with _lock:
        return _entries.setdefault(origin.key, _Entry(origin, buffer)).buffer


@contextlib.contextmanager
def one_program() -> Iterator[None]:
    """One program's setup at a time: the next one finds what this one makes.

    Inside a step (a user's function that runs another program) nothing is waited for: whoever is ahead may be waiting
    for that step's threads.
    """
    if is_inside_step():
        yield
        return
    with _turn:
        yield


def _in_child() -> None:
    """After a fork: locks may be held by threads that are not here."""
    global _lock, _turn
    _lock, _turn = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


# -- memory ------------------------------------------------------------------------------------------------------------


def huge_bytes(n_bytes: int, what: str) -> np.ndarray:
    """Memory for a large buffer that is read in order: in huge pages where the system has them.

    Raises `ArenaError` when memory is out.
    """
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if n_bytes < HUGE_PAGE_BYTES or advice is None:
        return aligned_bytes(n_bytes, what)
    try:
        # private: huge pages of shared memory are switched off on most systems
        block = mmap.mmap(-1, n_bytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError):
        raise ArenaError(f"{what}: the system has no {n_bytes} bytes of memory left") from None
    with contextlib.suppress(OSError):
        block.madvise(advice)
    raw = np.frombuffer(block, dtype=np.uint8)
    shift = -raw.ctypes.data % HUGE_PAGE_BYTES
    return raw[shift : shift + n_bytes]


def huge_pieces(sizes: Sequence[int]) -> list[np.ndarray]:
    """Buffers of these sizes beside each other in one stretch of memory: huge pages of their own would leave gaps.

    The stretch lives as long as one of them does. Raises `ArenaError` when memory is out.
    """
    starts = list(itertools.accumulate((-(-n // ALIGNMENT) * ALIGNMENT for n in sizes), initial=0))
    whole = huge_bytes(starts[-1], f"{len(sizes)} packed constants")
    return [whole[start : start + n] for start, n in zip(starts, sizes, strict=False)]


def release_pages(arrays: Iterable[np.ndarray]) -> None:
    """Tell the system that pages of mapped files are not needed for now; they are read again on demand.

    Anything but a read-only mapping is left alone: its pages may exist nowhere else.
    """
    for array in arrays:
        found = _mapping(array)
        if found is None:
            continue
        mapping, start = found
        page = mmap.PAGESIZE
        first = -(-start // page) * page
        length = (start + array.nbytes) // page * page - first
        if length > 0:
            with contextlib.suppress(OSError, ValueError):
                mapping.madvise(mmap.MADV_DONTNEED, first, length)


def _mapping(array: np.ndarray) -> tuple[Any, int] | None:
    """The read-only mapped file that an array looks into, and how far from its start."""
    base: Any = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if not isinstance(base, mmap.mmap) or not hasattr(base, "madvise") or base.closed:
        return None
    with memoryview(base) as whole:
        if not whole.readonly:
            return None
    return base, array.ctypes.data - np.frombuffer(base, dtype=np.uint8).ctypes.data
