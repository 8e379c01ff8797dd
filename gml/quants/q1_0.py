"""Q1_0: 128 signs and one scale; value = d where the bit is set, else -d. 18 bytes.

    d    f16
    qs   16 bytes    bit j of byte i for v[8 i + j]

Source: ggml `block_q1_0`, `dequantize_row_q1_0`, `quantize_row_q1_0_ref`. Next module: `q2_0.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import bit_string, halves, pack_bit_string
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights, ordered_sums


class Q1_0(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=1, group=32, n_groups=4, table=(-1, 1))

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        return Codes([f.bit_string("qs", 4 * g, 4, 1) for g in range(4)], f.u16("d"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        signs = (bit_string(blocks["qs"]) * np.uint8(2)).view(np.int8) - np.int8(1)
        np.multiply(halves(blocks["d"]), signs, out=out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """The scale is the mean magnitude; both zeros count as positive."""
        out["d"] = ordered_sums(np.abs(values)) / np.float32(128)
        out["qs"] = pack_bit_string(values >= 0)


register(Q1_0("Q1_0", 41, 128, 18, [("d", "<f2"), ("qs", "u1", 16)]))
