"""Every sample of the kernel IR, compiled for the targets that run here: the bits that are expected."""

from __future__ import annotations

import pytest
from kernel_ir.samples import SAMPLES, Sample, assert_same

from gml.backends.cpu.jit import Module, compile_kernels, host_features
from gml.backends.cpu.target import TARGETS, runs_here

HERE = [t.name for t in TARGETS if runs_here(t, host_features())]
NATIVE = [s for s in SAMPLES if s.native]


@pytest.fixture(scope="module", params=HERE)
def compiled(request: pytest.FixtureRequest) -> Module:
    """All samples in one module, numbered, as names of kernels may be equal."""
    kernels = []
    for i, sample in enumerate(NATIVE):
        kernel = sample.build()
        kernel.name = f"s{i}"
        kernels.append(kernel)
    return compile_kernels(kernels, next(t for t in TARGETS if t.name == request.param))


@pytest.mark.parametrize("i", range(len(NATIVE)), ids=[s.name for s in NATIVE])
def test_sample(compiled: Module, i: int) -> None:
    sample: Sample = NATIVE[i]
    buffers = sample.fresh()
    compiled.run(f"s{i}", buffers, sample.sizes, 0, sample.end)
    for index, expected in sample.expected.items():
        assert_same(buffers[index], expected, sample.ulp)


def test_samples_are_many() -> None:
    assert len(NATIVE) > 200
