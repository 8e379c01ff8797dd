"""How an op says what it computes in kernel IR, and how it reaches its tensors.

An op declares one of six forms, from the most fusable to the most free:

- `Elementwise`  one value from the values at the same place
- `Indexed`      one value at an index, from values of the sources at indices of its own (get_rows, concat, pad, ...)
- `Rowwise`      work per row first (sums, maxima), then one value at a time of that row (norms, soft_max, ...)
- `RowSink`      takes the rows of a source and stores them itself (set_rows, quantisation, sorting)
- `Tiles`        makes tiles of results that elementwise ops behind it finish in registers (matrix multiplication)
- `Direct`       its own loops over a range of chunks (attention, scans, pooling, ...)

The first three are *pulled*: the compiler asks the last op of a fused region for a value and the op asks its sources,
which are either loads or other ops, so a fused chain never touches memory. Arrives: tensors and a `Builder`; leaves:
nodes. Next module: `gml/compiler/pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from zlib import crc32

from gml.dims import Dim, Size, SizeExpr
from gml.dtypes import BF16, DType
from gml.dtypes import F64 as TF64
from gml.kernel_ir import F16 as KF16
from gml.kernel_ir import F32 as KF32
from gml.kernel_ir import F64, I8, I16, I32, I64, U16, U32, Builder, KernelError, Node, Type
from gml.records import dataclass
from gml.tensor import Tensor

Operand: TypeAlias = "Node | int"
Index: TypeAlias = "tuple[Operand, Operand, Operand, Operand]"
Row: TypeAlias = "tuple[Operand, Operand, Operand]"
Element: TypeAlias = "Callable[[Operand, int], Node]"

#: lanes of row loops and row sums on every target, so that sums are folded in the same order everywhere
ROW_LANES = 16

_KERNEL_TYPE = {"F32": KF32, "F16": KF16, "BF16": U16, "F64": F64, "I8": I8, "I16": I16, "I32": I32, "I64": I64}


@dataclass(frozen=True)
class Elementwise:
    """fn(b, attrs, *values) -> value; values have the same lanes, f32 for float tensors."""

    fn: Callable[..., Node]


@dataclass(frozen=True)
class Indexed:
    """fn(k, attrs, index, lanes, *sources) -> value at index; with lanes > 1 at index[0] .. index[0] + lanes - 1.

    vector(attrs, out, *tensors) says whether fn can do lanes > 1 (index[0] is a multiple of them then). With `tiled`
    the sources are repeated over the result.
    """

    fn: Callable[..., Node]
    vector: Callable[..., bool] = lambda attrs, out, *src: True
    tiled: bool = False


@dataclass(frozen=True)
class Rowwise:
    """fn(k, attrs, row, *sources) -> element, where element(i0, lanes) gives values of that row of the result.

    `row` is (i1, i2, i3); `sources` are asked with `source.at((i0, *row), lanes)`. What fn computes outside `element`
    is done once per row.
    """

    fn: Callable[..., Callable[[Operand, int], Node]]


@dataclass(frozen=True)
class Chunks:
    """How many pieces of work there are: the product of ceil(size / step) over `factors`."""

    factors: tuple[tuple[Size, int], ...]


@dataclass(frozen=True)
class RowSink:
    """fn(k, attrs, row, out, *sources): take a row of the sources with `source.at((i0, *row), lanes)`, store into `out`
    itself.

    `out` is the `Place` of the result. The rows of source `over` are visited (of the result when None); only sources of
    just these rows are pulled from other ops, all others are places in memory. With `ordered` one thread does all rows
    in order.
    """

    fn: Callable[..., None]
    over: int | None = None
    ordered: bool = False


@dataclass(frozen=True)
class Tiles:
    """Results made tile by tile, so that what follows elementwise happens before they are stored.

    chunks(attrs, out, *tensors) -> Chunks
    walk(k, attrs, out, visitor, *places): loops over `k.begin` .. `k.end`, calls visitor.enter(panel) where a panel of
    results is
        begun and visitor.tile(tile) for each of its tiles
    enter(k, attrs, panel, *places) -> anything that `compute` needs of a panel, made once for all its tiles
    compute(k, attrs, tile, entered, *places) -> [(index, value), ...]: the tile's results; a value's lanes run along
    dimension 0 partner(attrs, out, *tensors) -> key: ops of equal keys walk the same tiles and may share one kernel
    """

    chunks: Callable[..., Chunks]
    walk: Callable[..., None]
    compute: Callable[..., Any]
    partner: Callable[..., Any]
    enter: Callable[..., Any] = lambda k, attrs, panel, *places: None


@dataclass(frozen=True)
class Direct:
    """fn(k, attrs, out, *places): loops over `k.begin` .. `k.end` and stores into `out` (a `Place`) itself.

    chunks(attrs, out, *tensors) -> Chunks; a chunk must not depend on another one. Each must give the same values
    whichever chunks run with it.
    """

    fn: Callable[..., None]
    chunks: Callable[..., Chunks]


@dataclass(frozen=True)
class Callback:
    """The op's `reference` is called between kernels: for functions of the user's and for encoders of rarely written
    formats."""


Lowering: TypeAlias = "Elementwise | Indexed | Rowwise | RowSink | Tiles | Direct | Callback"


class KernelContext:
    """One kernel being built: its builder, its tensors' places, the run-time sizes, the chunk range.

    lanes  the width of vectorised row loops (1 switches vectorisation off)
    """

    def __init__(self, name: str, lanes: int = ROW_LANES) -> None:
        self.b = Builder(name)
        self.lanes = lanes
        self.roots: list[Tensor] = []
        self.size_names: list[str] = []
        #: numbers that `require` stores behind the run-time sizes, and what they mean
        self.failures: dict[int, str] = {}
        self._pointers: dict[Tensor, Node] = {}
        self._sizes: Node | None = None
        self.begin: Node = self.b.i64(0)
        self.end: Node = self.b.i64(0)

    def open(self, roots: Sequence[Tensor], dims: Sequence[Dim]) -> None:
        """Declare the parameters: one pointer per root tensor, the run-time sizes (in this order), begin and end."""
        self.roots = list(roots)
        self._pointers = {root: self.b.param(f"p{i}") for i, root in enumerate(roots)}
        self.size_names = [d.name for d in dims]
        self._sizes = self.b.param("sizes")
        self.begin = self.b.param("begin", I64)
        self.end = self.b.param("end", I64)

    def size(self, size: Size) -> Operand:
        """A size as a number or as a value computed from the run-time sizes."""
        if not isinstance(size, SizeExpr):
            return size
        total: Operand = 0
        for monomial, coefficient in size.terms:
            term: Operand = coefficient
            for dim in monomial:
                at = self.size_names.index(dim.name)
                assert self._sizes is not None
                value = self.b.load(self._sizes, 8 * at, I64, constant=True)
                term = value * term if isinstance(term, int) else term * value
            total = _plus(term, total)
        return total

    def place(self, tensor: Tensor) -> Place:
        """Where a tensor lies."""
        pointer = self._pointers[tensor.root]
        return Place(self, tensor, self.b.offset(pointer, self.size(tensor.offset)))

    def require(self, condition: Node, message: str) -> None:
        """Where the (scalar) condition does not hold, make the run fail with this message afterwards."""
        number = crc32(message.encode()) | 1
        self.failures[number] = message
        sizes = self._sizes
        assert sizes is not None
        self.b.when(
            self.b.cmp("eq", self.b.cast(condition, I32), 0),
            lambda: self.b.store(sizes, 8 * len(self.size_names), self.b.i64(number)),
        )

    def value(self, operand: Operand) -> Node:
        """An index as a value."""
        return operand if isinstance(operand, Node) else self.b.i64(operand)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def for_lanes(self, n: Operand, body: Callable[[Operand, int], None]) -> None:
        """body(i0, lanes) over 0 .. n: whole vectors first, then one element at a time."""
        b, lanes = self.b, self.lanes
        whole = self.whole(n)
        if lanes > 1:
            b.loop(0, whole, lambda i: body(i, lanes), step=lanes)
        b.loop(whole if lanes > 1 else 0, n, lambda i: body(i, 1))

    def fold_row(
        self,
        n: Operand,
        element: Callable[[Operand, int], Node],
        combine: Callable[[Node, Node], Node],
        initial: float,
        how: str,
        type: Type = KF32,
    ) -> Node:
        """All elements of a row combined: in lanes first, lanes folded with `how` (add, min, max), then the rest in
        order.

        The number of lanes is the same on every target, so the order is, too.
        """
        b, lanes = self.b, self.lanes
        total = b.const(initial, type)
        whole: Operand = 0
        if lanes > 1:
            whole = self.whole(n)
            (wide,) = b.loop(
                0,
                whole,
                lambda i, acc: combine(acc, b.cast(element(i, lanes), type)),
                [b.const(initial, type.vec(lanes))],
                step=lanes,
            )
            total = b.reduce(how, wide)
        (total,) = b.loop(whole, n, lambda i, acc: combine(acc, b.cast(element(i, 1), type)), [total])
        return total

    def sum_row(self, n: Operand, element: Callable[[Operand, int], Node]) -> Node:
        """The sum of a row's elements, made in f64 and given as f64."""
        return self.fold_row(n, element, self.b.add, 0.0, "add", F64)

    def sqrt64(self, x: Node) -> Node:
        """The square root of an f64."""
        return self.b.math("sqrt", x)

    def max_row(self, n: Operand, element: Callable[[Operand, int], Node]) -> Node:
        """The largest of a row's elements, -inf for an empty row."""
        return self.fold_row(n, element, self.b.max, float("-inf"), "max")

    def whole(self, n: Operand) -> Operand:
        """n rounded down to a multiple of the lanes."""
        if isinstance(n, int):
            return n // self.lanes * self.lanes
        return n // self.lanes * self.lanes

    def split(self, flat: Operand, ne: Sequence[Operand]) -> list[Operand]:
        """A flat index as one index per size, fastest first; the last one takes what is left."""
        indices: list[Operand] = []
        for n in ne[:-1]:
            if isinstance(n, int) and n == 1:
                indices.append(0)
                continue
            indices.append(self.value(flat) % n)
            flat = self.value(flat) // n
        return [*indices, flat]


