"""Q5_1: 32 values of 5 bits, a scale and a minimum; value = d * code + m. 24 bytes.

    d, m   f16
    qh      4 bytes    bit i of the 32 (lowest bit of the first byte first) is the fifth bit of v[i]
    qs     16 bytes    byte i   | 7 6 5 4 | 3 2 1 0 |      the low four bits
                                | v[i+16] |  v[i]   |

Source: ggml `block_q5_1`, `dequantize_row_q5_1`, `quantize_row_q5_1_ref`. Next module: `q8_0.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.q4_1 import affine
from gml.quants.q5_0 import five_bits, pack_five_bits


class Q5_1(QuantType):
    """See the module's drawing."""

    weighs_rows = True
    traits = CodeTraits(bits=5, group=32, n_groups=1, offset="block")

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = b.concat(*f.nibbles("qs", 0, 16)) | f.bit_string("qh", 0, 4, 16)
        return Codes([codes], f.u16("d"), m=f.u16("m"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        np.multiply(halves(blocks["d"]), five_bits(blocks), out=out)
        out += halves(blocks["m"])

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """As in Q4_1."""
        out["d"], out["m"], codes = affine(values, 31, weights)
        pack_five_bits(codes, out)


register(Q5_1("Q5_1", 7, 32, 24, [("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)]))
