"""IQ2_S: as IQ2_XS with 1024 points, and a bit for each sign; value = d * (2 s + 1) / 8 * number. 82 bytes.

    d        f16
    qs       32 bytes    the low 8 bits of the point of v[8 i] .. v[8 i + 7]
    signs    32 bytes    bit j of byte i is set where v[8 i + j] is negative
    qh        8 bytes    the high two bits of the points p
                         byte h   |   7 6   |   5 4   |   3 2   | 1 0   |
                                  | p[4h+3] | p[4h+2] | p[4h+1] | p[4h] |
    scales    8 bytes    as in IQ2_XS

ggml counts the signs as the second half of qs. Source: ggml `block_iq2_s`, `dequantize_row_iq2_s`,
`quantize_row_iq2_s_impl`.
Next module: `iq3_xxs.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import U16, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import bit_string, halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.grid_search import Search, encode_signed, odd_scales
from gml.quants.grids import decode_codes, grid, joined
from gml.quants.importance import Weights, mean_square
from gml.quants.iq2_xs import scales_of_16, unpack_scales
from gml.quants.iq2_xxs import NEGATIVE, TABLE, VALUES

SEARCH = Search("IQ2_S", range(-9, 10), 0.1, "off")


class IQ2_S(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=3, group=16, n_groups=16, table=TABLE, sub_scale="u8", factor=0.125)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = []
        for g in range(16):
            points = []
            for i in (2 * g, 2 * g + 1):
                high = b.cast((f.u8("qh", i // 4) >> (2 * (i % 4))) & 3, U16) << 8
                points.append(grid("IQ2_S").points(b, b.cast(f.u8("qs", i), U16) | high))
            codes.append(joined(b, points) | f.bit_string("signs", 2 * g, 2, NEGATIVE))
        return Codes(codes, f.u16("d"), unpack_scales(f))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        high = planes(blocks["qh"][..., None], 2).reshape(-1, 32).astype(np.uint16)
        points = grid("IQ2_S").codes[blocks["qs"] | (high << np.uint16(8))]
        codes = points.reshape(-1, 256) | (bit_string(blocks["signs"]) * np.uint8(NEGATIVE))
        scales = halves(blocks["d"]) * scales_of_16(blocks["scales"])
        decode_codes(scales * np.float32(0.125), VALUES, codes, out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """A scale and points are searched for each group; the scales get 4 bits."""
        if weights is None:
            w = mean_square(values, 2.0)[:, None] * np.float32(0.25) + values * values
        else:
            w = weights.of_blocks(values)
        scales, points, negative = encode_signed(SEARCH, values, w, 16, 1e-8, even=False)
        d, small = odd_scales(scales, 16)
        out["d"] = d * np.float32(0.9875)
        out["qs"], out["signs"] = points & 255, negative
        out["qh"] = pack_planes((points >> 8).astype(np.uint8).reshape(-1, 8, 4, 1), 2)[..., 0]
        out["scales"] = pack_planes(small.reshape(-1, 8, 2, 1), 4)[..., 0]


register(
    IQ2_S(
        "IQ2_S",
        22,
        256,
        82,
        [("d", "<f2"), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)],
    )
)
