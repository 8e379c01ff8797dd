"""Codes improved one by one: each moves where that lowers the error of the best scale, until none does.

Arrives and leaves as in `search.py`: groups as columns of float32 [size, n_groups]. The elements of a group are visited
in order, all groups at once. Next module: a format that searches, `iq4_nl.py`.
"""

from __future__ import annotations

import numpy as np

from gml.quants.rounding import clipped_int, first_largest, nearest_int
from gml.quants.search import TINY, columns, finite_or_inf, sequential_sum

#: rounds through all elements at most
ROUNDS = 5


def refine_scale(x: np.ndarray, n_max: int) -> tuple[np.ndarray, np.ndarray]:
    """The scale for x ≈ scale * code, -n_max <= code < n_max, weights x²: float32 [size, n] to [n], [size, n].

    Gives scales and codes + n_max. Source: ggml `make_q3_quants` with do_rmse.
    """
    largest = first_largest(x)
    weights = x * x
    weighted_x = weights * x
    codes = clipped_int(np.float32(-n_max) / largest * x, -n_max, n_max - 1)
    xl, l2 = sequential_sum(weighted_x * codes), sequential_sum(weights * codes * codes)
    for _ in range(ROUNDS):
        changed = False
        for i, code in enumerate(codes):
            xl_rest, l2_rest = xl - weighted_x[i] * code, l2 - weights[i] * code * code
            moved = clipped_int(x[i] * l2_rest / xl_rest, -n_max, n_max - 1)
            xl_new, l2_new = xl_rest + weighted_x[i] * moved, l2_rest + weights[i] * moved * moved
            better = (xl_rest > 0) & (moved != code) & (l2_new > 0) & (xl_new * xl_new * l2 > xl * xl * l2_new)
            for kept, new in ((code, moved), (xl, xl_new), (l2, l2_new)):
                np.copyto(kept, new, where=better)
            changed |= bool(better.any())
        if not changed:
            break
    zero = np.abs(largest) < TINY
    codes += np.float32(n_max)
    codes[:, zero] = 0
    scale = np.where(l2 > 0, xl / l2, np.where(np.isnan(l2), l2, np.float32(0)))
    return np.where(zero, np.float32(0), finite_or_inf(scale)), codes


def refine_positive(x: np.ndarray, n_max: int, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scale for x ≈ scale * code, 0 <= code <= n_max, of numbers that are not negative: the scales of a block.

    float32 [size, n] to scales [n] and uint8 codes [size, n]. Tries 9 scales, then refines. ggml keeps codes in bytes:
    the rare negative number wraps there, and here. Source: ggml `make_qp_quants`.
    """
    largest = np.maximum(x.max(axis=0), np.float32(0))
    inverse = np.float32(n_max) / largest
    best = _error(x, np.float32(1) / inverse, nearest_int(inverse * x) & 255, weights)
    for step in (*range(-4, 0), *range(1, 5)):
        tried = (np.float32(0.1) * np.float32(step) + np.float32(n_max)) / largest
        error = _error(x, np.float32(1) / tried, np.minimum(nearest_int(tried * x), n_max), weights)
        better = error < best
        best, inverse = np.where(better, error, best), np.where(better, tried, inverse)
    codes = np.minimum(nearest_int(inverse * x), n_max)
    xl, l2 = sequential_sum(weights * x * codes.astype(np.float32)), _weighted_squares(weights, codes)
    codes &= 255
    for _ in range(ROUNDS):
        changed = False
        for i, code in enumerate(codes):
            weighted_x, old = weights[i] * x[i], code.astype(np.float32)
            xl_rest, l2_rest = xl - weighted_x * old, l2 - weights[i] * old * old
            moved = np.minimum(nearest_int(x[i] * l2_rest / xl_rest), n_max)
            new = moved.astype(np.float32)
            xl_new, l2_new = xl_rest + weighted_x * new, l2_rest + weights[i] * new * new
            better = (xl_rest > 0) & (l2_rest > 0) & (moved != code) & (xl_new * xl_new * l2 > xl * xl * l2_new)
            for kept, found in ((code, moved & 255), (xl, xl_new), (l2, l2_new)):
                np.copyto(kept, found, where=better)
            changed |= bool(better.any())
        if not changed:
            break
    zero = largest < TINY
    codes[:, zero] = 0
    scale = np.where(l2 > 0, xl / l2, np.where(np.isnan(l2), l2, np.float32(0)))
    scale = np.where(np.isfinite(x).all(axis=0), finite_or_inf(scale), np.float32(np.inf))
    return np.where(zero, np.float32(0), scale), codes.astype(np.uint8)


def refine_scales_and_mins(
    scales: np.ndarray, mins: np.ndarray, groups: int, n_max: int, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scales and minima [n * groups] as d [n] times bytes [n, groups] and dmin [n] times bytes [n, groups].

    Weights are those of the groups, [n * groups]. Both at once, because blocks are few and rounds are many.
    """
    x = np.concatenate([columns(scales, groups), columns(mins, groups)], axis=1)
    d, codes = refine_positive(x, n_max, np.tile(columns(weights, groups), 2))
    n = len(d) // 2
    return d[:n], codes[:, :n].T, d[n:], codes[:, n:].T


def _error(x: np.ndarray, scale: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    difference = x - scale * codes.astype(np.float32)
    return sequential_sum(weights * difference * difference)


def _weighted_squares(weights: np.ndarray, codes: np.ndarray) -> np.ndarray:
    numbers = codes.astype(np.float32)
    return sequential_sum(weights * numbers * numbers)