class Place:
    """A tensor in memory inside one kernel: pointer, sizes and byte strides as numbers or values."""

    def __init__(self, k: KernelContext, tensor: Tensor, pointer: Node) -> None:
        self.k, self.tensor, self.pointer = k, tensor, pointer
        self.type: DType = tensor.type
        self.ne = tuple(k.size(n) for n in tensor.ne)
        self.nb = tuple(k.size(n) for n in tensor.nb)

    def byte_offset(self, index: Index) -> Operand:
        """Bytes from the pointer to an element, or to the block of a block format that starts at index[0]."""
        first = index[0]
        if self.type.block_size > 1:
            first = first // self.type.block_size
        total: Operand = 0
        for i, stride in zip((first, *index[1:]), self.nb, strict=True):
            total = _plus(total, _times(i, stride))
        return total

    def row(self, row: Sequence[Operand]) -> Node:
        """The address of element 0 of a row (i1, i2, i3)."""
        i1, i2, i3 = row
        return self.k.b.offset(self.pointer, self.byte_offset((0, i1, i2, i3)))

    def at(self, index: Index, lanes: int = 1) -> Node:
        """The value at an index; with lanes > 1 of neighbours along dimension 0.

        Floats come as f32, integers as they are.
        """
        if not self.type.is_scalar:
            raise KernelError(
                f"{self.tensor.describe()}: elements of block formats are read through `unpack`, not one by one"
            )
        return from_storage(self.k.b, self.type, self.raw(index, lanes))

    def put(self, index: Index, value: Node) -> None:
        """Store the lanes of a value from an index on, rounded to the tensor's type."""
        self.put_raw(index, to_storage(self.k.b, self.type, value))

    @property
    def kernel_type(self) -> Type:
        """The kernel IR type of a stored element."""
        return _KERNEL_TYPE[self.type.name]

    def raw(self, index: Index, lanes: int = 1) -> Node:
        """The stored elements from an index on."""
        b = self.k.b
        offset = self.byte_offset(index)
        if lanes > 1 and self.tensor.nb[0] != self.type.type_size:
            return b.gather(self.pointer, offset, self.nb[0], self.kernel_type.vec(lanes))
        return b.load(self.pointer, offset, self.kernel_type.vec(lanes))

    def put_raw(self, index: Index, raw: Node) -> None:
        """Store elements that have the tensor's type already."""
        b = self.k.b
        offset = self.byte_offset(index)
        if raw.lanes > 1 and self.tensor.nb[0] != self.type.type_size:
            b.scatter(self.pointer, offset, self.nb[0], raw)
        else:
            b.store(self.pointer, offset, raw)


