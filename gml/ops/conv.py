"""Convolutions over one or two dimensions.

A convolution is `im2col`, which lays the window of each output place out as a row, and a matrix product. Sizes and
orders are ggml's: width before height, channels behind. Next module: `gml/ops/pool.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gml.dims import Size, is_static, min_of
from gml.dtypes import BF16, F16, F32, DType
from gml.kernel_ir import Node
from gml.ops.base import Inferred, OpDef, Sample, declare, rule
from gml.ops.elementwise import needs_float
from gml.ops.lower import Index, Indexed, KernelContext
from gml.ops.matmul import mul_mat, product
from gml.ops.movement import cont
from gml.ops.views import permute, reshape, transpose, view
from gml.records import dataclass
from gml.tensor import Tensor

__all__ = ["conv_1d", "conv_2d", "im2col"]

#: no stride, padding or dilation is larger
LARGEST = 1 << 16


@dataclass(frozen=True)
class Im2colAttrs:
    """Pairs (width, height): kernel sizes, strides, paddings, dilations; is_2d: False when there is no height; type: of
    the result."""

    kernel: tuple[Size, Size]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    is_2d: bool
    type: DType = F32


@dataclass(frozen=True)
class ConvAttrs:
    """Pairs (width, height), or one number where there is no height."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


# -- sizes -------------------------------------------------------------------------------------------------------------


def check_steps(attrs: Any) -> None:
    for name, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
        for value in getattr(attrs, name, ()):
            whole = isinstance(value, int) and not isinstance(value, bool)
            rule(
                whole and least <= value <= LARGEST,
                f"{name} must be whole numbers from {least} to {LARGEST} that are fixed, found {value!r}",
            )


def n_places(n: Size, kernel: Size, stride: int, padding: int, dilation: int = 1) -> Size:
    """How many places a window has along a dimension."""
    reach = n + 2 * padding - dilation * (kernel - 1) - 1
    rule(
        min_of(reach) >= 0,
        f"a window of {dilation * (kernel - 1) + 1} does not fit into {n} elements with padding {padding}",
    )
    return reach // stride + 1


def _infer_im2col(attrs: Im2colAttrs, b: Tensor) -> Inferred:
    needs_float(b, "b")
    check_steps(attrs)
    rule(
        isinstance(attrs.type, DType) and attrs.type.is_scalar and attrs.type.is_float,
        f"type must be F32, F16 or BF16, found {attrs.type!r}",
    )
    (kw, kh), steps = attrs.kernel, zip(attrs.stride, attrs.padding, attrs.dilation, strict=True)
    wide, high = steps
    width = n_places(b.ne[0], kw, *wide)
    if attrs.is_2d:
        return Inferred(attrs.type, (b.ne[2] * (kw * kh), width, n_places(b.ne[1], kh, *high), b.ne[3]))
    rule(b.ne[3] == 1, f"b must be [width, channels, batch], found {list(b.ne)}")
    return Inferred(attrs.type, (b.ne[1] * kw, width, b.ne[2]))


def _infer_conv(attrs: ConvAttrs, a: Tensor, b: Tensor) -> Inferred:
    n = len(attrs.stride)
    needs_float(a, "a")
    needs_float(b, "b")
    check_steps(attrs)
    rule(all(is_static(k) for k in a.ne[:n]), f"kernel sizes must be fixed, found {list(a.ne[:n])}")
    rule(all(min_of(k) >= 1 for k in a.ne[:n]), f"kernel sizes must be at least 1, found {list(a.ne[:n])}")
    rule(
        a.ne[n] == b.ne[n] and all(t.ne[3] == 1 for t in (a, b) if n == 1),
        f"a and b must have equally many input channels ne[{n}]"
        + (" and three dimensions" if n == 1 else "")
        + f", found {list(a.ne)} and {list(b.ne)}",
    )
    steps = zip(a.ne, attrs.stride, attrs.padding, attrs.dilation, strict=False)
    places = [n_places(b.ne[i], *how) for i, how in enumerate(steps)]
    return Inferred(F32, (*places, a.ne[n + 1], b.ne[n + 1]))


