"""Tensors made from numbers: arange, and the sinusoids of diffusion time steps.

Next module: `gml/ops/custom.py`.
"""

from __future__ import annotations

import math

import numpy as np

from gml.dims import is_static
from gml.dtypes import F16, F32
from gml.ops.base import Inferred, OpDef, Sample, declare, rule
from gml.ops.elementwise import needs_float, needs_number
from gml.ops.lower import Indexed
from gml.ops.reduce_kernels import arange_value, timestep_value
from gml.ops.views import view
from gml.records import dataclass
from gml.tensor import MAX_ELEMENTS, Tensor

__all__ = ["arange", "timestep_embedding"]


@dataclass(frozen=True)
class ArangeAttrs:
    """start, start + step, ... below stop."""

    start: float
    stop: float
    step: float


@dataclass(frozen=True)
class TimestepAttrs:
    """dim: size of an embedding; max_period: the period of its slowest sinusoid (times 2 pi)."""

    dim: int
    max_period: float


def _infer_arange(attrs: ArangeAttrs) -> Inferred:
    for name in ("start", "stop", "step"):
        value = getattr(attrs, name)
        needs_number(value, name)
        rule(math.isfinite(value), f"{name} must be finite, found {value}")
    rule(attrs.step != 0, "step must not be 0")
    n = (attrs.stop - attrs.start) / attrs.step
    rule(
        0 <= n <= MAX_ELEMENTS, f"from {attrs.start} to {attrs.stop} in steps of {attrs.step} there are {n:g} elements"
    )
    return Inferred(F32, (_n_steps(attrs),))


def _n_steps(attrs: ArangeAttrs) -> int:
    # in float32, as in ggml, so that both agree on the number of elements
    start, stop, step = (np.float32(x) for x in (attrs.start, attrs.stop, attrs.step))
    return max(math.ceil((stop - start) / step), 0) if step != 0 else 0


def _reference_arange(attrs: ArangeAttrs) -> np.ndarray:
    return np.float32(attrs.start) + np.float32(attrs.step) * np.arange(_n_steps(attrs), dtype=np.float32)


def _infer_timestep(attrs: TimestepAttrs, a: Tensor) -> Inferred:
    needs_float(a, "timesteps")
    rule(a.ne[1:] == (1, 1, 1), f"timesteps must have one dimension, found ne = {list(a.ne)}")
    rule(
        isinstance(attrs.dim, int) and not isinstance(attrs.dim, bool) and is_static(attrs.dim) and attrs.dim >= 1,
        f"dim must be a whole number of at least 1, found {attrs.dim!r}",
    )
    needs_number(attrs.max_period, "max_period")
    rule(attrs.max_period > 0, f"max_period must be above 0, found {attrs.max_period}")
    return Inferred(F32, (attrs.dim, a.ne[0]))


def _reference_timestep(attrs: TimestepAttrs, a: np.ndarray) -> np.ndarray:
    half = attrs.dim // 2
    steps = a.reshape(-1, 1)
    out = np.zeros((steps.shape[0], attrs.dim), np.float32)
    if half:
        frequencies = np.exp(np.float32(-math.log(attrs.max_period)) * np.arange(half, dtype=np.float32) / half)
        out[:, :half] = np.cos(steps * frequencies)
        out[:, half : 2 * half] = np.sin(steps * frequencies)
    return out


_ARANGE = declare(
    OpDef(
        "arange",
        _infer_arange,
        _reference_arange,
        (
            Sample("whole", lambda s: arange(0, 33)),
            Sample("fraction", lambda s: arange(-1.0, 2.0, 0.3)),
            Sample("down", lambda s: arange(5, -2, -1)),
            Sample("one", lambda s: arange(3, 4)),
            Sample("empty", lambda s: arange(3, 3)),
        ),
        attrs=ArangeAttrs,
        exact=True,
        lower=Indexed(arange_value),
    )
)
_TIMESTEP_EMBEDDING = declare(
    OpDef(
        "timestep_embedding",
        _infer_timestep,
        _reference_timestep,
        (
            Sample("even", lambda s: timestep_embedding(s.f32(3, low=0.0, high=99.0), 32)),
            Sample("odd", lambda s: timestep_embedding(s.f32(7, low=0.0, high=99.0), 33)),
            Sample("period", lambda s: timestep_embedding(s.f32(3, low=0.0, high=99.0), 8, max_period=100.0)),
            Sample("narrow", lambda s: timestep_embedding(s.f32(3), 1)),
            Sample("one", lambda s: timestep_embedding(s.f32(1), 2)),
            Sample("empty", lambda s: timestep_embedding(s.f32(0), 8)),
            Sample("strided", lambda s: timestep_embedding(view(s.f32(9), [3], offset=8), 8)),
            Sample("F16", lambda s: timestep_embedding(s.f32(3, type=F16), 8)),
            Sample("run_time", lambda s: timestep_embedding(s.input([s.dim("n_steps", 3, max=8)]), 8)),
        ),
        attrs=TimestepAttrs,
        lower=Indexed(timestep_value, lambda attrs, out, a: False),
    )
)


def arange(start: float, stop: float, step: float = 1.0) -> Tensor:
    """F32 [ceil((stop - start) / step)]: start, start + step, ... up to but not including stop.

    Raises `ShapeError` when step is 0 or leads away from stop, or a number is not finite.
    """
    return _ARANGE(start=start, stop=stop, step=step)


def timestep_embedding(timesteps: Tensor, dim: int, max_period: float = 10000.0) -> Tensor:
    """timesteps [n] -> F32 [dim, n]: cosines, then sines, of t * max_period^(-j / (dim // 2)); an odd dim ends in 0.

    Source: https://arxiv.org/abs/2006.11239, `ggml_timestep_embedding`. Raises `ShapeError` when timesteps has more
    than one dimension or is not F32, F16 or BF16, dim < 1 or max_period <= 0.
    """
    return _TIMESTEP_EMBEDDING(timesteps, dim=dim, max_period=max_period)
