"""Elementwise arithmetic: binary ops whose second source is tiled over the first, and simple functions of one source.

All take F32, F16 and BF16, compute in float32 and give the first source's type. Next module: `gml/ops/unary.py`.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from gml.dims import exact_div
from gml.dtypes import BF16, F16, F32
from gml.errors import ShapeError
from gml.kernel_ir import Builder, Node
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, SampleBuilder, declare, rule
from gml.ops.cases import one_source
from gml.ops.lower import Elementwise
from gml.ops.movement import tiled
from gml.ops.views import permute, transpose, view
from gml.records import dataclass
from gml.tensor import Tensor

__all__ = [
    "abs", "add", "clamp", "cos", "div", "exp", "log", "mul", "neg", "scale", "scale_bias", "sin", "sqr", "sqrt", "sub",
]  # fmt: skip


def needs_float(a: Tensor, name: str = "a") -> None:
    """Raise `ShapeError` unless the tensor's elements are F32, F16 or BF16."""
    rule(a.type.is_scalar and a.type.is_float, f"{name} must be F32, F16 or BF16, found {a.type.name}")


def needs_number(value: Any, name: str) -> None:
    """Raise `ShapeError` unless the attribute is a real number."""
    rule(isinstance(value, numbers.Real) and not isinstance(value, bool), f"{name} must be a number, found {value!r}")


# -- two sources -------------------------------------------------------------------------------------------------------


def _infer_binary(attrs: NoAttrs, a: Tensor, b: Tensor) -> Inferred:
    needs_float(a, "a")
    needs_float(b, "b")
    for i in range(4):
        rule(
            exact_div(a.ne[i], b.ne[i]) is not None,
            f"every size of b must divide a's; ne[{i}] is {a.ne[i]} of a and {b.ne[i]} of b",
        )
    return Inferred(a.type, a.ne)


#: pairs of sources; b stays away from 0 so that div is well-behaved
_PAIRS: dict[str, Callable[[SampleBuilder], tuple[Tensor, Tensor]]] = {
    "same": lambda s: (s.f32(33, 3), s.f32(33, 3, low=0.5)),
    "row": lambda s: (s.f32(33, 5, 2), s.f32(33, low=0.5)),
    "column": lambda s: (s.f32(7, 5), s.f32(1, 5, low=0.5)),
    "one": lambda s: (s.f32(7, 3, 2, 2), s.f32(1, low=0.5)),
    "both_one": lambda s: (s.f32(1), s.f32(1, low=0.5)),
    "tiled": lambda s: (s.f32(6, 4, 2, 3), s.f32(3, 2, 1, 3, low=0.5)),
    "permuted": lambda s: (permute(s.f32(7, 3, 5), 0, 2, 1, 3), s.f32(7, 5, low=0.5)),
    "transposed": lambda s: (s.f32(7, 33), transpose(s.f32(33, 7, low=0.5))),
    "strided": lambda s: (view(s.f32(16, 5), [7, 5], nb=[64], offset=8), view(s.f32(9, low=0.5), [7], offset=4)),
    "empty": lambda s: (s.f32(7, 0), s.f32(7, low=0.5)),
    "F16": lambda s: (s.f32(33, 2, type=F16), s.f32(33, low=0.5, type=F16)),
    "F16_F32": lambda s: (s.f32(7, 3, type=F16), s.f32(7, 3, low=0.5)),
    "BF16": lambda s: (s.f32(7, 3, type=BF16), s.f32(7, 1, low=0.5, type=BF16)),
    "run_time": lambda s: (s.input([7, s.dim("n_tokens", 3, max=8)]), s.f32(7, low=0.5)),
    "run_time_same": lambda s: (x := s.input([7, s.dim("n_tokens", 3, max=8)]), s.input(x.ne, low=0.5)),
    "run_time_row": lambda s: (s.input([s.dim("n_row", 19, max=40), 3]), s.f32(1, 3, low=0.5)),
}


