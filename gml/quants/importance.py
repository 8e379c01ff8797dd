"""Importance weights for encoding: how much an error in each column matters, as an importance matrix has measured.

Arrives: an array that the caller gave beside the values; leaves: checked weights of some blocks, and what ggml's
quantisers make of them. Next module: `base.py`.
"""

from __future__ import annotations

import numpy as np

from gml.errors import FormatError, ShapeError
from gml.records import dataclass


@dataclass
class Weights:
    """Importance of the elements of n blocks.

    importance   float32 [n, block_size], not negative
    mean_square  float32 [n]: of the whole row that each block lies in; None for formats that do not ask
    """

    importance: np.ndarray
    mean_square: np.ndarray | None

    def of_rows(self, values: np.ndarray) -> np.ndarray:
        """Weights for values [n, block_size] as Q4_0 and its kin take them: the mean square is that of the row."""
        assert self.mean_square is not None
        return self.importance * np.sqrt(self.mean_square[:, None] + values * values)

    def of_blocks(self, values: np.ndarray, factor: float = 2.0) -> np.ndarray:
        """The same with `factor` times the mean square of the block, as the K and IQ formats take them."""
        return self.importance * np.sqrt(mean_square(values, factor)[:, None] + values * values)


def mean_square(values: np.ndarray, factor: float = 1.0) -> np.ndarray:
    """factor / size times the sum of squares of each block, added in order: float32 [n, size] to [n]."""
    return np.float32(factor) * ordered_sums(values * values) / np.float32(values.shape[1])


def ordered_sums(values: np.ndarray) -> np.ndarray:
    """Sums along axis 1, one element after the other in float32; `np.sum` adds in pairs and gets other bits."""
    return np.add.accumulate(values, axis=1)[:, -1]


class Importance:
    """Checked weights for values of a shape [..., n]; `blocks` gives those of a piece.

    The weights have shape [n] (one importance per column, as an importance matrix has) or any other whose last size is
    n and whose others broadcast to those of the values (one per expert).
    """

    def __init__(self, name: str, weights: np.ndarray, values: np.ndarray, block_size: int, of_rows: bool) -> None:
        weights = np.asarray(weights)
        shape = values.shape
        if weights.dtype.kind not in "fiu":
            raise FormatError(f"{name}: importance weights must be real numbers, found {weights.dtype}")
        n_rows = int(np.prod(weights.shape[:-1], dtype=np.int64))
        try:
            fits = weights.ndim > 0 and weights.shape[-1] == shape[-1]
            spread = np.broadcast_to(np.arange(n_rows).reshape(weights.shape[:-1]), shape[:-1])
        except ValueError:
            fits = False
        if not fits:
            raise ShapeError(
                f"{name}: importance weights of shape {weights.shape} do not fit values of shape {shape}; expected "
                f"({shape[-1]},), one weight per column, or a shape that repeats to {shape} over all axes but the last"
            )
        with np.errstate(all="ignore"):
            weights = np.ascontiguousarray(weights, np.float32)
        bad = ~(np.isfinite(weights) & (weights >= 0))
        if bad.any():
            index = tuple(map(int, np.unravel_index(int(bad.argmax()), weights.shape)))
            raise FormatError(
                f"{name}: importance weight {weights[index]} at index {index} of {weights.shape}; weights must be "
                "finite in float32 and not negative"
            )
        self._blocks_per_row = shape[-1] // block_size
        self._blocks = weights.reshape(n_rows, self._blocks_per_row, block_size)
        self._row_of = spread.reshape(-1)
        self._mean_squares = _mean_squares(values.reshape(-1, shape[-1])) if of_rows and values.size else None

    def blocks(self, start: int, stop: int) -> Weights:
        """Weights of the blocks from `start` to `stop`, counted through all rows."""
        row, column = np.divmod(np.arange(start, stop), self._blocks_per_row)
        mean = None if self._mean_squares is None else self._mean_squares[row]
        return Weights(self._blocks[self._row_of[row], column], mean)


def _mean_squares(rows: np.ndarray, piece: int = 1 << 16) -> np.ndarray:
    """Mean square of each row [n_rows, n], added in order, with temporaries of about `piece` elements."""
    n_rows, n = rows.shape
    sums = np.zeros(n_rows, np.float32)
    step = max(1, piece // n)
    with np.errstate(all="ignore"):
        for first in range(0, n_rows, step):
            mine = slice(first, first + step)
            for start in range(0, n, piece):
                x = rows[mine, start : start + piece].astype(np.float32)
                sums[mine] = ordered_sums(np.concatenate([sums[mine, None], x * x], axis=1))
        return sums / np.float32(n)
