"""Bit packing that several formats share: what their files say in a drawing is done here in numpy.

Arrives: bytes of many blocks; leaves: small integers, and bytes again. Next module: a format, `q4_0.py`.
"""

from __future__ import annotations

import numpy as np


def planes(packed: np.ndarray, bits: int) -> np.ndarray:
    """Take apart bytes that hold 8 / bits numbers each: uint8 [..., k] to uint8 [..., 8 / bits, k].

    Plane 0 has the lowest bits of all k bytes, the last plane their highest bits.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return (packed[..., None, :] >> shifts) & np.uint8((1 << bits) - 1)


def pack_planes(numbers: np.ndarray, bits: int) -> np.ndarray:
    """The inverse of `planes`: uint8 [..., 8 / bits, k], each below 1 << bits, to uint8 [..., k]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return np.bitwise_or.reduce(numbers << shifts, axis=-2)


def bit_string(packed: np.ndarray) -> np.ndarray:
    """Bits in order, the lowest of each byte first: uint8 [..., k] to uint8 [..., 8 * k]."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


def pack_bit_string(bits: np.ndarray) -> np.ndarray:
    """The inverse of `bit_string`."""
    return np.packbits(bits, axis=-1, bitorder="little")


def halves(stored: np.ndarray) -> np.ndarray:
    """f16 scales as float32, with an axis of length 1 behind them to multiply rows of elements with."""
    return stored.astype(np.float32)[..., None]
