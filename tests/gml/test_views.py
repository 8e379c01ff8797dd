"""Views: random chains of view ops are what numpy makes of them; copies keep every bit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gml
from gml.quants.base import QuantType
from gml.tensor import Tensor

#: a block format of 4 elements: their sum is lost, so that only whole blocks survive a copy
PAIRS = QuantType("PAIRS", 9998, 4, 6, [("d", "<f2"), ("codes", "u1", (4,))])


def value(tensor: Tensor) -> np.ndarray:
    return gml.compile(tensor.keep(), "reference")()


def four_axes(array: np.ndarray) -> np.ndarray:
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


@st.composite
def chains(draw: st.DrawFn) -> tuple[Tensor, np.ndarray]:
    """A tensor at the end of some views, and the same thing done by numpy on four axes."""
    ne = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    array = four_axes(np.arange(int(np.prod(ne)), dtype=np.float32).reshape(tuple(reversed(ne))))
    tensor = gml.Context().constant(array)
    for _ in range(draw(st.integers(1, 6))):
        step = draw(st.sampled_from(["permute", "transpose", "slice", "split", "cont", "flat"]))
        shape = array.shape
        if step == "permute":
            axes = draw(st.permutations(range(4)))
            tensor = gml.permute(tensor, *axes)
            # numpy names for each new axis the old one; ggml for each old one the new
            array = array.transpose([3 - list(axes).index(3 - i) for i in range(4)])
        elif step == "transpose":
            tensor, array = gml.transpose(tensor), array.swapaxes(2, 3)
        elif step == "cont":
            tensor = gml.cont(tensor)
        elif step == "slice" and array.size and tensor.nb[0] == 4:
            first = [draw(st.integers(0, n - 1)) for n in shape]
            n = [draw(st.integers(1, m - f)) for m, f in zip(shape, first, strict=True)]
            offset = sum(f * b for f, b in zip(reversed(first), tensor.nb, strict=True))
            tensor = gml.view(tensor, n[::-1], nb=tensor.nb[1:], offset=offset)
            array = array[tuple(slice(f, f + m) for f, m in zip(first, n, strict=True))]
        elif step == "flat" and tensor.is_contiguous():
            tensor, array = gml.reshape(tensor, [array.size]), array.reshape(1, 1, 1, -1)
        elif step == "split" and tensor.is_contiguous():
            divisors = [d for d in range(1, max(array.size, 1) + 1) if array.size % d == 0]
            d = draw(st.sampled_from(divisors))
            tensor, array = gml.reshape(tensor, [array.size // d, d]), array.reshape(1, 1, d, -1)
    return tensor, array


@settings(max_examples=250, deadline=None)
@given(chains())
def test_chains_of_views_are_numpys(chain: tuple[Tensor, np.ndarray]) -> None:
    tensor, array = chain
    assert tuple(reversed(tensor.ne)) == array.shape
    np.testing.assert_array_equal(four_axes(value(tensor)), array)
    np.testing.assert_array_equal(value(gml.cont(tensor)), value(tensor))


@settings(max_examples=250, deadline=None)
@given(chains())
def test_contiguity_is_numpys(chain: tuple[Tensor, np.ndarray]) -> None:
    tensor, _ = chain
    if 0 in tensor.ne:
        assert tensor.is_contiguous()
        return
    ne, nb = tensor.ne[::-1], tensor.nb[::-1]
    seen = np.ndarray(ne, np.float32, np.zeros(4096, np.float32), 0, nb)  # type: ignore[arg-type]
    assert tensor.is_contiguous() == seen.flags.c_contiguous


@settings(max_examples=100, deadline=None)
@given(chains(), st.data())
def test_views_reach_no_byte_outside_the_storage(chain: tuple[Tensor, np.ndarray], data: Any) -> None:
    """Whatever window is asked for: it is refused, or every element of it lies inside."""
    tensor, _ = chain
    ne = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    nb = data.draw(st.lists(st.integers(-1, 12).map(lambda n: 4 * n), max_size=3))
    offset = data.draw(st.integers(-1, 40)) * 4
    try:
        window = gml.view(tensor, ne, nb=nb, offset=offset)
    except gml.ShapeError:
        return
    end = window.root.n_bytes
    for index in itertools.product(*(range(n) for n in window.ne)):  # type: ignore[arg-type]
        at = window.offset + sum(i * b for i, b in zip(index, window.nb, strict=True))
        assert 0 <= at <= end - 4  # type: ignore[operator]
    value(window)


def test_a_size_of_1_never_breaks_contiguity() -> None:
    a = gml.Context().constant(np.zeros((5, 1, 7), np.float32))
    assert gml.permute(a, 0, 2, 1, 3).is_contiguous()
    assert gml.view(a, [7, 1], nb=[400 - 400 + 12]).is_contiguous()
    assert not gml.transpose(gml.reshape(a, [7, 5])).is_contiguous()
    assert gml.view(a, [7, 2], nb=[56]).is_contiguous(1)
    assert not gml.view(a, [7, 2], nb=[56]).is_contiguous()


def test_run_time_views_are_bounded_by_their_dims_bounds() -> None:
    cache = gml.Context().state("cache", gml.F32, [8, 16])
    n = gml.Dim("n", max=16)
    seen = gml.view(cache, [4, n, 2], nb=[32, 16])
    cache.set(np.arange(128, dtype=np.float32).reshape(16, 8))
    program = gml.compile(seen.keep(), "reference")
    program.run(n=3)
    want = np.arange(128, dtype=np.float32).reshape(16, 2, 4).transpose(1, 0, 2)[:, :3]
    np.testing.assert_array_equal(program.read(seen), want)
    with pytest.raises(gml.ShapeError, match="ends at byte"):
        gml.view(cache, [4, gml.Dim("m", max=17), 2], nb=[32, 16])


# -- copies keep bits --------------------------------------------------------------------------------------------------


def test_copies_keep_what_float32_cannot_hold() -> None:
    context = gml.Context()
    doubles = context.constant(np.array([[1 + 2.0**-50, 2.0**60 + 1], [1e300, -0.0]]), type=gml.F64)
    longs = context.constant(np.array([[(1 << 62) + 1, -1], [2, 3]]), type=gml.I64)
    nan = context.constant(np.zeros((2, 2)), type=gml.F16)
    nan.bytes()[:] = np.array([0x7E01, 0xFE02, 0x0001, 0x8000], "<u2").view(np.uint8)
    for tensor in (doubles, longs, nan):
        for copy in (gml.dup(tensor), gml.cont(gml.transpose(tensor))):
            target = context.state(f"t{tensor.serial}{copy.serial}", tensor.type, [2, 2])
            gml.compile(gml.cpy(copy, target), "reference").run()
            stored = target.bytes().view(tensor.type.numpy).reshape(2, 2)
            source = tensor.bytes().view(tensor.type.numpy).reshape(2, 2)
            want = source if copy.op is not None and copy.op.name == "dup" else source.T
            np.testing.assert_array_equal(stored.tobytes(), np.ascontiguousarray(want).tobytes())


def test_blocks_are_copied_unchanged_and_rows_permute() -> None:
    context = gml.Context()
    raw = np.random.default_rng(0).integers(0, 256, 3 * 2 * 2 * 6, dtype=np.uint8)
    a = context.from_buffer(raw, PAIRS, [8, 3, 2])
    rows = raw.reshape(2, 3, 12)
    target = context.state("target", PAIRS, [8, 2, 3])
    gml.compile(gml.cpy(gml.permute(a, 0, 2, 1, 3), target), "reference").run()
    np.testing.assert_array_equal(target.bytes().reshape(3, 2, 12), rows.transpose(1, 0, 2))
    window = gml.view(a, [4, 2], nb=[12], offset=18)
    small = context.state("small", PAIRS, [4, 2])
    gml.compile(gml.cpy(gml.cont(window), small), "reference").run()
    np.testing.assert_array_equal(small.bytes().reshape(2, 6), [rows[0, 1, 6:], rows[0, 2, 6:]])


def test_block_formats_keep_to_their_rules() -> None:
    a = gml.Context().from_buffer(np.zeros(72, np.uint8), PAIRS, [8, 3, 2])
    assert a.nb == (6, 12, 36, 72)
    assert a.n_bytes == 72
    assert gml.reshape(a, [24, 2]).nb == (6, 36, 72, 72)
    for refused in (
        lambda: gml.transpose(a),
        lambda: gml.permute(a, 1, 0, 2, 3),
        lambda: gml.reshape(a, [6, 8]),
        lambda: gml.view(a, [6, 2], nb=[12]),
        lambda: gml.view(a, [4], offset=4),
        lambda: gml.cast(a, PAIRS) and gml.cast(gml.Context().constant(np.zeros(8, np.float32)), PAIRS),
        lambda: gml.add(a, a),
    ):
        with pytest.raises(gml.ShapeError):
            refused()


def test_a_copy_does_not_see_later_writes() -> None:
    context = gml.Context()
    state = context.state("s", gml.F32, [3])
    state.set(np.array([1, 2, 3], np.float32))
    before = gml.cont(state)
    after = gml.cpy(context.constant(np.array([7, 8, 9], np.float32)), state)
    first, second = gml.compile(gml.Graph([before, after]), "reference")()
    np.testing.assert_array_equal(first, [1, 2, 3])
    np.testing.assert_array_equal(second, [7, 8, 9])
    np.testing.assert_array_equal(state.numpy(), [7, 8, 9])
