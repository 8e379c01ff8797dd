"""Q6_K: 256 values of 6 bits in 16 groups of 16; value = (d * scale) * (code - 32). 210 bytes.

    ql       128 bytes   the low four bits: two runs of 64 bytes, each for 128 values
                         byte i of run r   |  7 6 5 4  | 3 2 1 0 |
                                           | v[64 + i] |  v[i]   |       from v[128 r] on, i = 0 .. 63
    qh       64 bytes    the high two bits: two runs of 32 bytes
                         byte i of run r   | 7 6 | 5 4 | 3 2 | 1 0 |
                                           | v96 | v64 | v32 | v0  |     vN = v[128 r + N + i]
    scales   16 signed bytes, one per group
    d        f16

Source: ggml `block_q6_K`, `dequantize_row_q6_K`. Next module: `q8_k.py`.
"""

from __future__ import annotations

import numpy as np

from gml.quants.base import QuantType, register
from gml.quants.bits import halves, planes


class Q6_K(QuantType):
    """See the module's drawing."""

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        low = planes(blocks["ql"].reshape(-1, 2, 64), 4).reshape(-1, 256)
        high = planes(blocks["qh"].reshape(-1, 2, 32), 2).reshape(-1, 256)
        codes = (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)
        scales = halves(blocks["d"]) * blocks["scales"]
        np.multiply(scales[..., None], codes.reshape(-1, 16, 16), out=out.reshape(-1, 16, 16))


register(Q6_K("Q6_K", 14, 256, 210, [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")]))
