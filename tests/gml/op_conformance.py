"""What the tests against other packages share: torch or a visible skip, tensors from arrays, results of a graph."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import gml


def torch_or_skip() -> Any:
    """torch on one thread. It is not built for every machine: where it is missing these tests are skipped."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        pytest.skip("torch, the other implementation of these ops, is not installed (pip install torch)")
    torch.set_num_threads(1)
    return torch


def normal(seed: int, *shape: int) -> np.ndarray:
    """Random float32 values of a shape in numpy's order."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaves(*arrays: Any) -> list[gml.Tensor]:
    """Constants of one context."""
    context = gml.Context()
    return [context.constant(array) for array in arrays]


def two_leaves(a: Any, b: Any) -> tuple[gml.Tensor, gml.Tensor]:
    """Constants of one context, for calls with more arguments behind."""
    first, second = leaves(a, b)
    return first, second


def value(tensor: gml.Tensor, **sizes: int) -> np.ndarray:
    """What the reference backend computes, in float64 and in four axes of numpy's order."""
    program = gml.compile(tensor, "reference")
    program.run(**sizes)
    array = np.array(program.read(tensor), dtype=np.float64)
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def assert_near(found: np.ndarray, expected: Any, tolerance: float = 3e-6) -> None:
    """Equal sizes (but for leading 1s), and differences below `tolerance` of the largest magnitude."""
    want = np.asarray(expected, dtype=np.float64)
    want = want.reshape((1,) * (4 - want.ndim) + want.shape)
    assert found.shape == want.shape
    assert np.isfinite(want).all()
    assert np.isfinite(found).all()
    assert np.abs(found - want).max(initial=0.0) <= tolerance * max(np.abs(want).max(initial=0.0), 1e-30)
