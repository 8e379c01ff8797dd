"""IQ2_XS: as IQ2_XXS with 512 points, and a scale per 16 values; value = d * (2 s + 1) / 8 * number. 74 bytes.

    d        f16
    qs       32 x u16    number i, of v[8 i] .. v[8 i + 7]
                         | 15 .. 9 | 8 .. 0 |      7 bits of signs as in IQ2_XXS
                         |  signs  | point  |
    scales   8 bytes     byte h   | 7 6 5 4  | 3 2 1 0 |      s[g] for the 16 values from v[16 g] on
                                  | s[2h+1]  |  s[2h]  |

Source: ggml `block_iq2_xs`, `dequantize_row_iq2_xs`, `quantize_row_iq2_xs_impl`. Next module: `iq2_s.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import U16, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.grid_search import Search, encode_signed, odd_scales
from gml.quants.grids import decode_codes, grid, joined, sign_codes, signs
from gml.quants.importance import Weights
from gml.quants.iq2_xxs import NEGATIVE, TABLE, VALUES

SEARCH = Search("IQ2_XS", range(-9, 10), 0.1, "off")


class IQ2_XS(QuantType):
    """See the module's drawing."""

    needs_weights = True
    traits = CodeTraits(bits=3, group=16, n_groups=16, table=TABLE, sub_scale="u8", factor=0.125)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = []
        for g in range(16):
            numbers = [f.number("qs", 2 * g + i, U16) for i in range(2)]
            points = joined(b, [grid("IQ2_XS").points(b, n & 511) for n in numbers])
            codes.append(points | joined(b, [signs(b, n >> 9, NEGATIVE) for n in numbers]))
        return Codes(codes, f.u16("d"), unpack_scales(f))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        numbers = blocks["qs"]
        codes = grid("IQ2_XS").codes[numbers & np.uint16(511)] | sign_codes(NEGATIVE)[numbers >> np.uint16(9)]
        scales = halves(blocks["d"]) * scales_of_16(blocks["scales"])
        decode_codes(scales * np.float32(0.125), VALUES, codes, out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """A scale and points are searched for each group; the scales get 4 bits."""
        assert weights is not None
        scales, points, negative = encode_signed(SEARCH, values, weights.of_blocks(values, 1.0), 16, 1e-15, even=True)
        d, small = odd_scales(scales, 16)
        out["d"] = d
        out["qs"] = points.astype(np.uint16) | (negative.astype(np.uint16) << np.uint16(9))
        out["scales"] = pack_planes(small.reshape(-1, 8, 2, 1), 4)[..., 0]


def scales_of_16(packed: np.ndarray) -> np.ndarray:
    """2 s + 1 of the groups of 16: uint8 [n, 8] to float32 [n, 16]. Shared with IQ2_S."""
    return (planes(packed[..., None], 4).reshape(-1, 16) * np.uint8(2) + np.uint8(1)).astype(np.float32)


def unpack_scales(f: Fields) -> list[Node]:
    """The same in kernel IR."""
    packed = [f.u8("scales", h) for h in range(8)]
    return [(half << 1) | 1 for p in packed for half in (p & 15, p >> 4)]


register(IQ2_XS("IQ2_XS", 17, 256, 74, [("d", "<f2"), ("qs", "<u2", 32), ("scales", "u1", 8)]))
