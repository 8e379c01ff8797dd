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

Source: ggml `block_iq4_xs`, `dequantize_row_iq4_xs`. Next module: `tq1_0.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import I8, U8, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.iq4_nl import TABLE


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

    @staticmethod
    def _scales(blocks: np.ndarray) -> np.ndarray:
        """Signed scales of the groups: int8 [n, 8]."""
        low = planes(blocks["scales_l"][..., None], 4).reshape(-1, 8)
        high = (blocks["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16)).astype(np.uint8) & np.uint8(3)
        return (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)


register(IQ4_XS("IQ4_XS", 23, 256, 136, [("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", 4), ("qs", "u1", 128)]))
