"""What the ops of networks mean, a second time: rows for `op_truth.TRUTH`, in scalar float64 loops like those there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np


def filled(ne: tuple[int, ...], value: Callable[..., Any]) -> np.ndarray:
    """The array whose element at (i3, i2, i1, i0) is value(i3, i2, i1, i0)."""
    out = np.empty(tuple(reversed(ne)))
    for index in itertools.product(*(range(n) for n in reversed(ne))):
        out[index] = value(*index)
    return out


def dot(x: Any, y: Any) -> float:
    return math.fsum(float(p) * float(q) for p, q in zip(x, y, strict=True))


def shared(i: int, n: int, n_shared: int) -> int:
    """Which of n_shared things the i-th of n uses, when neighbours share."""
    return i // (n // n_shared)


def mul_mat(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    def one(i3: int, i2: int, i1: int, i0: int) -> float:
        return dot(a[shared(i3, ne[3], a.shape[0]), shared(i2, ne[2], a.shape[1]), i0], b[i3, i2, i1])

    return filled(ne, one)


def mul_mat_id(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray, ids: np.ndarray) -> np.ndarray:
    def one(i3: int, token: int, used: int, row: int) -> float:
        return dot(a[0, int(ids[0, 0, token, used]), row], b[0, token, used % b.shape[2]])

    return filled(ne, one)


def out_prod(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    def one(i3: int, i2: int, i1: int, i0: int) -> float:
        return dot(a[shared(i3, ne[3], a.shape[0]), shared(i2, ne[2], a.shape[1]), :, i0], b[i3, i2, :, i1])

    return filled(ne, one)


TRUTH: dict[str, Callable[..., np.ndarray]] = {
    "mul_mat": mul_mat,
    "mul_mat_id": mul_mat_id,
    "out_prod": out_prod,
}