def from_storage(b: Builder, type: DType, raw: Node) -> Node:
    """Stored lanes as f32 (float types) or unchanged (integers)."""
    if type is BF16:
        return b.bitcast(b.cast(raw, U32) << 16, KF32.vec(raw.lanes))
    return b.cast(raw, KF32) if type.is_float else raw


def to_storage(b: Builder, type: DType, value: Node) -> Node:
    """f32 or integer lanes rounded to a storage type (nearest, ties to even)."""
    if value.type.kind == "b":
        value = b.select(value, b.const(1, I32.vec(value.lanes)), b.const(0, I32.vec(value.lanes)))
    if type is not BF16:
        return b.cast(value, _KERNEL_TYPE[type.name])
    bits = b.bitcast(b.cast(value, KF32), U32.vec(value.lanes))
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    is_nan = b.cmp("gt", bits & 0x7FFFFFFF, 0x7F800000)
    return b.cast(b.select(is_nan, (bits >> 16) | 64, rounded), U16)


def convert(b: Builder, source: DType, target: DType, raw: Node) -> Node:
    """Stored elements of one scalar type as those of another; floats to integers towards zero."""
    if source is target:
        return raw
    value = raw if source is TF64 else from_storage(b, source, raw)
    if target.is_integer and value.type.is_float:
        return b.cast(b.round("trunc", value), _KERNEL_TYPE[target.name])
    if target is TF64:
        return b.cast(value, F64)
    return to_storage(b, target, b.cast(value, KF32))


