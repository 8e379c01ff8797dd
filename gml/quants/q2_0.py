"""Q2_0: 64 values of -1, 0, 1 or 2 in 2 bits and one scale; value = d * (code - 1). 18 bytes.

    d    f16
    qs   16 bytes    byte i   |   7 6   |   5 4   |   3 2   | 1 0  |
                              | v[4i+3] | v[4i+2] | v[4i+1] | v[4i]|

The code 3 is never written, because d is the largest magnitude. Source: ggml `block_q2_0`, `dequantize_row_q2_0`,
`quantize_row_q2_0_ref`. Next module: `gml/arena.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.rounding import finite_inverse, round_away


class Q2_0(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=2, group=32, n_groups=2, zero=1)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        groups = []
        for g in range(2):
            packed = f.bytes("qs", 8 * g, 8)
            # fields 0 and 2 of all bytes, then 1 and 3: lanes that are 8 apart in the first and the second vector
            even = b.concat(packed & 3, (packed >> 4) & 3)
            odd = b.concat((packed >> 2) & 3, packed >> 6)
            lanes = [16 * (i % 2) + 8 * (i % 4 // 2) + i // 4 for i in range(32)]
            groups.append(b.shuffle(even, odd, lanes))
        return Codes(groups, f.u16("d"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        codes = planes(blocks["qs"][..., None], 2).reshape(out.shape).view(np.int8)
        np.multiply(halves(blocks["d"]), codes - np.int8(1), out=out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        d = np.abs(values).max(axis=1)
        out["d"] = d
        codes = (round_away(values * finite_inverse(d)[:, None]) + np.float32(1)).astype(np.uint8)
        out["qs"] = pack_planes(codes.reshape(-1, 16, 4, 1), 2)[..., 0]


register(Q2_0("Q2_0", 42, 64, 18, [("d", "<f2"), ("qs", "u1", 16)]))
