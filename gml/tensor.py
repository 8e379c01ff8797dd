"""Tensors: a type, up to four sizes, byte strides, and where the values come from.

A tensor is either a *leaf* (an input, a constant or a state, with storage in a context's arena or in a mapped file) or
the result of an op over other tensors. Views (reshape, permute, view, ...) are results whose strides point into another
tensor's storage. Sizes are given fastest first, as in ggml: `ne` and `nb` always have four entries. Next module:
`gml/context.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gml.dims import Dim, Size, SizeExpr, dims_of, exact_div, max_of, value_of
from gml.dtypes import DType
from gml.errors import GraphError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gml.ops.base import OpDef

MAX_DIMS = 4
#: no tensor has more elements or bytes than this
MAX_ELEMENTS = 1 << 44

Sizes = tuple[Size, Size, Size, Size]

_serial = itertools.count()


class Tensor:
    """A node of a graph. Make leaves with a `Context`, results by calling ops.

    type         storage type (`gml.F32`, a block format, ...)
    ne           four sizes, fastest first
    nb           four byte strides; nb[0] is the size of one block
    op, attrs    the op that makes it and its attributes (None for leaves)
    src          the op's sources
    role         "input", "constant" or "state" for leaves, "result" for results
    view_of      the tensor whose storage this one looks into, and `offset` in bytes from the start of that storage
    storage      a leaf's bytes (uint8), sized for the bounds of its dims
    kept         the value stays readable after a run
    serial       creation order; sources always come before what uses them
    """

    __slots__ = (
        "__weakref__", "_viewed_root", "attrs", "generation", "kept", "name", "nb", "ne", "offset", "op", "owner",
        "role", "serial", "src", "storage", "type", "view_of",
    )  # fmt: skip

    #: numpy scalars leave `np.float32(2) * tensor` to this class
    __array_ufunc__ = None

    #: infix operators, filled in by `gml.ops`
    operators: ClassVar[dict[str, Callable[..., Tensor]]] = {}

    def __init__(
        self,
        type: DType,
        ne: Sequence[Size],
        *,
        nb: Sequence[Size] | None = None,
        op: OpDef | None = None,
        attrs: Any = None,
        src: tuple[Tensor, ...] = (),
        role: str = "result",
        view_of: Tensor | None = None,
        offset: Size = 0,
        name: str = "",
    ) -> None:
        self.type = type
        self.ne: Sizes = checked_sizes(ne, name or (op.name if op else "tensor"))
        self.nb: Sizes = contiguous_strides(type, self.ne) if nb is None else _four(nb)
        self.op, self.attrs, self.src, self.role = op, attrs, src, role
        self.view_of, self.offset = view_of, offset
        # kept, because walking chains of views of views at every use would take quadratic time
        self._viewed_root = None if view_of is None else view_of.root
        self.name = name
        self.kept = False
        self.storage: np.ndarray | None = None
        self.owner: Any = None
        self.generation = 0
        self.serial = next(_serial)

    # -- shape ---------------------------------------------------------------------------------------------------------

    @property
    def n_dims(self) -> int:
        """Number of sizes that count: trailing sizes of 1 do not."""
        return max((i + 1 for i in range(MAX_DIMS) if self.ne[i] != 1), default=1)

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes in numpy's order, slowest first."""
        return tuple(reversed(self.ne[: self.n_dims]))

    @property
    def n_elements(self) -> Size:
        """The product of the sizes."""
        return product(self.ne)

    @property
    def n_rows(self) -> Size:
        """The product of all sizes but the first."""
        return product(self.ne[1:])

    @property
    def n_bytes(self) -> Size:
        """Bytes from the first to the last element, as in ggml's `ggml_nbytes`."""
        if self.n_elements == 0:
            return 0
        row: Size = self.type.type_size
        blocks = exact_div(self.ne[0], self.type.block_size)
        if blocks is None:
            raise ShapeError(f"{self.describe()}: rows must be whole blocks of {self.type.block_size} elements")
        total = row + (blocks - 1) * self.nb[0]
        for i in range(1, MAX_DIMS):
            total = total + (self.ne[i] - 1) * self.nb[i]
        return total

    def is_contiguous(self, first: int = 0) -> bool:
        """True when elements lie densely one after another; a dimension of size 1 never breaks it, and no elements
        always do.

        With `first` = 1 or 2 the strides up to that dimension are free (ggml's `ggml_is_contiguous_1`, `_2`).
        """
        n_blocks = exact_div(self.ne[0], self.type.block_size)
        if n_blocks is None or (n_blocks != 1 and self.nb[0] != self.type.type_size):
            return self.n_elements == 0
        expected: Size = self.type.type_size * n_blocks
        for i in range(1, MAX_DIMS):
            if self.ne[i] == 1:
                continue
            if i > first and self.nb[i] != expected:
                return self.n_elements == 0
            expected = self.nb[i] * self.ne[i]
        return True

    @property
    def dims(self) -> set[Dim]:
        """The run-time sizes that the tensor depends on."""
        return dims_of((*self.ne, *self.nb, self.offset))

    # -- storage -------------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Tensor:
        """The tensor that owns the storage this one looks into: itself unless it is a view."""
        return self if self._viewed_root is None else self._viewed_root

    @property
    def is_leaf(self) -> bool:
        """True for inputs, constants and states."""
        return self.op is None

    def keep(self) -> Tensor:
        """Ask that the value can be read after a run, although nothing in the graph needs it any more."""
        self.kept = True
        return self

    def named(self, name: str) -> Tensor:
        """Give the tensor a name for dumps and look-ups; returns the tensor."""
        self.name = name
        return self

    def bytes(self) -> np.ndarray:
        """The storage of a leaf. Raises `GraphError` for results and for leaves of a context that was reset."""
        if self.storage is None:
            raise GraphError(f"{self.describe()} has no storage of its own; read results through a Program")
        if self.owner is not None and self.owner.arena.generation != self.generation:
            raise GraphError(f"{self.describe()}: its context was reset; make the tensor anew")
        return self.storage

    def numpy(self, values: Mapping[Dim, int] | None = None) -> np.ndarray:
        """A leaf's values in numpy's order: a view for scalar types, decoded float32 for block formats and BF16.

        `values` are the run-time sizes, needed when the shape has any.
        """
        blocks = strided(self, self.bytes(), values or {})
        decoded = blocks if self.type.is_scalar and self.type.numpy.kind in "fi" else self.type.decode(blocks)
        return decoded.reshape([value_of(n, values or {}) for n in self.shape])

    def set(self, array: Any) -> Tensor:
        """Write an input's or a state's values, given in numpy's order; a run-time size may have any value up to its
        bound.

        Raises `ShapeError` when the array does not fit, `GraphError` for constants and results.
        """
        if self.role not in ("input", "state"):
            raise GraphError(f"{self.describe()} is a {self.role}; only inputs and states can be set")
        array = np.asarray(array)
        values = match_shape(self, array.shape)
        storage = self.bytes()
        flat = encoded_bytes(self.type, array, self.describe())
        storage[: flat.nbytes] = flat
        for dim, value in values.items():
            if self.owner is not None:
                self.owner.dim_values[dim] = value
        return self

    # -- operators -----------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Tensor:
        return self.operators["add"](self, other)

    def __sub__(self, other: Any) -> Tensor:
        return self.operators["sub"](self, other)

    def __mul__(self, other: Any) -> Tensor:
        return self.operators["mul"](self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return self.operators["div"](self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return self.operators["rsub"](self, other)

    def __radd__(self, other: Any) -> Tensor:
        return self.operators["add"](self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return self.operators["mul"](self, other)

    def __neg__(self) -> Tensor:
        return self.operators["neg"](self)

    def describe(self) -> str:
        """One phrase for messages: name, type and ne."""
        label = self.name or (self.op.name if self.op else "tensor")
        return f"{label!r} {self.type.name}[{', '.join(str(n) for n in self.ne[: self.n_dims])}]"

    def __repr__(self) -> str:
        made = f" = {self.op.name}(...)" if self.op else f" ({self.role})"
        return f"<Tensor {self.describe()}{made}>"


def product(sizes: Sequence[Size]) -> Size:
    """The product of some sizes."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def _four(values: Sequence[Size]) -> Sizes:
    a, b, c, d = values
    return a, b, c, d


def checked_sizes(ne: Sequence[Size], what: str) -> Sizes:
    """`ne` filled up to four sizes. Raises `ShapeError` for more than four, negative or absurdly large sizes."""
    sizes, problem = _four_sizes(tuple(ne)) if all(type(n) in PLAIN_SIZES for n in ne) else _check_sizes(ne)
    if problem:
        raise ShapeError(f"{what}: {problem}")
    return sizes


PLAIN_SIZES = (int, Dim, SizeExpr)


@lru_cache(maxsize=1 << 12, typed=True)
def _four_sizes(ne: tuple[Size, ...]) -> tuple[Sizes, str]:
    """`_check_sizes` for sizes that can be looked up: a graph has few different ones."""
    return _check_sizes(ne)


def _check_sizes(ne: Sequence[Size]) -> tuple[Sizes, str]:
    """Four sizes, and what is wrong with them."""
    nothing: Sizes = (1, 1, 1, 1)
    if not 1 <= len(ne) <= MAX_DIMS:
        return nothing, f"expected 1 to {MAX_DIMS} sizes, found {len(ne)}: {list(ne)}"
    sizes: list[Size] = []
    for size in ne:
        if isinstance(size, SizeExpr):
            sizes.append(size)
        elif isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 0:
            sizes.append(int(size))
        else:
            return nothing, f"sizes must be whole numbers of at least 0 or Dims, found {size!r} in {list(ne)}"
    total = 1
    for size in sizes:
        total *= max(max_of(size), 1)
    if total > MAX_ELEMENTS:
        return nothing, f"ne = {list(ne)} has {total} elements; more than 2^44 are refused"
    return _four(sizes + [1] * (MAX_DIMS - len(sizes))), ""


def contiguous_strides(type: DType, ne: Sizes) -> Sizes:
    """Byte strides of densely packed rows. Raises `ShapeError` when a row is not a whole number of blocks."""
    n_blocks = exact_div(ne[0], type.block_size)
    if n_blocks is None:
        raise ShapeError(f"{type.name} needs rows of a multiple of {type.block_size} elements, found ne[0] = {ne[0]}")
    nb1 = n_blocks * type.type_size
    nb2 = nb1 * ne[1]
    return type.type_size, nb1, nb2, nb2 * ne[2]


def encoded_bytes(type: DType, array: np.ndarray, what: str) -> np.ndarray:
    """An array's values in a storage type, as flat bytes.

    Raises `ShapeError` when they are not numbers, or an integer type cannot hold them exactly.
    """
    if array.dtype.kind not in "biuf" and array.dtype.names is None:
        raise ShapeError(f"{what}: expected an array of numbers, found dtype {array.dtype}")
    if type.is_integer and array.size:
        info = np.iinfo(type.numpy)
        if array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.trunc(array)).all()):
            raise ShapeError(f"{what}: {type.name} holds whole numbers only; round the array first")
        if array.min() < info.min or array.max() > info.max:
            found = f"{array.min()} to {array.max()}"
            raise ShapeError(f"{what}: {type.name} holds {info.min} to {info.max}, found {found}")
    # too large for a short float becomes inf, as it does in compiled code
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(type.encode(array.reshape(array.shape or (1,)))).reshape(-1).view(np.uint8)


def strided(tensor: Tensor, storage: np.ndarray, values: Mapping[Dim, int]) -> np.ndarray:
    """The tensor's blocks inside `storage` as a numpy view of four axes (numpy's order; the last axis counts blocks).

    Raises `GraphError` when these run-time sizes would reach outside the storage.
    """
    ne = [value_of(n, values) for n in tensor.ne]
    nb = [value_of(n, values) for n in tensor.nb]
    offset = value_of(tensor.offset, values)
    shape = (ne[3], ne[2], ne[1], ne[0] // tensor.type.block_size)
    if min(shape) == 0:
        return np.empty(shape, dtype=tensor.type.numpy)
    end = offset + sum((n - 1) * s for n, s in zip(shape, reversed(nb), strict=True)) + tensor.type.type_size
    if offset < 0 or min(nb) < 0 or end > storage.nbytes:
        raise GraphError(
            f"{tensor.describe()}: bytes {offset}..{end} lie outside its {storage.nbytes} bytes of storage"
        )
    return np.ndarray(shape, tensor.type.numpy, buffer=storage.data, offset=offset, strides=tuple(reversed(nb)))


def match_shape(tensor: Tensor, shape: Sequence[int]) -> dict[Dim, int]:
    """The run-time sizes that make `tensor` have this (numpy) shape; leading axes of 1 may be missing or more.

    Raises `ShapeError` when the shape does not fit or a bound is broken.
    """
    found = [*([1] * MAX_DIMS), *shape][-MAX_DIMS:] if len(shape) <= MAX_DIMS else []
    values: dict[Dim, int] = {}
    fits = bool(found)
    for size, n in zip(reversed(tensor.ne), found, strict=False):
        if isinstance(size, Dim):
            fits = fits and size.min <= n <= size.max and values.setdefault(size, n) == n
    fits = fits and all(
        dims_of([size]) <= values.keys() and value_of(size, values) == n
        for size, n in zip(reversed(tensor.ne), found, strict=True)
    )
    if not fits:
        bounds = ", ".join(f"{d.min} <= {d.name} <= {d.max}" for d in sorted(tensor.dims, key=lambda d: d.name))
        want = f"expected an array of shape {tuple(tensor.shape)}" + (f" with {bounds}" if bounds else "")
        raise ShapeError(f"{tensor.describe()}: {want} (numpy's order), found {tuple(shape)}")
    return values
