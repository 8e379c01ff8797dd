"""Q3_K: 256 values of 3 bits in 16 groups of 16; value = d * (scale - 32) * (code - 4). 110 bytes.

    hmask    32 bytes    the third bits
                         byte i   |  7   |  6   |  5   |  4   | 3  |  2  |  1  | 0  |
                                  | v224 | v192 | v160 | v128 | .. | v64 | v32 | v0 |     vN = v[N + i]
    qs       64 bytes    the low two bits: two runs of 32 bytes, each for 128 values
                         byte i of run r   | 7 6 | 5 4 | 3 2 | 1 0 |
                                           | v96 | v64 | v32 | v0  |                      vN = v[128 r + N + i]
    scales   12 bytes    16 numbers of 6 bits; g = 0 .. 7, h = 0 .. 3
                         byte g       | 7 6 5 4 | 3 2 1 0 |      the low four bits
                                      | s[g+8]  |  s[g]   |
                         byte 8 + h   |  7 6    |  5 4   |  3 2   | 1 0  |      the high two bits
                                      | s[h+12] | s[h+8] | s[h+4] | s[h] |
    d        f16

Source: ggml `block_q3_K`, `dequantize_row_q3_K`, `quantize_row_q3_K_ref`, `quantize_row_q3_K_impl`.
Next module: `q4_k.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import I8, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields, halves_of
from gml.quants.importance import Weights
from gml.quants.refine import refine_scale
from gml.quants.rounding import clipped_int, first_largest
from gml.quants.search import blocks_of, columns, fit_scale, sequential_sum


class Q3_K(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=3, group=16, n_groups=16, zero=4, sub_scale="i8")

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        third = f.bytes("hmask", 0, 32)
        codes = []
        for r in range(2):
            low = f.bytes("qs", 32 * r, 32)
            codes += [((low >> (2 * j)) & 3) | (((third >> (4 * r + j)) & 1) << 2) for j in range(4)]
        scales = []
        for g in range(16):
            low = (f.u8("scales", g % 8) >> (4 * (g // 8))) & 15
            high = (f.u8("scales", 8 + g % 4) >> (2 * (g // 4))) & 3
            scales.append(b.bitcast((low | (high << 4)) - 32, I8))
        return Codes(halves_of(b, codes), f.u16("d"), scales)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        low = planes(blocks["qs"].reshape(-1, 2, 32), 2).reshape(-1, 256)
        high = planes(blocks["hmask"], 1).reshape(-1, 256)
        codes = (low | (high << np.uint8(2))).view(np.int8) - np.int8(4)
        scales = halves(blocks["d"]) * self._scales(blocks["scales"])
        np.multiply(scales[..., None], codes.reshape(-1, 16, 16), out=out.reshape(-1, 16, 16))

    @staticmethod
    def _scales(packed: np.ndarray) -> np.ndarray:
        """Signed scales of the groups: uint8 [n, 12] to int8 [n, 16]."""
        low = planes(packed[:, :8], 4).reshape(-1, 16)
        high = planes(packed[:, 8:], 2).reshape(-1, 16)
        return (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """A scale is searched for each group; these get 6 bits, and the codes are rounded again to what is stored."""
        x = columns(values, 16)
        if weights is None:
            scale, codes = refine_scale(x, 4)
            scales = scale.reshape(-1, 16)
            largest = first_largest(scales.T)
            inverse = np.float32(-32) / largest
            zero = largest == 0
            found = np.where(zero[:, None], np.float32(-32), clipped_int(inverse[:, None] * scales, -32, 31))
            out["d"] = np.where(zero, np.float32(0), np.float32(1) / inverse)
        else:
            w = columns(weights.of_blocks(values), 16)
            scale, codes = fit_scale(x, 4, w)
            out["d"], found = fit_scale(columns(scale, 16), 32, columns(sequential_sum(w), 16))
            found = found.T - np.float32(32)
        out["scales"] = self._pack_scales((found + np.float32(32)).astype(np.uint8))
        d = (halves(out["d"]) * found).reshape(-1)
        codes = np.where(d != 0, clipped_int(x / d, -4, 3) + np.float32(4), codes)
        numbers = blocks_of(codes, 256)
        out["qs"] = pack_planes((numbers & np.uint8(3)).reshape(-1, 2, 4, 32), 2).reshape(-1, 64)
        out["hmask"] = pack_planes((numbers >> np.uint8(2)).reshape(-1, 8, 32), 1)

    @staticmethod
    def _pack_scales(scales: np.ndarray) -> np.ndarray:
        """The inverse of `_scales`, of scales + 32: uint8 [n, 16] to uint8 [n, 12]."""
        low = pack_planes((scales & np.uint8(15)).reshape(-1, 2, 8), 4)
        high = pack_planes((scales >> np.uint8(4)).reshape(-1, 4, 4), 2)
        return np.concatenate([low, high], axis=1)


register(Q3_K("Q3_K", 11, 256, 110, [("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2")]))
