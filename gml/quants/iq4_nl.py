"""IQ4_NL: 32 values of 4 bits that stand for unevenly spaced numbers, and one scale; value = d * TABLE[code]. 18 bytes.

    d    f16
    qs   16 bytes    byte i   | 7 6 5 4 | 3 2 1 0 |
                              | v[i+16] |  v[i]   |

Source: ggml `block_iq4_nl`, `kvalues_iq4nl`, `dequantize_row_iq4_nl`, `quantize_row_iq4_nl_impl`
(7 steps each way). Next module: `iq4_xs.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.rounding import first_largest, inverse
from gml.quants.search import TINY, blocks_of, columns, finite_or_inf, sequential_sum

#: what the codes stand for: dense around zero, where most weights are
TABLE = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)

#: the code for floor(2 * x) + 254, -127 <= x <= 113: all borders between codes are multiples of a half
_CODES = np.searchsorted((TABLE[1:] + TABLE[:-1]) / 2, np.arange(-254, 227) / 2, side="right").astype(np.uint8)


class IQ4_NL(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=4, group=32, n_groups=1, table=tuple(int(v) for v in TABLE))

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        return Codes([b.concat(*f.nibbles("qs", 0, 16))], f.u16("d"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        np.multiply(halves(blocks["d"]), TABLE[planes(blocks["qs"], 4).reshape(out.shape)], out=out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        x = columns(values, 32)
        d = fit_table(x, None if weights is None else columns(weights.of_blocks(values), 32))
        out["d"] = d
        out["qs"] = pack_planes(blocks_of(nearest_codes(x * inverse(d)), 32).reshape(-1, 2, 16), 4)


def nearest_codes(x: np.ndarray) -> np.ndarray:
    """Codes of the table's values nearest to float32 x, the upper one of equals, as uint8; NaN (0 * inf) goes up."""
    return _CODES[np.floor(np.fmax(np.fmin(x, TABLE[-1]), TABLE[0]) * np.float32(2)).astype(np.int32) + 254]


def fit_table(x: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The scale for x ≈ scale * TABLE[code]: float32 [32, n] to [n]; the weights are x² where none are given.

    Tries 16 around -max / TABLE[0].
    """
    largest = first_largest(x)
    weights = x * x if weights is None else weights

    def attempt(inverted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        q = TABLE[nearest_codes(inverted * x)]
        weighted = weights * q
        return sequential_sum(weighted * x), sequential_sum(weighted * q)

    qx, q2 = attempt(np.float32(1) / (-largest / TABLE[0]))
    scale = np.where(q2 > 0, qx / q2, np.where(np.isnan(q2), q2, np.float32(0)))
    best = scale * qx
    for step in range(-7, 8):
        qx, q2 = attempt((np.float32(step) + TABLE[0]) / largest)
        better = (q2 > 0) & (qx * qx > best * q2)
        scale = np.where(better, qx / q2, scale)
        best = np.where(better, scale * qx, best)
    return np.where(np.abs(largest) < TINY, np.float32(0), finite_or_inf(scale))


register(IQ4_NL("IQ4_NL", 20, 32, 18, [("d", "<f2"), ("qs", "u1", 16)]))
