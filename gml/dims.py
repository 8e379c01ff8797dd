"""Sizes: whole numbers, or polynomials over named run-time sizes.

A size of a tensor is an `int`, a `Dim` ("n_tokens", at most 512) or what `+ - *` and exact `//` make of them. Sizes
compare equal when they are the same polynomial, so shapes are checked when the graph is built, before any value is
known. Plans are made for the bounds, code runs to the values. Next module: `gml/arena.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from gml.errors import GraphError, ShapeError

Monomial: TypeAlias = "tuple[Dim, ...]"
#: a graph has few different sizes and computes with them again and again: results are kept
_remembered = lru_cache(maxsize=1 << 12, typed=True)


class SizeExpr:
    """A polynomial with whole coefficients over `Dim`s; immutable and hashable."""

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: tuple[tuple[Monomial, int], ...] = tuple(
            sorted(((m, c) for m, c in terms.items() if c), key=lambda term: [d.key for d in term[0]])
        )
        self._hash = hash(self.terms)

    def __add__(self, other: Size) -> Size:
        return _sum(self, _whole(other))

    def __mul__(self, other: Size) -> Size:
        return _product(self, _whole(other))

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + _size({m: -c for m, c in _terms(other)})

    def __rsub__(self, other: Size) -> Size:
        return self * -1 + other

    def __floordiv__(self, other: Size) -> Size:
        """Exact division; raises `ShapeError` when a remainder would be left."""
        quotient = exact_div(self, other)
        if quotient is None:
            raise ShapeError(f"the size {self} is not divisible by {other} for every value of its dimensions")
        return quotient

    def __rfloordiv__(self, other: int) -> Size:
        quotient = exact_div(other, self)
        if quotient is None:
            raise ShapeError(f"the size {other} is not divisible by {self} for every value of its dimensions")
        return quotient

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SizeExpr) and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        try:
            return self._text
        except AttributeError:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        parts = []
        for monomial, coefficient in self.terms:
            names = [d.name for d in monomial]
            factor = [str(coefficient)] if coefficient != 1 or not names else []
            parts.append("*".join(factor + names))
        return "+".join(parts).replace("+-", "-") or "0"

    __str__ = __repr__


class Dim(SizeExpr):
    """A named run-time size, `min <= value <= max`. Two dims of the same name and bounds are the same dim.

    Raises `ShapeError` for a name that is no identifier, or bounds that are not whole numbers with 0 <= min <= max.
    """

    __slots__ = ("max", "min", "name")

    def __init__(self, name: str, max: int, min: int = 1) -> None:
        if not (isinstance(name, str) and name.isidentifier()):
            raise ShapeError(f"Dim {name!r}: the name must be an identifier, because its value is passed as name=...")
        if not (isinstance(max, int) and isinstance(min, int) and 0 <= min <= max < 1 << 48):
            raise ShapeError(f"Dim {name!r}: bounds must be whole numbers with 0 <= min <= max, found {min}..{max}")
        self.name, self.min, self.max = name, min, max
        self._hash = hash(self.key)
        self.terms = (((self,), 1),)

    @property
    def key(self) -> tuple[str, int, int]:
        """What the dim is known by, and its place in the order of terms."""
        return self.name, self.min, self.max

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self is other or self.key == other.key
        return super().__eq__(other)

    def __hash__(self) -> int:
        return self._hash


Size: TypeAlias = int | SizeExpr


def _whole(size: Size) -> Size:
    """The size, with every kind of whole number made an int. Raises `ShapeError` for what is no size."""
    if isinstance(size, SizeExpr):
        return size
    try:
        return operator.index(size)
    except TypeError:
        raise ShapeError(f"sizes are computed with whole numbers and Dims only, found {size!r}") from None


def _terms(size: Size) -> Iterable[tuple[Monomial, int]]:
    if isinstance(size, SizeExpr):
        return size.terms
    number = _whole(size)
    assert isinstance(number, int)
    return (((), number),) if number else ()


@_remembered
def _sum(a: SizeExpr, b: Size) -> Size:
    terms = dict(a.terms)
    for monomial, coefficient in _terms(b):
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return _size(terms)


@_remembered
def _product(a: SizeExpr, b: Size) -> Size:
    terms: dict[Monomial, int] = {}
    for m1, c1 in a.terms:
        for m2, c2 in _terms(b):
            monomial = tuple(sorted(m1 + m2, key=lambda d: d.key))
            terms[monomial] = terms.get(monomial, 0) + c1 * c2
    return _size(terms)


def _size(terms: Mapping[Monomial, int]) -> Size:
    """The simplest size of these terms: an int, a Dim itself, or a polynomial."""
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1:
        ((monomial, coefficient),) = kept.items()
        if not monomial:
            return coefficient
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    return SizeExpr(kept)


def is_static(size: Size) -> bool:
    """True when the size is a plain number."""
    return not isinstance(size, SizeExpr)


def dims_of(sizes: Iterable[Size]) -> set[Dim]:
    """The dims that occur in some sizes."""
    return {d for size in sizes if isinstance(size, SizeExpr) for monomial, _ in size.terms for d in monomial}


def exact_div(size: Size, by: Size) -> Size | None:
    """`size / by` when that is a size for every value of the dims, else None. `by` has one term."""
    if size == by:
        return 1
    if isinstance(size, int) and isinstance(by, int):
        return None if by == 0 or size % by else size // by
    return _quotient(_whole(size), _whole(by))


@_remembered
def _quotient(size: Size, by: Size) -> Size | None:
    divisor = list(_terms(by))
    if len(divisor) != 1 or divisor[0][1] == 0:
        return None
    monomial, coefficient = divisor[0]
    quotient: dict[Monomial, int] = {}
    for m, c in _terms(size):
        rest = list(m)
        for d in monomial:
            if d not in rest:
                return None
            rest.remove(d)
        if c % coefficient:
            return None
        quotient[tuple(rest)] = quotient.get(tuple(rest), 0) + c // coefficient
    return _size(quotient)


def value_of(size: Size, values: Mapping[Dim, int]) -> int:
    """The number a size stands for. Raises `GraphError` naming a dim without a value."""
    if not isinstance(size, SizeExpr):
        return size
    total = 0
    for monomial, coefficient in size.terms:
        for d in monomial:
            if d not in values:
                raise GraphError(f"the run-time size {d.name!r} has no value; pass {d.name}=... (at most {d.max})")
            coefficient *= values[d]
        total += coefficient
    return total


def max_of(size: Size) -> int:
    """An upper bound: every dim at its max in terms added, at its min in terms subtracted."""
    if not isinstance(size, SizeExpr):
        return size
    return _greatest(size)


@_remembered
def _greatest(size: SizeExpr) -> int:
    total = 0
    for monomial, coefficient in size.terms:
        for d in monomial:
            coefficient *= d.max if coefficient > 0 else d.min
        total += coefficient
    return total


def min_of(size: Size) -> int:
    """A lower bound: every dim at its min in terms added, at its max in terms subtracted."""
    return -max_of(-size)


def resolve(value: Any, values: Mapping[Dim, int]) -> Any:
    """`value` with every size in it (also inside tuples) replaced by its number."""
    if isinstance(value, SizeExpr):
        return value_of(value, values)
    if isinstance(value, tuple):
        return tuple(resolve(item, values) for item in value)
    return value
