"""Views: ops that look at the storage of source 0 with other sizes and strides. Nothing is computed or copied.

A view of a view counts its offset from the storage's owner. Dimension 0 of a block format never moves: its elements
stay in their blocks. Next module: `gml/ops/movement.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gml.dims import Size, SizeExpr, exact_div, min_of
from gml.dtypes import BF16, F16
from gml.errors import ShapeError
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, SampleBuilder, declare, rule
from gml.records import dataclass
from gml.tensor import MAX_DIMS, Tensor, checked_sizes, contiguous_strides, product

__all__ = ["permute", "reshape", "transpose", "view"]


@dataclass(frozen=True)
class SizesAttrs:
    """ne: sizes of the result."""

    ne: tuple[Size, ...]


@dataclass(frozen=True)
class ViewAttrs:
    """ne: sizes; nb: byte strides of dimensions 1 and up, the missing ones dense; offset: bytes from the source's
    start."""

    ne: tuple[Size, ...]
    nb: tuple[Size, ...] = ()
    offset: Size = 0


@dataclass(frozen=True)
class PermuteAttrs:
    """axes: dimension i of the source becomes dimension axes[i] of the result."""

    axes: tuple[int, int, int, int]


def sizes_tuple(ne: Any, what: str) -> tuple[Size, ...]:
    """User-given sizes as a checked tuple of four. Raises `ShapeError`."""
    if isinstance(ne, (int, SizeExpr, np.integer)):
        ne = (ne,)
    if not isinstance(ne, Sequence) or isinstance(ne, str):
        raise ShapeError(
            f"{what}: sizes must be a sequence of 1 to 4 whole numbers or Dims, fastest first, found {ne!r}"
        )
    return checked_sizes(tuple(ne), what)


def is_size(value: object) -> bool:
    return isinstance(value, SizeExpr) or (isinstance(value, (int, np.integer)) and not isinstance(value, bool))


def at_least(size: Size, least: int) -> bool:
    return is_size(size) and min_of(size) >= least


def _no_reference(attrs: Any, *arrays: np.ndarray) -> np.ndarray:
    """A view computes nothing; this is what it would give if it did (never called for tensors in memory)."""
    raise ShapeError("a view has no values of its own")


def _infer_reshape(attrs: SizesAttrs, a: Tensor) -> Inferred:
    rule(a.is_contiguous(), f"a must be contiguous, found nb = {list(a.nb)}; use cont(a) first")
    rule(
        product(attrs.ne) == a.n_elements,
        f"ne = {list(attrs.ne)} has {product(attrs.ne)} elements, a has {a.n_elements}; they must be equal",
    )
    return Inferred(a.type, attrs.ne)


def _infer_view(attrs: ViewAttrs, a: Tensor) -> Inferred:
    rule(len(attrs.nb) < MAX_DIMS, f"expected at most 3 strides (of dimensions 1 to 3), found {len(attrs.nb)}")
    whole = a.type.type_size
    for name, value in [("offset", attrs.offset), *((f"nb[{i + 1}]", n) for i, n in enumerate(attrs.nb))]:
        rule(at_least(value, 0), f"{name} must be at least 0 bytes, found {value!r}")
        rule(
            exact_div(value, whole) is not None,
            f"{name} must be a multiple of {whole} bytes ({a.type.name}), found {value}",
        )
    nb: list[Size] = list(contiguous_strides(a.type, checked_sizes(attrs.ne, "view")))
    for i in range(1, MAX_DIMS):
        if i <= len(attrs.nb):
            nb[i] = attrs.nb[i - 1]
        elif i > 1:
            nb[i] = nb[i - 1] * attrs.ne[i - 1]
    end = a.offset + attrs.offset + Tensor(a.type, attrs.ne, nb=nb).n_bytes
    rule(
        min_of(a.root.n_bytes - end) >= 0,
        f"ne = {list(attrs.ne)} with nb = {nb} from byte {attrs.offset} ends at byte {end} of {a.root.n_bytes}",
    )
    return Inferred(a.type, attrs.ne, nb=nb, offset=attrs.offset)


def _infer_permute(attrs: PermuteAttrs, a: Tensor) -> Inferred:
    rule(
        all(isinstance(x, int) for x in attrs.axes) and sorted(attrs.axes) == [0, 1, 2, 3],
        f"axes must be 0, 1, 2, 3 in some order, found {attrs.axes}",
    )
    rule(a.type.is_scalar or attrs.axes[0] == 0, f"dimension 0 of a block format ({a.type.name}) must stay dimension 0")
    ne: list[Size] = [1] * MAX_DIMS
    nb: list[Size] = [0] * MAX_DIMS
    for i, axis in enumerate(attrs.axes):
        ne[axis], nb[axis] = a.ne[i], a.nb[i]
    return Inferred(a.type, ne, nb=nb)


def _infer_transpose(attrs: NoAttrs, a: Tensor) -> Inferred:
    return _infer_permute(PermuteAttrs((1, 0, 2, 3)), a)


def dim_rows(s: SampleBuilder) -> Tensor:
    """An input of run-time rows for samples."""
    return s.input([6, s.dim("n_tokens", 3, max=8, min=1)])


_RESHAPE = declare(
    OpDef(
        "reshape",
        _infer_reshape,
        _no_reference,
        (
            Sample("flat", lambda s: reshape(s.f32(7, 3, 2), [42])),
            Sample("split", lambda s: reshape(s.f32(33, 4), [11, 3, 2, 2])),
            Sample("empty", lambda s: reshape(s.f32(7, 0), [0, 5])),
            Sample("size_1", lambda s: reshape(permute(s.f32(1, 7, 3), 1, 0, 2, 3), [21])),
            Sample("of_view", lambda s: reshape(view(s.f32(6, 5), [6, 2], nb=[24], offset=48), [3, 4])),
            Sample("F16", lambda s: reshape(s.f32(6, 5, type=F16), [5, 6])),
            Sample("run_time", lambda s: reshape(x := dim_rows(s), [2, 3, x.ne[1]])),
        ),
        attrs=SizesAttrs,
        view=True,
    )
)
_VIEW = declare(
    OpDef(
        "view",
        _infer_view,
        _no_reference,
        (
            Sample("columns", lambda s: view(s.f32(16, 5), [7, 5], nb=[64], offset=8)),
            Sample("rows", lambda s: view(s.f32(7, 9, 2), [7, 3, 2], nb=[56, 252], offset=28)),
            Sample("line", lambda s: view(s.f32(33), [7], offset=40)),
            Sample("of_view", lambda s: view(view(s.f32(10, 6), [10, 4], offset=80), [5, 3], nb=[40], offset=20)),
            Sample("overlapping", lambda s: view(s.f32(12), [5, 8], nb=[4])),
            Sample("heads", lambda s: view(s.f32(12, 7), [4, 7, 3], nb=[48, 16])),
            Sample("empty", lambda s: view(s.f32(12, 7), [4, 0], nb=[48], offset=336)),
            Sample("BF16", lambda s: view(s.f32(16, 5, type=BF16), [9, 2], nb=[64], offset=2)),
            Sample("run_time", lambda s: view(s.f32(6, 8), [3, s.dim("n_kv", 5, max=8), 2], nb=[24, 12])),
            Sample("run_time_offset", lambda s: view(x := dim_rows(s), [6, 1], offset=x.nb[1] * (x.ne[1] - 1))),
        ),
        attrs=ViewAttrs,
        view=True,
    )
)
_PERMUTE = declare(
    OpDef(
        "permute",
        _infer_permute,
        _no_reference,
        (
            Sample("heads", lambda s: permute(s.f32(7, 3, 5), 0, 2, 1, 3)),
            Sample("cycle", lambda s: permute(s.f32(2, 3, 4, 5), 3, 0, 1, 2)),
            Sample("size_1", lambda s: permute(s.f32(1, 7), 1, 0, 2, 3)),
            Sample("of_view", lambda s: permute(view(s.f32(16, 5, 2), [7, 5, 2], nb=[64, 320], offset=8), 2, 0, 1, 3)),
            Sample("empty", lambda s: permute(s.f32(7, 0, 3), 2, 0, 1, 3)),
            Sample("F16", lambda s: permute(s.f32(7, 3, 5, type=F16), 1, 2, 0, 3)),
            Sample("run_time", lambda s: permute(dim_rows(s), 1, 2, 0, 3)),
        ),
        attrs=PermuteAttrs,
        view=True,
    )
)
_TRANSPOSE = declare(
    OpDef(
        "transpose",
        _infer_transpose,
        _no_reference,
        (
            Sample("matrix", lambda s: transpose(s.f32(7, 33))),
            Sample("batch", lambda s: transpose(s.f32(7, 3, 2, 2))),
            Sample("twice", lambda s: transpose(transpose(s.f32(7, 3)))),
            Sample("empty", lambda s: transpose(s.f32(0, 3))),
            Sample("one_row", lambda s: transpose(s.f32(1, 7))),
            Sample("run_time", lambda s: transpose(dim_rows(s))),
        ),
        view=True,
    )
)


def reshape(a: Tensor, ne: Sequence[Size]) -> Tensor:
    """a's elements in the same order with other sizes, as a view.

    a   contiguous, any type
    ne  1 to 4 sizes, fastest first, of the same product

    Raises `ShapeError` when a is not contiguous, the number of elements differs, or a row would not be whole blocks.
    """
    return _RESHAPE(a, ne=sizes_tuple(ne, "reshape"))


def view(a: Tensor, ne: Sequence[Size], nb: Sequence[Size] = (), offset: Size = 0) -> Tensor:
    """A window into a's storage.

    ne      1 to 4 sizes, fastest first
    nb      byte strides of dimensions 1, 2, 3; missing ones are dense (nb[i] = nb[i-1] * ne[i-1]), dimension 0 always
            is
    offset  bytes from a's first element; like the strides a multiple of the type's (block's) size

    Raises `ShapeError` when the window reaches outside the storage for any value of the run-time sizes.
    """
    if not isinstance(nb, Sequence):
        raise ShapeError(f"view: nb must be a sequence of byte strides of dimensions 1 to 3, found {nb!r}")
    return _VIEW(a, ne=sizes_tuple(ne, "view"), nb=tuple(nb), offset=offset)


def permute(a: Tensor, axis0: int, axis1: int, axis2: int, axis3: int) -> Tensor:
    """Dimensions in another order, as a view: dimension i of a becomes dimension axis_i (ggml's convention).

    Raises `ShapeError` when the axes are not a permutation of 0..3, or dimension 0 of a block format would move.
    """
    return _PERMUTE(a, axes=(axis0, axis1, axis2, axis3))


def transpose(a: Tensor) -> Tensor:
    """Dimensions 0 and 1 exchanged, as a view: a [n, m, ...] -> [m, n, ...]. Raises `ShapeError` for block formats."""
    return _TRANSPOSE(a)
