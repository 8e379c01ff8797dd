"""Convolutions and pooling against torch, and by their definition over shifted copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_conformance import assert_near, leaves, normal, torch_or_skip, two_leaves, value

import gml
from gml.tensor import Tensor


@pytest.fixture(scope="module")
def torch() -> Any:
    """torch, or a skip that names the extra."""
    return torch_or_skip()


def tensor(torch: Any, array: np.ndarray) -> Any:
    return torch.from_numpy(array).double()


#: (height, width) of the input, of the kernel, stride, padding, dilation
WINDOWS = [
    ((7, 9), (3, 3), (1, 1), (0, 0), (1, 1)),
    ((8, 5), (3, 2), (2, 1), (1, 0), (1, 1)),
    ((11, 13), (2, 4), (3, 2), (2, 3), (2, 1)),
    ((33, 7), (5, 1), (4, 5), (0, 2), (3, 1)),
    ((1, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((1, 1), (3, 3), (1, 1), (1, 1), (1, 1)),
]


def pair(height_width: tuple[int, int]) -> tuple[int, int]:
    """torch's (height, width) as (width, height)."""
    return height_width[1], height_width[0]


@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "dilation"), WINDOWS)
def test_torch_conv_2d(torch: Any, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> None:
    w, x = normal(1, 5, 3, *kernel), normal(2, 2, 3, *size)
    expected = torch.nn.functional.conv2d(tensor(torch, x), tensor(torch, w), None, stride, padding, dilation)
    assert_near(value(gml.conv_2d(*two_leaves(w, x), pair(stride), pair(padding), pair(dilation))), expected.numpy())


@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "dilation"), WINDOWS)
def test_torch_im2col(torch: Any, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> None:
    w, x = normal(1, 1, 3, *kernel), normal(2, 2, 3, *size)
    columns = torch.nn.functional.unfold(tensor(torch, x), kernel, dilation, padding, stride)
    found = value(gml.im2col(*two_leaves(w, x), pair(stride), pair(padding), pair(dilation)))
    np.testing.assert_array_equal(found.reshape(2, -1, found.shape[-1]), columns.transpose(1, 2).numpy())


@pytest.mark.parametrize(
    ("n", "k", "stride", "padding", "dilation"), [(33, 3, 1, 1, 1), (17, 4, 3, 2, 2), (5, 5, 1, 0, 1), (1, 3, 2, 4, 2)]
)
def test_torch_conv_1d(torch: Any, n: int, k: int, stride: int, padding: int, dilation: int) -> None:
    w, x = normal(1, 6, 4, k), normal(2, 3, 4, n)
    expected = torch.nn.functional.conv1d(tensor(torch, x), tensor(torch, w), None, stride, padding, dilation)
    assert_near(value(gml.conv_1d(*two_leaves(w, x), stride, padding, dilation)), expected[None].numpy())


#: (height, width) of the input, of the window, stride, padding of at most half a window (torch's limit)
POOLS = [
    ((8, 6), (2, 3), (2, 3), (0, 0)),
    ((7, 9), (3, 2), (1, 2), (1, 0)),
    ((33, 7), (5, 3), (4, 1), (2, 1)),
    ((2, 2), (3, 3), (2, 2), (1, 1)),
    ((1, 1), (1, 1), (1, 1), (0, 0)),
]


@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), POOLS)
def test_torch_pool_2d(torch: Any, size: Any, kernel: Any, stride: Any, padding: Any) -> None:
    x = normal(1, 2, 3, *size) - 3  # below zero, so that padding would win a maximum that counted it
    how = pair(kernel), pair(stride), pair(padding)
    (a,) = leaves(x)
    mean = torch.nn.functional.avg_pool2d(tensor(torch, x), kernel, stride, padding)
    assert_near(value(gml.pool_2d(a, "avg", *how)), mean.numpy())
    largest = torch.nn.functional.max_pool2d(tensor(torch, x), kernel, stride, padding)
    np.testing.assert_array_equal(value(gml.pool_2d(a, "max", *how)), largest.numpy())


@pytest.mark.parametrize(
    ("n", "kernel", "stride", "padding"), [(12, 3, 3, 0), (33, 4, 2, 2), (7, 5, 1, 1), (2, 3, 2, 1)]
)
def test_torch_pool_1d(torch: Any, n: int, kernel: int, stride: int, padding: int) -> None:
    x = normal(1, 2, 3, n) - 3
    (a,) = leaves(x)
    mean = torch.nn.functional.avg_pool1d(tensor(torch, x), kernel, stride, padding, count_include_pad=False)
    assert_near(value(gml.pool_1d(a, "avg", kernel, stride, padding)), mean[None].numpy())
    largest = torch.nn.functional.max_pool1d(tensor(torch, x), kernel, stride, padding)
    np.testing.assert_array_equal(value(gml.pool_1d(a, "max", kernel, stride, padding)), largest[None].numpy())


def test_a_window_defaults_to_steps_of_its_own_size() -> None:
    (a,) = leaves(normal(1, 3, 8, 6))
    np.testing.assert_array_equal(value(gml.pool_2d(a, "max", (2, 4))), value(gml.pool_2d(a, "max", (2, 4), (2, 4))))
    np.testing.assert_array_equal(value(gml.pool_1d(a, "avg", 2)), value(gml.pool_1d(a, "avg", 2, 2)))


