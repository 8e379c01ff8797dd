"""Every sample of every op, compiled, against the numpy references: vectorised and not, one thread and three."""

from __future__ import annotations

import numpy as np
import pytest

import gml
from gml.backends.cpu import CpuBackend
from gml.ops.base import Sample, SampleBuilder, registry
from gml.ops.panels import decode_panels
from gml.ops.quantized import mul_mat_q8, mul_mat_q8_file, pack_panels, quantize_q8, quantize_rows

#: largest difference over the largest magnitude of the result, by type
TOLERANCE = {"F32": 3e-6, "F64": 1e-12, "F16": 1e-3, "BF16": 8e-3}

#: every sample vectorised on three threads; the first of each op also one lane at a time on one thread
CASES = [
    (name, sample, lanes, threads)
    for name, op in registry.items()
    for i, sample in enumerate(op.samples)
    for lanes, threads in ([(16, 3), (1, 1)] if i == 0 else [(16, 3)])
]
IDS = [f"{name}-{sample.name}-{lanes}" for name, sample, lanes, _ in CASES]


def run(sample: Sample, backend: object) -> tuple[gml.Tensor, np.ndarray]:
    """The sample's result on a backend."""
    builder = SampleBuilder()
    tensor = sample.make(builder)
    program = gml.compile(gml.Graph(tensor), backend)
    program.run(**{dim.name: value for dim, value in builder.values.items()})
    return tensor, np.array(program.read(tensor))


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Equal infinities and NaNs; the rest within `tolerance` of the largest magnitude."""
    assert found.shape == expected.shape
    wide, want = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(want))
    np.testing.assert_array_equal(wide[~finite], want[~finite])
    largest = np.abs(want[finite]).max(initial=0.0)
    assert np.abs(wide - want)[finite].max(initial=0.0) <= tolerance * max(largest, 1e-30)


@pytest.mark.parametrize(("name", "sample", "lanes", "threads"), CASES, ids=IDS)
def test_compiled_equals_reference(name: str, sample: Sample, lanes: int, threads: int) -> None:
    with np.errstate(all="ignore"):
        tensor, expected = run(sample, "reference")
        _, found = run(sample, CpuBackend(threads, exact=True, lanes=lanes))
    if tensor.type.is_integer:
        np.testing.assert_array_equal(found, expected)
    else:
        # a block format's own rounding may tip over at a tie
        assert_close(found, expected, TOLERANCE.get(tensor.type.name, 2e-2))


BLOCKS = [t for t in gml.quants.all_types() if not t.is_scalar]


@pytest.mark.parametrize("dtype", BLOCKS, ids=lambda t: t.name)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (8, 3), (19, 7), (64, 50)])
def test_integer_kernels_are_exact_on_quantised_activations(dtype: gml.DType, n: int, m: int) -> None:
    """Integer dot products differ from floats on the same rounded activations only by the float sums."""
    builder = SampleBuilder(n + m)
    w = builder.blocks(dtype, 512, n)
    if dtype.name == "MXFP4":
        # random exponents reach 2^127; those of real weights do not
        blocks = w.bytes().view(dtype.numpy)
        blocks["e"] = builder.random.integers(115, 130, size=blocks.shape)
    x = builder.random.uniform(-2, 2, size=(m, 512)).astype(np.float32)
    codes, d = quantize_rows(x)
    rounded = (codes.astype(np.float64) * d[..., None]).reshape(m, 512)
    expected = rounded @ dtype.decode(w.bytes().view(dtype.numpy).reshape(n, -1)).astype(np.float64).T
    results = []
    for layout, threads in (("packed", 1), ("packed", 3), ("file", 2)):
        y = gml.mul_mat(w, builder.context.constant(x))
        program = gml.compile(gml.Graph(y), CpuBackend(threads, layout=layout))
        program.run()
        results.append(np.array(program.read(y)).reshape(m, n))
    assert_close(results[0], expected, 3e-6)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("dtype", BLOCKS, ids=lambda t: t.name)
def test_packed_weights_have_the_values_of_the_files_blocks(dtype: gml.DType) -> None:
    builder = SampleBuilder(3)
    w = builder.blocks(dtype, 512, 19)
    panels = pack_panels(w, type=dtype.name, k=512, n=19)
    program = gml.compile(gml.Graph(panels), CpuBackend(2, disabled=["hoist"]))
    program.run()
    found = decode_panels(dtype, np.array(program.read(panels)))[:19]
    np.testing.assert_array_equal(found, dtype.decode(w.bytes().view(dtype.numpy).reshape(19, -1)))


@pytest.mark.parametrize("layout", ["packed", "file"])
def test_compiled_products_equal_their_own_reference(layout: str) -> None:
    builder = SampleBuilder(4)
    w, x = builder.blocks(gml.Q4_K, 256, 19, 2), builder.f32(256, 5, 4)
    shape = {"type": "Q4_K", "k": 256, "n": 19}
    q = quantize_q8(x, k=256)
    y = mul_mat_q8(pack_panels(w, **shape), q, **shape) if layout == "packed" else mul_mat_q8_file(w, q, **shape)
    program = gml.compile(gml.Graph(y), CpuBackend(2, disabled=["hoist"]))
    program.run()
    packed = y.src[0] if layout == "packed" else None
    rows = np.asarray(quantize_q8.reference(q.attrs, x.numpy().reshape(1, 4, 5, 256)))
    if packed is None:
        weights = gml.Q4_K.decode(w.bytes().view(gml.Q4_K.numpy).reshape(1, 2, 19, 1))
    else:
        kept = gml.compile(gml.Graph(packed), CpuBackend(2, disabled=["hoist"]))
        kept.run()
        weights = np.array(kept.read(packed)).reshape(1, 2, 3, -1)
    expected = y.op.reference(y.attrs, weights, rows)
    assert_close(np.array(program.read(y)).reshape(expected.shape), expected, 3e-6)
