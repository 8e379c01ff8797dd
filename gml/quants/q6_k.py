"""Q6_K: 256 values of 6 bits in 16 groups of 16; value = (d * scale) * (code - 32). 210 bytes.

    ql       128 bytes   the low four bits: two runs of 64 bytes, each for 128 values
                         byte i of run r   |  7 6 5 4  | 3 2 1 0 |
                                           | v[64 + i] |  v[i]   |       from v[128 r] on, i = 0 .. 63
    qh       64 bytes    the high two bits: two runs of 32 bytes
                         byte i of run r   | 7 6 | 5 4 | 3 2 | 1 0 |
                                           | v96 | v64 | v32 | v0  |     vN = v[128 r + N + i]
    scales   16 signed bytes, one per group
    d        f16

Source: ggml `block_q6_K`, `dequantize_row_q6_K`, `quantize_row_q6_K_ref`,
`quantize_row_q6_K_impl`.
Next module: `q8_k.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import I8, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields, halves_of
from gml.quants.importance import Weights
from gml.quants.rounding import clipped_int, first_largest, nearest_int
from gml.quants.search import TINY, blocks_of, columns, fit_scale


class Q6_K(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=6, group=16, n_groups=16, zero=32, sub_scale="i8")

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = []
        for r in range(2):
            high = f.bytes("qh", 32 * r, 32)
            (a, c), (d, e) = f.nibbles("ql", 64 * r, 32), f.nibbles("ql", 64 * r + 32, 32)
            codes += [low | (((high >> (2 * j)) & 3) << 4) for j, low in enumerate((a, d, c, e))]
        scales = [b.bitcast(f.u8("scales", g), I8) for g in range(16)]
        return Codes(halves_of(b, codes), f.u16("d"), scales)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        low = planes(blocks["ql"].reshape(-1, 2, 64), 4).reshape(-1, 256)
        high = planes(blocks["qh"].reshape(-1, 2, 32), 2).reshape(-1, 256)
        codes = (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)
        scales = halves(blocks["d"]) * blocks["scales"]
        np.multiply(scales[..., None], codes.reshape(-1, 16, 16), out=out.reshape(-1, 16, 16))

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """A scale is searched for each group; these get 8 bits, and the codes are rounded again to what is stored."""
        groups = columns(values, 16)
        scale, codes = fit_scale(groups, 32, None if weights is None else columns(weights.importance, 16))
        scales = scale.reshape(-1, 16)
        largest = first_largest(scales.T)
        zero = np.abs(largest) < TINY
        inverse = np.float32(-128) / largest
        out["d"] = np.where(zero, np.float32(0), np.float32(1) / inverse)
        out["scales"] = np.where(zero[:, None], 0, np.minimum(nearest_int(inverse[:, None] * scales), 127))
        stored = (out["d"].astype(np.float32)[:, None] * out["scales"]).reshape(-1)
        codes = np.where(stored != 0, clipped_int(groups / stored, -32, 31) + np.float32(32), codes)
        codes[:, np.repeat(zero, 16)] = 0
        self._pack(blocks_of(codes, 256), out)

    @staticmethod
    def _pack(codes: np.ndarray, out: np.ndarray) -> None:
        out["ql"] = pack_planes((codes & np.uint8(15)).reshape(-1, 2, 2, 64), 4).reshape(-1, 128)
        out["qh"] = pack_planes((codes >> np.uint8(4)).reshape(-1, 2, 4, 32), 2).reshape(-1, 64)


register(Q6_K("Q6_K", 14, 256, 210, [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")]))
