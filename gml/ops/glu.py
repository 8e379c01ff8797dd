"""Gated linear units: an activation of one half of the values times the other half.

With one source [2n, ...] the halves of each row are meant: the first is activated, or the second with `swapped`. The
split forms take the two halves as tensors of their own and are elementwise. Source: https://arxiv.org/abs/2002.05202,
`ggml_glu`. Next module: `gml/ops/reduce.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gml.dims import exact_div
from gml.dtypes import BF16, F16
from gml.kernel_ir import Builder, Node
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, declare, rule
from gml.ops.elementwise import needs_float
from gml.ops.lower import Elementwise, Index, Indexed, KernelContext
from gml.ops.unary import (
    gelu_erf_values,
    gelu_quick_values,
    gelu_values,
    lower_gelu,
    lower_gelu_erf,
    lower_gelu_quick,
    lower_relu,
    lower_silu,
    relu_values,
    silu_values,
)
from gml.ops.views import permute, transpose, view
from gml.records import dataclass
from gml.tensor import Tensor

__all__ = [
    "geglu", "geglu_erf", "geglu_erf_split", "geglu_quick", "geglu_quick_split", "geglu_split", "reglu", "reglu_split",
    "swiglu", "swiglu_split",
]  # fmt: skip


@dataclass(frozen=True)
class GluAttrs:
    """swapped: the second half is activated."""

    swapped: bool = False


def _infer_glu(attrs: GluAttrs, a: Tensor) -> Inferred:
    needs_float(a)
    half = exact_div(a.ne[0], 2)
    rule(half is not None, f"ne[0] must be even, found {a.ne[0]}")
    assert half is not None
    rule(isinstance(attrs.swapped, bool), f"swapped must be True or False, found {attrs.swapped!r}")
    return Inferred(a.type, (half, *a.ne[1:]))


def _infer_split(attrs: NoAttrs, a: Tensor, b: Tensor) -> Inferred:
    needs_float(a)
    rule(
        a.type is b.type and a.ne == b.ne,
        f"a and b must have one type and equal sizes, found {a.type.name}{list(a.ne)} and {b.type.name}{list(b.ne)}",
    )
    return Inferred(a.type, a.ne)


Activation = Callable[[Builder, Node], Node]


def _lower_glu(activate: Activation) -> Indexed:
    def value(k: KernelContext, attrs: GluAttrs, index: Index, lanes: int, a: Any) -> Node:
        half = k.size(a.tensor.ne[0] // 2)
        first, second = a.at(index, lanes), a.at((k.value(index[0]) + half, *index[1:]), lanes)
        return activate(k.b, second) * first if attrs.swapped else activate(k.b, first) * second

    return Indexed(value)


def _glu(name: str, activate: Callable[[np.ndarray], np.ndarray], lower: Activation) -> OpDef:
    def reference(attrs: GluAttrs, a: np.ndarray) -> np.ndarray:
        n = a.shape[-1] // 2
        first, second = a[..., :n], a[..., n:]
        return activate(second) * first if attrs.swapped else activate(first) * second

    samples = (
        Sample("rows", lambda s: op(s.f32(66, 3))),
        Sample("swapped", lambda s: op(s.f32(14, 3), swapped=True)),
        Sample("four_dims", lambda s: op(s.f32(6, 3, 2, 2))),
        Sample("permuted", lambda s: op(permute(s.f32(14, 3, 5), 0, 2, 1, 3))),
        Sample("transposed", lambda s: op(transpose(s.f32(7, 6)))),
        Sample("strided", lambda s: op(view(s.f32(16, 5), [10, 5], nb=[64], offset=8))),
        Sample("narrow", lambda s: op(s.f32(2, 7))),
        Sample("empty", lambda s: op(s.f32(14, 0))),
        Sample("empty_row", lambda s: op(s.f32(0, 3))),
        Sample("F16", lambda s: op(s.f32(14, 3, type=F16))),
        Sample("BF16", lambda s: op(s.f32(66, type=BF16), swapped=True)),
        Sample("run_time", lambda s: op(s.input([14, s.dim("n_tokens", 3, max=8)]))),
    )
    op = OpDef(name, _infer_glu, reference, samples, attrs=GluAttrs, lower=_lower_glu(lower))
    return declare(op)


def _split(name: str, activate: Callable[[np.ndarray], np.ndarray], lower: Activation) -> OpDef:
    samples = (
        Sample("rows", lambda s: op(s.f32(33, 3), s.f32(33, 3))),
        Sample("four_dims", lambda s: op(s.f32(7, 3, 2, 2), s.f32(7, 3, 2, 2))),
        Sample("permuted", lambda s: op(permute(s.f32(7, 3, 5), 0, 2, 1, 3), s.f32(7, 5, 3))),
        Sample("transposed", lambda s: op(s.f32(7, 6), transpose(s.f32(6, 7)))),
        Sample("halves", lambda s: op(view(x := s.f32(14, 3), [7, 3], nb=[56]), view(x, [7, 3], nb=[56], offset=28))),
        Sample("one", lambda s: op(s.f32(1), s.f32(1))),
        Sample("empty", lambda s: op(s.f32(7, 0), s.f32(7, 0))),
        Sample("F16", lambda s: op(s.f32(7, 3, type=F16), s.f32(7, 3, type=F16))),
        Sample("BF16", lambda s: op(s.f32(33, type=BF16), s.f32(33, type=BF16))),
        Sample("run_time", lambda s: op(x := s.input([7, s.dim("n_tokens", 3, max=8)]), s.input(x.ne))),
    )
    op = OpDef(
        name,
        _infer_split,
        lambda attrs, a, b: activate(a) * b,
        samples,
        elementwise=True,
        in_place=(0, 1),
        lower=Elementwise(lambda k, attrs, x, y: lower(k, x) * y),
    )
    return declare(op)


_REGLU = _glu("reglu", relu_values, lower_relu)
_GEGLU = _glu("geglu", gelu_values, lower_gelu)
_SWIGLU = _glu("swiglu", silu_values, lower_silu)
_GEGLU_ERF = _glu("geglu_erf", gelu_erf_values, lower_gelu_erf)
_GEGLU_QUICK = _glu("geglu_quick", gelu_quick_values, lower_gelu_quick)
_REGLU_SPLIT = _split("reglu_split", relu_values, lower_relu)
_GEGLU_SPLIT = _split("geglu_split", gelu_values, lower_gelu)
_SWIGLU_SPLIT = _split("swiglu_split", silu_values, lower_silu)
_GEGLU_ERF_SPLIT = _split("geglu_erf_split", gelu_erf_values, lower_gelu_erf)
_GEGLU_QUICK_SPLIT = _split("geglu_quick_split", gelu_quick_values, lower_gelu_quick)


def reglu(a: Tensor, swapped: bool = False) -> Tensor:
    """a [2n, ...] -> [n, ...]: relu(first half of a row) * second half; the other way round with `swapped`.

    Raises `ShapeError` when ne[0] is odd or a is not F32, F16 or BF16.
    """
    return _REGLU(a, swapped=swapped)


def geglu(a: Tensor, swapped: bool = False) -> Tensor:
    """a [2n, ...] -> [n, ...]: gelu(first half of a row) * second half; the other way round with `swapped`.

    Raises `ShapeError` when ne[0] is odd or a is not F32, F16 or BF16.
    """
    return _GEGLU(a, swapped=swapped)


def swiglu(a: Tensor, swapped: bool = False) -> Tensor:
    """a [2n, ...] -> [n, ...]: silu(first half of a row) * second half; the other way round with `swapped`.

    Raises `ShapeError` when ne[0] is odd or a is not F32, F16 or BF16.
    """
    return _SWIGLU(a, swapped=swapped)


def geglu_erf(a: Tensor, swapped: bool = False) -> Tensor:
    """a [2n, ...] -> [n, ...]: gelu_erf(first half of a row) * second half; the other way round with `swapped`.

    Raises `ShapeError` when ne[0] is odd or a is not F32, F16 or BF16.
    """
    return _GEGLU_ERF(a, swapped=swapped)


def geglu_quick(a: Tensor, swapped: bool = False) -> Tensor:
    """a [2n, ...] -> [n, ...]: gelu_quick(first half of a row) * second half; the other way round with `swapped`.

    Raises `ShapeError` when ne[0] is odd or a is not F32, F16 or BF16.
    """
    return _GEGLU_QUICK(a, swapped=swapped)


def reglu_split(a: Tensor, b: Tensor) -> Tensor:
    """relu(a) * b. Raises `ShapeError` unless a and b have the same sizes and one type: F32, F16 or BF16."""
    return _REGLU_SPLIT(a, b)


def geglu_split(a: Tensor, b: Tensor) -> Tensor:
    """gelu(a) * b. Raises `ShapeError` unless a and b have the same sizes and one type: F32, F16 or BF16."""
    return _GEGLU_SPLIT(a, b)


def swiglu_split(a: Tensor, b: Tensor) -> Tensor:
    """silu(a) * b. Raises `ShapeError` unless a and b have the same sizes and one type: F32, F16 or BF16."""
    return _SWIGLU_SPLIT(a, b)


def geglu_erf_split(a: Tensor, b: Tensor) -> Tensor:
    """gelu_erf(a) * b. Raises `ShapeError` unless a and b have the same sizes and one type: F32, F16 or BF16."""
    return _GEGLU_ERF_SPLIT(a, b)


def geglu_quick_split(a: Tensor, b: Tensor) -> Tensor:
    """gelu_quick(a) * b. Raises `ShapeError` unless a and b have the same sizes and one type: F32, F16 or BF16."""
    return _GEGLU_QUICK_SPLIT(a, b)
