"""Q8_0: 32 signed bytes and one scale; value = d * code. 34 bytes.

    d    f16
    qs   32 signed bytes    v[0], v[1], ... v[31]

Source: ggml `block_q8_0`, `dequantize_row_q8_0`, `quantize_row_q8_0_ref`. Next module: `q8_1.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gml.kernel_ir import F16, I8, U16, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.rounding import finite_inverse, round_away


class Q8_0(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=8, group=32, n_groups=1, signed=True)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        return Codes([f.signed("qs", 0, 32)], f.u16("d"))

    def pack(self, b: Builder, values: Sequence[Node], block: Node) -> None:
        d = b.reduce("max", b.max(b.abs(values[0]), b.abs(values[1]))) / 127.0
        inverse = 1.0 / d
        # 0, or so small that 1 / d overflows
        inverse = b.select(b.cmp("lt", inverse, float("inf")), inverse, 0.0)
        b.store(block, 0, b.bitcast(b.cast(d, F16), U16))
        for i, x in enumerate(values):
            b.store(block, 2 + 16 * i, b.cast(b.round("away", x * b.splat(inverse, 16)), I8))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        np.multiply(blocks["qs"], halves(blocks["d"]), out=out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        d = np.abs(values).max(axis=-1, keepdims=True) / np.float32(127)
        out["d"] = d[:, 0]
        out["qs"] = round_away(values * finite_inverse(d))


register(Q8_0("Q8_0", 8, 32, 34, [("d", "<f2"), ("qs", "i1", 32)]))
