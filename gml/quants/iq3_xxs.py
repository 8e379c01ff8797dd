"""IQ3_XXS: 256 values, 4 of them a point of a grid, with signs; value = ± d * (2 s + 1) / 4 * number. 98 bytes.

The numbers of the 256 points are 4, 12, 20, 28, 36, 44, 52 or 62.

    d       f16
    qs      64 bytes    byte i: the point of v[4 i] .. v[4 i + 3]
    signs   8 words of 32 bits, one per group of 32 values: scale s and signs as in word 1 of IQ2_XXS

ggml counts the words as the last third of qs. Source: ggml `block_iq3_xxs`, `dequantize_row_iq3_xxs`,
`quantize_row_iq3_xxs_impl`.
Next module: `iq3_s.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import U8, U32, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.grid_search import Search, encode_signed, odd_scales
from gml.quants.grids import decode_codes, grid, joined, sign_codes, signs
from gml.quants.importance import Weights
from gml.quants.iq2_xxs import SHIFTS, packed, scales_and_signs

#: what codes stand for: points' numbers, and from 8 on the same negative
TABLE = (4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62)
VALUES = np.array(TABLE, np.float32)
NEGATIVE = 8

SEARCH = Search("IQ3_XXS", range(-15, 16), 0.2, "off")


class IQ3_XXS(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=4, group=32, n_groups=8, table=TABLE, sub_scale="u8", factor=0.25)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes, scales = [], []
        for g in range(8):
            word = f.number("signs", g, U32)
            points = [grid("IQ3_XXS").points(b, f.u8("qs", 8 * g + i)) for i in range(8)]
            negative = [signs(b, (word >> shift) & 127, NEGATIVE) for shift in SHIFTS]
            codes.append(joined(b, points) | joined(b, negative))
            scales.append(b.cast(((word >> 28) << 1) | 1, U8))
        return Codes(codes, f.u16("d"), scales)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        scales, negative = scales_and_signs(blocks["signs"])
        points = grid("IQ3_XXS").codes[blocks["qs"]].reshape(-1, 32, 8)
        codes = points | sign_codes(NEGATIVE)[negative]
        decode_codes(halves(blocks["d"]) * scales * np.float32(0.25), VALUES, codes, out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """A scale and points are searched for each group; the scales get 4 bits."""
        w = values * values if weights is None else weights.of_blocks(values)
        scales, points, negative = encode_signed(SEARCH, values, w, 32, 1e-8, even=True)
        d, small = odd_scales(scales, 16)
        out["d"] = d * np.float32(1.0125)
        out["qs"] = points
        out["signs"] = packed(negative.reshape(-1, 8, 4), 7) | (small.astype(np.uint32) << np.uint32(28))


register(IQ3_XXS("IQ3_XXS", 18, 256, 98, [("d", "<f2"), ("qs", "u1", 64), ("signs", "<u4", 8)]))
