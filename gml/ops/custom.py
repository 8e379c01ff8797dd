"""map_custom: a Python function as an op, for what gml lacks and for looking at values on the way.

Next module: `gml/ops/__init__.py`, which gathers all ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gml.dims import Size
from gml.dtypes import F16, F32, I32, DType
from gml.errors import GraphError
from gml.ops.base import Inferred, OpDef, Sample, declare, rule
from gml.ops.lower import Callback
from gml.ops.views import sizes_tuple, transpose
from gml.records import dataclass, field
from gml.tensor import Tensor

__all__ = ["map_custom"]


@dataclass(frozen=True)
class CustomAttrs:
    """The function, its name for dumps and hashes, the result's type and sizes, and how many axes each array has."""

    function: Callable[..., np.ndarray] = field(repr=False)
    name: str
    type: DType
    ne: tuple[Size, ...]
    n_axes: tuple[int, ...]


def _infer_custom(attrs: CustomAttrs, *src: Tensor) -> Inferred:
    rule(callable(attrs.function), f"the first argument must be a function, found {type(attrs.function).__name__}")
    rule(bool(src), "expected at least one tensor")
    rule(
        isinstance(attrs.type, DType) and attrs.type.can_encode,
        f"type must be one that gml encodes, found {attrs.type!r}",
    )
    return Inferred(attrs.type, attrs.ne)


def _reference_custom(attrs: CustomAttrs, *arrays: np.ndarray) -> np.ndarray:
    views = []
    for array, n_axes in zip(arrays, attrs.n_axes, strict=True):
        shown = array.reshape(array.shape[4 - n_axes :]).view()
        # the array may be a model's weight: a function that writes into it must fail, not spoil the model
        shown.flags.writeable = False
        views.append(shown)
    result = np.asarray(attrs.function(*views))
    expected = tuple(reversed(attrs.ne))
    if (*(1,) * (4 - result.ndim), *result.shape) != expected:
        raise GraphError(
            f"map_custom({attrs.name}): the function was declared to give {expected}, it gave {result.shape}"
        )
    return result


def _softsign(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.abs(x))


def _outer(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.outer(y, x)


def _count(x: np.ndarray) -> np.ndarray:
    return np.array([np.count_nonzero(x > 0)])


_MAP_CUSTOM = declare(
    OpDef(
        "map_custom",
        _infer_custom,
        _reference_custom,
        (
            Sample("one", lambda s: map_custom(_softsign, s.f32(33, 3))),
            Sample("two", lambda s: map_custom(_outer, s.f32(7), s.f32(3), ne=[7, 3])),
            Sample("transposed", lambda s: map_custom(_softsign, transpose(s.f32(7, 3)))),
            Sample("to_I32", lambda s: map_custom(_count, s.f32(7, 3, 2, 2), type=I32, ne=[1])),
            Sample("F16", lambda s: map_custom(_softsign, s.f32(7, type=F16))),
            Sample("empty", lambda s: map_custom(_softsign, s.f32(7, 0))),
            Sample("run_time", lambda s: map_custom(_softsign, s.input([7, s.dim("n_tokens", 3, max=8)]))),
        ),
        attrs=CustomAttrs,
        impure=True,
        lower=Callback(),
    )
)


def map_custom(
    function: Callable[..., np.ndarray],
    *tensors: Tensor,
    type: DType | None = None,
    ne: Sequence[Size] | None = None,
) -> Tensor:
    """function(*arrays) as an op: called in the middle of every run, never merged or moved.

    function  takes one read-only array per tensor, in numpy's order and of `Tensor.shape` (floats as float32), and
              returns one of the result's shape
    type, ne  of the result; without them the first tensor's (F32 for block formats)

    Raises `ShapeError` for no tensors, a type that gml cannot encode or bad sizes, and `GraphError` in the run when the
    function returns another shape; the function's own exceptions pass through.
    """
    first = tensors[0] if tensors and isinstance(tensors[0], Tensor) else None
    if type is None:
        type = first.type if first is not None and first.type.is_scalar else F32
    sizes = sizes_tuple(ne, "map_custom") if ne is not None else first.ne if first is not None else ()
    n_axes = tuple(t.n_dims for t in tensors if isinstance(t, Tensor))
    name = getattr(function, "__qualname__", repr(function))
    return _MAP_CUSTOM(*tensors, function=function, name=name, type=type, ne=sizes, n_axes=n_axes)
