"""Q4_1: 32 values of 4 bits, a scale and a minimum; value = d * code + m. 20 bytes.

    d, m   f16
    qs     16 bytes    byte i   | 7 6 5 4 | 3 2 1 0 |
                                | v[i+16] |  v[i]   |

Source: ggml `block_q4_1`, `dequantize_row_q4_1`, `quantize_row_q4_1_ref`. Next module: `q5_0.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.rounding import extremes, inverse, truncate


class Q4_1(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=4, group=32, n_groups=1, offset="block")

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        return Codes([b.concat(*f.nibbles("qs", 0, 16))], f.u16("d"), m=f.u16("m"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        np.multiply(halves(blocks["d"]), planes(blocks["qs"], 4).reshape(out.shape), out=out)
        out += halves(blocks["m"])

    def encode_blocks(self, values: np.ndarray, out: np.ndarray) -> None:
        m, largest = extremes(values)
        d = (largest - m) / np.float32(15)
        codes = truncate((values - m) * inverse(d) + np.float32(0.5), 15)
        out["d"], out["m"] = d[:, 0], m[:, 0]
        out["qs"] = pack_planes(codes.reshape(-1, 2, 16), 4)


register(Q4_1("Q4_1", 3, 32, 20, [("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)]))
