"""Every sample of every op on the reference backend, against the second meaning in `op_truth.py`."""

from __future__ import annotations

import numpy as np
import op_truth
import pytest

import gml
from gml.dims import resolve, value_of
from gml.ops.base import OpDef, Sample, SampleBuilder, registry
from gml.tensor import Tensor

SAMPLES = [(op, s) for op in registry.values() for s in op.samples]
CASES = [pytest.param(op, s, id=f"{op.name}-{s.name}") for op, s in SAMPLES]

#: largest relative and absolute differences from the float64 truth: float32's arithmetic, and rounding once
TOLERANCE = {"F32": (1e-5, 1e-6), "F16": (2.0**-10, 1e-6), "BF16": (2.0**-7, 1e-6)}


def run(sample: Sample) -> tuple[Tensor, SampleBuilder, gml.Program]:
    """The sample's result, and a program that has computed it and can read everything on the way."""
    builder = SampleBuilder()
    tensor = sample.make(builder)
    graph = gml.Graph(tensor)
    for node in graph.nodes:
        node.keep()
    program = gml.compile(graph, "reference")
    program.run(**{d.name: builder.values[d] for d in graph.dims.values()})
    return tensor, builder, program


def four_axes(array: np.ndarray) -> np.ndarray:
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def as_stored(values: np.ndarray, tensor: Tensor) -> np.ndarray:
    """Values rounded to the tensor's type."""
    if tensor.type.is_integer:
        return values
    with np.errstate(over="ignore"):
        return tensor.type.decode(tensor.type.encode(values.astype(np.float32)))


def truth_of(
    tensor: Tensor, builder: SampleBuilder, program: gml.Program, before: dict[Tensor, np.ndarray]
) -> np.ndarray:
    """What the op means, from the values of its sources."""
    assert tensor.op is not None
    values = builder.values
    ne = tuple(value_of(n, values) for n in tensor.ne)
    attrs = tensor.attrs
    changes = {f: resolve(getattr(attrs, f), values) for f in getattr(attrs, "__dataclass_fields__", {})}
    attrs = type(attrs)(**changes)
    sources = []
    for s in tensor.src:
        array = before[s] if s in before else np.array(program.read(s))
        sources.append(four_axes(array if s.type.is_integer else array.astype(np.float64)))
    return op_truth.TRUTH[tensor.op.name](attrs, ne, *sources)


@pytest.mark.parametrize("op, sample", CASES)
def test_sample_runs_and_is_what_the_op_means(op: OpDef, sample: Sample) -> None:
    builder = SampleBuilder()
    written = sample.make(builder)
    # the same seed gives the same leaves: those of a run that has not happened yet
    before = {i: leaf.numpy(builder.values).copy() for i, leaf in enumerate(builder.context.leaves)}
    tensor, builder, program = run(sample)
    assert written.op is op
    assert tensor.op is op
    got = program.read(tensor)
    assert got.shape == tuple(value_of(n, builder.values) for n in tensor.shape)
    if op.name not in op_truth.TRUTH:
        return
    states = {}
    if op.writes is not None and tensor.src[op.writes].is_leaf:
        target = tensor.src[op.writes]
        states[target] = before[builder.context.leaves.index(target)]
    want = truth_of(tensor, builder, program, states).reshape(got.shape)
    if op.name in op_truth.MOVERS:
        unchanged = op.moves and tensor.src[0].type is tensor.type
        np.testing.assert_array_equal(got, want if unchanged else as_stored(want, tensor))
        return
    if tensor.type.is_integer:
        np.testing.assert_array_equal(got, want)
        return
    rtol, atol = TOLERANCE[tensor.type.name]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=rtol, atol=atol)


