"""Layouts of a source that op samples share: dense, permuted, transposed, strided, of size 1, empty, short floats,
run-time.

Arrives: a `SampleBuilder`; leaves: tensors. An op of one source gets all of them from `one_source`. Next module:
`gml/ops/elementwise.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from gml.dtypes import BF16, F16
from gml.ops.base import Sample, SampleBuilder
from gml.ops.views import permute, transpose, view
from gml.tensor import Tensor

#: name -> (builder, lowest value, highest value) -> tensor
LAYOUTS: dict[str, Callable[[SampleBuilder, float, float], Tensor]] = {
    "dense": lambda s, low, high: s.f32(33, 3, low=low, high=high),
    "four_dims": lambda s, low, high: s.f32(7, 3, 2, 4, low=low, high=high),
    "permuted": lambda s, low, high: permute(s.f32(7, 4, 3, 2, low=low, high=high), 0, 2, 3, 1),
    "transposed": lambda s, low, high: transpose(s.f32(5, 33, low=low, high=high)),
    "strided": lambda s, low, high: view(s.f32(40, 5, 2, low=low, high=high), [33, 3, 2], nb=[320, 800], offset=12),
    "one": lambda s, low, high: s.f32(1, low=low, high=high),
    "one_wide": lambda s, low, high: s.f32(1, 7, 3, low=low, high=high),
    "empty_row": lambda s, low, high: s.f32(0, 3, low=low, high=high),
    "empty": lambda s, low, high: s.f32(7, 0, 2, low=low, high=high),
    "F16": lambda s, low, high: s.f32(33, 2, low=low, high=high, type=F16),
    "BF16": lambda s, low, high: s.f32(7, 5, low=low, high=high, type=BF16),
    "run_time": lambda s, low, high: s.input([7, s.dim("n_rows", 3, max=8), 2], low=low, high=high),
    "run_time_row": lambda s, low, high: s.input([s.dim("n_row", 19, max=40, min=0), 3], low=low, high=high),
    "run_time_empty": lambda s, low, high: s.input([7, s.dim("n_rows", 0, max=8, min=0)], low=low, high=high),
}


def one_source(function: Callable[[Tensor], Tensor], low: float = -2.0, high: float = 2.0) -> tuple[Sample, ...]:
    """Samples of an op of one source: `function` over every layout."""

    def sample(name: str, layout: Callable[[SampleBuilder, float, float], Tensor]) -> Sample:
        return Sample(name, lambda s: function(layout(s, low, high)))

    return tuple(sample(name, layout) for name, layout in LAYOUTS.items())
