"""Q2_K: 256 values of 2 bits in 16 groups of 16; value = (d * scale) * code - (dmin * min). 84 bytes.

    scales   16 bytes    byte g   | 7 6 5 4 | 3 2 1 0 |      one per group of 16 values
                                  |   min   |  scale  |
    qs       64 bytes    two runs of 32 bytes, each for 128 values
                         byte i of run r   | 7 6 | 5 4 | 3 2 | 1 0 |
                                           | v96 | v64 | v32 | v0  |     vN = v[128 r + N + i]
    d        f16         scale of the scales
    dmin     f16         scale of the minima

Source: ggml `block_q2_K`, `dequantize_row_q2_K`, `quantize_row_q2_K_ref`, `quantize_row_q2_K_impl`.
Next module: `q3_k.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields, halves_of
from gml.quants.importance import Weights
from gml.quants.q4_k import small_scales
from gml.quants.refine import refine_scales_and_mins
from gml.quants.search import WEIGHTED_STEPS, blocks_of, codes_for, columns, fit_scale_and_min, sequential_sum


class Q2_K(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=2, group=16, n_groups=16, sub_scale="u8", offset="group", offset_sign=-1)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = [(f.bytes("qs", 32 * r, 32) >> (2 * j)) & 3 for r in range(2) for j in range(4)]
        scales = [f.u8("scales", g) for g in range(16)]
        return Codes(halves_of(b, codes), f.u16("d"), [s & 15 for s in scales], f.u16("dmin"), [s >> 4 for s in scales])

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        codes = planes(blocks["qs"].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
        scales = halves(blocks["d"]) * (blocks["scales"] & np.uint8(15))
        mins = halves(blocks["dmin"]) * (blocks["scales"] >> np.uint8(4))
        groups = out.reshape(-1, 16, 16)
        np.multiply(scales[..., None], codes, out=groups)
        groups -= mins[..., None]

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """Scale and minimum are searched for each group; these get 4 bits, and the codes are rounded again to them."""
        x = columns(values, 16)
        if weights is None:
            scale, low, codes = fit_scale_and_min(x, np.abs(x), 3, (-0.5, 0.1, 15), absolute=True)
            d, scales = small_scales(scale.reshape(-1, 16), 15)
            dmin, mins = small_scales(low.reshape(-1, 16), 15)
        else:
            w = columns(weights.of_blocks(values, 1.0), 16)
            scale, low, codes = fit_scale_and_min(x, w, 3, WEIGHTED_STEPS)
            d, scales, dmin, mins = refine_scales_and_mins(scale, low, 16, 15, sequential_sum(w))
        out["d"], out["dmin"] = d, dmin
        out["scales"] = scales | (mins << np.uint8(4))
        d = (halves(out["d"]) * (out["scales"] & np.uint8(15))).reshape(-1)
        dm = (halves(out["dmin"]) * (out["scales"] >> np.uint8(4))).reshape(-1)
        numbers = blocks_of(codes_for(x, d, dm, codes, 3), 256)
        out["qs"] = pack_planes(numbers.reshape(-1, 2, 4, 32), 2).reshape(-1, 64)


register(Q2_K("Q2_K", 10, 256, 84, [("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")]))
