"""NVFP4: 64 floats of 4 bits (e2m1), a scale of 8 bits (e4m3) per 16 of them; value = d / 2 * TABLE[code]. 36 bytes.

    d     4 bytes    | 7 | 6 5 4 3  | 2 1 0    |      per group; the sign is not used. 0x7F, the standard's NaN, is 0.
                     | 0 | exponent | mantissa |      Halved, because the table (of MXFP4) holds twice the values.
    qs   32 bytes    8 bytes per group g
                     byte i   | 7 6 5 4 | 3 2 1 0 |      from v[16 g] on
                              | v[8+i]  |  v[i]   |

The scale of the whole tensor, where a model has one, is another tensor. Source: ggml `block_nvfp4`,
`ggml_ue4m3_to_fp32`, `ggml_fp32_to_ue4m3`, `dequantize_row_nvfp4`, `quantize_row_nvfp4_ref`. Next module: `q1_0.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gml.kernel_ir import U16, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import pack_planes, planes
from gml.quants.codes import Codes, CodeTraits, small_values
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.mxfp4 import TABLE, nearest_e2m1

#: an f16 of 1: these blocks have no scale besides those of their groups
ONE = 0x3C00


class NVFP4(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=4, group=16, n_groups=4, table=tuple(int(v) for v in TABLE), sub_scale="e4m3")

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = [b.concat(*f.nibbles("qs", 8 * g, 8)) for g in range(4)]
        return Codes(codes, b.const(ONE, U16), [f.u8("d", g) for g in range(4)])

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        codes = planes(blocks["qs"].reshape(-1, 4, 8), 4).reshape(-1, 4, 16)
        np.multiply(small_values("e4m3", blocks["d"])[..., None], TABLE[codes], out=out.reshape(codes.shape))

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        """The largest magnitude of a group becomes 6, the largest code; at most 448 * 6."""
        groups = values.reshape(-1, 4, 16)
        out["d"] = to_e4m3(np.abs(groups).max(axis=2) / np.float32(6))
        codes = nearest_e2m1(groups, small_values("e4m3", out["d"])[..., None])
        out["qs"] = pack_planes(codes.reshape(-1, 4, 2, 8), 4).reshape(-1, 32)

    def lost(self, values: np.ndarray, blocks: np.ndarray) -> Iterator[tuple[str, str, np.ndarray]]:
        """ggml cuts what is beyond the largest scale."""
        yield "d", "e4m3 (up to 448 * 6)", np.abs(values).max(axis=1) > np.float32(448 * 6)


def to_e4m3(x: np.ndarray) -> np.ndarray:
    """Non-negative float32 to the bits of e4m3, uint8: halves go up, all from 248 on becomes 448, as in ggml."""
    x = np.minimum(x, np.float32(448))
    small = np.minimum((x * np.float32(512) + np.float32(0.5)).astype(np.int32), 7)
    # the bits of a float32 with 3 bits of mantissa and another bias, after half of the last bit
    bits = (x.view(np.int32) + (1 << 19)) >> 20
    normal = bits - (120 << 3)
    normal = np.where(normal < 15 << 3, normal, 0x7E)
    return np.where(x < np.float32(2.0**-6), small, normal).astype(np.uint8)


register(NVFP4("NVFP4", 40, 64, 36, [("d", "u1", 4), ("qs", "u1", 32)]))
