"""TQ1_0: 256 values of -1, 0 or 1, five to a byte, and one scale; value = d * (digit - 1). 54 bytes.

A byte is a fraction of 256: its base-3 digits come out from the top, one by one, by multiplying with 3.

    byte = ceil(256 * 0.t0 t1 t2 t3 t4 (base 3))      digit n = 3 * (byte * 3^n mod 256) div 256

    qs   48 bytes    32 bytes, byte i: t0 .. t4 = v[i], v[32+i], v[64+i], v[96+i], v[128+i]
                     16 bytes, byte i: t0 .. t4 = v[160+i], v[176+i], v[192+i], v[208+i], v[224+i]
    qh    4 bytes    byte i: t0 .. t3 = v[240+i], v[244+i], v[248+i], v[252+i]
    d    f16

Source: ggml `block_tq1_0`, `dequantize_row_tq1_0`, `quantize_row_tq1_0_ref`. Next module: `tq2_0.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import U8, U16, Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields
from gml.quants.importance import Weights
from gml.quants.rounding import finite_inverse, round_away


class TQ1_0(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=2, group=32, n_groups=8, zero=1)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)

        def digit(packed: Node, n: int) -> Node:
            rest = b.cast(packed * (3**n & 255), U16)
            return b.cast((rest * 3) >> 8, U8)

        wide, narrow, tail = f.bytes("qs", 0, 32), f.bytes("qs", 32, 16), f.bytes("qh", 0, 4)
        groups = [digit(wide, n) for n in range(5)]
        rest = [digit(narrow, n) for n in range(5)]
        last = [digit(tail, n) for n in range(4)]
        groups += [b.concat(rest[0], rest[1]), b.concat(rest[2], rest[3])]
        groups.append(b.concat(rest[4], b.concat(b.concat(last[0], last[1]), b.concat(last[2], last[3]))))
        return Codes(groups, f.u16("d"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        runs = [(blocks["qs"][:, :32], 5), (blocks["qs"][:, 32:], 5), (blocks["qh"], 4)]
        digits = np.concatenate([_digits(packed, n).reshape(len(blocks), -1) for packed, n in runs], axis=1)
        np.multiply(halves(blocks["d"]), digits.view(np.int8) - np.int8(1), out=out)

    def encode_blocks(self, values: np.ndarray, out: np.ndarray, weights: Weights | None) -> None:
        out["d"], codes = ternary(values)
        out["qs"][:, :32] = _pack_digits(codes[:, :160].reshape(-1, 5, 32))
        out["qs"][:, 32:] = _pack_digits(codes[:, 160:240].reshape(-1, 5, 16))
        out["qh"] = _pack_digits(codes[:, 240:].reshape(-1, 4, 4))


def ternary(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest magnitudes [n], and values rounded to -1, 0, 1 times them, plus 1: uint8 [n, 256]; TQ2_0 too."""
    d = np.abs(values).max(axis=1)
    return d, (round_away(values * finite_inverse(d)[:, None]) + np.float32(1)).astype(np.uint8)


def _pack_digits(digits: np.ndarray) -> np.ndarray:
    """The inverse of `_digits`: uint8 [n, 5 or 4, k] to bytes [n, k]; a fifth digit that is missing is 0."""
    powers = np.uint16(3) ** np.arange(4, 4 - digits.shape[1], -1, dtype=np.uint16)
    number = (digits * powers[:, None]).sum(axis=1, dtype=np.uint16)
    return ((number * np.uint16(256) + np.uint16(242)) // np.uint16(243)).astype(np.uint8)


def _digits(packed: np.ndarray, n: int) -> np.ndarray:
    """The first n base-3 digits of bytes: uint8 [..., k] to uint8 [..., n, k]."""
    rest = packed[..., None, :] * (3 ** np.arange(n)).astype(np.uint8)[:, None]
    return (rest.astype(np.uint16) * np.uint16(3) >> np.uint16(8)).astype(np.uint8)


register(TQ1_0("TQ1_0", 34, 256, 54, [("qs", "u1", 48), ("qh", "u1", 4), ("d", "<f2")]))
