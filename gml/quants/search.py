"""Searching for scales: ggml's quantisers try many and keep the one with the smallest weighted error.

Arrives: groups of float32 values, one group per column, [group size, n_groups], so that the sums over a group go over
axis 0; leaves: a scale (and a minimum) per group. All sums are rounded at each step in the order of ggml's loops, which
makes the choice, hence every bit, the same. A group whose squares overflow gets an infinite scale, and `encode` refuses
it. Next module: `refine.py`.
"""

from __future__ import annotations

import numpy as np

from gml.quants.rounding import clipped_int, first_largest

#: ggml's GROUP_MAX_EPS: groups of smaller numbers count as zero
TINY = np.float32(1e-15)


#: what ggml's quantisers try where there are importance weights: see `fit_scale_and_min`
WEIGHTED_STEPS = (-0.9, 0.05, 36)


def columns(values: np.ndarray, group: int) -> np.ndarray:
    """Values (or weights) [n, block_size] as groups, one per column: [group, n * block_size / group]."""
    return np.ascontiguousarray(values.reshape(-1, group).T)


def blocks_of(codes: np.ndarray, block_size: int) -> np.ndarray:
    """Codes of groups [group, n_groups] as blocks again, uint8 [n, block_size]: the inverse of `columns`."""
    return np.ascontiguousarray(codes.T).astype(np.uint8).reshape(-1, block_size)


def sequential_sum(values: np.ndarray) -> np.ndarray:
    """Sum over axis 0, one row after the other; `np.sum` may add in pairs and get other bits."""
    # from +0 on, as C's loops: a sum is never -0
    total = values[0] + np.float32(0)
    for row in values[1:]:
        total += row
    return total


def fit_scale(x: np.ndarray, n_max: int, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The scale for x ≈ scale * code, -n_max <= code < n_max: float32 [size, n] to [n], [size, n].

    Gives scales and codes + n_max. Tries 19 scales around -max / n_max; the weights are x² where none are given.
    Source: ggml `make_qx_quants` with rmse_type 1.
    """
    largest = first_largest(x)
    weighted = x * x if weights is None else weights
    weighted_x = weighted * x

    def attempt(step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes = clipped_int(-(np.float32(n_max) + np.float32(0.1) * np.float32(step)) / largest * x, -n_max, n_max - 1)
        return codes, sequential_sum(weighted_x * codes), sequential_sum(weighted * codes * codes)

    best_codes, xl, l2 = attempt(0)
    scale = np.where(l2 != 0, xl / l2, np.float32(0))
    best = scale * xl
    for step in (*range(-9, 0), *range(1, 10)):
        codes, xl, l2 = attempt(step)
        better = (l2 > 0) & (xl * xl > best * l2)
        scale = np.where(better, xl / l2, scale)
        best = np.where(better, scale * xl, best)
        np.copyto(best_codes, codes, where=better)
    zero = np.abs(largest) < TINY
    best_codes += np.float32(n_max)
    best_codes[:, zero] = 0
    return np.where(zero, np.float32(0), finite_or_inf(scale)), best_codes


def fit_scale_and_min(
    x: np.ndarray,
    weights: np.ndarray,
    n_max: int,
    steps: tuple[float, float, int],
    absolute: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For x ≈ scale * code - minimum, 0 <= code <= n_max: float32 [size, n] to scales [n], minima [n], codes [size, n].

    Steps (first, step, n): tries n + 1 ranges of first, first + step, ... more than n_max codes, each time solving for
    the best scale and minimum; a minimum is never negative. A try starts from the best minimum so far, as ggml's does.
    Errors are squared, or absolute. Source: ggml `make_qkx2_quants`, and `make_qkx3_quants` with importance weights.
    """
    first, step, n_steps = steps
    sum_w, sum_x = sequential_sum(weights), sequential_sum(weights * x)
    # the first of 0 and -0
    low = np.take_along_axis(x, x.argmin(axis=0)[None], axis=0)[0]
    low = np.where(low > 0, np.float32(0), low)
    high = x.max(axis=0)
    flat = high == low

    def error(scale: np.ndarray, low: np.ndarray, codes: np.ndarray) -> np.ndarray:
        difference = scale * codes + low - x
        return sequential_sum(weights * (np.abs(difference) if absolute else difference * difference))

    inverse = np.float32(n_max) / (high - low)
    best_codes = clipped_int(inverse * (x - low), 0, n_max)
    best_scale, best_low = np.float32(1) / inverse, low.copy()
    best_error = error(best_scale, best_low, best_codes)
    for i in range(n_steps + 1):
        inverse = (np.float32(first) + np.float32(step) * np.float32(i) + np.float32(n_max)) / (high - best_low)
        codes = clipped_int(inverse * (x - best_low), 0, n_max)
        scale, candidate = _solve(x, weights, codes, sum_w, sum_x)
        tried = error(scale, candidate, codes)
        better = tried < best_error
        for kept, new in ((best_error, tried), (best_scale, scale), (best_low, candidate), (best_codes, codes)):
            np.copyto(kept, new, where=better)
    best_scale[flat], best_low[flat] = 0, low[flat]
    best_codes[:, flat] = 0
    return finite_or_inf(best_scale), finite_or_inf(-best_low), best_codes


def _solve(
    x: np.ndarray, weights: np.ndarray, codes: np.ndarray, sum_w: np.ndarray, sum_x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted least squares of x = scale * code + low with low <= 0; NaN where all codes are equal."""
    weighted = weights * codes
    sum_l = sequential_sum(weighted)
    sum_xl = sequential_sum(weighted * x)
    sum_l2 = sequential_sum(np.multiply(weighted, codes, out=weighted))
    determinant = sum_w * sum_l2 - sum_l * sum_l
    scale = (sum_w * sum_xl - sum_x * sum_l) / determinant
    low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant
    above = low > 0
    scale = np.where(above, sum_xl / sum_l2, scale)
    low = np.where(above, np.float32(0), low)
    return np.where(determinant > 0, scale, np.float32(np.nan)), low


def codes_for(x: np.ndarray, scale: np.ndarray, low: np.ndarray, found: np.ndarray, n_max: int) -> np.ndarray:
    """Codes rounded again to stored scales and minima of the groups; where the scale is 0, those found before."""
    return np.where(scale != 0, clipped_int((x + low) / scale, 0, n_max), found)


def finite_or_inf(values: np.ndarray) -> np.ndarray:
    """NaN, the trace of an overflow, as infinity."""
    return np.where(np.isnan(values), np.float32(np.inf), values)
