"""Q4_K: 256 values of 4 bits in 8 groups of 32; value = (d * scale) * code - (dmin * min). 144 bytes.

    d        f16         scale of the scales
    dmin     f16         scale of the minima
    scales   12 bytes    8 scales s and 8 minima m of 6 bits; h = 0 .. 3
                         byte h       |  7 6         | 5 4 3 2 1 0 |
                                      | s[h+4] high  |    s[h]     |
                         byte 4 + h   |  7 6         | 5 4 3 2 1 0 |
                                      | m[h+4] high  |    m[h]     |
                         byte 8 + h   |  7 6 5 4     |  3 2 1 0    |
                                      | m[h+4] low   | s[h+4] low  |
    qs       128 bytes   four runs of 32 bytes, each for two groups
                         byte i of run r   |  7 6 5 4  | 3 2 1 0 |
                                           | v[32 + i] |  v[i]   |      from v[64 r] on

Source: ggml `block_q4_K`, `get_scale_min_k4`, `dequantize_row_q4_K`. Next module: `q5_k.py`.
"""

from __future__ import annotations

import numpy as np

from gml.quants.base import QuantType, register
from gml.quants.bits import halves, planes


class Q4_K(QuantType):
    """See the module's drawing."""

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        decode_groups(blocks, planes(blocks["qs"].reshape(-1, 4, 32), 4), out)


def scales_and_mins(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 6-bit scales and minima drawn above: uint8 [n, 12] to two of uint8 [n, 8]."""
    s, m, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([s & np.uint8(63), (low & np.uint8(15)) | ((s >> np.uint8(6)) << np.uint8(4))], axis=1)
    mins = np.concatenate([m & np.uint8(63), (low >> np.uint8(4)) | ((m >> np.uint8(6)) << np.uint8(4))], axis=1)
    return scales, mins


def decode_groups(blocks: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
    """Values of blocks [n] that have the fields d, dmin and scales, from 256 codes each: the part Q5_K shares."""
    scales, mins = scales_and_mins(blocks["scales"])
    groups = out.reshape(-1, 8, 32)
    np.multiply((halves(blocks["d"]) * scales)[..., None], codes.reshape(-1, 8, 32), out=groups)
    groups -= (halves(blocks["dmin"]) * mins)[..., None]


register(Q4_K("Q4_K", 12, 256, 144, [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)]))
