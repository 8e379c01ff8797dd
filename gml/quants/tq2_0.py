"""TQ2_0: 256 values of -1, 0 or 1 in 2 bits, and one scale; value = d * (code - 1). 66 bytes.

    qs   64 bytes    two runs of 32 bytes, each for 128 values
                     byte i of run r   | 7 6 | 5 4 | 3 2 | 1 0 |
                                       | v96 | v64 | v32 | v0  |     vN = v[128 r + N + i]
    d    f16

The code 3 is never written; it reads as 2 * d. Source: ggml `block_tq2_0`, `dequantize_row_tq2_0`,
`quantize_row_tq2_0_ref`.
Next module: `mxfp4.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.tq1_0 import ternary


class TQ2_0(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=2, group=32, n_groups=8, zero=1)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = [(f.bytes("qs", 32 * r, 32) >> (2 * j)) & 3 for r in range(2) for j in range(4)]
        return Codes(codes, f.u16("d"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        codes = planes(blocks["qs"].reshape(-1, 2, 32), 2).reshape(out.shape).view(np.int8)
        np.multiply(halves(blocks["d"]), codes - np.int8(1), out=out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        out["d"], codes = ternary(values)
        out["qs"] = pack_planes(codes.reshape(-1, 2, 4, 32), 2).reshape(-1, 64)


register(TQ2_0("TQ2_0", 35, 256, 66, [("qs", "u1", 64), ("d", "<f2")]))
