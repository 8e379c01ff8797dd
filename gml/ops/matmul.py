"""Matrix products: mul_mat, mul_mat_id (each column picks its matrices) and out_prod.

Arrives: weights of any float type or block format, activations in floats; leaves: F32. Compiled code multiplies in
floats (`float_panels.py`) or, for block formats, in integers (`quantized.py`). Next module: `gml/ops/rope.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gml.dims import exact_div, max_of
from gml.dtypes import BF16, F16, F32, I32
from gml.errors import GraphError
from gml.kernel_ir import F32 as KF32
from gml.kernel_ir import I64, Node
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, SampleBuilder, declare, rule
from gml.ops.elementwise import needs_float
from gml.ops.float_panels import FLOAT_MUL_MAT, ROWS, fill_columns
from gml.ops.lower import Chunks, Direct, KernelContext, Place
from gml.ops.movement import cast, cont
from gml.ops.quantized import refine_mul_mat
from gml.ops.views import permute, transpose, view
from gml.quants.base import by_name
from gml.tensor import Tensor

__all__ = ["mul_mat", "mul_mat_id", "out_prod"]

#: products of at most so many multiplications are made in float64
SMALL = 1 << 18


def needs_weights(a: Tensor, name: str = "a") -> None:
    """Raise `ShapeError` unless the tensor decodes to floats."""
    rule(a.type.is_float, f"{name} must have a float type or a block format, found {a.type.name}")


def _infer_mul_mat(attrs: NoAttrs, a: Tensor, b: Tensor) -> Inferred:
    needs_weights(a)
    needs_float(b, "b")
    rule(a.ne[0] == b.ne[0], f"rows of a and b must be equally long, found ne[0] = {a.ne[0]} and {b.ne[0]}")
    _needs_batch(a, b)
    return Inferred(F32, (a.ne[1], *b.ne[1:]))


def _needs_batch(a: Tensor, b: Tensor) -> None:
    for i in (2, 3):
        rule(
            exact_div(b.ne[i], a.ne[i]) is not None,
            f"ne[{i}] of b must be a multiple of that of a, found {b.ne[i]} and {a.ne[i]}",
        )


def product(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """rows [.., m, k] times columns [.., k, n]: small ones in float64, large ones as fast as float32 goes."""
    if rows.size * columns.shape[-1] <= SMALL:
        return np.matmul(rows.astype(np.float64), columns.astype(np.float64))
    return np.matmul(rows, columns)


def _spread(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrices of a repeated so that neighbours in b's batch share one."""
    for axis in (0, 1):
        if a.shape[axis] not in (1, b.shape[axis]):
            a = np.repeat(a, b.shape[axis] // a.shape[axis], axis)
    return a


def _reference_mul_mat(attrs: NoAttrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return product(b, _spread(a, b).swapaxes(-1, -2))


def _infer_mul_mat_id(attrs: NoAttrs, a: Tensor, b: Tensor, ids: Tensor) -> Inferred:
    needs_weights(a)
    needs_float(b, "b")
    rule(ids.type is I32, f"ids must be I32, found {ids.type.name}")
    rule(a.ne[0] == b.ne[0], f"rows of a and b must be equally long, found ne[0] = {a.ne[0]} and {b.ne[0]}")
    rule(
        a.ne[3] == 1 and b.ne[3] == 1 and ids.ne[2:] == (1, 1),
        f"a and b must have three dimensions and ids two, found {list(a.ne)}, {list(b.ne)} and {list(ids.ne)}",
    )
    rule(
        b.ne[2] == ids.ne[1] and b.ne[1] in (1, ids.ne[0]),
        f"b must be [{b.ne[0]}, {ids.ne[0]} or 1, {ids.ne[1]}] to go with ids {list(ids.ne[:2])}, found {list(b.ne)}",
    )
    return Inferred(F32, (a.ne[1], ids.ne[0], b.ne[2]))


def _reference_mul_mat_id(attrs: NoAttrs, a: np.ndarray, b: np.ndarray, ids: np.ndarray) -> np.ndarray:
    ids = ids[0, 0]
    n_expert = a.shape[1]
    if ids.size and not 0 <= ids.min() <= ids.max() < n_expert:
        raise GraphError(f"mul_mat_id: ids must be 0 to {n_expert - 1}, found {ids.min()} to {ids.max()}")
    x = np.broadcast_to(b[0], (*ids.shape, b.shape[3]))
    out = np.zeros((*ids.shape, a.shape[2]), np.float32)
    for expert in np.unique(ids):
        chosen = ids == expert
        out[chosen] = product(x[chosen], a[0, expert].T)
    return out


def _infer_out_prod(attrs: NoAttrs, a: Tensor, b: Tensor) -> Inferred:
    needs_weights(a)
    needs_float(b, "b")
    rule(a.ne[1] == b.ne[1], f"a and b must have equally many rows, found ne[1] = {a.ne[1]} and {b.ne[1]}")
    _needs_batch(a, b)
    return Inferred(F32, (a.ne[0], b.ne[0], b.ne[2], b.ne[3]))


def _reference_out_prod(attrs: NoAttrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return product(b.swapaxes(-1, -2), _spread(a, b))


def _expand_out_prod(attrs: NoAttrs, a: Tensor, b: Tensor) -> Tensor:
    columns = [cont(transpose(t if t.type.is_scalar else cast(t, F32))) for t in (a, b)]
    return mul_mat(*columns)


# -- mul_mat_id in kernel IR -------------------------------------------------------------------------------------------


def _chunks_id(attrs: NoAttrs, out: Tensor, a: Tensor, b: Tensor, ids: Tensor) -> Chunks:
    return Chunks(((a.ne[1], ROWS), (a.ne[2], 1)))


def _lower_mul_mat_id(k: KernelContext, attrs: NoAttrs, out: Place, a: Place, x: Place, ids: Place) -> None:
    """A chunk is 8 rows of one matrix: decoded when an id asks for it, then met by every column that does."""
    b = k.b
    n_panels = (k.value(a.ne[1]) + (ROWS - 1)) // ROWS
    n_used, n_tokens = k.value(ids.ne[0]), k.value(ids.ne[1])
    n_ids = n_used * n_tokens
    scratch = b.scratch(max(max_of(a.tensor.ne[0]), 1) * ROWS * 4)
    last = k.value(a.ne[1]) - 1

    def id_at(i: Node) -> Node:
        return b.cast(ids.at((i % n_used, i // n_used, 0, 0), 1), I64)

    def chunk(c: Node) -> None:
        p, expert = k.split(c, [n_panels, a.ne[2]])
        row = k.value(p) * ROWS
        expert = k.value(expert)

        def look(i: Node, count: Node) -> Node:
            found = id_at(i)
            k.require(
                b.and_(b.cmp("ge", found, 0), b.cmp("lt", found, a.ne[2])),
                "mul_mat_id: ids must be numbers of matrices of a, found one out of range",
            )
            return count + b.select(b.cmp("eq", found, expert), b.i64(1), b.i64(0))

        (count,) = b.loop(0, n_ids, look, [b.i64(0)])

        def visit(i: Node) -> None:
            column = (i % n_used, i // n_used)
            b.when(b.cmp("eq", id_at(i), expert), lambda: _column(k, out, a, x, scratch, row, column))

        def multiply() -> None:
            fill_columns(k, a, [(b.min(row + r, last), expert, 0) for r in range(ROWS)], scratch)
            b.loop(0, n_ids, visit)

        b.when(b.cmp("gt", count, 0), multiply)

    b.loop(k.begin, k.end, chunk)


def _column(
    k: KernelContext, out: Place, a: Place, x: Place, scratch: Node, row: Node, column: tuple[Node, Node]
) -> None:
    """8 rows times the column that one (token, used) has."""
    b = k.b
    used, token = column
    at = 0 if x.tensor.ne[1] == 1 else used

    def step(i: Node, total: Node) -> Node:
        w = b.load(scratch, i * (ROWS * 4), KF32.vec(ROWS))
        return b.fma(w, b.splat(x.at((i, at, token, 0), 1), ROWS), total)

    (total,) = b.loop(0, k.value(a.ne[0]), step, [b.const(0.0, KF32.vec(ROWS))])

    def some() -> None:
        for r in range(ROWS):
            b.when(
                b.cmp("lt", row + r, out.ne[0]),
                lambda r=r: out.put((row + r, used, token, 0), b.extract(total, r)),
            )

    b.when(b.cmp("le", row + ROWS, out.ne[0]), lambda: out.put((row, used, token, 0), total), some)


# -- declarations ------------------------------------------------------------------------------------------------------


def _strided(s: SampleBuilder) -> Tensor:
    return view(s.f32(40, 5, 2), [33, 3, 2], nb=[320, 800], offset=12)


def _ids(s: SampleBuilder, n_used: int, n_tokens: Any, n_expert: int) -> Tensor:
    return s.ids(n_used, n_tokens, high=n_expert)


_BLOCKS = ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_NL")
_MUL_MAT = declare(
    OpDef(
        "mul_mat",
        _infer_mul_mat,
        _reference_mul_mat,
        (
            Sample("plain", lambda s: mul_mat(s.f32(33, 7), s.f32(33, 5))),
            Sample("one_column", lambda s: mul_mat(s.f32(64, 19), s.f32(64))),
            Sample("batch_shared", lambda s: mul_mat(s.f32(16, 8, 2), s.f32(16, 5, 4, 3))),
            Sample("batch_4", lambda s: mul_mat(s.f32(7, 3, 2, 2), s.f32(7, 5, 2, 4))),
            Sample("transposed", lambda s: mul_mat(transpose(s.f32(16, 40)), permute(s.f32(40, 5, 4), 0, 2, 1, 3))),
            Sample("strided", lambda s: mul_mat(_strided(s), _strided(s))),
            Sample("one", lambda s: mul_mat(s.f32(1), s.f32(1))),
            Sample("rows_of_one", lambda s: mul_mat(s.f32(1, 9), s.f32(1, 3))),
            Sample("no_columns", lambda s: mul_mat(s.f32(7, 3), s.f32(7, 0))),
            Sample("no_rows", lambda s: mul_mat(s.f32(7, 0), s.f32(7, 2))),
            Sample("empty_rows", lambda s: mul_mat(s.f32(0, 3), s.f32(0, 2))),
            Sample("F16", lambda s: mul_mat(s.f32(64, 16, type=F16), s.f32(64, 9, type=F16))),
            Sample("BF16", lambda s: mul_mat(s.f32(33, 9, type=BF16), s.f32(33, 3))),
            *(Sample(t, lambda s, t=t: mul_mat(s.blocks(by_name(t), 256, 11), s.f32(256, 5))) for t in _BLOCKS),
            Sample("blocks_shared", lambda s: mul_mat(s.blocks(by_name("Q8_0"), 64, 8, 2), s.f32(64, 3, 4))),
            Sample("run_time", lambda s: mul_mat(s.f32(40, 16), s.input([40, s.dim("n_tokens", 5, max=9)]))),
            Sample("run_time_rows", lambda s: mul_mat(s.input([12, s.dim("n_kv", 5, max=9)]), s.f32(12, 3))),
            Sample("run_time_k", lambda s: _same_dim(s)),
        ),
        lower=FLOAT_MUL_MAT,
        macs=lambda attrs, out, a, b: out.n_elements * a.ne[0],
        refine=refine_mul_mat,
    )
)


def _same_dim(s: SampleBuilder) -> Tensor:
    n = s.dim("n_kv", 11, max=20)
    return mul_mat(s.input([n, 5]), s.input([n, 3]))


_MUL_MAT_ID = declare(
    OpDef(
        "mul_mat_id",
        _infer_mul_mat_id,
        _reference_mul_mat_id,
        (
            Sample("shared_column", lambda s: mul_mat_id(s.f32(33, 7, 4), s.f32(33, 1, 5), _ids(s, 2, 5, 4))),
            Sample("own_columns", lambda s: mul_mat_id(s.f32(16, 19, 3), s.f32(16, 2, 5), _ids(s, 2, 5, 3))),
            Sample("one", lambda s: mul_mat_id(s.f32(1), s.f32(1), _ids(s, 1, 1, 1))),
            Sample("one_token", lambda s: mul_mat_id(s.f32(32, 16, 8), s.f32(32, 1, 1), _ids(s, 3, 1, 8))),
            Sample("no_tokens", lambda s: mul_mat_id(s.f32(8, 8, 2), s.f32(8, 1, 0), _ids(s, 2, 0, 2))),
            Sample(
                "permuted",
                lambda s: mul_mat_id(
                    permute(s.f32(16, 3, 9), 0, 2, 1, 3),
                    permute(s.f32(16, 5, 2), 0, 2, 1, 3),
                    transpose(_ids(s, 5, 2, 3)),
                ),
            ),
            Sample("F16", lambda s: mul_mat_id(s.f32(16, 8, 3, type=F16), s.f32(16, 1, 4, type=F16), _ids(s, 2, 4, 3))),
            Sample(
                "Q4_0", lambda s: mul_mat_id(s.blocks(by_name("Q4_0"), 64, 9, 3), s.f32(64, 2, 4), _ids(s, 2, 4, 3))
            ),
            Sample("run_time", lambda s: mul_mat_id(s.f32(8, 8, 2), *_run_time_columns(s))),
        ),
        lower=Direct(_lower_mul_mat_id, _chunks_id),
    )
)


def _run_time_columns(s: SampleBuilder) -> tuple[Tensor, Tensor]:
    n = s.dim("n_tokens", 3, max=5)
    ids = s.context.input("ids", I32, [2, n])
    return s.input([8, 1, n]), ids.set(np.array([[0, 1], [1, 1], [1, 0]], np.int32))


_OUT_PROD = declare(
    OpDef(
        "out_prod",
        _infer_out_prod,
        _reference_out_prod,
        (
            Sample("plain", lambda s: out_prod(s.f32(33, 7), s.f32(5, 7))),
            Sample("batch_shared", lambda s: out_prod(s.f32(9, 3, 2), s.f32(4, 3, 4, 2))),
            Sample("transposed", lambda s: out_prod(transpose(s.f32(7, 9)), transpose(s.f32(7, 3)))),
            Sample("one", lambda s: out_prod(s.f32(1), s.f32(1))),
            Sample("empty", lambda s: out_prod(s.f32(3, 0), s.f32(2, 0))),
            Sample("F16", lambda s: out_prod(s.f32(8, 3, type=F16), s.f32(8, 3))),
            Sample("Q8_0", lambda s: out_prod(s.f32(32, 3, type=by_name("Q8_0")), s.f32(8, 3))),
            Sample("run_time", lambda s: out_prod(s.f32(8, 3), s.input([s.dim("n", 5, max=7), 3]))),
        ),
        expand=_expand_out_prod,
    )
)


def mul_mat(a: Tensor, b: Tensor) -> Tensor:
    """b times a transposed: a [k, n, n2, n3] and b [k, m, b2, b3] give F32 [n, m, b2, b3], dot products of rows.

    a has any float type or block format, b is F32, F16 or BF16. b2 and b3 are multiples of n2 and n3; matrices of b
    that are neighbours share one of a. Source: `ggml_mul_mat`. Raises `ShapeError` when types or sizes do not fit.
    """
    return _MUL_MAT(a, b)


def mul_mat_id(a: Tensor, b: Tensor, ids: Tensor) -> Tensor:
    """Columns times the matrices that they chose: a mixture of experts.

    a [k, n, n_expert], b [k, n_used or 1, n_tokens] and ids I32 [n_used, n_tokens] give F32 [n, n_used, n_tokens]:
    column (u, t) of b times matrix ids[u, t]. Types as in `mul_mat`. Source: `ggml_mul_mat_id`. Raises `ShapeError`
    when types or sizes do not fit; a run raises `GraphError` for an id that is not the number of a matrix.
    """
    return _MUL_MAT_ID(a, b, ids)


def out_prod(a: Tensor, b: Tensor) -> Tensor:
    """a [m, k, n2, n3] and b [n, k, b2, b3] give F32 [m, n, b2, b3]: the sum over k of outer products of rows.

    Types and batches as in `mul_mat`. Source: `ggml_out_prod`. Raises `ShapeError` when types or sizes do not fit.
    """
    return _OUT_PROD(a, b)
