"""MXFP4: 32 floats of 4 bits (e2m1) and a power of two as scale; value = 2^(e - 128) * TABLE[code]. 17 bytes.

    e    u8          the biased exponent (e8m0); one less than the standard's, because the table holds twice the values
    qs   16 bytes    byte i   | 7 6 5 4 | 3 2 1 0 |      a code is   | 3    | 2 1      | 0        |
                              | v[i+16] |  v[i]   |                  | sign | exponent | mantissa |

ggml has no infinities or NaN here: e = 255, NaN in the standard, is 2^127. Source: OCP Microscaling Formats (MX) 1.0;
ggml `block_mxfp4`, `GGML_E8M0_TO_FP32_HALF`, `dequantize_row_mxfp4`,
`quantize_row_mxfp4_ref`. Next module: `gml/arena.py`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights

#: twice the e2m1 values, so that they are integers; the minus zero of the standard is a plain zero in ggml
TABLE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)

#: 2^(e - 128) for every e; the two smallest are denormal
SCALES = np.ldexp(np.float32(1), np.arange(256, dtype=np.int32) - 128)


class MXFP4(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=4, group=32, n_groups=1, table=tuple(int(v) for v in TABLE), scale="e8m0")

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        return Codes([b.concat(*f.nibbles("qs", 0, 16))], f.u8("e"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        codes = planes(blocks["qs"], 4).reshape(out.shape)
        np.multiply(SCALES[blocks["e"]][:, None], TABLE[codes], out=out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """The largest magnitude decides the exponent; every value goes to the nearest, of equals to the smaller."""
        largest = np.abs(values).max(axis=1)
        # rounded once to f32, as C's log2f: just below a power of two it gives that power
        exponent = np.floor(np.log2(largest.astype(np.float64)).astype(np.float32))
        # below 2^-124 the exponent wraps around in its byte, as ggml's does; then all codes are 0
        e = np.where(largest > 0, exponent + np.float32(125), np.float32(0)).astype(np.int32)
        out["e"] = e & 255
        codes = nearest_e2m1(values, SCALES[out["e"]][:, None])
        out["qs"] = pack_planes(codes.reshape(-1, 2, 16), 4)


def nearest_e2m1(values: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Codes of d times the table's values nearest to float32 values, of equals the smaller, as uint8."""
    magnitude = np.abs(values)
    codes = np.zeros(values.shape, np.uint8)
    for lower, upper in pairwise(TABLE[:8]):
        # an entry beyond the largest float is nearest to nothing; where d is 0 the first entry is as near as any
        codes += (magnitude > (lower + upper) * np.float32(0.5) * d) & np.isfinite(upper * d) & (d > 0)
    return codes | ((values < 0) & (codes > 0)).astype(np.uint8) << np.uint8(3)


register(MXFP4("MXFP4", 39, 32, 17, [("e", "u1"), ("qs", "u1", 16)]))
