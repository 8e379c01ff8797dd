"""What an op is: one `OpDef`, declared in one place, known to the rest of gml by its properties only.

Arrives: tensors and attributes at the call `gml.mul_mat(a, b)`; leaves: a new `Tensor`, its sizes and type inferred, or
a `ShapeError` that names the op, the tensors and the broken rule. The declarations follow in the files of this package
(`elementwise.py`, `reduce.py`, ...). Next module: `gml/graph.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gml.context import Context
from gml.dims import Dim, Size, resolve
from gml.dtypes import F32, I32, DType
from gml.errors import GraphError, ShapeError
from gml.records import dataclass
from gml.tensor import Tensor


@dataclass(frozen=True)
class NoAttrs:
    """Attributes of an op that has none."""


@dataclass(frozen=True)
class Inferred:
    """What `infer` finds: the result's type and sizes; for views also strides and the offset into the source's
    storage."""

    type: DType
    ne: Sequence[Size]
    nb: Sequence[Size] | None = None
    offset: Size = 0


@dataclass(frozen=True)
class Sample:
    """A case that tests run: `make(s)` builds the result tensor from leaves that the `SampleBuilder` s gives."""

    name: str
    make: Callable[[SampleBuilder], Tensor]


@dataclass(frozen=True, eq=False)
class OpDef:
    """The declaration of an op.

    name         ggml's name
    infer        (attrs, *sources) -> Inferred; raises `ShapeError` through `rule`
    reference    (attrs, *arrays) -> array: the numpy meaning. Arrays have four axes in numpy's order; float types
                 (block formats too) arrive as float32, integers as they are; attributes arrive with all sizes resolved.
                 The result is reshaped and rounded to the inferred type. For an op that `writes`, (attrs, out, *arrays)
                 -> None, where `out[index] = values` writes through to the destination, and the arrays are the other
                 sources.
    samples      cases for the tests: non-contiguous, broadcast, size-1, empty and odd sizes included
    attrs        frozen dataclass of attributes
    elementwise  every result element depends on the elements at the same place alone
    view         the result looks into source 0's storage with other strides; nothing is computed
    writes       index of the source whose storage the op writes; the result looks into it
    in_place     sources whose storage the result may reuse when nothing else needs them: those of its own type and
                 sizes
    copies       the result has source 0's values (cont, dup)
    moves        elements pass unchanged. Where source 0 has the result's type, the reference is given the stored blocks
                 and gives blocks (float32 would lose bits of F64 and of block formats)
    impure       not a function of its sources alone (a user's Python function): never merged or hoisted
    lower        what it computes in kernel IR: one of the forms of `gml/ops/lower.py`, or a
                 function (attrs, out, *sources) that chooses one
    expand       (attrs, *sources) -> Tensor: the same as a composition of other ops, in place of `lower`
    macs         (attrs, out, *sources) -> Size: multiplications and additions in pairs, for ops that are made of them
    exact        the reference gives the very bits that kernels give (but for the payload of NaNs), on every machine;
                 where that depends on types, a function (attrs, out, *sources) that says so. Such ops may be computed
                 at compile time
    compare      (attrs, blocks, *arrays) -> (found, expected): for results whose bytes are a layout of their own, the
                 values that stored blocks stand for and those that they should, for `GML_CHECK`
    refine       (attrs, options, *sources) -> Tensor or None: a form of this op that suits compiled code better, if
                 there is one for these sources; options: `gml.compiler.Options`
    """

    name: str
    infer: Callable[..., Inferred]
    reference: Callable[..., Any]
    samples: Sequence[Sample]
    attrs: type = NoAttrs
    elementwise: bool = False
    view: bool = False
    writes: int | None = None
    in_place: tuple[int, ...] = ()
    copies: bool = False
    moves: bool = False
    impure: bool = False
    exact: bool | Callable[..., bool] = False
    lower: Any = None
    expand: Callable[..., Tensor] | None = None
    refine: Callable[..., Tensor | None] | None = None
    macs: Callable[..., Size] | None = None
    compare: Callable[..., tuple[np.ndarray, np.ndarray]] | None = None

    def __call__(self, *src: Tensor, **attributes: Any) -> Tensor:
        """A new tensor: this op over `src`. Raises `ShapeError` when the sources do not fit."""
        for i, tensor in enumerate(src):
            if not isinstance(tensor, Tensor):
                raise ShapeError(f"{self.name}: source {i} must be a Tensor, found {type(tensor).__name__}")
        least, most = n_sources(self.infer)
        if not least <= len(src) <= most:
            expected = f"{least}" if least == most else f"{least} to {most}" if most < MANY else f"at least {least}"
            raise ShapeError(f"{self.name}: expected {expected} sources, found {len(src)}")
        attrs = self.attrs(**attributes)
        try:
            found = self.infer(attrs, *src)
            view_of = src[0] if self.view else src[self.writes] if self.writes is not None else None
            offset = found.offset if view_of is None else view_of.offset + found.offset
            return Tensor(
                found.type, found.ne, nb=found.nb, op=self, attrs=attrs, src=src, view_of=view_of, offset=offset
            )
        except ShapeError as error:
            given = ", ".join(t.describe() for t in src)
            raise ShapeError(f"{self.name}({given}): {error}") from None

    def __repr__(self) -> str:
        return f"<op {self.name}>"


#: all declared ops by name
registry: dict[str, OpDef] = {}


def declare(op: OpDef) -> OpDef:
    """Register an op; a second one of the same name is refused."""
    if op.name in registry:
        raise GraphError(f"op {op.name!r} is declared already")
    registry[op.name] = op
    return op


MANY = 1 << 16


@functools.cache
def n_sources(infer: Callable[..., Inferred]) -> tuple[int, int]:
    """The least and the largest number of sources that an `infer` takes."""
    least = most = -1
    for parameter in inspect.signature(infer).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return max(least, 0), MANY
        most += 1
        least += parameter.default is parameter.empty
    return least, most


def rule(condition: bool, text: str) -> None:
    """Raise `ShapeError(text)` unless the condition holds; `text` says what the op needs and what was found."""
    if not condition:
        raise ShapeError(text)


def resolved(attrs: Any, values: Mapping[Dim, int]) -> Any:
    """Attributes with every size in them replaced by its number."""
    changes = {}
    for field in dataclasses.fields(attrs):
        old = getattr(attrs, field.name)
        new = resolve(old, values)
        if new is not old and new != old:
            changes[field.name] = new
    return dataclasses.replace(attrs, **changes) if changes else attrs


class SampleBuilder:
    """Gives samples their leaves: random values of a fixed seed, and run-time sizes with a value to run at."""

    def __init__(self, seed: int = 0) -> None:
        self.context = Context()
        self.random = np.random.default_rng(seed)
        self.values: dict[Dim, int] = {}

    def f32(self, *ne: int, low: float = -2.0, high: float = 2.0, type: DType = F32) -> Tensor:
        """A constant of uniform random values; any float type, block formats that can be encoded included."""
        array = self.random.uniform(low, high, size=tuple(reversed(ne))).astype(np.float32)
        return self.context.constant(array, type=type)

    def array(self, values: Any, type: DType | None = None) -> Tensor:
        """A constant of given values (numpy's order)."""
        return self.context.constant(values, type=type)

    def ids(self, *ne: int, high: int, low: int = 0, type: DType = I32) -> Tensor:
        """A constant of random whole numbers low <= id < high."""
        return self.context.constant(self.random.integers(low, high, size=tuple(reversed(ne))), type=type)

    def blocks(self, type: DType, *ne: int) -> Tensor:
        """A constant of a block format from random bytes, its float fields kept finite and small."""
        n_rows = int(np.prod(ne[1:], dtype=np.int64))
        raw = self.random.integers(0, 256, size=(n_rows, type.row_bytes(ne[0])), dtype=np.uint8)
        view = raw.view(type.numpy)
        for field in type.numpy.names or ():
            base = type.numpy[field].base
            if base.kind == "f":
                shape = view[field].shape
                view[field] = self.random.uniform(-0.1, 0.1, size=shape).astype(base)
        return self.context.from_buffer(raw, type, ne)

    def dim(self, name: str, value: int, max: int, min: int = 0) -> Dim:
        """A run-time size and the value it has in this sample."""
        dim = Dim(name, max=max, min=min)
        self.values[dim] = value
        return dim

    def input(self, ne: Sequence[Size], low: float = -2.0, high: float = 2.0, type: DType = F32) -> Tensor:
        """An input of random values whose sizes may be run-time sizes."""
        tensor = self.context.input(f"x{len(self.context.leaves)}", type, ne)
        shape = tuple(resolve(n, self.values) for n in reversed(tensor.ne))
        return tensor.set(self.random.uniform(low, high, size=shape).astype(np.float32))

    def state(self, type: DType, *ne: int) -> Tensor:
        """A state of random values, for ops that write."""
        tensor = self.context.state(f"s{len(self.context.leaves)}", type, ne)
        return tensor.set(self.random.uniform(-2.0, 2.0, size=tuple(reversed(ne))).astype(np.float32))
