"""IQ1_S: 256 values of -1, 0 or 1, 8 of them a point of a grid; value = d * (2 s + 1) * (number ± 1/8). 50 bytes.

    d    f16
    qs   32 bytes     the low 8 bits of the point of v[8 i] .. v[8 i + 7]
    qh   8 x u16      one per group g of 32 values, with the high three bits of its points p
                      |  15   | 14 .. 12 | 11 .. 9 | 8 .. 6  | 5 .. 3  | 2 .. 0 |
                      | minus | scale s  | p[4g+3] | p[4g+2] | p[4g+1] | p[4g]  |
                      minus: 1/8 is subtracted from the numbers instead of added

Source: ggml `block_iq1_s`, `IQ1S_DELTA`, `dequantize_row_iq1_s`,
`quantize_row_iq1_s_impl`. Next module: `iq1_m.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import U8, U16, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.grid_search import odd_scales
from gml.quants.grids import decode_codes, grid, joined
from gml.quants.importance import Weights
from gml.quants.iq2_xxs import packed
from gml.quants.search import columns
from gml.quants.split_search import fit_split

#: eight times what codes stand for: -1, 0, 1 plus 1/8, and from 4 on minus 1/8
TABLE = (-7, 1, 9, 0, -9, -1, 7, 0)
VALUES = np.array(TABLE, np.float32)
MINUS = 4


class IQ1_S(QuantType):
    """See the module's drawing."""

    needs_weights = True
    traits = CodeTraits(bits=3, group=32, n_groups=8, table=TABLE, sub_scale="u8", factor=0.125)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes, scales = [], []
        for g in range(8):
            high = f.number("qh", g, U16)
            points = []
            for i in range(4):
                top = ((high >> (3 * i)) & 7) << 8
                points.append(grid("IQ1_S").points(b, b.cast(f.u8("qs", 4 * g + i), U16) | top))
            minus = b.cast((high >> 15) << 2, U8)
            codes.append(joined(b, points) | b.splat(minus, 32))
            scales.append(b.cast((((high >> 12) & 7) << 1) | 1, U8))
        return Codes(codes, f.u16("d"), scales)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        high = blocks["qh"]
        top = (high[..., None] >> np.arange(0, 12, 3, dtype=np.uint16)) & np.uint16(7)
        points = grid("IQ1_S").codes[blocks["qs"] | (top.reshape(-1, 32) << np.uint16(8))]
        minus = ((high >> np.uint16(15)) << np.uint16(2)).astype(np.uint8)
        scales = ((high >> np.uint16(12)) & np.uint16(7)) * np.uint16(2) + np.uint16(1)
        scales = halves(blocks["d"]) * scales.astype(np.float32) * np.float32(0.125)
        decode_codes(scales, VALUES, points.reshape(-1, 8, 32) | minus[..., None], out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """A split and points are searched for each group; the scales get 3 bits."""
        assert weights is not None
        x, w = columns(values, 32), columns(weights.of_blocks(values), 32)
        scale, points, down, none = fit_split(x, w, 1)
        none |= np.abs(x).max(axis=0) < np.float32(1e-12)
        points = np.where(none, 0, points).T.reshape(-1, 32)
        d, small = odd_scales(np.where(none, np.float32(0), scale).reshape(-1, 8), 8)
        out["d"] = d * np.float32(1.125)
        out["qs"] = points & 255
        minus = np.where(none, 0, down[0]).reshape(-1, 8) * (d[:, None] != 0)
        out["qh"] = packed((points >> 8).reshape(-1, 8, 4), 3) | (small.astype(np.uint32) << 12) | (minus << 15)


register(IQ1_S("IQ1_S", 19, 256, 50, [("d", "<f2"), ("qs", "u1", 32), ("qh", "<u2", 8)]))
