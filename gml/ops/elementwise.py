"""Elementwise ops: binary arithmetic with tiling broadcast, and unary functions.

`b` of a binary op is repeated (tiled) over `a`: each size of `a` must be a multiple of `b`'s, as in ggml.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gml.dims import exact_div
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, declare, rule
from gml.tensor import Tensor


def _infer_binary(attrs: NoAttrs, a: Tensor, b: Tensor) -> Inferred:
    for i in range(4):
        rule(
            exact_div(a.ne[i], b.ne[i]) is not None,
            f"every size of b must divide a's; ne[{i}] is {a.ne[i]} of a and {b.ne[i]} of b",
        )
    rule(a.type.is_scalar and a.type.is_float, f"a must be F32, F16 or BF16, found {a.type.name}")
    return Inferred(a.type, a.ne)


def _tile(b: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.tile(b, [n // m if m else 1 for n, m in zip(shape, b.shape, strict=True)])


_BINARY_SAMPLES = (Sample("same", lambda s: add(s.f32(7, 3), s.f32(7, 3))),)


def _binary(name: str, function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> OpDef:
    return declare(
        OpDef(
            name,
            _infer_binary,
            lambda attrs, a, b: function(a, _tile(b, a.shape)),
            _BINARY_SAMPLES,
            elementwise=True,
            in_place=(0,),
        )
    )


add = _binary("add", np.add)
