"""Q4_0: 32 values of 4 bits and one scale; value = d * (code - 8). 18 bytes.

    d    f16
    qs   16 bytes    byte i   | 7 6 5 4 | 3 2 1 0 |      the first half of the block in the low nibbles,
                              | v[i+16] |  v[i]   |      the second half in the high ones

Source: ggml `block_q4_0`, `dequantize_row_q4_0`, `quantize_row_q4_0_ref`. Next module: `q4_1.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.rounding import first_largest, inverse, truncate


class Q4_0(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=4, group=32, n_groups=1, zero=8)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        return Codes([b.concat(*f.nibbles("qs", 0, 16))], f.u16("d"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        codes = planes(blocks["qs"], 4).reshape(out.shape).view(np.int8)
        np.multiply(halves(blocks["d"]), codes - np.int8(8), out=out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray) -> None:
        """The value of largest magnitude becomes code 0, that is -8, which uses the asymmetric range fully."""
        d = first_largest(values.T)[:, None] / np.float32(-8)
        codes = truncate(values * inverse(d) + np.float32(8.5), 15)
        out["d"] = d[:, 0]
        out["qs"] = pack_planes(codes.reshape(-1, 2, 16), 4)


register(Q4_0("Q4_0", 2, 32, 18, [("d", "<f2"), ("qs", "u1", 16)]))