class Tiled:
    """A source that is repeated over a larger result: indices are taken modulo its sizes."""

    def __init__(self, source: Any, source_tensor: Tensor, out: Tensor) -> None:
        self.source, self.tensor, self.out = source, source_tensor, out

    def at(self, index: Index, lanes: int = 1) -> Node:
        """The value that the result's index sees."""
        k: KernelContext = self.source.k
        inner: list[Operand] = []
        for i, n, n_out in zip(index, self.tensor.ne, self.out.ne, strict=True):
            if n == n_out:
                inner.append(i)
            elif n == 1:
                inner.append(0)
            else:
                inner.append(k.value(i) % k.size(n))
        if lanes > 1 and self.tensor.ne[0] != self.out.ne[0]:
            if self.tensor.ne[0] != 1:
                raise KernelError("a source tiled along dimension 0 is read one element at a time")
            return k.b.splat(self.source.at(tuple(inner), 1), lanes)
        return self.source.at(tuple(inner), lanes)


def tiles_lanes(tensor: Tensor, out: Tensor) -> bool:
    """Whether a tiled source can be read with lanes > 1: not repeated along dimension 0, or a single element there."""
    return tensor.ne[0] in (1, out.ne[0])


def row_chunks(attrs: Any, out: Tensor, *src: Tensor) -> Chunks:
    """One chunk per row of the result."""
    return Chunks(tuple((n, 1) for n in out.ne[1:]))


def _plus(a: Operand, b: Operand) -> Operand:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return b + a if isinstance(a, int) else a + b


def _times(a: Operand, b: Operand) -> Operand:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return b * a if isinstance(a, int) else a * b
