"""Searching for points of a grid: how ggml's quantisers choose them, and a scale per group.

Arrives: groups of float32 values as columns, [group, n_groups], and weights; leaves: scales, and numbers of points.
A point is looked for by rounding each value to a code; where these codes are no point of the grid, the nearest points
(those at the smallest two or three distances) are tried by their weighted error. Next module: `iq2_xxs.py`.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np

from gml.quants.grids import Grid, grid
from gml.quants.rounding import nearest_int
from gml.quants.search import finite_or_inf, sequential_sum
from gml.records import dataclass

#: pairs of codes and points that are compared at a time
PAIRS = 1 << 17

#: distances from codes to points that are tried, by grid
_DISTANCES = {"IQ2_XXS": 2, "IQ2_XS": 2, "IQ2_S": 1, "IQ3_XXS": 2, "IQ3_S": 3, "IQ1_S": 3}


@dataclass(frozen=True)
class Neighbours:
    """For codes of `width` values, as one number: the point that they are, or points near them.

    point   int16 [65536]: number of the point, -1 where codes are not on the grid
    start   int32 [65536]: where its neighbours start in `near`
    count   int32 [65536]: how many they are
    near    numbers of points, the nearest first
    """

    grid: Grid
    point: np.ndarray
    start: np.ndarray
    count: np.ndarray
    near: np.ndarray

    @property
    def n_codes(self) -> int:
        """Codes are below it."""
        return 8 if self.grid.bits == 3 else 3

    def numbers(self, codes: np.ndarray) -> np.ndarray:
        """Codes [points, width, n] as numbers [points, n]."""
        number = codes[:, 0].copy()
        for i in range(1, self.grid.width):
            number |= codes[:, i] << (self.grid.bits * i)
        return number


@cache
def neighbours(name: str) -> Neighbours:
    """The tables of a grid, made when something is first encoded. Source: ggml `iq2xs_init_impl`, `iq3xs_init_impl`."""
    points = grid(name)
    n_codes, width, n_points = (8 if points.bits == 3 else 3), points.width, len(points.numbers)
    codes = np.stack(np.meshgrid(*[np.arange(n_codes)] * width, indexing="ij"), axis=-1).reshape(-1, width)
    numbers = (codes << (points.bits * np.arange(width))).sum(axis=1)
    point = np.full(1 << 16, -1, np.int16)
    point[points.numbers] = np.arange(n_points)
    off = point[numbers] < 0
    codes, numbers = codes[off].astype(np.int32), numbers[off]
    theirs = points.codes.astype(np.int32)
    start, count = np.zeros(1 << 16, np.int32), np.zeros(1 << 16, np.int32)
    near, at = [], 0
    for piece in np.array_split(np.arange(len(codes)), max(1, len(codes) * n_points >> 20)):
        mine = codes[piece]
        distance = (mine * mine).sum(axis=1)[:, None] + (theirs * theirs).sum(axis=1) - 2 * mine @ theirs.T
        reach = distance.min(axis=1)
        for _ in range(_DISTANCES[name] - 1):
            farther = np.where(distance > reach[:, None], distance, 1 << 20).min(axis=1)
            reach = np.where(farther < 1 << 20, farther, reach)
        row, column = np.nonzero(distance <= reach[:, None])
        order = np.lexsort((column, distance[row, column], row))
        near.append(column[order].astype(np.int32))
        count[numbers[piece]] = found = np.bincount(row, minlength=len(piece))
        start[numbers[piece]] = at + np.cumsum(found) - found
        at += len(row)
    return Neighbours(points, point, start, count, np.concatenate(near))


def choose(
    table: Neighbours,
    number: np.ndarray,
    x: np.ndarray,
    weights: np.ndarray,
    scale: np.ndarray,
    values: np.ndarray,
    kinds: np.ndarray | None = None,
) -> np.ndarray:
    """Points for m numbers that are not on the grid: int [m], from x and weights [m, width] and scale [m].

    The error is that of scale * value, and values has those of all points, float32 [n_points, width]. Where there are
    several kinds of values, they follow each other, and kinds [m] has where those of a number start. Of equals the
    first is taken. Source: ggml `iq2_find_best_neighbour`, `iq3_find_best_neighbour`, `iq1_find_best_neighbour2`.
    """
    count, start = table.count[number], table.start[number]
    first = np.cumsum(count) - count
    each = np.repeat(np.arange(len(number)), count)
    near = table.near[np.arange(len(each)) + np.repeat(start - first, count)]
    chosen = table.near[start]
    step = PAIRS // 2
    if len(each) > PAIRS:
        # whole numbers at a time, so that the arrays below stay in cache
        borders = np.searchsorted(first, np.arange(0, len(each) + step, step))
        for a, b in pairwise(np.unique(np.minimum(borders, len(number)))):
            some = slice(a, b)
            chosen[some] = choose(
                table, number[some], x[some], weights[some], scale[some], values, None if kinds is None else kinds[some]
            )
        return chosen
    difference = np.take(values, near if kinds is None else near + kinds[each], axis=0)
    # as whole rows: a broadcast over eight is ten times slower
    difference *= np.take(np.repeat(scale[:, None], x.shape[1], axis=1), each, axis=0)
    difference -= np.take(x, each, axis=0)
    weighted = np.take(weights, each, axis=0)
    weighted *= difference
    weighted *= difference
    error = weighted[:, 0] + np.float32(0)
    for i in range(1, weighted.shape[1]):
        error += weighted[:, i]
    least = np.fmin.reduceat(error, first) if len(number) else error
    best = np.flatnonzero(error == least[each])
    # backwards, so that the first of equals stays
    chosen[each[best[::-1]]] = near[best[::-1]]
    return chosen


@dataclass(frozen=True)
class Search:
    """How a format searches.

    grid   its name
    tries  steps from the largest number that the codes could stand for
    step   the size of a step
    again  which points are chosen again at the end: "all", "off" (those off the grid), "all if off" (all of a group
           of which any is off the grid, or for which no try was any good)
    """

    grid: str
    tries: range
    step: float
    again: str


def fit_points(
    search: Search, x: np.ndarray, weights: np.ndarray, reach: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scales and points for x ≈ scale * (2 code + 1): float32 [group, n] to [n] and int [points, n].

    reach is what the largest code should stand for, scale what a group has that no try improves. Source: ggml
    `quantize_row_iq2_xxs_impl` and its kin.
    """
    table = neighbours(search.grid)
    width, n = table.grid.width, x.shape[1]
    odd = np.ascontiguousarray((2 * table.grid.codes + 1).T.astype(np.float32))
    x_of, root = x.reshape(-1, width, n), np.sqrt(weights).reshape(-1, width, n)
    weighted_x = weights * x

    def nearest(mine: slice | np.ndarray, inverse: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes = nearest_int(np.float32(0.5) * (inverse * x_of[..., mine] - np.float32(1)))
        number = table.numbers(np.clip(codes, 0, table.n_codes - 1, out=codes))
        point = table.point[number].astype(np.int32)
        on = point >= 0
        k, column = np.nonzero(~on)
        xs, ws = x_of[..., mine][k, :, column], root[..., mine][k, :, column]
        point[k, column] = choose(table, number[k, column], xs, ws, scale[column], odd.T)
        return point, on

    def sums(point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        q = odd[:, point].swapaxes(0, 1).reshape(x.shape)
        return sequential_sum(weighted_x * q), sequential_sum(weights * q * q)

    best, points = np.zeros(n, np.float32), np.zeros((len(x_of), n), np.int32)
    on = np.full(points.shape, search.again != "all if off")
    top = np.float32(2 * table.n_codes - 1)
    for step in search.tries:
        inverse = (top + np.float32(step) * np.float32(search.step)) / reach
        found, found_on = nearest(slice(None), inverse, np.float32(1) / inverse)
        xq, q2 = sums(found)
        better = (q2 > 0) & (xq * xq > best * q2)
        scale = np.where(better, xq / q2, scale)
        best = np.where(better, scale * xq, best)
        np.copyto(points, found, where=better)
        np.copyto(on, found_on, where=better)
    again = scale > 0
    if search.again != "all":
        again &= ~on.all(axis=0)
    mine = np.flatnonzero(again)
    found, _ = nearest(mine, np.float32(1) / scale[mine], scale[mine])
    points[:, mine] = np.where(on[:, mine], points[:, mine], found) if search.again == "off" else found
    xq, q2 = sums(points)
    scale = np.where(again & (q2 > 0), xq / q2, scale)
    return finite_or_inf(scale), points


# -- signs and scales --------------------------------------------------------------------------------------------------


def split_signs(x: np.ndarray, weights: np.ndarray, even: bool) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes and signs of columns [group, n]: float32 [group, n] and bytes [group / 8, n], bit i for value i.

    Where the number of negative values of eight must be even, the value that matters least changes sign; its magnitude
    is negative then.
    """
    eights = x.reshape(-1, 8, x.shape[1])
    negative = ~(eights >= 0)
    magnitude = np.where(negative, -eights, eights)
    if even:
        w = weights.reshape(eights.shape)
        least = np.argmin(w * eights * eights, axis=1)[:, None]
        odd = (negative.sum(axis=1, keepdims=True) % 2).astype(bool)
        flipped = np.where(odd, -1, 1).astype(np.float32) * np.take_along_axis(magnitude, least, axis=1)
        np.put_along_axis(magnitude, least, flipped, axis=1)
        np.put_along_axis(negative, least, np.take_along_axis(negative, least, axis=1) ^ odd, axis=1)
    return magnitude.reshape(x.shape), np.packbits(negative, axis=1, bitorder="little")[:, 0]


def odd_scales(scales: np.ndarray, n_codes: int) -> tuple[np.ndarray, np.ndarray]:
    """Non-negative float32 [n, groups] as d [n] times 2 s + 1, s < n_codes: d and s, uint8 [n, groups]."""
    d = scales.max(axis=1) / np.float32(2 * n_codes - 1)
    codes = nearest_int(np.float32(0.5) * ((np.float32(1) / d)[:, None] * scales - np.float32(1)))
    return d, np.where(d[:, None] != 0, np.clip(codes, 0, n_codes - 1), 0).astype(np.uint8)


def encode_signed(
    search: Search, values: np.ndarray, weights: np.ndarray, group: int, tiny: float, even: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scales [n, groups], points [n, 256 / width] and bytes of signs [n, 32] of values and weights [n, 256].

    A group in which nothing reaches `tiny` has neither points nor signs. For the formats that begin with the largest
    magnitude of a group: all but IQ2_XXS.
    """
    x, w = values.reshape(-1, group).T, np.ascontiguousarray(weights.reshape(-1, group).T)
    magnitude, negative = split_signs(np.ascontiguousarray(x), w, even)
    largest = magnitude.max(axis=0)
    top = np.float32(2 * neighbours(search.grid).n_codes - 1)
    scale, points = fit_points(search, magnitude, w, largest, largest / top)
    return finish(scale, points, negative, largest < np.float32(tiny), even, len(values))


def finish(
    scale: np.ndarray, points: np.ndarray, negative: np.ndarray, zero: np.ndarray, even: bool, n_blocks: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups as columns to blocks; scales below zero turn the signs around."""
    negative = np.where(scale < 0, ~negative, negative)
    if even:
        negative &= np.uint8(127)
    scale = np.where(zero, np.float32(0), np.abs(scale))
    points, negative = np.where(zero, 0, points), np.where(zero, np.uint8(0), negative)
    return scale.reshape(n_blocks, -1), points.T.reshape(n_blocks, -1), negative.T.reshape(n_blocks, -1)
