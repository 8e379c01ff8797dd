"""Fusion finds the regions it should, and the memory plan is close to its bound."""

from __future__ import annotations

import numpy as np

import gml
from gml.backends.cpu import CpuBackend
from gml.compiler.pipeline import compile_graph
from gml.compiler.state import Options


def regions(tensor: gml.Tensor, **options: object) -> list[list[str]]:
    """The names of the ops of each region."""
    compiled = compile_graph(gml.Graph(tensor), Options(**options))
    return [[n.op.name for n in i.region.nodes] for phase in compiled.step for i in phase]


def leaf(*ne: int, type: gml.DType = gml.F32, name: str = "x") -> gml.Tensor:
    return gml.Context().input(name, type, ne)


def quantised(k: int, n: int) -> gml.Tensor:
    return gml.Context().constant(np.ones((n, k), np.float32), type=gml.Q8_0)


def test_a_norm_its_weight_and_the_quantisation_are_one_region() -> None:
    x = gml.rms_norm(leaf(64, 3), eps=1e-5) * leaf(64, name="w")
    y = gml.mul_mat(quantised(64, 16), x)
    assert regions(y) == [["rms_norm", "mul", "quantize_q8"], ["mul_mat_q8"]]


def test_gate_and_up_stay_in_registers() -> None:
    x = leaf(64, 3)
    y = gml.swiglu_split(gml.mul_mat(quantised(64, 32), x), gml.mul_mat(quantised(64, 32), x))
    assert regions(y) == [["quantize_q8"], ["mul_mat_q8", "mul_mat_q8", "swiglu_split"]]


def test_a_residual_is_added_behind_the_product() -> None:
    x = leaf(64, 3)
    assert regions(x + gml.mul_mat(quantised(64, 64), x)) == [["quantize_q8"], ["mul_mat_q8", "add"]]


def test_what_is_read_elsewhere_or_kept_is_not_fused() -> None:
    x = leaf(8, 3)
    y = gml.relu(x)
    assert regions(gml.rms_norm(y, eps=1e-5) + y) == [["relu", "rms_norm", "add"]]
    assert regions(gml.rms_norm(y, eps=1e-5) + gml.transpose(gml.transpose(y))) == [["relu"], ["rms_norm", "add"]]
    assert regions(gml.sqr(gml.relu(x).keep())) == [["relu"], ["sqr"]]
    assert regions(gml.sqr(gml.relu(x)), disabled=frozenset({"fuse"})) == [["relu"], ["sqr"]]


def test_a_read_before_a_write_is_not_moved_behind_it() -> None:
    context = gml.Context()
    state = context.state("s", gml.F32, [4, 2])
    state.set(np.ones((2, 4)))
    before = gml.scale(state, 2.0)
    after = gml.cpy(context.constant(np.full((2, 4), 5.0, np.float32)), state)
    y = before + after
    program = gml.compile(gml.Graph(y), CpuBackend(2))
    program.run()
    np.testing.assert_array_equal(program.read(y), np.full((2, 4), 7.0))


def test_a_copy_that_is_written_stays_a_copy() -> None:
    """What an op writes is neither the constant, nor the state, nor the result that it was copied from."""
    for copies in (lambda t: gml.dup(t), lambda t: gml.dup(gml.cont(t)), lambda t: gml.dup(gml.reshape(t, [8]))):
        context = gml.Context()
        five = context.input("five", gml.F32, [8])
        constant = context.constant(np.ones(8, np.float32))
        state = context.state("s", gml.F32, [8]).set(np.full(8, 2.0))
        result = gml.scale(five, 2.0)
        writes = [gml.cpy(five, copies(t)) for t in (constant, state, result)]
        graph = gml.Graph([*writes, result + state + constant])
        for backend in (CpuBackend(2), "reference"):
            program = gml.compile(graph, backend)
            *copied, untouched = program(five=np.full(8, 5.0))
            np.testing.assert_array_equal(copied, np.full((3, 8), 5.0))
            np.testing.assert_array_equal(untouched, np.full(8, 13.0))
        np.testing.assert_array_equal(constant.numpy(), np.ones(8))
        np.testing.assert_array_equal(state.numpy(), np.full(8, 2.0))


