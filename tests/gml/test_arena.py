"""The arena: alignment, marks, reset, limits, poison; what it gave never moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gml
from gml.arena import ALIGNMENT, Arena, aligned_bytes
from gml.debug import knobs


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_memory_is_aligned_and_of_the_size_asked_for() -> None:
    arena = Arena(chunk_bytes=256)
    for n in (0, 1, 63, 64, 65, 1000):
        memory = arena.alloc(n)
        assert memory.nbytes == n
        assert memory.dtype == np.uint8
        assert address(memory) % ALIGNMENT == 0
    assert address(aligned_bytes(7)) % ALIGNMENT == 0


def test_pointers_never_move_and_never_overlap_while_the_arena_grows() -> None:
    arena = Arena(chunk_bytes=512)
    pieces = [arena.alloc(n) for n in (100, 600, 64, 5000, 1, 300) * 5]
    for i, piece in enumerate(pieces):
        piece[:] = i
    addresses = [address(p) for p in pieces]
    arena.alloc(1 << 16)
    assert [address(p) for p in pieces] == addresses
    for i, piece in enumerate(pieces):
        assert (piece == i).all()


def test_release_gives_the_same_memory_again() -> None:
    arena = Arena(chunk_bytes=1024)
    arena.alloc(100)
    mark = arena.mark()
    used = arena.used_bytes
    first = arena.alloc(500)
    arena.alloc(5000)
    arena.release(mark)
    assert arena.used_bytes == used
    assert address(arena.alloc(500)) == address(first)
    assert arena.high_water_bytes > used + 5000


def test_marks_nest_and_stale_ones_are_refused() -> None:
    arena = Arena()
    outer = arena.mark()
    arena.alloc(64)
    inner = arena.mark()
    arena.alloc(64)
    arena.release(inner)
    arena.release(inner)
    arena.release(outer)
    arena.alloc(640)
    with pytest.raises(gml.ArenaError, match="no longer part"):
        arena.release(inner)
    arena.release(outer)
    arena.reset()
    with pytest.raises(gml.ArenaError, match="no longer part"):
        arena.release(outer)


def test_marks_of_another_arena_are_refused() -> None:
    arena, other = Arena(), Arena()
    arena.mark()
    with pytest.raises(gml.ArenaError):
        arena.release(other.mark())


def test_marks_in_a_loop_do_not_pile_up() -> None:
    arena = Arena()
    for _ in range(1000):
        mark = arena.mark()
        arena.alloc(100)
        arena.release(mark)
    assert len(arena._marks) == 1


def test_reset_starts_again_in_the_same_memory() -> None:
    arena = Arena(chunk_bytes=256)
    first = arena.alloc(200)
    for _ in range(10):
        arena.alloc(200)
    capacity = arena.capacity_bytes
    arena.reset()
    assert arena.used_bytes == 0
    assert arena.capacity_bytes == capacity
    assert address(arena.alloc(200)) == address(first)


def test_the_limit_is_kept_and_the_error_says_what_is_left() -> None:
    arena = Arena(limit_bytes=1024)
    arena.alloc(512)
    with pytest.raises(gml.ArenaError, match=r"'cache'.*asked for 1000 bytes, 512 of the arena's 1024"):
        arena.alloc(1000, "'cache'")
    arena.alloc(512)
    assert arena.capacity_bytes <= 1024
    with pytest.raises(gml.ArenaError):
        arena.alloc(1)
    arena.reset()
    arena.alloc(1024)


def test_a_context_with_a_limit_names_the_tensor() -> None:
    context = gml.Context(limit_bytes=100)
    with pytest.raises(gml.ArenaError, match="'big' F32"):
        context.input("big", gml.F32, [1000])


@pytest.mark.parametrize("n", [-1, 1 << 47, 1 << 62])
def test_absurd_requests_are_refused(n: int) -> None:
    with pytest.raises(gml.ArenaError, match="cannot allocate"):
        Arena().alloc(n, "x")


def test_memory_that_the_system_does_not_have_is_an_arena_error() -> None:
    with pytest.raises(gml.ArenaError, match="no 70368744177664 bytes"):
        Arena().alloc(1 << 46, "x")


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(gml.ArenaError):
        Arena(limit_bytes=-1)


def test_poison_fills_what_is_given_up_with_nan() -> None:
    arena = Arena(chunk_bytes=256)
    knobs.set(poison=1)
    try:
        kept = arena.alloc(64).view(np.float32)
        kept[:] = 1
        mark = arena.mark()
        given_up = [arena.alloc(n).view(np.float32) for n in (64, 256, 1024)]
        for piece in given_up:
            piece[:] = 1
        arena.release(mark)
        assert all(np.isnan(piece).all() for piece in given_up)
        assert (kept == 1).all()
        arena.reset()
        assert np.isnan(kept).all()
    finally:
        knobs.set(poison=None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 700), st.sampled_from(["mark", "release", "reset"])), max_size=60))
def test_whatever_happens_live_pieces_stay_apart(steps: list) -> None:
    arena = Arena(limit_bytes=1 << 13, chunk_bytes=512)
    live: list[tuple[np.ndarray, int]] = []
    marks: list[tuple[gml.Mark, int]] = []
    for number, step in enumerate(steps):
        if step == "mark":
            marks.append((arena.mark(), len(live)))
        elif step == "release" and marks:
            mark, n_live = marks.pop()
            arena.release(mark)
            del live[n_live:]
        elif step == "reset":
            arena.reset()
            live.clear()
            marks.clear()
        elif isinstance(step, int):
            try:
                piece = arena.alloc(step)
            except gml.ArenaError:
                assert arena.used_bytes + step + 512 > 1 << 13
                continue
            piece[:] = number % 251
            live.append((piece, number % 251))
        assert arena.used_bytes <= arena.high_water_bytes
        assert arena.capacity_bytes <= 1 << 13
    for piece, value in live:
        assert (piece == value).all()
