"""IQ4_NL: 32 values of 4 bits that stand for unevenly spaced numbers, and one scale; value = d * TABLE[code]. 18 bytes.

    d    f16
    qs   16 bytes    byte i   | 7 6 5 4 | 3 2 1 0 |
                              | v[i+16] |  v[i]   |

Source: ggml `block_iq4_nl`, `kvalues_iq4nl`, `dequantize_row_iq4_nl`. Next module: `iq4_xs.py`.
"""

from __future__ import annotations

import numpy as np

from gml.quants.base import QuantType, register
from gml.quants.bits import halves, planes

#: what the codes stand for: dense around zero, where most weights are
TABLE = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


class IQ4_NL(QuantType):
    """See the module's drawing."""

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        np.multiply(halves(blocks["d"]), TABLE[planes(blocks["qs"], 4).reshape(out.shape)], out=out)


register(IQ4_NL("IQ4_NL", 20, 32, 18, [("d", "<f2"), ("qs", "u1", 16)]))
