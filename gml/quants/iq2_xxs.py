"""IQ2_XXS: 256 values, 8 of them a point of a grid, with signs; value = ± d * (2 s + 1) / 8 * number. 66 bytes.

The numbers of the 256 points are 8, 25 or 43. Signs of 8 values take 7 bits: an even number of them are negative.

    d    f16
    qs   16 words of 32 bits, two per group of 32 values; i = 0 .. 3
         word 0   byte i: the point of v[8 i] .. v[8 i + 7]
         word 1   | 31 .. 28 | 27 .. 21 | 20 .. 14 | 13 .. 7 | 6 .. 0 |
                  | scale s  | signs 3  | signs 2  | signs 1 | signs 0|      signs i: of v[8 i] .. v[8 i + 7]

Source: ggml `block_iq2_xxs`, `dequantize_row_iq2_xxs`,
`quantize_row_iq2_xxs_impl`. Next module: `iq2_xs.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import U8, U32, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.grid_search import Search, finish, fit_points, odd_scales, split_signs
from gml.quants.grids import decode_codes, grid, joined, sign_codes, signs
from gml.quants.importance import Weights
from gml.quants.refine import refine_positive
from gml.quants.search import TINY, columns

#: what codes stand for: points' numbers, and from 4 on the same negative; shared by the IQ2 formats
TABLE = (8, 25, 43, 0, -8, -25, -43, 0)
VALUES = np.array(TABLE, np.float32)
NEGATIVE = 4

SEARCH = Search("IQ2_XXS", range(-6, 7), 0.1, "all")

#: bits of the word where the signs of 8 values start
SHIFTS = (0, 7, 14, 21)


class IQ2_XXS(QuantType):
    """See the module's drawing."""

    needs_weights = True
    traits = CodeTraits(bits=3, group=32, n_groups=8, table=TABLE, sub_scale="u8", factor=0.125)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes, scales = [], []
        for g in range(8):
            word = f.number("qs", 2 * g + 1, U32)
            points = [grid("IQ2_XXS").points(b, f.u8("qs", 8 * g + i)) for i in range(4)]
            negative = [signs(b, (word >> shift) & 127, NEGATIVE) for shift in SHIFTS]
            codes.append(joined(b, points) | joined(b, negative))
            scales.append(b.cast(((word >> 28) << 1) | 1, U8))
        return Codes(codes, f.u16("d"), scales)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        words = blocks["qs"].reshape(-1, 8, 2)
        points = np.ascontiguousarray(words[:, :, 0]).view(np.uint8)
        scales, negative = scales_and_signs(words[:, :, 1])
        codes = grid("IQ2_XXS").codes[points] | sign_codes(NEGATIVE)[negative]
        decode_codes(halves(blocks["d"]) * scales * np.float32(0.125), VALUES, codes, out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """A scale and points are searched for each group; the scales get 4 bits."""
        assert weights is not None
        x, w = columns(values, 32), columns(weights.of_blocks(values, 1.0), 32)
        magnitude, negative = split_signs(x, w, even=True)
        first, _ = refine_positive(magnitude, 4, w)
        reach = first * np.float32(3)
        zero = (magnitude.max(axis=0) < TINY) | (reach <= 0)
        scale, points = fit_points(SEARCH, magnitude, w, reach, first)
        scales, points, negative = finish(scale, points, negative, zero, True, len(values))
        d, small = odd_scales(scales, 16)
        out["d"] = d
        words = np.empty((len(values), 8, 2), np.uint32)
        words[..., 0] = packed(points.reshape(-1, 8, 4), 8)
        words[..., 1] = packed(negative.reshape(-1, 8, 4), 7) | (small.astype(np.uint32) << np.uint32(28))
        out["qs"] = words.reshape(-1, 16)


def packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Numbers [..., 4] in the bits of words [...], the first in the lowest."""
    return np.bitwise_or.reduce(numbers.astype(np.uint32) << (np.arange(4, dtype=np.uint32) * np.uint32(bits)), axis=-1)


def scales_and_signs(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Second words [n, 8] as drawn above to 2 s + 1, float32 [n, 8], and indices of signs, [n, 32]."""
    negative = (words[..., None] >> np.array(SHIFTS, np.uint32)) & np.uint32(127)
    return ((words >> np.uint32(28)) * np.uint32(2) + np.uint32(1)).astype(np.float32), negative.reshape(-1, 32)


register(IQ2_XXS("IQ2_XXS", 16, 256, 66, [("d", "<f2"), ("qs", "<u4", 16)]))
