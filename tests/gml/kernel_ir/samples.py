"""Kernels for every node kind, with what they must give: for the interpreter, and for compiled code of backends.

    from kernel_ir.samples import SAMPLES, assert_same  # with tests/gml on sys.path
    for sample in SAMPLES:
        buffers = sample.fresh()
        ...run sample.build() on the buffers with sample.sizes for chunks 0 to sample.end...
        for index, expected in sample.expected.items():
            assert_same(buffers[index], expected, sample.ulp)

Rows are in `sample_arithmetic.py` and `sample_structure.py`.
"""

from __future__ import annotations

from kernel_ir import sample_arithmetic, sample_structure
from kernel_ir.sample_base import SAMPLES, Sample, assert_same

__all__ = ["SAMPLES", "Sample", "assert_same", "sample_arithmetic", "sample_structure"]
