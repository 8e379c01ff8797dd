"""Constants are folded where that changes no bit: exact ops are exact, everything else is left alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gml
from gml.backends.cpu import CpuBackend
from gml.compiler.interpret import InterpretingBackend
from gml.compiler.pipeline import compile_graph
from gml.compiler.state import Options
from gml.ops.base import SampleBuilder, registry

UNFOLDED = frozenset({"fold"})
EXACT = [op for op in registry.values() if op.exact]

SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38, 0.5, -0.5, 1.5, 2.5, -2.5, 65519.0, 65520.0,
     1.0009765625, 1.00048828125, 1e-8, 6e-8, 2.0**23 + 0.5, 0.1],
    np.float32,
)  # fmt: skip


def folded(tensor: gml.Tensor, **options: object) -> list[gml.Tensor]:
    return compile_graph(gml.Graph(tensor), Options(**options)).state.folded


def cases() -> Iterator[tuple[str, str]]:
    yield from ((op.name, sample.name) for op in EXACT for sample in op.samples)


@pytest.mark.parametrize(("op", "sample"), list(cases()))
def test_exact_ops_give_the_bits_of_kernels(op: str, sample: str) -> None:
    builder = SampleBuilder(3)
    with np.errstate(all="ignore"):
        y = next(s for s in registry[op].samples if s.name == sample).make(builder)
    exact = registry[op].exact
    if not all(t.type.is_scalar for t in (y, *y.src)) or (callable(exact) and not exact(y.attrs, y, *y.src)):
        # exact for other types
        assert folded(y) == []
        return
    assert_same_bits(y, {d.name: v for d, v in builder.values.items()})


@pytest.mark.parametrize("name", [op.name for op in EXACT if op.elementwise and op.name != "cast"])
@pytest.mark.parametrize("type", [gml.F32, gml.F16, gml.BF16], ids=str)
def test_exact_ops_give_the_bits_of_kernels_for_special_values(name: str, type: gml.DType) -> None:
    context = gml.Context()
    n = len(SPECIAL)
    x = context.constant(np.repeat(SPECIAL, n), type=type)
    op = registry[name]
    if name == "scale":
        results = [gml.scale(x, float(s), b) for s in (0.1, -3.0, 1e30) for b in (0.0, 0.7)]
    elif name == "clamp":
        results = [gml.clamp(x, -1.0, 3.0), gml.clamp(x, 0.0, float("inf")), gml.clamp(x, -0.0, 0.0)]
    else:
        second = (context.constant(np.tile(SPECIAL, n), type=type),) if name in ("add", "sub", "mul", "div") else ()
        results = [op(x, *second)]
    for y in results:
        assert_same_bits(y, {})


@pytest.mark.parametrize("source", [gml.F32, gml.F16, gml.BF16], ids=str)
@pytest.mark.parametrize("target", [gml.F32, gml.F16, gml.BF16], ids=str)
def test_casts_between_floats_give_the_bits_of_kernels(source: gml.DType, target: gml.DType) -> None:
    assert_same_bits(gml.cast(gml.Context().constant(SPECIAL, type=source), target), {})


def assert_same_bits(y: gml.Tensor, sizes: dict[str, int]) -> None:
    """The reference, the interpreter and machine code agree; NaNs may differ in what they carry."""
    results = []
    for backend in ("reference", InterpretingBackend(Options(disabled=UNFOLDED)), CpuBackend(2, disabled=UNFOLDED)):
        program = gml.compile(y, backend)
        program.run(**sizes)
        results.append(np.array(program.read(y)))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
        zero = results[0] == 0
        np.testing.assert_array_equal(np.signbit(other[zero]), np.signbit(results[0][zero]))


# -- the pass ----------------------------------------------------------------------------------------------------------


def test_a_chain_of_constants_becomes_one() -> None:
    context = gml.Context()
    c = context.constant(np.arange(12, dtype=np.float32).reshape(3, 4), name="c")
    table = gml.cast(gml.get_rows(gml.cont(gml.transpose(c)), context.constant(np.array([3, 0], np.int32))), gml.F16)
    scaled = (gml.repeat(gml.reshape(table, [6]), [6, 2]) * 0.5).named("scaled")
    y = context.input("x", gml.F16, [6, 2]) + scaled
    compiled = compile_graph(gml.Graph(y))
    assert [t.name for t in compiled.state.folded] == ["scaled"]
    assert [n.op.name for n in compiled.state.nodes if n.op] == ["add"]
    assert not compiled.setup and len(compiled.regions) == 1
    rows = np.arange(12).reshape(3, 4).T[[3, 0]].reshape(6) * 0.5
    np.testing.assert_array_equal(compiled.state.folded[0].numpy(), np.tile(rows, (2, 1)))
    for backend in (CpuBackend(2), CpuBackend(2, disabled=["fold"]), InterpretingBackend()):
        np.testing.assert_array_equal(gml.compile(y, backend)(x=np.ones((2, 6))), np.tile(rows, (2, 1)) + 1)


def test_outputs_and_kept_values_may_be_folded() -> None:
    context = gml.Context()
    x = context.input("x", gml.F32, [4])
    c = gml.neg(context.constant(np.arange(4, dtype=np.float32))).keep()
    graph = gml.Graph([c, x + c, gml.arange(0, 3)])
    program = CpuBackend(2).compile(graph)
    first, second, third = program(x=np.ones(4))
    np.testing.assert_array_equal(first, -np.arange(4))
    np.testing.assert_array_equal(second, 1 - np.arange(4))
    np.testing.assert_array_equal(third, np.arange(3))
    np.testing.assert_array_equal(program.read(c), -np.arange(4))
    # nothing is left to run
    np.testing.assert_array_equal(CpuBackend(2).compile(gml.Graph(gml.arange(0, 3)))(), np.arange(3))


def test_what_is_folded_counts_as_a_constant_for_the_passes_behind() -> None:
    """Weights that are put together from constants are hoisted and packed like weights of a file."""
    context = gml.Context()
    halves = [context.constant(np.full((2, 64), v, np.float32)) for v in (1.0, 2.0)]
    x = context.input("x", gml.F32, [64, 3])
    y = gml.mul_mat(gml.concat(*halves, 1), x)
    (made,) = folded(y)
    assert made.role == "constant" and made.ne == (64, 4, 1, 1)
    assert CpuBackend(2).compile(gml.Graph(y))(x=np.ones((3, 64))).tolist() == [[64.0, 64.0, 128.0, 128.0]] * 3


def not_folded() -> Iterator[tuple[str, gml.Tensor]]:
    context = gml.Context()
    x = context.input("x", gml.F32, [8])
    c = context.constant(np.ones((2, 8), np.float32))
    large = context.constant(np.ones((129, 128), np.float32))
    q8 = context.constant(np.ones((2, 32), np.float32), type=gml.Q8_0)
    state = context.state("s", gml.F32, [8, 2])
    ids = context.constant(np.array([5], np.int32))
    n = gml.Dim("n", max=4)
    yield "an input", gml.neg(x)
    yield "a state", gml.neg(state)
    yield "an inexact op", gml.exp(c)
    yield "a sum in an order of its own", gml.sum_rows(c)
    yield "a large source", gml.view(gml.neg(large), [4])
    yield "a large result", gml.repeat(c, [8, 4096])
    yield "a block format", gml.get_rows(q8, gml.Context().constant(np.array([1], np.int32)))
    yield "a run-time size", gml.repeat(context.constant(np.ones(8, np.float32)), [8, n])
    yield "a run-time offset", gml.cont(gml.view(c, [4], offset=n * 4))
    yield "a function of the user", gml.map_custom(lambda a: a, c)
    yield "a result that is written", gml.cpy(x, gml.dup(context.constant(np.ones(8, np.float32))))
    yield "a write", gml.cpy(c, state)
    yield "floats to integers", gml.cast(c, gml.I32)
    yield "a row that does not exist", gml.get_rows(c, ids)


@pytest.mark.parametrize("tensor", [pytest.param(t, id=what.replace(" ", "_")) for what, t in not_folded()])
def test_what_is_not_folded(tensor: gml.Tensor) -> None:
    assert folded(tensor) == []


def test_the_pass_can_be_left_out() -> None:
    c = gml.Context().constant(np.ones(8, np.float32))
    assert len(folded(gml.neg(c))) == 1 and folded(gml.neg(c), disabled=UNFOLDED) == []


def test_a_folded_constant_has_memory_of_its_own() -> None:
    """Nothing that happens to the user's memory afterwards changes it."""
    context = gml.Context()
    mine = np.ones(8, np.float32)
    c = context.from_buffer(mine, gml.F32, [8])
    y = context.input("x", gml.F32, [8]) + gml.neg(c)
    program = CpuBackend(2).compile(gml.Graph(y))
    mine[:] = 7
    np.testing.assert_array_equal(program(x=np.zeros(8)), -np.ones(8))
