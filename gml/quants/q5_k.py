"""Q5_K: 256 values of 5 bits in 8 groups of 32; value = (d * scale) * code - (dmin * min). 176 bytes.

    d        f16         scale of the scales
    dmin     f16         scale of the minima
    scales   12 bytes    8 scales and 8 minima of 6 bits, as in Q4_K
    qh       32 bytes    the fifth bits
                         byte i   |  7   |  6   |  5   |  4   |  3  |  2  |  1  | 0  |
                                  | v224 | v192 | v160 | v128 | v96 | v64 | v32 | v0 |     vN = v[N + i]
    qs       128 bytes   the low four bits: four runs of 32 bytes, each for two groups
                         byte i of run r   |  7 6 5 4  | 3 2 1 0 |
                                           | v[32 + i] |  v[i]   |      from v[64 r] on

Source: ggml `block_q5_K`, `dequantize_row_q5_K`, `quantize_row_q5_K_ref`, `quantize_row_q5_K_impl`.
Next module: `q6_k.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.q4_k import decode_groups, encode_groups, unpack_scales_and_mins


class Q5_K(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=5, group=32, n_groups=8, sub_scale="u8", offset="group", offset_sign=-1)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        fifth = f.bytes("qh", 0, 32)
        low = [half for r in range(4) for half in f.nibbles("qs", 32 * r, 32)]
        codes = [code | (((fifth >> g) & 1) << 4) for g, code in enumerate(low)]
        scales, mins = unpack_scales_and_mins(f)
        return Codes(codes, f.u16("d"), scales, f.u16("dmin"), mins)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        low = planes(blocks["qs"].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
        decode_groups(blocks, low | (planes(blocks["qh"], 1) << np.uint8(4)), out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        codes = encode_groups(values, out, 31, (-0.5, 0.1, 15), weights)
        out["qs"] = pack_planes((codes & np.uint8(15)).reshape(-1, 4, 2, 32), 4).reshape(-1, 128)
        out["qh"] = pack_planes((codes >> np.uint8(4)).reshape(-1, 8, 32), 1)


register(
    Q5_K(
        "Q5_K", 13, 256, 176, [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)]
    )
)
