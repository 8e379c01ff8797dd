"""Every sample of every op, and every block format, three ways: reference, interpreter, compiled code."""

from __future__ import annotations

import numpy as np
import pytest

import gml
from gml.backends.cpu import CpuBackend
from gml.ops.activations import quantize_q8, quantize_rows
from gml.ops.base import Sample, SampleBuilder, registry
from gml.ops.panels import decode_panels
from gml.ops.quantized import mul_mat_q8, mul_mat_q8_file, pack_panels
from gml.testing import assert_close, check_products, check_rows, check_sample, check_writes, random_blocks

#: every sample with vectors; without them two samples of each elementwise op and every second one of the others
SAMPLES = [
    pytest.param(sample, (16,) if i % (8 if op.elementwise else 2) else (16, 1), id=f"{name}-{sample.name}")
    for name, op in registry.items()
    for i, sample in enumerate(op.samples)
]
BLOCKS = [t for t in gml.quants.all_types() if isinstance(t, gml.QuantType)]


@pytest.mark.parametrize(("sample", "lanes"), SAMPLES)
def test_sample(sample: Sample, lanes: tuple[int, ...]) -> None:
    check_sample(sample, lanes)


@pytest.mark.parametrize("dtype", BLOCKS, ids=lambda t: t.name)
def test_format(dtype: gml.QuantType) -> None:
    check_products(dtype)
    check_rows(dtype)
    check_writes(dtype)


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K"])
@pytest.mark.parametrize(("n", "m"), [(8, 3), (64, 50)])
def test_integer_products_of_whole_panels(name: str, n: int, m: int) -> None:
    """Where the rows fill panels of 8, tiles are stored whole; more tokens than a block of them holds."""
    dtype = gml.by_name(name)
    builder = SampleBuilder(n + m)
    w = builder.blocks(dtype, 512, n)
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
def test_packed_weights_have_the_values_of_the_files_blocks(dtype: gml.QuantType) -> None:
    w = random_blocks(SampleBuilder(3), dtype, 512, 19)
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
    assert y.op is not None
    expected = y.op.reference(y.attrs, weights, rows)
    assert_close(np.array(program.read(y)).reshape(expected.shape), expected, 3e-6)
