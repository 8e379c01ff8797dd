"""Searching for IQ1 codes: sorted values are split in three, for -1, 0 and 1, and every split is tried.

Arrives: groups of float32 values as columns, [group, n_groups], and weights; leaves: scales, points of the grid, and by
how much the numbers are moved. The numbers are -1, 0, 1 moved by 1/8 up or down; a *kind* is a choice of directions: of
one for the whole group in IQ1_S, of one for each half in IQ1_M. Next module: `iq1_s.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gml.quants.grid_search import choose, neighbours
from gml.quants.search import finite_or_inf, sequential_sum

#: the numbers moved up, and down
UP, DOWN = np.array([-0.875, 0.125, 1.125], np.float32), np.array([-1.125, -0.125, 0.875], np.float32)
BOTH = np.stack([UP, DOWN])

#: sums of weights times values times numbers, and of weights times squared numbers, of some splits: [kinds, splits, n]
Sums = tuple[np.ndarray, np.ndarray]


def fit_split(x: np.ndarray, weights: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scales [n], points [group / 8, n], directions [group / 8, n] (1 is down), and groups where nothing fits [n].

    Parts is 1 where a group moves as a whole, 2 where its halves do. Source: ggml `quantize_row_iq1_s_impl`,
    `quantize_row_iq1_m_impl`.
    """
    size, n = x.shape
    order = np.argsort(x, axis=0, kind="stable")
    splits = _whole_splits if parts == 1 else _half_splits
    scale, first, second, kind = _best(splits(x, weights, order), n)
    rank = np.arange(size)[:, None]
    codes = np.empty((size, n), np.int32)
    np.put_along_axis(codes, order, (rank >= first).astype(np.int32) + (rank >= second), axis=0)
    turned = scale < 0
    codes = np.where(turned, 2 - codes, codes)
    kind = np.where(turned, 2**parts - 1 - kind, kind)
    scale = np.abs(scale)
    # the first part has the higher bit
    down = np.stack([(kind >> (parts - 1 - p)) & 1 for p in range(parts)]).repeat(size // 8 // parts, axis=0)
    points, on = _points(codes, x, weights, scale, down)
    table = neighbours("IQ1_S")
    q = BOTH[down[:, None], table.grid.codes.T[:, points].swapaxes(0, 1)].reshape(x.shape)
    xq, q2 = sequential_sum(weights * q * x), sequential_sum(weights * q * q)
    scale = np.where(~on & (xq > 0) & (q2 > 0), xq / q2, scale)
    return finite_or_inf(scale), points, down, first < 0


def _points(
    codes: np.ndarray, x: np.ndarray, weights: np.ndarray, scale: np.ndarray, down: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Points of codes [group, n], and of which groups all are on the grid."""
    table, n = neighbours("IQ1_S"), x.shape[1]
    values = np.concatenate([moved[table.grid.codes] for moved in BOTH])
    number = table.numbers(codes.reshape(-1, 8, n))
    points = table.point[number].astype(np.int32)
    k, column = np.nonzero(points < 0)
    on = np.logical_and.reduce(points >= 0, axis=0)
    xs, ws = (a.reshape(-1, 8, n)[k, :, column] for a in (x, weights))
    kinds = down[k, column] * len(table.grid.numbers)
    points[k, column] = choose(table, number[k, column], xs, ws, scale[column], values, kinds)
    return points, on


def _best(splits: Iterator[tuple[int, Sums]], n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of all splits the best scale [n], its two borders and its kind; borders are -1 where there is none.

    Each is compared with the best so far, as ggml does, for the rounding of the comparison decides between near ones.
    """
    best = np.full(n, np.finfo(np.float32).min)
    scale = np.zeros(n, np.float32)
    first, second, kind = (np.full(n, -1, np.int32) for _ in range(3))
    for i, (xq, q2) in splits:
        squares = np.where(q2 > 0, xq * xq, np.float32(np.nan))
        scales = xq / q2
        scores = scales * xq
        for j in range(xq.shape[1]):
            for k in range(len(xq)):
                better = squares[k, j] > best * q2[k, j]
                if better.any():
                    for kept, new in ((best, scores[k, j]), (scale, scales[k, j])):
                        np.copyto(kept, new, where=better)
                    first[better], second[better], kind[better] = i, i + j, k
    return scale, first, second, kind


def _whole_splits(x: np.ndarray, weights: np.ndarray, order: np.ndarray) -> Iterator[tuple[int, Sums]]:
    """For every first border the sums of all second ones, of both kinds."""
    sorted_w = np.take_along_axis(weights, order, axis=0)
    sum_x, sum_w = _prefix(sorted_w * np.take_along_axis(x, order, axis=0)), _prefix(sorted_w)
    size = len(x)
    for i in range(size + 1):
        below_x, middle_x, above_x = sum_x[i] - sum_x[0], sum_x[i:] - sum_x[i], sum_x[size] - sum_x[i:]
        below_w, middle_w, above_w = sum_w[i] - sum_w[0], sum_w[i:] - sum_w[i], sum_w[size] - sum_w[i:]
        xq = [below_x * v[0] + middle_x * v[1] + above_x * v[2] for v in BOTH]
        q2 = [below_w * v[0] * v[0] + middle_w * v[1] * v[1] + above_w * v[2] * v[2] for v in BOTH]
        yield i, (np.stack(xq), np.stack(q2))


def _half_splits(x: np.ndarray, weights: np.ndarray, order: np.ndarray) -> Iterator[tuple[int, Sums]]:
    """The same of four kinds: the halves of a group move by themselves, the second one faster."""
    size, n = x.shape
    sorted_x, sorted_w = np.take_along_axis(x, order, axis=0), np.take_along_axis(weights, order, axis=0)
    # what an element adds as a -1, 0 or 1: [code, size, kinds, n]
    terms_x, terms_w = (np.empty((3, size, 4, n), np.float32) for _ in range(2))
    in_first = order < size // 2
    for code in range(3):
        for kind in range(4):
            weighted = sorted_w * np.where(in_first, BOTH[kind >> 1, code], BOTH[kind & 1, code])
            terms_x[code, :, kind] = weighted * sorted_x
            terms_w[code, :, kind] = weighted * np.where(in_first, BOTH[kind >> 1, code], BOTH[kind & 1, code])
    below_x, below_w = np.zeros((4, n), np.float32), np.zeros((4, n), np.float32)
    for i in range(size + 1):
        yield i, (_through(below_x, terms_x, i), _through(below_w, terms_w, i))
        if i < size:
            below_x, below_w = below_x + terms_x[0, i], below_w + terms_w[0, i]


def _through(below: np.ndarray, terms: np.ndarray, i: int) -> np.ndarray:
    """Sums for all second borders, each added in the order of the elements: [kinds, n] to [kinds, size + 1 - i, n]."""
    sums = np.add.accumulate(np.concatenate([below[None], terms[1, i:]]), axis=0)
    for j in range(i, terms.shape[1]):
        sums[: j - i + 1] += terms[2, j]
    return sums.swapaxes(0, 1)


def _prefix(values: np.ndarray) -> np.ndarray:
    """Sums of the first 0, 1, ... rows, added in order: [size, n] to [size + 1, n]."""
    return np.add.accumulate(np.concatenate([np.zeros_like(values[:1]), values]), axis=0)
