"""Q4_K: 256 values of 4 bits in 8 groups of 32; value = (d * scale) * code - (dmin * min). 144 bytes.

    d        f16         scale of the scales
    dmin     f16         scale of the minima
    scales   12 bytes    8 scales s and 8 minima m of 6 bits; h = 0 .. 3
                         byte h       |  7 6         | 5 4 3 2 1 0 |
                                      | s[h+4] high  |    s[h]     |
                         byte 4 + h   |  7 6         | 5 4 3 2 1 0 |
                                      | m[h+4] high  |    m[h]     |
                         byte 8 + h   |  7 6 5 4     |  3 2 1 0    |
                                      | m[h+4] low   | s[h+4] low  |
    qs       128 bytes   four runs of 32 bytes, each for two groups
                         byte i of run r   |  7 6 5 4  | 3 2 1 0 |
                                           | v[32 + i] |  v[i]   |      from v[64 r] on

Source: ggml `block_q4_K`, `get_scale_min_k4`, `dequantize_row_q4_K`, `quantize_row_q4_K_ref`.
Next module: `q5_k.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.search import clipped_int, fit_scale_and_min, sequential_sum


class Q4_K(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=4, group=32, n_groups=8, sub_scale="u8", offset="group", offset_sign=-1)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        codes = [half for r in range(4) for half in f.nibbles("qs", 32 * r, 32)]
        scales, mins = unpack_scales_and_mins(f)
        return Codes(codes, f.u16("d"), scales, f.u16("dmin"), mins)

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        decode_groups(blocks, planes(blocks["qs"].reshape(-1, 4, 32), 4), out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray) -> None:
        """Scale and minimum are searched for each group; these get 6 bits, and the codes are rounded again to them."""
        groups = np.ascontiguousarray(values.reshape(-1, 32).T)
        weights = np.sqrt(sequential_sum(groups * groups) / np.float32(32)) + np.abs(groups)
        scale, low, codes = fit_scale_and_min(groups, weights, 15, -1.0, 0.1, 20)
        out["d"], scales = six_bits(scale.reshape(-1, 8))
        out["dmin"], mins = six_bits(low.reshape(-1, 8))
        out["scales"] = pack_scales_and_mins(scales, mins)
        d = (out["d"].astype(np.float32)[:, None] * scales).reshape(-1)
        dm = (out["dmin"].astype(np.float32)[:, None] * mins).reshape(-1)
        codes = np.where(d != 0, clipped_int((groups + dm) / d, 0, 15), codes)
        numbers = np.ascontiguousarray(codes.T).astype(np.uint8)
        out["qs"] = pack_planes(numbers.reshape(-1, 4, 2, 32), 4).reshape(-1, 128)


def six_bits(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Non-negative float32 [n, 8] as float32 [n] times uint8 [n, 8] below 64."""
    # not -0, which ggml never stores
    largest = np.where(scales.max(axis=1) > 0, scales.max(axis=1), np.float32(0))
    inverse = np.where(largest > 0, np.float32(63) / largest, np.float32(0))
    return largest / np.float32(63), clipped_int(inverse[:, None] * scales, 0, 63).astype(np.uint8)


def pack_scales_and_mins(scales: np.ndarray, mins: np.ndarray) -> np.ndarray:
    """The inverse of `scales_and_mins`: two of uint8 [n, 8] to uint8 [n, 12]."""
    first = scales[:, :4] | ((scales[:, 4:] >> np.uint8(4)) << np.uint8(6))
    second = mins[:, :4] | ((mins[:, 4:] >> np.uint8(4)) << np.uint8(6))
    third = (scales[:, 4:] & np.uint8(15)) | (mins[:, 4:] << np.uint8(4))
    return np.concatenate([first, second, third], axis=1)


def scales_and_mins(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 6-bit scales and minima drawn above: uint8 [n, 12] to two of uint8 [n, 8]."""
    s, m, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([s & np.uint8(63), (low & np.uint8(15)) | ((s >> np.uint8(6)) << np.uint8(4))], axis=1)
    mins = np.concatenate([m & np.uint8(63), (low >> np.uint8(4)) | ((m >> np.uint8(6)) << np.uint8(4))], axis=1)
    return scales, mins


def unpack_scales_and_mins(f: Fields) -> tuple[list[Node], list[Node]]:
    """The same in kernel IR: eight scales and eight minima."""
    packed = [f.u8("scales", i) for i in range(12)]
    scales = [p & 63 for p in packed[:4]] + [
        (p & 15) | ((s >> 6) << 4) for p, s in zip(packed[8:], packed[:4], strict=True)
    ]
    mins = [p & 63 for p in packed[4:8]] + [
        (p >> 4) | ((m >> 6) << 4) for p, m in zip(packed[8:], packed[4:8], strict=True)
    ]
    return scales, mins


def decode_groups(blocks: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
    """Values of blocks [n] that have the fields d, dmin and scales, from 256 codes each: the part Q5_K shares."""
    scales, mins = scales_and_mins(blocks["scales"])
    groups = out.reshape(-1, 8, 32)
    np.multiply((halves(blocks["d"]) * scales)[..., None], codes.reshape(-1, 8, 32), out=groups)
    groups -= (halves(blocks["dmin"]) * mins)[..., None]


register(Q4_K("Q4_K", 12, 256, 144, [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)]))
