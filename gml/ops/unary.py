"""Activation and rounding functions of one source, element by element.

All take F32, F16 and BF16, compute in float32 and give the source's type. Formulas and their treatment of NaN are
ggml's (`ggml-cpu/unary-ops.cpp`, `vec.h`), without its 16-bit look-up tables. Next module: `gml/ops/glu.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.ops.elementwise import elementwise
from gml.tensor import Tensor

__all__ = [
    "ceil", "elu", "floor", "gelu", "gelu_erf", "gelu_quick", "hardsigmoid", "hardswish", "relu", "round", "sgn",
    "sigmoid", "silu", "softplus", "step", "tanh", "trunc",
]  # fmt: skip

GELU_COEF_A = 0.044715
SQRT_2_OVER_PI = 0.79788456080286535587989211986876
GELU_QUICK_COEF = -1.702

_erf = np.frompyfunc(math.erf, 1, 1)


def relu_values(x: np.ndarray) -> np.ndarray:
    """x above 0, else 0 (also for NaN)."""
    return np.where(x > 0, x, np.float32(0))


def gelu_values(x: np.ndarray) -> np.ndarray:
    """The tanh approximation of x * Phi(x). Source: https://arxiv.org/abs/1606.08415."""
    return 0.5 * x * (1 + np.tanh(SQRT_2_OVER_PI * x * (1 + GELU_COEF_A * x * x)))


def gelu_erf_values(x: np.ndarray) -> np.ndarray:
    """x * Phi(x), Phi the normal distribution. Source: https://arxiv.org/abs/1606.08415."""
    return 0.5 * x * (1 + np.asarray(_erf(x * math.sqrt(0.5)), np.float32))


