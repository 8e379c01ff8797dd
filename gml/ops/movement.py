"""Ops that move elements without computing: copies, conversions, and tensors made of the elements of others.

cont, dup and cast copy a tensor; cpy writes into its second source; repeat, concat, pad and set make new tensors of old
elements. Next module: `gml/ops/cases.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gml.dims import Size, exact_div, min_of
from gml.dtypes import BF16, F16, F32, F64, I32, I64, DType
from gml.errors import ShapeError
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, SampleBuilder, declare, rule
from gml.ops.move_kernels import CONCAT, PAD, REPEAT, SET, choose_copy, choose_cpy
from gml.ops.views import SizesAttrs, at_least, dim_rows, is_size, permute, sizes_tuple, transpose, view
from gml.quants.base import by_name
from gml.records import dataclass
from gml.tensor import MAX_DIMS, Tensor, product

__all__ = ["cast", "concat", "cont", "cpy", "dup", "pad", "pad_ext", "repeat", "set"]


@dataclass(frozen=True)
class CastAttrs:
    """type: storage type of the result."""

    type: DType


@dataclass(frozen=True)
class ConcatAttrs:
    """dim: the dimension along which b follows a."""

    dim: int


@dataclass(frozen=True)
class PadAttrs:
    """left, right: zeros before and after the elements of each dimension."""

    left: tuple[Size, Size, Size, Size]
    right: tuple[Size, Size, Size, Size]


@dataclass(frozen=True)
class SetAttrs:
    """steps: strides of b's dimensions 1 to 3 inside the result, offset: where its first element goes; both in
    elements."""

    steps: tuple[Size, Size, Size]
    offset: Size


# -- copies ------------------------------------------------------------------------------------------------------------


def _infer_cont(attrs: SizesAttrs, a: Tensor) -> Inferred:
    rule(
        product(attrs.ne) == a.n_elements,
        f"ne = {list(attrs.ne)} has {product(attrs.ne)} elements, a has {a.n_elements}; they must be equal",
    )
    rule(
        a.type.is_scalar or attrs.ne[0] == a.ne[0],
        f"ne[0] of a block format ({a.type.name}) must stay {a.ne[0]}, found {attrs.ne[0]}",
    )
    return Inferred(a.type, attrs.ne)


def _infer_cast(attrs: CastAttrs, a: Tensor) -> Inferred:
    _check_conversion(a.type, attrs.type)
    return Inferred(attrs.type, a.ne)


def _check_conversion(source: DType, target: DType) -> None:
    rule(isinstance(target, DType), f"the target must be a storage type such as gml.F16, found {target!r}")
    if source is not target:
        rule(target.can_encode, f"gml does not encode {target.name}; choose a type that it does, such as F16 or Q8_0")
        rule(
            target.is_scalar or source.is_float,
            f"{source.name} cannot be converted to {target.name}; cast to F32 first",
        )


def _infer_cpy(attrs: NoAttrs, a: Tensor, b: Tensor) -> Inferred:
    rule(
        a.n_elements == b.n_elements,
        f"a and b must have equally many elements, found {a.n_elements} and {b.n_elements}",
    )
    rule(b.root.role != "constant", "b must not be a constant: make it a state (Context.state) or a result")
    _check_conversion(a.type, b.type)
    rule(
        (a.type.is_scalar and b.type.is_scalar) or a.ne[0] == b.ne[0],
        f"rows of block formats must have equal sizes, found ne[0] = {a.ne[0]} of a and {b.ne[0]} of b",
    )
    return Inferred(b.type, b.ne, nb=b.nb)


def _reference_cpy(attrs: NoAttrs, out: Any, a: np.ndarray) -> None:
    out[...] = a.reshape(out.shape)


def _blocks(s: SampleBuilder) -> Tensor:
    return permute(s.blocks(by_name("Q4_K"), 256, 3, 2), 0, 2, 1, 3)


def _every_second_row(s: SampleBuilder) -> Tensor:
    rows = s.state(by_name("Q8_0"), 96, 5)
    return view(rows, [64, 2], nb=[2 * rows.nb[1]], offset=rows.nb[0])


_COPY_SAMPLES = {
    "dense": lambda s: s.f32(33, 3),
    "permuted": lambda s: permute(s.f32(7, 3, 5, 2), 2, 0, 1, 3),
    "transposed": lambda s: transpose(s.f32(5, 33)),
    "strided": lambda s: view(s.f32(16, 5), [7, 5], nb=[64], offset=8),
    "one": lambda s: s.f32(1),
    "empty": lambda s: transpose(s.f32(0, 7)),
    "F16": lambda s: transpose(s.f32(7, 33, type=F16)),
    "BF16": lambda s: transpose(s.f32(7, 3, type=BF16)),
    "I32": lambda s: transpose(s.ids(7, 3, high=1 << 30, low=-(1 << 30))),
    "I64": lambda s: transpose(s.ids(3, 2, high=1 << 60, low=-(1 << 60), type=I64)),
    "Q4_K": _blocks,
    "F64": lambda s: transpose(s.f32(7, 3, type=F64)),
    "run_time": lambda s: transpose(dim_rows(s)),
}


def _copy_samples(function: Any) -> tuple[Sample, ...]:
    def sample(name: str, make: Any) -> Sample:
        return Sample(name, lambda s: function(make(s)))

    return tuple(sample(name, make) for name, make in _COPY_SAMPLES.items())


_CONT = declare(
    OpDef(
        "cont",
        _infer_cont,
        lambda attrs, a: a,
        (
            *_copy_samples(lambda a: cont(a)),
            Sample("reshaped", lambda s: cont(permute(s.f32(7, 3, 5), 0, 2, 1, 3), [21, 5])),
        ),
        attrs=SizesAttrs,
        copies=True,
        moves=True,
        exact=True,
        lower=choose_copy,
    )
)
_DUP = declare(
    OpDef(
        "dup",
        lambda attrs, a: Inferred(a.type, a.ne),
        lambda attrs, a: a,
        _copy_samples(lambda a: dup(a)),
        copies=True,
        moves=True,
        exact=True,
        lower=choose_copy,
    )
)
_CAST = declare(
    OpDef(
        "cast",
        _infer_cast,
        lambda attrs, a: a,
        (
            Sample("F16", lambda s: cast(s.f32(33, 3), F16)),
            Sample("BF16", lambda s: cast(transpose(s.f32(7, 3)), BF16)),
            Sample("widened", lambda s: cast(s.f32(7, 3, type=F16), F32)),
            Sample("between", lambda s: cast(s.f32(7, 3, type=BF16), F16)),
            Sample("overflow", lambda s: cast(s.f32(9, low=-1e6, high=1e6), F16)),
            Sample("to_Q8_0", lambda s: cast(permute(s.f32(64, 3, 2), 0, 2, 1, 3), by_name("Q8_0"))),
            Sample("from_Q4_K", lambda s: cast(s.blocks(by_name("Q4_K"), 256, 3), F32)),
            Sample("between_blocks", lambda s: cast(s.blocks(by_name("Q8_0"), 64, 3), by_name("Q4_0"))),
            Sample("to_I32", lambda s: cast(s.f32(33, low=-99.0, high=99.0), I32)),
            Sample("from_I32", lambda s: cast(s.ids(7, high=1000), F32)),
            Sample("empty", lambda s: cast(s.f32(0, 2), F16)),
            Sample("run_time", lambda s: cast(dim_rows(s), F16)),
        ),
        attrs=CastAttrs,
        elementwise=True,
        moves=True,
        # what floats too large for an integer become is the machine's choice
        exact=lambda attrs, out, a: out.type.is_float,
        lower=choose_copy,
    )
)
_CPY = declare(
    OpDef(
        "cpy",
        _infer_cpy,
        _reference_cpy,
        (
            Sample("dense", lambda s: cpy(s.f32(33, 3), s.state(F32, 33, 3))),
            Sample("permuted", lambda s: cpy(permute(s.f32(7, 3, 5), 0, 2, 1, 3), s.state(F32, 7, 5, 3))),
            Sample("reshaped", lambda s: cpy(transpose(s.f32(6, 5)), s.state(F32, 3, 10))),
            Sample("into_view", lambda s: cpy(s.f32(7, 2), view(s.state(F32, 9, 5), [7, 2], nb=[36], offset=40))),
            Sample("into_transposed", lambda s: cpy(s.f32(3, 7), transpose(s.state(F32, 7, 3)))),
            Sample("to_F16", lambda s: cpy(s.f32(33, 3), s.state(F16, 33, 3))),
            Sample("to_BF16", lambda s: cpy(transpose(s.f32(7, 3)), s.state(BF16, 3, 7))),
            Sample("to_Q8_0", lambda s: cpy(s.f32(64, 3), s.state(by_name("Q8_0"), 64, 3))),
            Sample("to_Q8_0_view", lambda s: cpy(s.f32(64, 2), _every_second_row(s))),
            Sample("from_Q4_0", lambda s: cpy(s.blocks(by_name("Q4_0"), 64, 3), s.state(F32, 64, 3))),
            Sample("blocks", lambda s: cpy(_blocks(s), s.state(by_name("Q4_K"), 256, 2, 3))),
            Sample("from_F16", lambda s: cpy(s.f32(7, 3, type=F16), s.state(F32, 7, 3))),
            Sample("into_result", lambda s: cpy(s.f32(7), dup(s.f32(7, 1)))),
            Sample("empty", lambda s: cpy(s.f32(0, 3), s.state(F32, 3, 0))),
            Sample("one", lambda s: cpy(s.f32(1), s.state(F32, 1))),
            Sample("run_time", lambda s: cpy(x := dim_rows(s), view(s.state(F32, 6, 8), [6, x.ne[1]]))),
        ),
        writes=1,
        moves=True,
        lower=choose_cpy,
    )
)


def cont(a: Tensor, ne: Sequence[Size] | None = None) -> Tensor:
    """a's values, contiguous; with `ne` (of the same product) also reshaped.

    Raises `ShapeError` when `ne` has another number of elements.
    """
    return _CONT(a, ne=sizes_tuple(ne, "cont") if ne is not None else getattr(a, "ne", ()))


def dup(a: Tensor) -> Tensor:
    """A contiguous copy of a: same type, sizes and values."""
    return _DUP(a)


def cast(a: Tensor, type: DType) -> Tensor:
    """a converted to another storage type, contiguous. Floats round to nearest even, floats to integers towards zero.

    Raises `ShapeError` for a type that gml cannot encode, or a row that is not whole blocks of it.
    """
    return _CAST(a, type=type)


def cpy(a: Tensor, b: Tensor) -> Tensor:
    """Write a's elements, in order and converted to b's type, into b's storage; the result is a view of b after the
    write.

    a  any sizes and strides
    b  a state, a result, or a view of one; as many elements as a

    Raises `ShapeError` when the numbers of elements differ, b is a constant, or b's type cannot be encoded.
    """
    return _CPY(a, b)


# -- new tensors made of old elements ----------------------------------------------------------------------------------


def _infer_repeat(attrs: SizesAttrs, a: Tensor) -> Inferred:
    rule(a.type.is_scalar, f"a must have a scalar type, found {a.type.name}")
    for i, (n, m) in enumerate(zip(attrs.ne, a.ne, strict=True)):
        rule(
            exact_div(n, m) is not None,
            f"every size of a must divide the result's; ne[{i}] is {m} of a, {n} of the result",
        )
    return Inferred(a.type, attrs.ne)


def tiled(a: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """a repeated to fill a shape of which its own divides each size."""
    if a.shape == tuple(shape):
        return a
    # sizes of 1 are left to numpy's broadcasting, which copies nothing
    once = [1 if m in (0, 1) else n // m for n, m in zip(shape, a.shape, strict=True)]
    return np.broadcast_to(a if all(n == 1 for n in once) else np.tile(a, once), shape)


def _infer_concat(attrs: ConcatAttrs, a: Tensor, b: Tensor) -> Inferred:
    rule(
        attrs.dim in range(MAX_DIMS) and not isinstance(attrs.dim, bool),
        f"dim must be 0, 1, 2 or 3, found {attrs.dim!r}",
    )
    rule(
        a.type is b.type and a.type.is_scalar,
        f"a and b must have one scalar type, found {a.type.name} and {b.type.name}",
    )
    ne = list(a.ne)
    for i in range(MAX_DIMS):
        if i == attrs.dim:
            ne[i] = a.ne[i] + b.ne[i]
        else:
            rule(
                a.ne[i] == b.ne[i],
                f"sizes must be equal but for dimension {attrs.dim}; ne[{i}] is {a.ne[i]} and {b.ne[i]}",
            )
    return Inferred(a.type, ne)


def _infer_pad(attrs: PadAttrs, a: Tensor) -> Inferred:
    rule(a.type.is_scalar, f"a must have a scalar type, found {a.type.name}")
    for side in (attrs.left, attrs.right):
        rule(all(at_least(n, 0) for n in side), f"padding must be whole numbers of at least 0, found {list(side)}")
    return Inferred(a.type, [n + left + right for n, left, right in zip(a.ne, attrs.left, attrs.right, strict=True)])


def _reference_pad(attrs: Any, a: np.ndarray) -> np.ndarray:
    return np.pad(a, list(zip(reversed(attrs.left), reversed(attrs.right), strict=True)))


def _infer_set(attrs: SetAttrs, a: Tensor, b: Tensor) -> Inferred:
    rule(
        a.type is b.type and a.type.is_scalar,
        f"a and b must have one scalar type, found {a.type.name} and {b.type.name}",
    )
    rule(a.is_contiguous(), f"a must be contiguous, found nb = {list(a.nb)}; use cont(a) first")
    rule(all(at_least(n, 0) for n in (*attrs.steps, attrs.offset)), "strides and offset must be at least 0")
    last: Size = attrs.offset + b.ne[0]
    dense: Size = b.ne[0]
    for i, step in enumerate(attrs.steps, start=1):
        if b.ne[i] == 1:
            continue
        rule(
            min_of(step - dense) >= 0, f"the stride of dimension {i} is {step} elements: rows of {dense} would overlap"
        )
        dense = step * b.ne[i]
        last = last + step * (b.ne[i] - 1)
    rule(
        b.n_elements == 0 or min_of(a.n_elements - last) >= 0,
        f"b with strides {list(attrs.steps)} from {attrs.offset} ends at element {last}, a has {a.n_elements}",
    )
    return Inferred(a.type, a.ne)


def _reference_set(attrs: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = a.copy().reshape(-1)
    if b.size:
        steps = [n * out.itemsize for n in (*reversed(attrs.steps), 1)]
        np.ndarray(b.shape, out.dtype, buffer=out.data, offset=attrs.offset * out.itemsize, strides=steps)[...] = b
    return out.reshape(a.shape)


_REPEAT = declare(
    OpDef(
        "repeat",
        _infer_repeat,
        lambda attrs, a: tiled(a, tuple(reversed(attrs.ne))),
        (
            Sample("rows", lambda s: repeat(s.f32(7), [7, 5])),
            Sample("tiles", lambda s: repeat(s.f32(3, 2), [9, 4, 2])),
            Sample("like", lambda s: repeat(s.f32(1, 3), s.f32(33, 3))),
            Sample("transposed", lambda s: repeat(transpose(s.f32(2, 3)), [6, 2, 2])),
            Sample("same", lambda s: repeat(s.f32(7, 3), [7, 3])),
            Sample("empty", lambda s: repeat(s.f32(7, 1), [7, 0])),
            Sample("F16", lambda s: repeat(s.f32(7, 1, type=F16), [14, 3])),
            Sample("I32", lambda s: repeat(s.ids(3, high=9), [6, 2])),
            Sample("run_time", lambda s: repeat(s.f32(7), [7, s.dim("n_tokens", 3, max=8)])),
        ),
        attrs=SizesAttrs,
        exact=True,
        lower=REPEAT,
    )
)
_CONCAT = declare(
    OpDef(
        "concat",
        _infer_concat,
        lambda attrs, a, b: np.concatenate([a, b], axis=MAX_DIMS - 1 - attrs.dim),
        (
            Sample("dim_0", lambda s: concat(s.f32(7, 3), s.f32(33, 3), 0)),
            Sample("dim_1", lambda s: concat(s.f32(7, 3, 2), s.f32(7, 1, 2), 1)),
            Sample("dim_2", lambda s: concat(s.f32(7, 3, 2), s.f32(7, 3), 2)),
            Sample("dim_3", lambda s: concat(s.f32(7, 3, 2, 2), s.f32(7, 3, 2, 1), 3)),
            Sample("transposed", lambda s: concat(transpose(s.f32(3, 7)), transpose(s.f32(3, 5)), 0)),
            Sample("empty", lambda s: concat(s.f32(7, 0), s.f32(7, 3), 1)),
            Sample("BF16", lambda s: concat(s.f32(7, 3, type=BF16), s.f32(1, 3, type=BF16), 0)),
            Sample("I32", lambda s: concat(s.ids(7, high=9), s.ids(2, high=9), 0)),
            Sample("run_time", lambda s: concat(dim_rows(s), s.f32(6, 2), 1)),
        ),
        attrs=ConcatAttrs,
        exact=True,
        lower=CONCAT,
    )
)
_PAD = declare(
    OpDef(
        "pad",
        _infer_pad,
        _reference_pad,
        (
            Sample("row", lambda s: pad(s.f32(33, 3), 7)),
            Sample("all", lambda s: pad(s.f32(7, 3, 2, 2), 1, 2, 3, 1)),
            Sample("both_sides", lambda s: pad_ext(s.f32(7, 3), (2, 1), (0, 3), (1, 0))),
            Sample("transposed", lambda s: pad(transpose(s.f32(3, 7)), 2, 1)),
            Sample("nothing", lambda s: pad(s.f32(7, 3), 0)),
            Sample("from_empty", lambda s: pad(s.f32(0, 3), 4, 1)),
            Sample("F16", lambda s: pad(s.f32(7, type=F16), 2)),
            Sample("run_time", lambda s: pad(dim_rows(s), 1, 2)),
        ),
        attrs=PadAttrs,
        exact=True,
        lower=PAD,
    )
)
_SET = declare(
    OpDef(
        "set",
        _infer_set,
        _reference_set,
        (
            Sample("line", lambda s: set(s.f32(33), s.f32(7), offset=20)),
            Sample("block", lambda s: set(s.f32(9, 5, 2), s.f32(7, 2), nb=[36], offset=40)),
            Sample("planes", lambda s: set(s.f32(6, 5, 4), s.f32(3, 2, 2), nb=[24, 240], offset=24)),
            Sample("transposed", lambda s: set(s.f32(9, 5), transpose(s.f32(2, 7)), nb=[36])),
            Sample("empty", lambda s: set(s.f32(7, 3), s.f32(0), offset=84)),
            Sample("whole", lambda s: set(s.f32(7, 3), s.f32(7, 3))),
            Sample("I32", lambda s: set(s.ids(7, 3, high=9), s.ids(2, high=9), offset=8)),
            Sample("run_time", lambda s: set(x := dim_rows(s), s.f32(6, 1), offset=x.nb[1] * (x.ne[1] - 1))),
        ),
        attrs=SetAttrs,
        in_place=(0,),
        exact=True,
        lower=SET,
    )
)


def repeat(a: Tensor, like: Tensor | Sequence[Size]) -> Tensor:
    """a tiled to the sizes of `like` (a tensor or sizes, fastest first), each a multiple of a's.

    Raises `ShapeError` when a size is no multiple, or a has a block format.
    """
    return _REPEAT(a, ne=like.ne if isinstance(like, Tensor) else sizes_tuple(like, "repeat"))


def concat(a: Tensor, b: Tensor, dim: int) -> Tensor:
    """b after a along dimension `dim` (0 is the fastest); all other sizes and the type must be equal.

    Raises `ShapeError` when they are not, or for block formats.
    """
    return _CONCAT(a, b, dim=dim)


def pad(a: Tensor, p0: Size, p1: Size = 0, p2: Size = 0, p3: Size = 0) -> Tensor:
    """a with p_i zeros behind dimension i. Raises `ShapeError` for negative padding or block formats."""
    return _PAD(a, left=(0, 0, 0, 0), right=(p0, p1, p2, p3))


def pad_ext(a: Tensor, *sides: tuple[Size, Size]) -> Tensor:
    """a with zeros before and behind: one (before, behind) per dimension, fastest first; missing ones are (0, 0).

    Raises `ShapeError` for negative padding, more than four pairs, or block formats.
    """
    if len(sides) > MAX_DIMS or not all(isinstance(side, tuple) and len(side) == 2 for side in sides):
        raise ShapeError(f"pad_ext: expected at most 4 pairs (before, behind), found {list(sides)}")
    left, right = zip(*sides, *[(0, 0)] * (MAX_DIMS - len(sides)), strict=True)
    return _PAD(a, left=left, right=right)


def set(a: Tensor, b: Tensor, nb: Sequence[Size] = (), offset: Size = 0) -> Tensor:
    """A copy of a in which b's elements replace those at `offset` and strides `nb`.

    a       contiguous
    b       of a's type
    nb      byte strides inside a of b's dimensions 1, 2, 3; missing ones are a's own
    offset  bytes from a's start

    Raises `ShapeError` when b would reach outside a or overlap itself.
    """
    if not isinstance(a, Tensor) or not isinstance(nb, Sequence) or len(nb) > 3:
        raise ShapeError(f"set: expected a Tensor and at most 3 strides, found {type(a).__name__} and nb = {nb!r}")
    given = (*nb, *a.nb[len(nb) + 1 :], offset)
    elements = [exact_div(n, a.type.type_size) if is_size(n) else None for n in given]
    if any(n is None for n in elements):
        raise ShapeError(
            f"set: nb and offset must be multiples of {a.type.type_size} bytes ({a.type.name}), found {given}"
        )
    return _SET(a, b, steps=tuple(elements[:3]), offset=elements[3])