# -- references --------------------------------------------------------------------------------------------------------


def windows_of(x: np.ndarray, kernel: Any, stride: Any, padding: Any, dilation: Any, fill: float = 0.0) -> np.ndarray:
    """x [.., height, width] as [.., kh, kw, out_height, out_width], outside `fill`."""
    (kw, kh), (sw, sh), (pw, ph), (dw, dh) = kernel, stride, padding, dilation
    padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(ph, ph), (pw, pw)], constant_values=fill)
    n_h = (padded.shape[-2] - dh * (kh - 1) - 1) // sh + 1
    n_w = (padded.shape[-1] - dw * (kw - 1) - 1) // sw + 1
    out = np.empty((*x.shape[:-2], kh, kw, n_h, n_w), x.dtype)
    for i, j in np.ndindex(kh, kw):
        out[..., i, j, :, :] = padded[..., i * dh :: sh, j * dw :: sw][..., :n_h, :n_w]
    return out


def _reference_im2col(attrs: Any, b: np.ndarray) -> np.ndarray:
    """[.., channels, height, width] -> [.., out_height, out_width, channels * kh * kw]."""
    x = b if attrs.is_2d else b[0][:, :, None, :]
    windows = windows_of(x, attrs.kernel, attrs.stride, attrs.padding, attrs.dilation)
    return np.moveaxis(windows, (-2, -1), (1, 2))


