"""Tensors and contexts: shapes, leaves, setting and reading values, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gml
from gml.tensor import Tensor


def test_shape_is_numpys_order_without_trailing_sizes_of_1() -> None:
    a = Tensor(gml.F32, (7, 1, 3))
    assert (a.ne, a.nb) == ((7, 1, 3, 1), (4, 28, 28, 84))
    assert (a.n_dims, a.shape, a.n_elements, a.n_rows, a.n_bytes) == (3, (3, 1, 7), 21, 3, 84)
    assert Tensor(gml.F32, (1,)).shape == (1,)
    assert Tensor(gml.F16, (0, 4)).n_bytes == 0


@pytest.mark.parametrize(
    "ne",
    [(), (1, 1, 1, 1, 1), (-1,), (2.0,), ("2",), (True,), (1 << 45,), (1 << 30, 1 << 30), (gml.Dim("n", max=1 << 46),)],
)
def test_bad_sizes_are_refused(ne: Any) -> None:
    with pytest.raises(gml.ShapeError):
        Tensor(gml.F32, ne)


@pytest.mark.parametrize("type", [gml.F32, gml.F16, gml.F64, gml.BF16, gml.I8, gml.I16, gml.I32, gml.I64])
def test_constants_of_every_scalar_type_read_back(type: gml.DType) -> None:
    values = np.array([[1, -2, 3], [4, 0, 100]])
    tensor = gml.Context().constant(values, type=type)
    assert tensor.ne == (3, 2, 1, 1)
    np.testing.assert_array_equal(tensor.numpy(), values)


def test_constants_choose_the_type_of_their_values() -> None:
    context = gml.Context()
    assert context.constant(np.array([1], np.float16)).type is gml.F16
    assert context.constant([1.5]).type is gml.F32
    assert context.constant([1, 2]).type is gml.I32
    assert context.constant([1 << 40]).type is gml.I64
    assert context.constant(3.0).ne == (1, 1, 1, 1)
    # a big-endian array is the same numbers
    np.testing.assert_array_equal(context.constant(np.array([1.5, 2], ">f4")).numpy(), [1.5, 2])


@pytest.mark.parametrize("array", [["a"], [None], np.array([1j]), np.zeros((1,) * 5), np.array([True])])
def test_constants_of_other_things_are_refused(array: Any) -> None:
    with pytest.raises(gml.ShapeError):
        gml.Context().constant(array)


@pytest.mark.parametrize("array", [[1.5], [1 << 31], [float("nan")], [-(1 << 40)], ["1"], [1e30]])
def test_integer_tensors_take_whole_numbers_that_fit(array: Any) -> None:
    ids = gml.Context().input("ids", gml.I32, [1])
    with pytest.raises(gml.ShapeError, match="'ids'"):
        ids.set(np.array(array))
    ids.set(np.array([7.0]))
    np.testing.assert_array_equal(ids.numpy(), [7])


def test_bf16_rounds_to_nearest_even() -> None:
    tensor = gml.Context().constant([1 + 2**-8, 1 + 3 * 2**-8, np.inf, np.nan, 3.4e38], type=gml.BF16)
    np.testing.assert_array_equal(tensor.numpy(), [1, 1 + 2**-6, np.inf, np.nan, np.inf])


def test_inputs_learn_run_time_sizes_from_their_arrays() -> None:
    context = gml.Context()
    n = gml.Dim("n", max=4)
    x = context.input("x", gml.F32, [3, n])
    x.set(np.ones((2, 3)))
    assert context.dim_values == {n: 2}
    np.testing.assert_array_equal(x.numpy({n: 2}), np.ones((2, 3)))
    program = gml.compile(gml.sum(x), "reference")
    program.run()
    assert program.read(program.graph.outputs[0]) == 6
    for bad in (np.ones((5, 3)), np.ones((0, 3)), np.ones((2, 4)), np.ones((1, 1, 1, 2, 3))):
        with pytest.raises(gml.ShapeError, match="1 <= n <= 4"):
            x.set(bad)


def test_only_inputs_and_states_can_be_set() -> None:
    context = gml.Context()
    constant = context.constant([1.0])
    for tensor in (constant, gml.neg(constant)):
        with pytest.raises(gml.GraphError, match="only inputs and states"):
            tensor.set([2.0])


def test_results_have_no_storage_of_their_own() -> None:
    with pytest.raises(gml.GraphError, match="through a Program"):
        gml.neg(gml.Context().constant([1.0])).numpy()


def test_tensors_of_a_reset_context_are_refused() -> None:
    context = gml.Context()
    old = context.input("old", gml.F32, [3])
    context.reset()
    context.input("new", gml.F32, [3])
    for touch in (old.numpy, lambda: old.set(np.zeros(3)), gml.compile(gml.neg(old), "reference").run):
        with pytest.raises(gml.GraphError, match="context was reset"):
            touch()


def test_from_buffer_copies_nothing_and_checks_the_size() -> None:
    buffer = np.arange(6, dtype=np.float32)
    tensor = gml.Context().from_buffer(buffer, gml.F32, [3, 2])
    assert np.shares_memory(tensor.numpy(), buffer)
    with pytest.raises(gml.ShapeError, match="needs 28 bytes, the buffer has 24"):
        gml.Context().from_buffer(buffer, gml.F32, [7])


def test_read_only_buffers_can_be_read() -> None:
    buffer = np.frombuffer(np.arange(4, dtype=np.float32).tobytes(), np.uint8)
    assert not buffer.flags.writeable
    tensor = gml.Context().from_buffer(buffer, gml.F32, [4])
    np.testing.assert_array_equal(gml.compile(gml.neg(tensor), "reference")(), [0, -1, -2, -3])


def test_a_program_takes_inputs_by_name() -> None:
    context = gml.Context()
    n = gml.Dim("n", max=8)
    x, y = context.input("x", gml.F32, [2, n]), context.input("y", gml.F32, [2, n])
    program = gml.compile(gml.add(x, y), "reference")
    np.testing.assert_array_equal(program(x=np.ones((3, 2)), y=np.ones((3, 2))), np.full((3, 2), 2))
    with pytest.raises(gml.GraphError, match="missing inputs"):
        program(x=np.ones((3, 2)))
    with pytest.raises(gml.GraphError, match="unknown inputs"):
        program(x=np.ones((3, 2)), y=np.ones((3, 2)), z=1)
    with pytest.raises(gml.GraphError, match="has n = 3"):
        program(x=np.ones((2, 2)), y=np.ones((3, 2)))
    with pytest.raises(gml.GraphError, match="out of bounds"):
        program.run(n=9)
    with pytest.raises(gml.GraphError, match="whole number"):
        program.run(n=2.5)  # type: ignore[arg-type]
    with pytest.raises(gml.GraphError, match="unknown run-time sizes"):
        program.run(m=2)


def test_reading_what_was_not_kept_is_refused() -> None:
    a = gml.Context().constant([1.0, 4.0])
    middle = gml.neg(a)
    out = gml.sqr(middle)
    program = gml.compile(out, "reference")
    with pytest.raises(gml.GraphError, match="run the program first"):
        program.read(out)
    program.run()
    with pytest.raises(gml.GraphError, match=r"call \.keep\(\)"):
        program.read(middle)
    with pytest.raises(gml.GraphError, match="not part of"):
        program.read(gml.neg(a))
    np.testing.assert_array_equal(program.read(out), [1, 16])


def test_importing_gml_brings_numpy_only() -> None:
    import subprocess
    import sys

    others = ("llvmlite", "regex", "jinja2", "click", "rich", "gml.models", "gml.backends")
    code = f"import sys, gml; print([m for m in {others} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