@pytest.mark.parametrize("op, sample", CASES)
def test_sample_leaves_its_sources_alone(op: OpDef, sample: Sample) -> None:
    """Only the storage that an op declares to write changes, and a result never shares memory with a source."""
    builder = SampleBuilder()
    tensor = sample.make(builder)
    target = tensor.src[op.writes].root if op.writes is not None else None
    before = [leaf.bytes().copy() for leaf in builder.context.leaves]
    program = gml.compile(tensor, "reference")
    program.run(**{d.name: builder.values[d] for d in program.graph.dims.values()})
    for leaf, bytes_before in zip(builder.context.leaves, before, strict=True):
        if leaf is not target:
            np.testing.assert_array_equal(leaf.bytes(), bytes_before)
    if tensor.view_of is None:
        result = program.read(tensor)
        assert not any(np.shares_memory(result, leaf.bytes()) for leaf in builder.context.leaves)


ELEMENTWISE = [(op, s) for op, s in SAMPLES if op.elementwise and s.name in ("dense", "same", "rows", "to_I32")]


@pytest.mark.parametrize("op, sample", ELEMENTWISE, ids=lambda case: case.name)
def test_elementwise_means_element_by_element(op: OpDef, sample: Sample) -> None:
    """Shuffling the elements of all sources in the same way shuffles the result."""
    tensor, _, program = run(sample)
    assert all(s.ne == tensor.ne for s in tensor.src)
    whole = np.array(program.read(tensor)).reshape(-1)
    order = np.random.default_rng(1).permutation(whole.size)
    context = gml.Context()
    shuffled = [context.constant(np.array(program.read(s)).reshape(-1)[order], type=s.type) for s in tensor.src]
    attrs = {f: getattr(tensor.attrs, f) for f in tensor.attrs.__dataclass_fields__}
    again = gml.compile(op(*shuffled, **attrs), "reference")()
    np.testing.assert_array_equal(again, whole[order])


def test_operators_take_tensors_and_numbers() -> None:
    context = gml.Context()
    a = context.constant(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    b = context.constant(np.array([10, 20, 30], np.float32))
    values, row = a.numpy(), b.numpy()
    cases = [
        (a + b, values + row), (a - b, values - row), (a * b, values * row), (a / b, values / row), (-a, -values),
        (a + 1.5, values + 1.5), (1.5 + a, values + 1.5), (a - 2, values - 2), (2 - a, 2 - values), (a * 3, values * 3),
        (0.5 * a, values * 0.5), (a / 4, values / 4), (np.float32(2) * a, values * 2),
    ]  # fmt: skip
    for tensor, want in cases:
        np.testing.assert_allclose(gml.compile(tensor, "reference")(), want, rtol=1e-6)
    with pytest.raises(gml.ShapeError, match="must be a Tensor or a number"):
        _ = a + "1"
    with pytest.raises(gml.ShapeError, match="zero"):
        _ = a / 0


def test_map_custom_gives_read_only_arrays_of_the_tensors_shape() -> None:
    context = gml.Context()
    seen = []

    def look(x: np.ndarray) -> np.ndarray:
        seen.append((x.shape, x.flags.writeable))
        return x

    gml.compile(gml.map_custom(look, context.constant(np.ones((2, 3, 4)))), "reference").run()
    assert seen == [((2, 3, 4), False)]


def test_map_custom_refuses_another_shape_than_declared() -> None:
    context = gml.Context()
    program = gml.compile(gml.map_custom(lambda x: x[:1], context.constant(np.ones(5))), "reference")
    with pytest.raises(gml.GraphError, match="declared to give"):
        program.run()


@pytest.mark.parametrize("bad", [-1, 9])
def test_row_numbers_out_of_range_are_refused(bad: int) -> None:
    context = gml.Context()
    table, ids = context.state("table", gml.F32, [7, 9]), context.constant([bad])
    for tensor in (gml.get_rows(table, ids), gml.set_rows(table, context.constant(np.ones((1, 7))), ids)):
        with pytest.raises(gml.GraphError, match="row numbers must be 0 to 8"):
            gml.compile(tensor, "reference").run()