def _reference_conv(attrs: ConvAttrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[.., channels, kernel] and [.., channels, places] -> [.., out channels, places]."""
    if len(attrs.stride) == 1:
        a, b = a[0][:, :, None, :], b[0][:, :, None, :]
    stride, padding, dilation = (*attrs.stride, 1)[:2], (*attrs.padding, 0)[:2], (*attrs.dilation, 1)[:2]
    windows = windows_of(b, (a.shape[3], a.shape[2]), stride, padding, dilation)
    n, _, _, _, n_h, n_w = windows.shape
    columns = windows.reshape(n, a.shape[1] * a.shape[2] * a.shape[3], n_h * n_w)
    return product(a.reshape(a.shape[0], columns.shape[1]), columns)


# -- the same in kernel IR ---------------------------------------------------------------------------------------------


def is_inside(k: KernelContext, i: Node, n: Any) -> Node:
    b = k.b
    return b.and_(b.cmp("ge", i, 0), b.cmp("lt", i, n))


def _lower_im2col(k: KernelContext, attrs: Any, index: Index, lanes: int, x: Any) -> Node:
    b, (kw, kh) = k.b, attrs.kernel
    place = k.value(index[0])
    wide = k.value(index[1]) * attrs.stride[0] + (place % kw * attrs.dilation[0] - attrs.padding[0])
    inside = is_inside(k, wide, k.size(x.tensor.ne[0]))
    if not attrs.is_2d:
        at: Index = (wide, place // kw, index[2], 0)
    else:
        tall = k.value(index[2]) * attrs.stride[1] + (place // kw % kh * attrs.dilation[1] - attrs.padding[1])
        inside = b.and_(inside, is_inside(k, tall, k.size(x.tensor.ne[1])))
        at = (wide, tall, place // (kw * kh), index[3])
    (value,) = b.when(inside, lambda: x.at(at, 1), lambda: b.const(0.0))
    return value


def _expand_conv(attrs: ConvAttrs, a: Tensor, b: Tensor) -> Tensor:
    """Rows of windows times kernels, then the channels behind the places."""
    n = len(attrs.stride)
    columns = im2col(a, b, attrs.stride, attrs.padding, attrs.dilation)
    n_columns = columns.ne[0]
    kernels = reshape(a if a.is_contiguous() else cont(a), [n_columns, a.ne[n + 1]])
    places = columns.ne[1] if n == 1 else columns.ne[1] * columns.ne[2]
    rows = mul_mat(kernels, reshape(columns, [n_columns, places, b.ne[n + 1]]))
    return reshape(cont(transpose(rows)), [*columns.ne[1 : n + 1], a.ne[n + 1], b.ne[n + 1]])


# -- declarations ------------------------------------------------------------------------------------------------------

_IM2COL = declare(
    OpDef(
        "im2col",
        _infer_im2col,
        _reference_im2col,
        (
            Sample("1d", lambda s: im2col(s.f32(3, 2, 4), s.f32(11, 2, 3), (1,), (1,), (1,))),
            Sample("1d_stride", lambda s: im2col(s.f32(3, 2, 4), s.f32(12, 2), (2,), (0,), (2,))),
            Sample("2d", lambda s: im2col(s.f32(3, 2, 2, 4), s.f32(7, 5, 2, 3))),
            Sample("2d_padded", lambda s: im2col(s.f32(3, 3, 2, 4), s.f32(7, 5, 2, 3), (2, 1), (1, 2), (1, 2))),
            Sample("permuted", lambda s: im2col(s.f32(2, 2, 3), permute(s.f32(3, 7, 5), 2, 0, 1, 3), padding=(1, 1))),
            Sample("one", lambda s: im2col(s.f32(1, 1), s.f32(1), (1,), (0,), (1,))),
            Sample("no_channels", lambda s: im2col(s.f32(3, 3, 0), s.f32(7, 5, 0))),
            Sample("F16", lambda s: im2col(s.f32(3, 3, 2), s.f32(7, 5, 2), type=F16)),
            Sample("BF16", lambda s: im2col(s.f32(3, 3, 2), s.f32(7, 5, 2, type=BF16), type=BF16)),
            Sample(
                "run_time", lambda s: im2col(s.f32(3, 2), s.input([s.dim("n", 9, max=12, min=3), 2]), (1,), (1,), (1,))
            ),
        ),
        attrs=Im2colAttrs,
        lower=Indexed(_lower_im2col, lambda attrs, out, b: False),
    )
)
_CONV_1D = declare(
    OpDef(
        "conv_1d",
        _infer_conv,
        _reference_conv,
        (
            Sample("plain", lambda s: conv_1d(s.f32(3, 2, 4), s.f32(11, 2))),
            Sample("batch", lambda s: conv_1d(s.f32(3, 2, 4), s.f32(11, 2, 3), padding=1)),
            Sample("stride", lambda s: conv_1d(s.f32(4, 3, 5), s.f32(17, 3), stride=2, padding=1, dilation=2)),
            Sample("transposed", lambda s: conv_1d(transpose(s.f32(2, 3)), transpose(s.f32(2, 9)))),
            Sample("one", lambda s: conv_1d(s.f32(1), s.f32(1))),
            Sample("no_batch", lambda s: conv_1d(s.f32(3, 2, 4), s.f32(9, 2, 0))),
            Sample("F16", lambda s: conv_1d(s.f32(3, 2, 4, type=F16), s.f32(9, 2, type=F16))),
            Sample("run_time", lambda s: conv_1d(s.f32(3, 2, 4), s.input([s.dim("n", 9, max=12, min=3), 2]))),
        ),
        attrs=ConvAttrs,
        expand=_expand_conv,
    )
)
_CONV_2D = declare(
    OpDef(
        "conv_2d",
        _infer_conv,
        _reference_conv,
        (
            Sample("plain", lambda s: conv_2d(s.f32(3, 2, 2, 4), s.f32(7, 5, 2))),
            Sample("batch", lambda s: conv_2d(s.f32(3, 3, 2, 4), s.f32(7, 5, 2, 3), padding=(1, 1))),
            Sample(
                "stride",
                lambda s: conv_2d(s.f32(2, 3, 3, 5), s.f32(9, 8, 3), stride=(2, 1), padding=(0, 2), dilation=(3, 2)),
            ),
            Sample(
                "permuted",
                lambda s: conv_2d(permute(s.f32(2, 3, 3, 4), 2, 0, 1, 3), permute(s.f32(2, 7, 6), 2, 0, 1, 3)),
            ),
            Sample(
                "strided",
                lambda s: conv_2d(s.f32(2, 2, 2, 3), view(s.f32(9, 7, 2), [5, 6, 2], nb=[36, 252], offset=8)),
            ),
            Sample("one", lambda s: conv_2d(s.f32(1), s.f32(1))),
            Sample("no_batch", lambda s: conv_2d(s.f32(3, 3, 2, 4), s.f32(7, 5, 2, 0))),
            Sample("BF16", lambda s: conv_2d(s.f32(3, 3, 2, 4, type=BF16), s.f32(7, 5, 2))),
            Sample("run_time", lambda s: conv_2d(s.f32(3, 3, 2, 4), s.input([7, s.dim("n", 5, max=9, min=3), 2]))),
        ),
        attrs=ConvAttrs,
        expand=_expand_conv,
    )
)


def sizes_of(value: Any, n: int, name: str) -> tuple[Any, ...]:
    """A number or n numbers as a tuple."""
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,) * n
    rule(len(found) == n, f"{name} must be {n} whole numbers (width, height), found {value!r}")
    return found


def im2col(
    a: Tensor,
    b: Tensor,
    stride: tuple[int, ...] = (1, 1),
    padding: tuple[int, ...] = (0, 0),
    dilation: tuple[int, ...] = (1, 1),
    type: DType = F32,
) -> Tensor:
    """The windows of b that a kernel of a's sizes meets, as rows.

    With pairs (width, height): a [kw, kh, channels, ..] and b [width, height, channels, batch] give
    [channels * kh * kw, out_width, out_height, batch]. With tuples of one number: a [k, channels, ..] and
    b [width, channels, batch] give [channels * k, out_width, batch]. Outside of b there are zeros; out =
    (n + 2 padding - dilation (k - 1) - 1) / stride + 1, rounded down. Of a only the sizes are used.

    Source: `ggml_im2col`. Raises `ShapeError` when types or sizes do not fit.
    """
    rule(isinstance(a, Tensor) and isinstance(b, Tensor), "im2col: a and b must be Tensors")
    n = 1 if isinstance(stride, (tuple, list)) and len(stride) == 1 else 2
    is_2d = n == 2
    rule(a.ne[n] == b.ne[n], f"im2col: a and b must have equally many channels ne[{n}], found {a.ne[n]} and {b.ne[n]}")
    pairs = {
        name: (*sizes_of(value, n, name), *([outside] * (2 - n)))
        for name, value, outside in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1))
    }
    return _IM2COL(b, kernel=(a.ne[0], a.ne[1] if is_2d else 1), is_2d=is_2d, type=type, **pairs)


def conv_1d(a: Tensor, b: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1) -> Tensor:
    """Kernels a [k, channels, n_out] over b [width, channels, batch]: F32 [out_width, n_out, batch].

    out_width = (width + 2 padding - dilation (k - 1) - 1) / stride + 1, rounded down. a and b are F32, F16 or BF16,
    sums float32. Source: `ggml_conv_1d`. Raises `ShapeError` when types or sizes do not fit.
    """
    return _CONV_1D(a, b, stride=(stride,), padding=(padding,), dilation=(dilation,))


def conv_2d(
    a: Tensor,
    b: Tensor,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
) -> Tensor:
    """Kernels a [kw, kh, channels, n_out] over b [width, height, channels, batch]: F32 [out_width, out_height, n_out,
    batch].

    Pairs are (width, height); sizes as in `conv_1d`. Source: `ggml_conv_2d`. Raises `ShapeError` when types or sizes do
    not fit.
    """
    return _CONV_2D(
        a,
        b,
        stride=sizes_of(stride, 2, "stride"),
        padding=sizes_of(padding, 2, "padding"),
        dilation=sizes_of(dilation, 2, "dilation"),
    )
