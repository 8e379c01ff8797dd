"""Q8_K: 256 signed bytes, one float32 scale and the sums of 16 groups; value = d * code. 292 bytes.

    d       f32
    qs      256 signed bytes    v[0], v[1], ... v[255]
    bsums   16 x int16          sums of 16 neighbouring codes, for dot products with minima; not needed to decode

ggml keeps activations in it while it computes; it is not meant for files. Source: ggml `block_q8_K`,
`dequantize_row_q8_K`. Next module: `iq4_nl.py`.
"""

from __future__ import annotations

import numpy as np

from gml.quants.base import QuantType, register


class Q8_K(QuantType):
    """See the module's drawing."""

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        np.multiply(blocks["d"][:, None], blocks["qs"], out=out)


register(Q8_K("Q8_K", 15, 256, 292, [("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16)]))
