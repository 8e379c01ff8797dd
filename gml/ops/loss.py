"""The loss of a classifier.

Arrives: logits and the wanted distributions; leaves: one number. Next module: `gml/ops/create.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gml.dtypes import BF16, F16, F32
from gml.kernel_ir import F32 as KF32
from gml.kernel_ir import F64, Node
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, declare, rule
from gml.ops.elementwise import needs_float
from gml.ops.lower import Chunks, Direct, KernelContext, Operand, Place
from gml.ops.views import permute, transpose
from gml.tensor import Tensor

__all__ = ["cross_entropy_loss"]


def _infer(attrs: NoAttrs, a: Tensor, b: Tensor) -> Inferred:
    needs_float(a, "a")
    needs_float(b, "b")
    rule(a.ne == b.ne, f"a and b must have equal sizes, found {list(a.ne)} and {list(b.ne)}")
    return Inferred(F32, (1,))


def _reference(attrs: NoAttrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if not a.size:
        return np.zeros(1, np.float32)
    x = a.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    logs = x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))
    return np.array([-np.sum(logs * b) / (a.size // a.shape[-1])])


def _lower(k: KernelContext, attrs: NoAttrs, out: Place, a: Place, wanted: Place) -> None:
    """One chunk: all rows in order."""
    b, n = k.b, k.value(a.ne[0])
    sizes = [k.value(m) for m in a.ne[1:]]
    n_rows = sizes[0] * sizes[1] * sizes[2]

    def row(r: Node, total: Node) -> Node:
        i1, i2, i3 = k.split(r, a.ne[1:])
        place = (i1, i2, i3)
        largest = k.max_row(n, lambda i, lanes: a.at((i, *place), lanes))

        def shifted(i: Operand, lanes: int) -> Node:
            return a.at((i, *place), lanes) - b.splat(largest, lanes)

        total_exp = k.sum_row(n, lambda i, lanes: b.math("exp", shifted(i, lanes)))
        log_sum = b.cast(b.math("log", b.cast(total_exp, KF32)), F64)

        def term(i: Operand, lanes: int) -> Node:
            return (b.cast(shifted(i, lanes), F64) - b.splat(log_sum, lanes)) * b.cast(
                wanted.at((i, *place), lanes), F64
            )

        return total + k.sum_row(n, term)

    def all_of_it(_: Node) -> None:
        (total,) = b.loop(0, n_rows, row, [b.const(0.0, F64)])
        some = b.max(b.cast(n_rows, F64), 1.0)
        out.put((0, 0, 0, 0), b.cast(-total / some, out.kernel_type))

    b.loop(k.begin, k.end, all_of_it)


def _distribution(s: Any, *ne: int) -> Tensor:
    values = s.random.random(tuple(reversed(ne)))
    return s.array((values / np.maximum(values.sum(-1, keepdims=True), 1e-9)).astype(np.float32))


_CROSS_ENTROPY_LOSS = declare(
    OpDef(
        "cross_entropy_loss",
        _infer,
        _reference,
        (
            Sample("matrix", lambda s: cross_entropy_loss(s.f32(33, 3), _distribution(s, 33, 3))),
            Sample("four_dims", lambda s: cross_entropy_loss(s.f32(7, 3, 2, 4), _distribution(s, 7, 3, 2, 4))),
            Sample("large", lambda s: cross_entropy_loss(s.f32(9, 3, low=-200.0, high=200.0), _distribution(s, 9, 3))),
            Sample(
                "transposed", lambda s: cross_entropy_loss(transpose(s.f32(3, 19)), transpose(s.f32(3, 19, low=0.0)))
            ),
            Sample(
                "permuted", lambda s: cross_entropy_loss(permute(s.f32(7, 3, 2), 0, 2, 1, 3), _distribution(s, 7, 2, 3))
            ),
            Sample("one", lambda s: cross_entropy_loss(s.f32(1), s.f32(1))),
            Sample("no_rows", lambda s: cross_entropy_loss(s.f32(7, 0), s.f32(7, 0))),
            Sample("empty_rows", lambda s: cross_entropy_loss(s.f32(0, 3), s.f32(0, 3))),
            Sample("F16", lambda s: cross_entropy_loss(s.f32(7, 3, type=F16), s.f32(7, 3, low=0.0, type=BF16))),
            Sample("run_time", lambda s: _run_time(s)),
        ),
        lower=Direct(_lower, lambda attrs, out, a, b: Chunks(((1, 1),))),
    )
)


def _run_time(s: Any) -> Tensor:
    n = s.dim("n_rows", 3, max=5)
    return cross_entropy_loss(s.input([7, n]), s.input([7, n], low=0.0))


def cross_entropy_loss(a: Tensor, b: Tensor) -> Tensor:
    """Minus the sum of b * log(softmax of a's row), over the number of rows: F32 [1].

    a holds logits, b the wanted probabilities, both [n_classes, ..] in F32, F16 or BF16. No elements give 0. Source:
    `ggml_cross_entropy_loss`. Raises `ShapeError` when types or sizes do not fit.
    """
    return _CROSS_ENTROPY_LOSS(a, b)
