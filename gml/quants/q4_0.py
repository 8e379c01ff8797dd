"""Q4_0: 32 values of 4 bits and one scale; value = d * (code - 8). 18 bytes.

    d    f16
    qs   16 bytes    byte i   | 7 6 5 4 | 3 2 1 0 |      the first half of the block in the low nibbles,
                              | v[i+16] |  v[i]   |      the second half in the high ones

Source: ggml `block_q4_0`, `dequantize_row_q4_0`, `quantize_row_q4_0_ref`,
`quantize_row_q4_0_impl`. Next module: `q4_1.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.rounding import first_largest, inverse, truncate
from gml.quants.search import blocks_of, columns, fit_scale


class Q4_0(QuantType):
    """See the module's drawing."""

    weighs_rows = True
    traits = CodeTraits(bits=4, group=32, n_groups=1, zero=8)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        return Codes([b.concat(*f.nibbles("qs", 0, 16))], f.u16("d"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        codes = planes(blocks["qs"], 4).reshape(out.shape).view(np.int8)
        np.multiply(halves(blocks["d"]), codes - np.int8(8), out=out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """The value of largest magnitude becomes code 0, that is -8, which uses the asymmetric range fully.

        With importance weights the scale is searched for.
        """
        d, codes = symmetric(values, 8, weights)
        out["d"] = d
        out["qs"] = pack_planes(codes.reshape(-1, 2, 16), 4)


def symmetric(values: np.ndarray, n_max: int, weights: Weights | None) -> tuple[np.ndarray, np.ndarray]:
    """Scales [n] and uint8 codes [n, 32] below 2 * n_max; value = scale * (code - n_max)."""
    if weights is not None:
        d, codes = fit_scale(columns(values, 32), n_max, columns(weights.of_rows(values), 32))
        return d, blocks_of(codes, 32)
    d = first_largest(values.T) / np.float32(-n_max)
    return d, truncate(values * inverse(d)[:, None] + np.float32(n_max + 0.5), 2 * n_max - 1)


register(Q4_0("Q4_0", 2, 32, 18, [("d", "<f2"), ("qs", "u1", 16)]))
