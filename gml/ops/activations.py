"""Quantised activations: what a float row becomes before it is multiplied with quantised weights.

Arrives: float rows; leaves: rows of groups of 32 signed bytes with a scale and their sums. Quantised once per tensor,
whatever reads it. Next module: `micro_kernel.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gml.dtypes import I8 as TI8
from gml.kernel_ir import F32, I8, I32, U8, Node
from gml.ops.base import Inferred, OpDef, Sample, declare, rule
from gml.ops.lower import KernelContext, Place, RowSink
from gml.ops.panels import COLUMNS
from gml.records import dataclass
from gml.tensor import Tensor

#: 32 quantised activations; one after the other they make a row, so that a token is one stream of memory
#:   codes  signed bytes
#:   d      the scale: the largest magnitude over 127
#:   sum    d times the sum of the codes, which offsets and zero points are multiplied by
#:   sums   the same for each half
GROUP = np.dtype([("codes", "i1", COLUMNS), ("d", "<f4"), ("sum", "<f4"), ("sums", "<f4", 2)])
AT = {name: offset for name, (_, offset, *_) in (GROUP.fields or {}).items()}


def row_bytes(k: int) -> int:
    """A row of k elements, padded so that rows start on cache lines and do not all fall into the same cache sets."""
    return -(-k // COLUMNS * GROUP.itemsize // 64) * 64 + 64


@dataclass(frozen=True)
class QuantizeAttrs:
    """k: elements of a row."""

    k: int


def _infer_quantize(attrs: QuantizeAttrs, x: Tensor) -> Inferred:
    rule(
        x.ne[0] == attrs.k and attrs.k % COLUMNS == 0,
        f"rows must have k = {attrs.k} elements, a multiple of 32; found {x.ne[0]}",
    )
    return Inferred(TI8, (row_bytes(attrs.k), *x.ne[1:]))


def quantize_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales of rows [..., k]: per 32 elements d = max|x| / 127, code = x / d rounded half to even."""
    groups = x.reshape(*x.shape[:-1], -1, COLUMNS).astype(np.float32)
    amax = np.abs(groups).max(axis=-1)
    d = (amax * np.float32(1.0 / 127.0)).astype(np.float32)
    inverse = np.where(amax > 0, np.float32(127.0) / amax, np.float32(0)).astype(np.float32)
    codes = np.clip(np.rint(groups * inverse[..., None]), -127, 127)
    return np.nan_to_num(codes).astype(np.int8), d


def _reference_quantize(attrs: QuantizeAttrs, x: np.ndarray) -> np.ndarray:
    codes, d = quantize_rows(x)
    wide = codes.astype(np.int32)
    groups = np.zeros(d.shape, dtype=GROUP)
    groups["codes"], groups["d"] = codes, d
    groups["sum"] = wide.sum(-1).astype(np.float32) * d
    groups["sums"] = wide.reshape(*d.shape, 2, 16).sum(-1).astype(np.float32) * d[..., None]
    out = np.zeros((*x.shape[:-1], row_bytes(attrs.k)), dtype=np.int8)
    out[..., : attrs.k // COLUMNS * GROUP.itemsize] = groups.view(np.int8).reshape(*x.shape[:-1], -1)
    return out


def groups_of(k: int, rows: np.ndarray) -> np.ndarray:
    """Rows that `quantize_q8` made [..., row bytes], as groups [..., k / 32]."""
    return np.ascontiguousarray(rows[..., : k // COLUMNS * GROUP.itemsize]).view(GROUP)


def dequantize_rows(k: int, rows: np.ndarray) -> np.ndarray:
    """Rows that `quantize_q8` made [..., row bytes], as float64 values [..., k]."""
    groups = groups_of(k, rows)
    values = groups["codes"] * groups["d"].astype(np.float64)[..., None]
    return values.reshape(*rows.shape[:-1], k)


def _row_values(k: int, rows: np.ndarray) -> np.ndarray:
    """All that quantised rows say: the values, and the sums."""
    groups = groups_of(k, rows)
    return np.concatenate([dequantize_rows(k, rows), groups["sum"], groups["sums"].reshape(*groups.shape[:-1], -1)], -1)


def _lower_quantize(k: KernelContext, attrs: QuantizeAttrs, row: Any, out: Place, x: Any) -> None:
    b, target = k.b, out.row(row)

    def group(g: Node) -> None:
        start = g * COLUMNS
        values = [x.at((start + i, *row), 16) for i in (0, 16)]
        amax = b.reduce("max", b.max(b.abs(values[0]), b.abs(values[1])))
        d = amax * (1.0 / 127.0)
        inverse = b.select(b.cmp("gt", amax, 0.0), b.const(127.0) / amax, 0.0)
        codes = [b.cast(b.min(b.max(v * inverse, -127.0), 127.0), I8) for v in values]
        sums = [b.reduce("add", b.group_dot([b.const(1, U8.vec(16))], [c], 1)) for c in codes]
        here = b.offset(target, g * GROUP.itemsize)
        b.store(here, AT["codes"], codes[0])
        b.store(here, AT["codes"] + 16, codes[1])
        b.store(here, AT["d"], d)
        b.store(here, AT["sum"], b.cast(sums[0] + sums[1], F32) * d)
        b.store(here, AT["sums"], b.cast(sums[0], F32) * d)
        b.store(here, AT["sums"] + 4, b.cast(sums[1], F32) * d)

    b.loop(0, attrs.k // COLUMNS, group)
    for i in range(attrs.k // COLUMNS * GROUP.itemsize, row_bytes(attrs.k), 4):
        b.store(target, i, b.const(0, I32))


quantize_q8 = declare(
    OpDef(
        "quantize_q8",
        _infer_quantize,
        _reference_quantize,
        [
            Sample("rows", lambda s: quantize_q8(s.f32(64, 3), k=64)),
            Sample("one_group", lambda s: quantize_q8(s.f32(32), k=32)),
            Sample("zeros", lambda s: quantize_q8(s.array(np.zeros((2, 96), np.float32)), k=96)),
        ],
        attrs=QuantizeAttrs,
        lower=RowSink(_lower_quantize),
        compare=lambda attrs, rows, x: (
            _row_values(attrs.k, rows),
            _row_values(attrs.k, _reference_quantize(attrs, x)),
        ),
    )
)
