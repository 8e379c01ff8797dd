"""Rows by their numbers: get_rows looks them up in a table, set_rows stores them into one.

Next module: `gml/ops/create.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gml.dims import Size, exact_div
from gml.dtypes import BF16, F16, F32, I32, I64
from gml.errors import GraphError
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, SampleBuilder, declare, rule
from gml.ops.elementwise import needs_float
from gml.ops.move_kernels import choose_get_rows, choose_set_rows
from gml.ops.views import permute, transpose, view
from gml.quants.base import by_name
from gml.tensor import Tensor

__all__ = ["get_rows", "set_rows"]


def _checked(ids: np.ndarray, n_rows: int, name: str) -> np.ndarray:
    if ids.size and not 0 <= ids.min() <= ids.max() < n_rows:
        raise GraphError(f"{name}: row numbers must be 0 to {n_rows - 1}, found {ids.min()} to {ids.max()}")
    return ids


def _infer_get_rows(attrs: NoAttrs, a: Tensor, ids: Tensor) -> Inferred:
    rule(ids.type in (I32, I64), f"ids must be I32 or I64, found {ids.type.name}")
    rule(a.type.is_float or a.type is I32, f"a must have a float type, a block format or I32, found {a.type.name}")
    rule(
        ids.ne[3] == 1 and a.ne[2] == ids.ne[1] and a.ne[3] == ids.ne[2],
        f"ids must be [n_ids, {a.ne[2]}, {a.ne[3]}] to go with the batch of a, found {list(ids.ne)}",
    )
    return Inferred(I32 if a.type is I32 else F32, (a.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]))


def _reference_get_rows(attrs: NoAttrs, a: np.ndarray, ids: np.ndarray) -> np.ndarray:
    ids = _checked(ids[0], a.shape[2], "get_rows")
    n3, n2, _ = ids.shape
    return a[np.arange(n3)[:, None, None], np.arange(n2)[:, None], ids]


def _infer_set_rows(attrs: NoAttrs, a: Tensor, b: Tensor, ids: Tensor) -> Inferred:
    rule(ids.type in (I32, I64), f"ids must be I32 or I64, found {ids.type.name}")
    needs_float(b, "b")
    rule(
        a.type.is_float and a.type.can_encode,
        f"gml does not encode {a.type.name}; use F32, F16, BF16, Q8_0 or the like",
    )
    rule(a.root.role != "constant", "a must not be a constant: make it a state (Context.state) or a result")
    rule(
        a.ne[0] == b.ne[0] and a.ne[2:] == b.ne[2:],
        f"a and b must have equal sizes but for dimension 1, found {list(a.ne)} and {list(b.ne)}",
    )
    divides = all(exact_div(n, m) is not None for n, m in zip(b.ne[2:], ids.ne[1:3], strict=True))
    rule(
        ids.ne[3] == 1 and ids.ne[0] == b.ne[1] and divides,
        f"ids must be [{b.ne[1]}, ...] with sizes that divide {list(b.ne[2:])}, found {list(ids.ne)}",
    )
    return Inferred(a.type, a.ne, nb=a.nb)


def _reference_set_rows(attrs: NoAttrs, out: Any, b: np.ndarray, ids: np.ndarray) -> None:
    n3, n2, n_ids, _ = b.shape
    if not b.size:
        return
    ids = _checked(ids[0], out.shape[2], "set_rows")
    i3, i2 = np.arange(n3)[:, None, None], np.arange(n2)[:, None]
    # ids are tiled over the batch of b; of equal numbers the last one's row stays
    out[i3, i2, ids[i3 % ids.shape[0], i2 % ids.shape[1], np.arange(n_ids)]] = b


_GET_ROWS = declare(
    OpDef(
        "get_rows",
        _infer_get_rows,
        _reference_get_rows,
        (
            Sample("table", lambda s: get_rows(s.f32(33, 9), s.ids(7, high=9))),
            Sample("batch", lambda s: get_rows(s.f32(7, 9, 3, 2), s.ids(5, 3, 2, high=9))),
            Sample("one", lambda s: get_rows(s.f32(7, 9), s.ids(1, high=9))),
            Sample("I64", lambda s: get_rows(s.f32(7, 9), s.ids(5, high=9, type=I64))),
            Sample("transposed", lambda s: get_rows(transpose(s.f32(9, 7)), s.ids(5, high=9))),
            Sample("permuted", lambda s: get_rows(permute(s.f32(7, 3, 9), 0, 2, 1, 3), s.ids(5, 3, high=9))),
            Sample(
                "strided_ids", lambda s: get_rows(s.f32(7, 9, 3), view(s.ids(8, 3, high=9), [5, 3], nb=[32], offset=8))
            ),
            Sample("no_ids", lambda s: get_rows(s.f32(7, 9), s.ids(0, high=9))),
            Sample("F16", lambda s: get_rows(s.f32(33, 9, type=F16), s.ids(5, high=9))),
            Sample("BF16", lambda s: get_rows(s.f32(7, 9, type=BF16), s.ids(5, high=9))),
            Sample("Q8_0", lambda s: get_rows(s.f32(64, 9, type=by_name("Q8_0")), s.ids(5, high=9))),
            Sample("Q4_0", lambda s: get_rows(s.blocks(by_name("Q4_0"), 96, 9, 2), s.ids(5, 2, high=9))),
            Sample("Q4_K", lambda s: get_rows(s.blocks(by_name("Q4_K"), 256, 7), s.ids(3, high=7))),
            Sample("Q6_K", lambda s: get_rows(s.blocks(by_name("Q6_K"), 512, 3), s.ids(7, high=3))),
            Sample("blocks_view", lambda s: get_rows(_block_window(s), s.ids(3, high=4))),
            Sample("I32", lambda s: get_rows(s.ids(7, 9, high=1 << 30), s.ids(5, high=9))),
            Sample("run_time", lambda s: get_rows(s.input([7, s.dim("n_tokens", 5, max=8)]), s.ids(3, high=5))),
            Sample("run_time_ids", lambda s: get_rows(s.f32(7, 9), _zeros(s, s.dim("n_tokens", 5, max=8)))),
        ),
        exact=True,
        lower=choose_get_rows,
    )
)
_SET_ROWS = declare(
    OpDef(
        "set_rows",
        _infer_set_rows,
        _reference_set_rows,
        (
            Sample("cache", lambda s: set_rows(s.state(F32, 33, 9), s.f32(33, 3), s.array([7, 0, 4]))),
            Sample("F16", lambda s: set_rows(s.state(F16, 7, 9), s.f32(7, 3), s.array([7, 0, 4]))),
            Sample("BF16", lambda s: set_rows(s.state(BF16, 7, 9), s.f32(7, 3), s.array([7, 0, 4], type=I64))),
            Sample("Q8_0", lambda s: set_rows(s.state(by_name("Q8_0"), 64, 9), s.f32(64, 3), s.array([7, 0, 4]))),
            Sample("Q4_0", lambda s: set_rows(s.state(by_name("Q4_0"), 32, 9), s.f32(32, 2), s.array([8, 1]))),
            Sample("batch", lambda s: set_rows(s.state(F32, 7, 4, 4, 2), s.f32(7, 2, 4, 2), s.array([[3, 0], [1, 2]]))),
            Sample("transposed_b", lambda s: set_rows(s.state(F32, 7, 9), transpose(s.f32(3, 7)), s.array([2, 8, 5]))),
            Sample("into_view", lambda s: set_rows(_window(s), s.f32(7, 2), s.array([3, 1]))),
            Sample("repeated", lambda s: set_rows(s.state(F32, 7, 9), s.f32(7, 3), s.array([4, 4, 4]))),
            Sample("one", lambda s: set_rows(s.state(F32, 1), s.f32(1), s.array([0]))),
            Sample("nothing", lambda s: set_rows(s.state(F32, 7, 9), s.f32(7, 0), s.ids(0, high=9))),
            Sample("F16_b", lambda s: set_rows(s.state(F32, 7, 9), s.f32(7, 2, type=F16), s.array([1, 0]))),
            Sample("run_time", lambda s: set_rows(s.state(F16, 7, 9), x := _tokens(s), _zeros(s, x.ne[1]))),
        ),
        writes=0,
        lower=choose_set_rows,
    )
)


def _tokens(s: SampleBuilder) -> Tensor:
    return s.input([7, s.dim("n_tokens", 1, max=8)])


def _zeros(s: SampleBuilder, n: Size) -> Tensor:
    return s.context.input("ids", I32, [n])


def _block_window(s: SampleBuilder) -> Tensor:
    rows = s.blocks(by_name("Q8_0"), 96, 9)
    return view(rows, [64, 4], nb=[2 * rows.nb[1]], offset=rows.nb[1] + rows.nb[0])


def _window(s: SampleBuilder) -> Tensor:
    return view(s.state(F32, 9, 5), [7, 4], nb=[36], offset=40)


def get_rows(a: Tensor, ids: Tensor) -> Tensor:
    """Rows of a table: a [k, n, b2, b3], ids [m, b2, b3] -> F32 [k, m, b2, b3] (I32 when a is I32).

    a    any float type, block formats included, or I32
    ids  I32 or I64, 0 <= id < n; the run is refused with a `GraphError` otherwise

    Raises `ShapeError` when the batch sizes differ or a type does not fit.
    """
    return _GET_ROWS(a, ids)


def set_rows(a: Tensor, b: Tensor, ids: Tensor) -> Tensor:
    """Store rows: a[:, ids[i]] = b[:, i]; the result is a after the write.

    a    [k, n, b2, b3], a state or a result (or a view of one), of a type that gml encodes
    b    [k, m, b2, b3], F32, F16 or BF16
    ids  I64 or I32 [m, ..], 0 <= id < n, tiled over b2 and b3; of equal ids the last one's row stays

    Raises `ShapeError` when sizes or types do not fit or a is a constant.
    """
    return _SET_ROWS(a, b, ids)