def _binary(
    name: str, function: Callable[[np.ndarray, np.ndarray], np.ndarray], lower: Callable[[Builder, Node, Node], Node]
) -> OpDef:
    def sample(case: str, pair: Callable[[SampleBuilder], tuple[Tensor, Tensor]]) -> Sample:
        return Sample(case, lambda s: op(*pair(s)))

    op = OpDef(
        name,
        _infer_binary,
        lambda attrs, a, b: function(a, tiled(b, a.shape)),
        tuple(sample(case, pair) for case, pair in _PAIRS.items()),
        elementwise=True,
        in_place=(0, 1),
        exact=True,
        lower=Elementwise(lambda b, attrs, x, y: lower(b, x, y)),
    )
    return declare(op)


_ADD = _binary("add", np.add, Builder.add)
_SUB = _binary("sub", np.subtract, Builder.sub)
_MUL = _binary("mul", np.multiply, Builder.mul)
_DIV = _binary("div", np.divide, Builder.div)


def add(a: Tensor, b: Tensor) -> Tensor:
    """a + b; b is tiled over a: each of its sizes divides a's. Result: a's type and sizes.

    Raises `ShapeError` when a size of b does not divide a's, or a type is not F32, F16 or BF16.
    """
    return _ADD(a, b)


def sub(a: Tensor, b: Tensor) -> Tensor:
    """a - b, b tiled over a as in `add`; the same result and errors."""
    return _SUB(a, b)


def mul(a: Tensor, b: Tensor) -> Tensor:
    """a * b element by element, b tiled over a as in `add`; the same result and errors."""
    return _MUL(a, b)


def div(a: Tensor, b: Tensor) -> Tensor:
    """a / b, b tiled over a as in `add`; the same result and errors. Division by 0 gives inf or NaN."""
    return _DIV(a, b)


# -- one source --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScaleAttrs:
    """The result is scale * a + bias."""

    scale: float
    bias: float = 0.0


@dataclass(frozen=True)
class ClampAttrs:
    """Bounds of the result."""

    min: float
    max: float


def _infer_float(attrs: Any, a: Tensor) -> Inferred:
    needs_float(a)
    return Inferred(a.type, a.ne)


def _infer_scale(attrs: ScaleAttrs, a: Tensor) -> Inferred:
    needs_number(attrs.scale, "scale")
    needs_number(attrs.bias, "bias")
    return _infer_float(attrs, a)


def _infer_clamp(attrs: ClampAttrs, a: Tensor) -> Inferred:
    needs_number(attrs.min, "min")
    needs_number(attrs.max, "max")
    rule(attrs.min <= attrs.max, f"min must be at most max, found {attrs.min} and {attrs.max}")
    return _infer_float(attrs, a)


def _reference_scale(attrs: ScaleAttrs, a: np.ndarray) -> np.ndarray:
    return a * np.float32(attrs.scale) + np.float32(attrs.bias)


def _reference_clamp(attrs: ClampAttrs, a: np.ndarray) -> np.ndarray:
    # a NaN becomes max, as in ggml, whose MIN(x, max) takes max when the comparison fails
    below = np.where(a < np.float32(attrs.max), a, np.float32(attrs.max))
    return np.where(below > np.float32(attrs.min), below, np.float32(attrs.min))


def elementwise(
    name: str,
    function: Callable[[np.ndarray], np.ndarray],
    lower: Callable[[Builder, Node], Node],
    low: float = -2.0,
    high: float = 2.0,
    *,
    exact: bool = False,
) -> OpDef:
    """Declare a function of one source, float32 to float32: in numpy, in kernel IR, sampled with values low..high.

    exact  both give the same bits
    """
    op = OpDef(
        name,
        _infer_float,
        lambda attrs, a: function(a),
        one_source(lambda a: op(a), low, high),
        elementwise=True,
        in_place=(0,),
        exact=exact,
        lower=Elementwise(lambda b, attrs, x: lower(b, x)),
    )
    return declare(op)