def gelu_quick_values(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(1.702 x)."""
    return x / (1 + np.exp(GELU_QUICK_COEF * x))


def silu_values(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x). Source: https://arxiv.org/abs/1702.03118."""
    return x / (1 + np.exp(-x))


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _softplus(x: np.ndarray) -> np.ndarray:
    # above 20 the difference to x is below float32's resolution
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


def _hardsigmoid(x: np.ndarray) -> np.ndarray:
    return np.fmin(1, np.fmax(0, (x + 3) / 6))


def _round(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    # x - trunc(x) is exact, which x + 0.5 is not
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(np.float32(1), x), whole)


# -- the same in kernel IR ---------------------------------------------------------------------------------------------


def lower_relu(b: Builder, x: Node) -> Node:
    """See `relu_values`."""
    return b.select(b.cmp("gt", x, 0.0), x, 0.0)


def lower_gelu(b: Builder, x: Node) -> Node:
    """See `gelu_values`."""
    inner = x * SQRT_2_OVER_PI * (x * x * GELU_COEF_A + 1.0)
    return x * 0.5 * (b.math("tanh", inner) + 1.0)


def lower_gelu_erf(b: Builder, x: Node) -> Node:
    """See `gelu_erf_values`."""
    return x * 0.5 * (b.math("erf", x * math.sqrt(0.5)) + 1.0)


def lower_gelu_quick(b: Builder, x: Node) -> Node:
    """See `gelu_quick_values`."""
    return x / (b.math("exp", x * GELU_QUICK_COEF) + 1.0)


def lower_silu(b: Builder, x: Node) -> Node:
    """See `silu_values`."""
    return x / (b.math("exp", -x) + 1.0)


def _lower_sigmoid(b: Builder, x: Node) -> Node:
    return 1.0 / (b.math("exp", -x) + 1.0)


def _lower_elu(b: Builder, x: Node) -> Node:
    # exp(x) - 1 without cancellation: (u - 1) * x / log(u) for u = exp(x), Kahan's way
    below = b.select(b.cmp("lt", x, 0.0), x, 0.0)
    u = b.math("exp", below)
    near = b.select(b.cmp("eq", u, 1.0), below, (u - 1.0) * below / b.math("log", u))
    expm1 = b.select(b.cmp("lt", u, 0.25), u - 1.0, near)
    return b.select(b.cmp("gt", x, 0.0), x, b.select(b.cmp("eq", x, x), expm1, x))


def _lower_softplus(b: Builder, x: Node) -> Node:
    # log(1 + e) without loss for small e: log(u) * e / (u - 1) for u = 1 + e
    e = b.math("exp", b.select(b.cmp("lt", x, 20.0), x, 20.0))
    u = e + 1.0
    log1p = b.select(b.cmp("eq", u, 1.0), e, b.math("log", u) * e / (u - 1.0))
    return b.select(b.cmp("lt", x, 20.0), log1p, x)


def _lower_hardsigmoid(b: Builder, x: Node) -> Node:
    return b.min(b.max((x + 3.0) / 6.0, 0.0), 1.0)


def _lower_sgn(b: Builder, x: Node) -> Node:
    negative = b.select(b.cmp("lt", x, 0.0), b.const(-1.0, x.type), 0.0)
    return b.select(b.cmp("gt", x, 0.0), b.const(1.0, x.type), negative)


def _rounding(how: str) -> Callable[[Builder, Node], Node]:
    return lambda b, x: b.round(how, x)


_TANH = elementwise("tanh", np.tanh, lambda b, x: b.math("tanh", x), -5.0, 5.0)
_RELU = elementwise("relu", relu_values, lower_relu, exact=True)
_GELU = elementwise("gelu", gelu_values, lower_gelu, -5.0, 5.0)
_GELU_ERF = elementwise("gelu_erf", gelu_erf_values, lower_gelu_erf, -5.0, 5.0)
_GELU_QUICK = elementwise("gelu_quick", gelu_quick_values, lower_gelu_quick, -5.0, 5.0)
_SILU = elementwise("silu", silu_values, lower_silu, -9.0, 9.0)
_SIGMOID = elementwise("sigmoid", lambda x: 1 / (1 + np.exp(-x)), _lower_sigmoid, -9.0, 9.0)
_ELU = elementwise("elu", _elu, _lower_elu)
_SOFTPLUS = elementwise("softplus", _softplus, _lower_softplus, -30.0, 30.0)
_HARDSWISH = elementwise(
    "hardswish", lambda x: x * _hardsigmoid(x), lambda b, x: x * _lower_hardsigmoid(b, x), -5.0, 5.0
)
_HARDSIGMOID = elementwise("hardsigmoid", _hardsigmoid, _lower_hardsigmoid, -5.0, 5.0)
_STEP = elementwise(
    "step",
    lambda x: np.where(x > 0, np.float32(1), np.float32(0)),
    lambda b, x: b.select(b.cmp("gt", x, 0.0), b.const(1.0, x.type), 0.0),
    exact=True,
)
_SGN = elementwise(
    "sgn",
    lambda x: np.where(x > 0, np.float32(1), np.where(x < 0, np.float32(-1), np.float32(0))),
    _lower_sgn,
    exact=True,
)
_FLOOR = elementwise("floor", np.floor, _rounding("floor"), -9.0, 9.0, exact=True)
_CEIL = elementwise("ceil", np.ceil, _rounding("ceil"), -9.0, 9.0, exact=True)
_ROUND = elementwise("round", _round, _rounding("away"), -9.0, 9.0, exact=True)
_TRUNC = elementwise("trunc", np.trunc, _rounding("trunc"), -9.0, 9.0, exact=True)


def tanh(a: Tensor) -> Tensor:
    """The hyperbolic tangent. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _TANH(a)


def relu(a: Tensor) -> Tensor:
    """max(a, 0). Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _RELU(a)


def gelu(a: Tensor) -> Tensor:
    """a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))), the approximation that ggml calls gelu.

    Raises `ShapeError` when a is not F32, F16 or BF16.
    """
    return _GELU(a)


def gelu_erf(a: Tensor) -> Tensor:
    """a / 2 * (1 + erf(a / sqrt(2))), the exact gelu. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _GELU_ERF(a)


def gelu_quick(a: Tensor) -> Tensor:
    """a * sigmoid(1.702 a). Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _GELU_QUICK(a)


def silu(a: Tensor) -> Tensor:
    """a * sigmoid(a), also called swish. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _SILU(a)


def sigmoid(a: Tensor) -> Tensor:
    """1 / (1 + exp(-a)). Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _SIGMOID(a)


def elu(a: Tensor) -> Tensor:
    """a above 0, else exp(a) - 1. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _ELU(a)


def softplus(a: Tensor) -> Tensor:
    """log(1 + exp(a)); above 20 a itself. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _SOFTPLUS(a)


def hardswish(a: Tensor) -> Tensor:
    """a * hardsigmoid(a). Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _HARDSWISH(a)


def hardsigmoid(a: Tensor) -> Tensor:
    """(a + 3) / 6 limited to 0..1. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _HARDSIGMOID(a)


def step(a: Tensor) -> Tensor:
    """1 above 0, else 0. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _STEP(a)


def sgn(a: Tensor) -> Tensor:
    """The sign: -1, 0 or 1. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _SGN(a)


def floor(a: Tensor) -> Tensor:
    """The largest whole number that is at most a. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _FLOOR(a)


def ceil(a: Tensor) -> Tensor:
    """The smallest whole number that is at least a. Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _CEIL(a)


def round(a: Tensor) -> Tensor:
    """The nearest whole number, halves away from zero (C's roundf).

    Raises `ShapeError` when a is not F32, F16 or BF16.
    """
    return _ROUND(a)


def trunc(a: Tensor) -> Tensor:
    """a without its fraction (towards zero). Raises `ShapeError` when a is not F32, F16 or BF16."""
    return _TRUNC(a)
