"""IQ4_XS: 256 values of 4 bits in 8 groups of 32; value = (d * (scale - 32)) * TABLE[code] of IQ4_NL. 136 bytes.

    d          f16
    scales_h   u16         the high two bits of 8 scales s of 6 bits
                           | 15 14 | .. | 3 2  | 1 0  |
                           | s[7]  | .. | s[1] | s[0] |
    scales_l   4 bytes     their low four bits
                           byte h   | 7 6 5 4  | 3 2 1 0 |
                                    | s[2h+1]  |  s[2h]  |
    qs         128 bytes   16 bytes per group g
                           byte i   |  7 6 5 4  | 3 2 1 0 |
                                    | v[16 + i] |  v[i]   |      from v[32 g] on

Source: ggml `block_iq4_xs`, `dequantize_row_iq4_xs`, `quantize_row_iq4_nl_impl`. Next module: `tq1_0.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import I8, U8, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.iq4_nl import TABLE, fit_table, nearest_codes
from gml.quants.rounding import clipped_int, first_largest, inverse
from gml.quants.search import blocks_of, columns


class IQ4_XS(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=4, group=32, n_groups=8, table=tuple(int(v) for v in TABLE), sub_scale="i8")

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = [b.concat(*f.nibbles("qs", 16 * g, 16)) for g in range(8)]
        high = f.u16("scales_h")
        scales = []
        for g in range(8):
            low = (f.u8("scales_l", g // 2) >> (4 * (g % 2))) & 15
            top = b.cast((high >> (2 * g)) & 3, U8)
            scales.append(b.bitcast((low | (top << 4)) - 32, I8))
        return Codes(codes, f.u16("d"), scales)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        scales = halves(blocks["d"]) * self._scales(blocks)
        values = TABLE[planes(blocks["qs"].reshape(-1, 8, 16), 4).reshape(-1, 8, 32)]
        np.multiply(scales[..., None], values, out=out.reshape(-1, 8, 32))

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """A scale is searched for each group; these get 6 bits, and the codes are chosen again."""
        x = columns(values, 32)
        scales = fit_table(x, None if weights is None else columns(weights.of_blocks(values), 32)).reshape(-1, 8)
        d = -first_largest(scales.T) / np.float32(32)
        out["d"] = d
        found = clipped_int(inverse(d)[:, None] * scales, -32, 31)
        # ggml divides by the scale before it is rounded to f16
        codes = nearest_codes(inverse((d[:, None] * found).reshape(-1)) * x)
        out["qs"] = pack_planes(blocks_of(codes, 256).reshape(-1, 8, 2, 16), 4).reshape(-1, 128)
        six = (found + np.float32(32)).astype(np.uint8)
        out["scales_l"] = pack_planes((six & np.uint8(15)).reshape(-1, 4, 2, 1), 4)[..., 0]
        shifts = np.arange(0, 16, 2, dtype=np.uint16)
        out["scales_h"] = np.bitwise_or.reduce((six >> np.uint8(4)).astype(np.uint16) << shifts, axis=1)

    @staticmethod
    def _scales(blocks: np.ndarray) -> np.ndarray:
        """Signed scales of the groups: int8 [n, 8]."""
        low = planes(blocks["scales_l"][..., None], 4).reshape(-1, 8)
        high = (blocks["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16)).astype(np.uint8) & np.uint8(3)
        return (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)


register(IQ4_XS("IQ4_XS", 23, 256, 136, [("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", 4), ("qs", "u1", 128)]))