def test_the_plan_of_a_llama_like_chain_is_close_to_its_bound() -> None:
    context = gml.Context()
    tokens = gml.Dim("tokens", max=64)
    x = context.input("x", gml.F32, [64, tokens])
    for _ in range(6):
        inner = gml.rms_norm(x, eps=1e-5)
        gate, up = (gml.mul_mat(quantised(64, 192), inner) for _ in range(2))
        x = x + gml.mul_mat(quantised(192, 64), gml.swiglu_split(gate, up))
    plan = compile_graph(gml.Graph(x)).plan
    assert plan.lower_bytes <= plan.peak_bytes <= 1.15 * plan.lower_bytes


def test_equal_layers_share_kernels() -> None:
    x = leaf(64, 3)
    for _ in range(8):
        x = x + gml.mul_mat(quantised(64, 64), gml.rms_norm(x, eps=1e-5))
    compiled = compile_graph(gml.Graph(x))
    assert sum(len(phase) for phase in compiled.step) == 16
    # the first layer reads the input, the others a result; the last one is the output
    assert len({i.kernel for phase in compiled.step for i in phase}) <= 5


def test_long_chains_compile_and_keep_their_values() -> None:
    for step, n in ((lambda y: (y + y) * 0.5, 200), (gml.soft_max, 40), (gml.relu, 2000)):
        context = gml.Context()
        y = context.input("x", gml.F32, [16, 2])
        for _ in range(n):
            y = step(y)
        x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)
        found = gml.compile(gml.Graph(y), CpuBackend(2))(x=x)
        expected = gml.compile(gml.Graph(y), "reference")(x=x)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_elementwise_constants_are_computed_once_by_the_setup() -> None:
    context = gml.Context()
    c = context.constant(np.ones(16, np.float32))
    y = context.input("x", gml.F32, [16, 2]) + (c + c) * 0.5
    program = gml.compile(gml.Graph(y), CpuBackend(2))
    np.testing.assert_array_equal(program(x=np.zeros((2, 16))), np.ones((2, 16)))
    assert [len(phase) for phase in program.compiled.step] == [1]


def test_views_follow_the_strides_of_what_a_dropped_copy_was_made_from() -> None:
    """Where a size is 1 the copy's strides are not the source's, though both are contiguous."""
    context = gml.Context()
    x = context.input("x", gml.F32, [1, gml.Dim("n", max=8)])
    y = gml.relu(gml.transpose(gml.cont(gml.transpose(gml.neg(x)))))
    found = gml.compile(gml.Graph(y), CpuBackend(2))(x=np.arange(-3, 2).reshape(5, 1))
    np.testing.assert_array_equal(found, [[3], [2], [1], [0], [0]])


def test_a_result_does_not_take_the_bytes_of_what_its_region_also_reads_through_a_view() -> None:
    """x + x^T in place would read what it has overwritten."""
    x = leaf(9, 9)
    r = gml.relu(x)
    values = np.random.default_rng(0).normal(size=(9, 9)).astype(np.float32)
    found = gml.compile(gml.Graph(r + gml.transpose(r)), CpuBackend(2))(x=values)
    positive = np.maximum(values, 0)
    np.testing.assert_array_equal(found, positive + positive.T)


def test_rows_are_not_written_from_what_they_overwrite() -> None:
    # a region that computes its rows from a window of the state that it writes would meet its own results
    ctx = gml.Context()
    state = ctx.state("s", gml.F32, [4, 8]).set(np.arange(32.0).reshape(8, 4))
    ids = ctx.input("ids", gml.I32, [3])
    window = gml.view(state, [4, 3], nb=[state.nb[1]], offset=3 * state.nb[1])
    after = gml.set_rows(state, window * 2.0, ids)
    gml.get_backend("cpu").compile(gml.Graph(after))(ids=[5, 4, 3])
    expected = np.arange(32.0).reshape(8, 4)
    expected[[5, 4, 3]] = 2.0 * expected[3:6]
    np.testing.assert_array_equal(state.numpy(), expected)