def test_whole_numbers_come_out_exactly_in_half_precision() -> None:
    """F16 and BF16 hold small whole numbers, whose products and sums float32 makes without error."""
    rng = np.random.default_rng(3)
    w, x = (rng.integers(-8, 9, size=shape).astype(np.float32) for shape in ((4, 3, 3, 3), (1, 3, 9, 8)))
    expected = value(gml.conv_2d(*two_leaves(w, x), (2, 1), (1, 1)))
    assert np.abs(expected).max() > 100
    context = gml.Context()
    for types in ((gml.F16, gml.F32), (gml.BF16, gml.F16), (gml.F32, gml.BF16)):
        a, b = (context.constant(v, type=t) for v, t in zip((w, x), types, strict=True))
        np.testing.assert_array_equal(value(gml.conv_2d(a, b, (2, 1), (1, 1))), expected)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_conv_is_a_sum_of_shifted_copies(data: st.DataObject) -> None:
    """Tap by tap: the padded input, shifted by the tap's place and taken in strides, times the tap's weights."""
    kw, kh, dw, dh, sw, sh = (data.draw(st.integers(1, 3)) for _ in range(6))
    pw, ph = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    width = max(1, dw * (kw - 1) + 1 - 2 * pw) + data.draw(st.integers(0, 4))
    height = max(1, dh * (kh - 1) + 1 - 2 * ph) + data.draw(st.integers(0, 4))
    channels, n_out, batch = (data.draw(st.integers(0 if i == 2 else 1, 3)) for i in range(3))
    w, x = normal(kw, n_out, channels, kh, kw), normal(kh, batch, channels, height, width)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (ph, ph), (pw, pw)])
    n_w, n_h = (width + 2 * pw - dw * (kw - 1) - 1) // sw + 1, (height + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    expected = np.zeros((batch, n_out, n_h, n_w))
    for i, j in np.ndindex(kh, kw):
        rows, columns = i * dh + sh * np.arange(n_h), j * dw + sw * np.arange(n_w)
        expected += np.einsum("oc,bchw->bohw", w[:, :, i, j], padded[:, :, rows][..., columns])
    assert_near(value(gml.conv_2d(*two_leaves(w, x), (sw, sh), (pw, ph), (dw, dh))), expected)
    if kh == 1 and height == 1 and ph == 0:
        (a, b) = leaves(w[:, :, 0], x[:, :, 0])
        assert_near(value(gml.conv_1d(a, b, sw, pw, dw)), expected[None, :, :, 0])


def test_a_run_time_width_gives_what_its_value_gives() -> None:
    n = gml.Dim("n", max=64)
    context = gml.Context()
    w = normal(1, 4, 2, 3)
    y = gml.conv_1d(context.constant(w), context.input("x", gml.F32, [n, 2]), padding=1)
    assert y.ne == (n, 4, 1, 1)
    program = gml.compile(y, "reference")
    for length in (1, 2, 33, 64):
        x = normal(length, 2, length)
        np.testing.assert_array_equal(
            program(x=x).reshape(4, length), value(gml.conv_1d(*two_leaves(w, x), 1, 1))[0, 0]
        )


def leaf(*ne: Any, type: gml.DType = gml.F32) -> Tensor:
    return Tensor(type, ne, role="input")


N = gml.Dim("n", max=8, min=1)
REFUSED = {
    "channels_2d": (lambda: gml.conv_2d(leaf(3, 3, 2, 4), leaf(7, 7, 3)), ["ne[2]", "[3, 3, 2, 4]", "[7, 7, 3, 1]"]),
    "channels_1d": (lambda: gml.conv_1d(leaf(3, 2, 4), leaf(7, 3)), ["ne[1]", "[3, 2, 4, 1]", "[7, 3, 1, 1]"]),
    "channels_im2col": (lambda: gml.im2col(leaf(3, 3, 2, 4), leaf(7, 7, 3)), ["ne[2]", "2 and 3"]),
    "kernel_too_large": (lambda: gml.conv_2d(leaf(9, 3, 2, 4), leaf(7, 7, 2)), ["9", "7 elements"]),
    "dilated_too_far": (lambda: gml.conv_1d(leaf(3, 2, 4), leaf(7, 2), dilation=4), ["window of 9", "7 elements"]),
    "run_time_too_small": (lambda: gml.conv_1d(leaf(3, 2, 4), leaf(N, 2)), ["window of 3", "n elements"]),
    "stride": (lambda: gml.conv_1d(leaf(3, 2, 4), leaf(7, 2), stride=0), ["stride", "0"]),
    "padding": (lambda: gml.conv_1d(leaf(3, 2, 4), leaf(7, 2), padding=-1), ["padding", "-1"]),
    "huge_padding": (lambda: gml.conv_1d(leaf(3, 2, 4), leaf(7, 2), padding=1 << 40), ["padding", str(1 << 40)]),
    "fraction": (lambda: gml.conv_1d(leaf(3, 2, 4), leaf(7, 2), stride=1.5), ["stride", "1.5"]),  # type: ignore[arg-type]
    "one_number": (lambda: gml.conv_2d(leaf(3, 3, 2, 4), leaf(7, 7, 2), (1, 1, 1)), ["stride", "(1, 1, 1)"]),  # type: ignore[arg-type]
    "integers": (lambda: gml.conv_1d(leaf(3, 2, 4), leaf(7, 2, type=gml.I32)), ["I32"]),
    "pool_kind": (lambda: gml.pool_2d(leaf(7, 7), "sum", (2, 2)), ["avg", "'sum'"]),
    "pool_large": (lambda: gml.pool_1d(leaf(7), "max", 9), ["window of 9", "7 elements"]),
    "pool_zero": (lambda: gml.pool_2d(leaf(7, 7), "max", (0, 2)), ["kernel", "0"]),
    "pool_type": (lambda: gml.pool_1d(leaf(7, type=gml.I32), "max", 2), ["I32"]),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_with_its_sizes(call: Any, words: list[str]) -> None:
    with pytest.raises(gml.ShapeError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)
