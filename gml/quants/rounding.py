"""Rounding as ggml's quantisers do it. Bit-exact twins need C's rules, not numpy's.

Arrives: float32 blocks; leaves: inverse scales and codes. Used by the `encode_blocks` of the formats.
"""

from __future__ import annotations

import numpy as np

#: 1.5 * 2^23: added to a float it leaves the rounded number in the lowest bits
_MAGIC = np.float32(12582912)


def nearest_int(values: np.ndarray) -> np.ndarray:
    """ggml's `nearest_int`, float32 to int32: halves to even; the same odd bits beyond ±2^22 and of NaN."""
    bits = (values + _MAGIC).view(np.int32)
    bits &= 0x007FFFFF
    bits -= 0x00400000
    return bits


def clipped_int(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """`nearest_int` within bounds, as float32 again."""
    bits = nearest_int(values)
    np.maximum(bits, np.int32(low), out=bits)
    np.minimum(bits, np.int32(high), out=bits)
    return bits.astype(np.float32)


def inverse(d: np.ndarray) -> np.ndarray:
    """1 / d in float32, and 0 where d is 0; infinite where d is so small that 1 / d overflows, as in ggml."""
    return np.where(d != 0, np.float32(1) / d, np.float32(0))


def finite_inverse(d: np.ndarray) -> np.ndarray:
    """1 / d in float32, and 0 where d is 0 or 1 / d overflows: C rounds inf * x to the same codes as 0 * x."""
    inverted = np.float32(1) / d
    return np.where(np.isfinite(inverted), inverted, np.float32(0))


def first_largest(values: np.ndarray) -> np.ndarray:
    """The value of largest magnitude along axis 0, with its sign, the first of equals: [size, n] to [n].

    Never -0: ggml starts its search from 0.
    """
    return np.take_along_axis(values, np.abs(values).argmax(axis=0)[None], axis=0)[0] + np.float32(0)


def extremes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest of each row, [n, size] to two of [n, 1]; of 0 and -0, which are equal, the first."""
    low = np.take_along_axis(values, values.argmin(axis=1)[:, None], axis=1)
    high = np.take_along_axis(values, values.argmax(axis=1)[:, None], axis=1)
    return low, high


def truncate(values: np.ndarray, largest_code: int) -> np.ndarray:
    """C's conversion of a non-negative float to an integer, at most `largest_code`, as uint8.

    0 for infinities and NaN: C leaves it open, and the lowest byte of what x86 gives is 0.
    """
    finite = np.where(np.isfinite(values), values, np.float32(0))
    return np.minimum(finite.astype(np.int32), largest_code).astype(np.uint8)


def round_away(values: np.ndarray) -> np.ndarray:
    """C's roundf: to the nearest integer, halves away from zero. Adding 0.5 first would spoil 0.49999997."""
    whole = np.trunc(values)
    return whole + np.copysign((np.abs(values - whole) >= np.float32(0.5)).astype(np.float32), values)
