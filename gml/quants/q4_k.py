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

Source: ggml `block_q4_K`, `get_scale_min_k4`, `dequantize_row_q4_K`, `quantize_row_q4_K_ref`,
`quantize_row_q4_K_impl`.
Next module: `q5_k.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves, pack_planes, planes
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.refine import refine_scales_and_mins
from gml.quants.rounding import nearest_int
from gml.quants.search import WEIGHTED_STEPS, blocks_of, codes_for, columns, fit_scale_and_min, sequential_sum


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

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        codes = encode_groups(values, out, 15, (-1.0, 0.1, 20), weights)
        out["qs"] = pack_planes(codes.reshape(-1, 4, 2, 32), 4).reshape(-1, 128)


def encode_groups(
    values: np.ndarray, out: np.ndarray, n_max: int, steps: tuple[float, float, int], weights: Weights | None
) -> np.ndarray:
    """Write d, dmin and scales of blocks; gives codes up to n_max, uint8 [n, 256]: the part Q5_K shares.

    Scale and minimum are searched for each group of 32; these get 6 bits, and the codes are rounded again to them.
    """
    x = columns(values, 32)
    if weights is None:
        w = np.sqrt(sequential_sum(x * x) / np.float32(32)) + np.abs(x)
        scale, low, codes = fit_scale_and_min(x, w, n_max, steps)
        d, scales = small_scales(scale.reshape(-1, 8), 63)
        dmin, mins = small_scales(low.reshape(-1, 8), 63)
    else:
        w = columns(weights.of_blocks(values), 32)
        scale, low, codes = fit_scale_and_min(x, w, n_max, WEIGHTED_STEPS)
        d, scales, dmin, mins = refine_scales_and_mins(scale, low, 8, 63, sequential_sum(w))
        if n_max == 31:
            # a negative scale has wrapped to a byte beyond 63; ggml bounds it in Q5_K alone
            scales, mins = np.minimum(scales, np.uint8(63)), np.minimum(mins, np.uint8(63))
    out["d"], out["dmin"] = d, dmin
    out["scales"] = pack_scales_and_mins(scales, mins)
    scales, mins = scales_and_mins(out["scales"])
    d = (out["d"].astype(np.float32)[:, None] * scales).reshape(-1)
    dm = (out["dmin"].astype(np.float32)[:, None] * mins).reshape(-1)
    return blocks_of(codes_for(x, d, dm, codes, n_max), 256)


def small_scales(scales: np.ndarray, n_max: int) -> tuple[np.ndarray, np.ndarray]:
    """Non-negative float32 [n, groups] as float32 [n] times uint8 [n, groups] up to n_max."""
    # not -0, which ggml never stores
    largest = np.where(scales.max(axis=1) > 0, scales.max(axis=1), np.float32(0))
    inverse = np.where(largest > 0, np.float32(n_max) / largest, np.float32(0))
    # a byte in ggml, before the bound is applied
    codes = np.minimum(nearest_int(inverse[:, None] * scales) & 255, n_max)
    return largest / np.float32(n_max), codes.astype(np.uint8)


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
