"""Q8_K: 256 signed bytes, one float32 scale and the sums of 16 groups; value = d * code. 292 bytes.

    d       f32
    qs      256 signed bytes    v[0], v[1], ... v[255]
    bsums   16 x int16          sums of 16 neighbouring codes, for dot products with minima; not needed to decode

ggml keeps activations in it while it computes; it is not meant for files. Source: ggml `block_q8_K`,
`dequantize_row_q8_K`. Next module: `iq4_nl.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import F32, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields


class Q8_K(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=8, group=32, n_groups=8, signed=True, scale="f32")

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        d = b.load(block, f.at["d"], F32, constant=True)
        return Codes([f.signed("qs", 32 * g, 32) for g in range(8)], d)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        np.multiply(blocks["d"][:, None], blocks["qs"], out=out)


register(Q8_K("Q8_K", 15, 256, 292, [("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16)]))
