"""Q5_0: 32 values of 5 bits and one scale; value = d * (code - 16). 22 bytes.

    d    f16
    qh    4 bytes    bit i of the 32 (lowest bit of the first byte first) is the fifth bit of v[i]
    qs   16 bytes    byte i   | 7 6 5 4 | 3 2 1 0 |      the low four bits
                              | v[i+16] |  v[i]   |

Source: ggml `block_q5_0`, `dequantize_row_q5_0`, `quantize_row_q5_0_ref`,
`quantize_row_q5_0_impl`. Next module: `q5_1.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import bit_string, halves, pack_bit_string, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.q4_0 import symmetric


class Q5_0(QuantType):
    """See the module's drawing."""

    weighs_rows = True
    traits = CodeTraits(bits=5, group=32, n_groups=1, zero=16)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = b.concat(*f.nibbles("qs", 0, 16)) | f.bit_string("qh", 0, 4, 16)
        return Codes([codes], f.u16("d"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        codes = five_bits(blocks).view(np.int8)
        np.multiply(halves(blocks["d"]), codes - np.int8(16), out=out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """As in Q4_0."""
        out["d"], codes = symmetric(values, 16, weights)
        pack_five_bits(codes, out)


def five_bits(blocks: np.ndarray) -> np.ndarray:
    """Codes of blocks [n] that have the fields qh and qs drawn above: uint8 [n, 32]."""
    return planes(blocks["qs"], 4).reshape(-1, 32) | (bit_string(blocks["qh"]) << np.uint8(4))


def pack_five_bits(codes: np.ndarray, out: np.ndarray) -> None:
    """The inverse of `five_bits`."""
    out["qs"] = pack_planes((codes & np.uint8(15)).reshape(-1, 2, 16), 4)
    out["qh"] = pack_bit_string(codes >> np.uint8(4))


register(Q5_0("Q5_0", 6, 32, 22, [("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)]))
