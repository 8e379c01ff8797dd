"""Sizes: the algebra of polynomials agrees with arithmetic on numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gml
from gml.dims import dims_of, exact_div, is_static, max_of, min_of, resolve, value_of

A, B, C = gml.Dim("a", max=9), gml.Dim("b", max=7, min=0), gml.Dim("c", max=100, min=3)
VALUES = st.fixed_dictionaries({A: st.integers(1, 9), B: st.integers(0, 7), C: st.integers(3, 100)})


def sizes() -> st.SearchStrategy[Any]:
    leaves = st.one_of(st.integers(-5, 5), st.sampled_from([A, B, C]))

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda p: p[0] + p[1]), pair.map(lambda p: p[0] - p[1]), pair.map(lambda p: p[0] * p[1])
        )

    return st.recursive(leaves, grow, max_leaves=6)


@settings(max_examples=150, deadline=None)
@given(sizes(), sizes(), VALUES)
def test_arithmetic_and_evaluation_commute(x: Any, y: Any, values: dict) -> None:
    vx, vy = value_of(x, values), value_of(y, values)
    assert value_of(x + y, values) == vx + vy
    assert value_of(x - y, values) == vx - vy
    assert value_of(x * y, values) == vx * vy
    assert value_of(-x, values) == -vx


@settings(max_examples=150, deadline=None)
@given(sizes(), sizes(), sizes())
def test_equal_polynomials_are_equal_sizes(x: Any, y: Any, z: Any) -> None:
    for left, right in ((x + y, y + x), (x * y, y * x), ((x + y) * z, x * z + y * z), (x - x, 0), (x + y - y, x)):
        assert left == right
        assert hash(left) == hash(right)
        assert str(left) == str(right)


@settings(max_examples=150, deadline=None)
@given(sizes(), VALUES)
def test_bounds_hold(x: Any, values: dict) -> None:
    assert min_of(x) <= value_of(x, values) <= max_of(x)


@settings(max_examples=150, deadline=None)
@given(sizes(), st.one_of(st.integers(1, 6), st.sampled_from([A, B, C, A * B, 3 * C])), VALUES)
def test_exact_division_undoes_multiplication(x: Any, by: Any, values: dict) -> None:
    assert exact_div(x * by, by) == x
    quotient = exact_div(x, by)
    if quotient is not None:
        assert value_of(quotient, values) * value_of(by, values) == value_of(x, values)


def test_what_is_not_divisible_for_every_value_is_not_divided() -> None:
    assert exact_div(A, 2) is None
    assert exact_div(A + 1, A) is None
    assert exact_div(6, A) is None
    assert exact_div(4, 0) is None
    assert exact_div(7, 2) is None
    assert exact_div(2 * A + 4, 2) == A + 2
    with pytest.raises(gml.ShapeError, match="not divisible"):
        _ = A // 2
    with pytest.raises(gml.ShapeError, match="not divisible"):
        _ = 6 // A


def test_sizes_simplify_to_numbers_and_dims() -> None:
    assert A - A + 3 == 3
    assert isinstance(A - A + 3, int)
    assert (2 * A - A) is A or (2 * A - A) == A
    assert isinstance(2 * A - A, gml.Dim)
    assert is_static(A * 0)
    assert not is_static(A)
    assert dims_of([A * B + 1, 3]) == {A, B}
    assert A != 1
    assert A != B


def test_dims_are_the_same_by_name_and_bounds() -> None:
    assert gml.Dim("n", max=8) == gml.Dim("n", max=8)
    assert len({gml.Dim("n", max=8), gml.Dim("n", max=8), gml.Dim("n", max=9)}) == 2
    narrow, wide = gml.Dim("n", max=8), gml.Dim("n", max=9)
    assert narrow * wide == wide * narrow
    assert narrow + wide == wide + narrow


def test_text() -> None:
    assert str(2 * A * B - 3 * C + 1) == "1+2*a*b-3*c"
    assert str(-A) == "-1*a"


@pytest.mark.parametrize("bounds", [(-1, 0), (3, 4), (1 << 50, 0), (2.0, 0), ("8", 1)])
def test_bad_bounds_are_refused(bounds: Any) -> None:
    with pytest.raises(gml.ShapeError, match="bounds must be whole numbers"):
        gml.Dim("n", max=bounds[0], min=bounds[1])


@pytest.mark.parametrize("name", ["", "n tokens", "2n", "a*b", None])
def test_bad_names_are_refused(name: Any) -> None:
    with pytest.raises(gml.ShapeError, match="identifier"):
        gml.Dim(name, max=8)


@pytest.mark.parametrize("other", [1.5, "2", None])
def test_sizes_are_not_computed_with_other_things(other: Any) -> None:
    for compute in (lambda: A + other, lambda: A * other, lambda: A - other):
        with pytest.raises(gml.ShapeError, match="whole numbers and Dims only"):
            compute()


def test_a_missing_value_names_the_dim() -> None:
    with pytest.raises(gml.GraphError, match="'b' has no value"):
        value_of(A * B, {A: 1})


def test_resolve_reaches_into_tuples() -> None:
    assert resolve(((A, 2), "x", B + 1), {A: 4, B: 5}) == ((4, 2), "x", 6)
