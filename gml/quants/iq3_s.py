"""IQ3_S: as IQ3_XXS with 512 points of odd numbers from 1 to 15; value = d * (2 s + 1) * number. 110 bytes.

    d        f16
    qs       64 bytes    the low 8 bits of the point of v[4 i] .. v[4 i + 3]
    qh        8 bytes    bit j of byte g is the ninth bit of point 8 g + j
    signs    32 bytes    bit j of byte i is set where v[8 i + j] is negative
    scales    4 bytes    byte h   | 7 6 5 4  | 3 2 1 0 |      s[g] for the 32 values from v[32 g] on
                                  | s[2h+1]  |  s[2h]  |

Source: ggml `block_iq3_s`, `dequantize_row_iq3_s`, `quantize_row_iq3_s_impl`. Next module: `iq1_s.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import U16, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import bit_string, halves, pack_bit_string, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.grid_search import Search, encode_signed, odd_scales
from gml.quants.grids import decode_codes, grid, joined
from gml.quants.importance import Weights

#: what codes stand for: points' numbers, and from 8 on the same negative
TABLE = (1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15)
VALUES = np.array(TABLE, np.float32)
NEGATIVE = 8

SEARCH = Search("IQ3_S", range(-9, 10), 0.2, "all if off")
#: the smallest float: no group but one of zeros is too small
SMALLEST = 1e-45


class IQ3_S(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=4, group=32, n_groups=8, table=TABLE, sub_scale="u8")

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes, scales = [], []
        for g in range(8):
            high = b.cast(f.u8("qh", g), U16)
            points = []
            for i in range(8):
                ninth = ((high >> i) & 1) << 8
                points.append(grid("IQ3_S").points(b, b.cast(f.u8("qs", 8 * g + i), U16) | ninth))
            codes.append(joined(b, points) | f.bit_string("signs", 4 * g, 4, NEGATIVE))
            scales.append((((f.u8("scales", g // 2) >> (4 * (g % 2))) & 15) << 1) | 1)
        return Codes(codes, f.u16("d"), scales)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        ninth = bit_string(blocks["qh"]).astype(np.uint16) << np.uint16(8)
        points = grid("IQ3_S").codes[blocks["qs"] | ninth].reshape(-1, 256)
        codes = points | (bit_string(blocks["signs"]) * np.uint8(NEGATIVE))
        scales = planes(blocks["scales"][..., None], 4).reshape(-1, 8) * np.uint8(2) + np.uint8(1)
        decode_codes(halves(blocks["d"]) * scales.astype(np.float32), VALUES, codes, out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """A scale and points are searched for each group; the scales get 4 bits.

        ggml's quantiser forgets the place of a group of zeros, and writes what follows in the block too early; not so
        here.
        """
        w = values * values if weights is None else weights.of_blocks(values)
        scales, points, negative = encode_signed(SEARCH, values, w, 32, SMALLEST, even=False)
        d, small = odd_scales(scales, 16)
        out["d"] = d * np.float32(1.033)
        out["qs"], out["signs"] = points & 255, negative
        out["qh"] = pack_bit_string((points >> 8).astype(np.uint8))
        out["scales"] = pack_planes(small.reshape(-1, 4, 2, 1), 4)[..., 0]


register(
    IQ3_S(
        "IQ3_S",
        21,
        256,
        110,
        [("d", "<f2"), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)],
    )
)
