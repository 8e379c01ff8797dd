"""IQ1_M: as IQ1_S, with a scale per 16 values and ± per 8; value = d * (2 s + 1) * (number ± 1/8). 56 bytes.

    qs       32 bytes    the low 8 bits of the point of v[8 i] .. v[8 i + 7]
    qh       16 bytes    byte h   |     7      |   6 5 4   |     3    | 2 1 0  |      the high three bits of points p
                                  | minus 2h+1 | p[2h + 1] | minus 2h | p[2h]  |      and whether 1/8 is subtracted
    scales   4 x u16     word h   | 15 .. 12 | 11 .. 9 | 8 .. 6  | 5 .. 3  | 2 .. 0 |
                                  |   d[h]   | s[4h+3] | s[4h+2] | s[4h+1] | s[4h]  |
                         d is an f16 in four pieces of 4 bits, d[0] the lowest; s[g] is for values from v[16 g] on

Source: ggml `block_iq1_m`, `iq1m_scale_t`, `dequantize_row_iq1_m`,
`quantize_row_iq1_m_impl`. Next module: `tq1_0.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gml.kernel_ir import U8, U16, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.grid_search import odd_scales
from gml.quants.grids import decode_codes, grid, joined
from gml.quants.importance import Weights, ordered_sums
from gml.quants.iq1_s import MINUS, TABLE, VALUES
from gml.quants.iq2_xxs import packed
from gml.quants.search import columns
from gml.quants.split_search import BOTH, fit_split


class IQ1_M(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=3, group=16, n_groups=16, table=TABLE, sub_scale="u8", factor=0.125)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = []
        for g in range(16):
            high, points, minus = f.u8("qh", g), [], []
            for i in range(2):
                half = high >> (4 * i)
                top = b.cast(half & 7, U16) << 8
                points.append(grid("IQ1_S").points(b, b.cast(f.u8("qs", 2 * g + i), U16) | top))
                minus.append(b.splat((half & 8) >> 1, 8))
            codes.append(joined(b, points) | joined(b, minus))
        words = [f.number("scales", h, U16) for h in range(4)]
        d = words[0] >> 12
        for h in range(1, 4):
            d = d | ((words[h] >> 12) << (4 * h))
        scales = [b.cast((((word >> (3 * i)) & 7) << 1) | 1, U8) for word in words for i in range(4)]
        return Codes(codes, d, scales)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        high = planes(blocks["qh"][..., None], 4).reshape(-1, 32)
        top = (high & np.uint8(7)).astype(np.uint16) << np.uint16(8)
        points = grid("IQ1_S").codes[blocks["qs"] | top]
        minus = (high & np.uint8(8)) // np.uint8(8 // MINUS)
        small = (blocks["scales"][..., None] >> np.arange(0, 12, 3, dtype=np.uint16)) & np.uint16(7)
        scales = (small.reshape(-1, 16) * np.uint16(2) + np.uint16(1)).astype(np.float32)
        scales *= halves(self.block_scales(blocks)) * np.float32(0.125)
        decode_codes(scales, VALUES, points | minus[..., None], out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """A split and points are searched for each group; the scales get 3 bits, and d is solved for again."""
        w = values * values if weights is None else weights.of_blocks(values)
        x_of, w_of = columns(values, 16), columns(w, 16)
        scale, points, down, none = fit_split(x_of, w_of, 2)
        none |= np.abs(x_of).max(axis=0) < np.float32(1e-7)
        points, down = (np.where(none, 0, a).T.reshape(-1, 32) for a in (points, down))
        d, small = odd_scales(np.where(none, np.float32(0), scale).reshape(-1, 16), 8)
        q = BOTH[down[..., None], grid("IQ1_S").codes[points]].reshape(-1, 16, 16)
        q = (q * (2 * small + np.uint8(1)).astype(np.float32)[..., None]).reshape(-1, 256)
        xq, q2 = ordered_sums(w * q * values), ordered_sums(w * q * q)
        zero = d == 0
        d = np.where(zero, d, np.where(q2 > 0, xq / q2, d)) * np.float32(1.1125)
        out["qs"] = points & 255
        high = (points >> 8) | np.where(zero[:, None], 0, down << 3)
        out["qh"] = pack_planes(high.astype(np.uint8).reshape(-1, 16, 2, 1), 4)[..., 0]
        pieces = (d.astype(np.float16).view(np.uint16)[:, None] >> np.arange(0, 16, 4, dtype=np.uint16)) & np.uint16(15)
        out["scales"] = packed(small.reshape(-1, 4, 4), 3) | (pieces.astype(np.uint32) << 12)

    def lost(self, values: np.ndarray, blocks: np.ndarray) -> Iterator[tuple[str, str, np.ndarray]]:
        yield "d", "float16", ~np.isfinite(self.block_scales(blocks))

    @staticmethod
    def block_scales(blocks: np.ndarray) -> np.ndarray:
        """d of blocks [n], float16 [n], put together."""
        pieces = (blocks["scales"] >> np.uint16(12)) << np.arange(0, 16, 4, dtype=np.uint16)
        return np.bitwise_or.reduce(pieces, axis=1).view(np.float16)


register(IQ1_M("IQ1_M", 29, 256, 56, [("qs", "u1", 32), ("qh", "u1", 16), ("scales", "<u2", 4)]))
