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
from gml.quants.importance import Weights
from gml.quants.rounding import extremes, inverse, truncate
from gml.quants.search import WEIGHTED_STEPS, blocks_of, columns, fit_scale_and_min


class Q4_1(QuantType):
    """See the module's drawing."""

    weighs_rows = True
    traits = CodeTraits(bits=4, group=32, n_groups=1, offset="block")

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        return Codes([b.concat(*f.nibbles("qs", 0, 16))], f.u16("d"), m=f.u16("m"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        np.multiply(halves(blocks["d"]), planes(blocks["qs"], 4).reshape(out.shape), out=out)
        out += halves(blocks["m"])

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """From the smallest value to the largest; with importance weights the range is searched for."""
        out["d"], out["m"], codes = affine(values, 15, weights)
        out["qs"] = pack_planes(codes.reshape(-1, 2, 16), 4)


def affine(values: np.ndarray, n_max: int, weights: Weights | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scales [n], offsets [n] and uint8 codes [n, 32] up to n_max; value = scale * code + offset."""
    if weights is not None:
        x, w = columns(values, 32), columns(weights.of_rows(values), 32)
        d, minimum, codes = fit_scale_and_min(x, w, n_max, WEIGHTED_STEPS)
        return d, -minimum, blocks_of(codes, 32)
    m, largest = extremes(values)
    d = (largest - m) / np.float32(n_max)
    return d[:, 0], m[:, 0], truncate((values - m) * inverse(d) + np.float32(0.5), n_max)


register(Q4_1("Q4_1", 3, 32, 20, [("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)]))