_SCALE = declare(
    OpDef(
        "scale",
        _infer_scale,
        _reference_scale,
        (
            *one_source(lambda a: scale(a, 0.3)),
            Sample("bias", lambda s: scale(s.f32(33, 3), -1.5, 0.25)),
            Sample("bias_transposed", lambda s: scale(transpose(s.f32(33, 3)), 2.0, bias=-1)),
        ),
        attrs=ScaleAttrs,
        elementwise=True,
        in_place=(0,),
        exact=True,
        lower=Elementwise(lambda b, attrs, x: x * float(attrs.scale) + float(attrs.bias)),
    )
)
_CLAMP = declare(
    OpDef(
        "clamp",
        _infer_clamp,
        _reference_clamp,
        (
            *one_source(lambda a: clamp(a, -0.5, 1.0)),
            Sample("one_sided", lambda s: clamp(s.f32(33), 0.0, float("inf"))),
            Sample("nan", lambda s: clamp(s.array([np.nan, -np.inf, np.inf], type=F32), -1.0, 3.0)),
        ),
        attrs=ClampAttrs,
        elementwise=True,
        in_place=(0,),
        exact=True,
        lower=Elementwise(lambda b, attrs, x: b.max(b.min(x, float(attrs.max)), float(attrs.min))),
    )
)
_SQR = elementwise("sqr", np.square, lambda b, x: x * x, exact=True)
_SQRT = elementwise("sqrt", np.sqrt, lambda b, x: b.math("sqrt", x), low=0.0, high=9.0, exact=True)
_LOG = elementwise("log", np.log, lambda b, x: b.math("log", x), low=0.01, high=9.0)
_EXP = elementwise("exp", np.exp, lambda b, x: b.math("exp", x), low=-9.0, high=9.0)
_NEG = elementwise("neg", np.negative, Builder.neg, exact=True)
_ABS = elementwise("abs", np.abs, Builder.abs, exact=True)
_SIN = elementwise("sin", np.sin, lambda b, x: b.math("sin", x), low=-9.0, high=9.0)
_COS = elementwise("cos", np.cos, lambda b, x: b.math("cos", x), low=-9.0, high=9.0)


def scale(a: Tensor, scale: float, bias: float = 0.0) -> Tensor:
    """scale * a + bias. Raises `ShapeError` when a is not F32, F16 or BF16, or an attribute is no number."""
    return _SCALE(a, scale=scale, bias=bias)


def scale_bias(a: Tensor, scale: float, bias: float) -> Tensor:
    """scale * a + bias, under ggml's name for it. Errors as in `scale`."""
    return _SCALE(a, scale=scale, bias=bias)


def clamp(a: Tensor, min: float, max: float) -> Tensor:
    """a limited to min..max (a NaN becomes max). ggml changes a itself; here the result is a new tensor.

    Raises `ShapeError` when min > max, or a is not F32, F16 or BF16.
    """
    return _CLAMP(a, min=min, max=max)


def sqr(a: Tensor) -> Tensor:
    """a * a. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _SQR(a)


def sqrt(a: Tensor) -> Tensor:
    """The square root; NaN below 0. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _SQRT(a)


def log(a: Tensor) -> Tensor:
    """The natural logarithm; -inf at 0, NaN below. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _LOG(a)


def exp(a: Tensor) -> Tensor:
    """e to the power of a. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _EXP(a)


def neg(a: Tensor) -> Tensor:
    """-a. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _NEG(a)


def abs(a: Tensor) -> Tensor:
    """The absolute value. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _ABS(a)


def sin(a: Tensor) -> Tensor:
    """The sine of a in radians. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _SIN(a)


def cos(a: Tensor) -> Tensor:
    """The cosine of a in radians. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _COS(a)


# -- Python's operators ------------------------------------------------------------------------------------------------


def _operator(sign: str, tensors: Callable[[Tensor, Tensor], Tensor], number: Callable[[Tensor, float], Tensor]) -> Any:
    def apply(a: Tensor, b: Any) -> Tensor:
        if isinstance(b, Tensor):
            return tensors(a, b)
        if isinstance(b, numbers.Real):
            return number(a, float(b))
        raise ShapeError(f"{a.describe()} {sign} {type(b).__name__}: the other side must be a Tensor or a number")

    return apply


def _divide(a: Tensor, b: float) -> Tensor:
    if b == 0.0:
        raise ShapeError(f"{a.describe()} / 0: division by zero")
    return scale(a, 1.0 / b)


Tensor.operators.update(
    add=_operator("+", add, lambda a, b: scale(a, 1.0, b)),
    sub=_operator("-", sub, lambda a, b: scale(a, 1.0, -b)),
    rsub=_operator("-", lambda a, b: sub(b, a), lambda a, b: scale(a, -1.0, b)),
    mul=_operator("*", mul, scale),
    div=_operator("/", div, _divide),
    neg=neg,
)
