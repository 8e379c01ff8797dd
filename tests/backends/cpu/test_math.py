"""Vector maths in compiled code, over floats of every exponent, against float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from gml.backends.cpu.jit import Module, compile_kernels
from gml.backends.cpu.target import detect
from gml.kernel_ir import F32, I64, Builder, Kernel

LANES = 16
#: function: what it is in float64, largest error in units of the last place, where most of its curve is
FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]] = {
    "exp": (np.exp, 1.02, 110.0),
    "log": (np.log, 0.85, 3.0),
    "tanh": (np.tanh, 1.35, 12.0),
    "erf": (lambda x: np.array([math.erf(v) for v in x.tolist()]), 1.0, 5.0),
    "sin": (np.sin, 1.6, 1e6),
    "cos": (np.cos, 1.6, 1e6),
}
#: from here on angles are not reduced
LARGEST_ANGLE = 2.0**45


def kernel(fn: str) -> Kernel:
    b = Builder(fn)
    x, y = b.param("x"), b.param("y")
    b.param("sizes")
    n_bytes = 4 * LANES
    b.loop(
        b.param("begin", I64),
        b.param("end", I64),
        lambda i: b.store(y, i * n_bytes, b.math(fn, b.load(x, i * n_bytes, F32.vec(LANES)))),
    )
    return b.finish()


@pytest.fixture(scope="module")
def compiled() -> Module:
    return compile_kernels([kernel(fn) for fn in FUNCTIONS], detect())


def points(fn: str, dense: float) -> np.ndarray:
    """Floats of every exponent and sign, all edges, and many where the function changes."""
    random = np.random.default_rng(len(fn))
    bits = np.arange(0, 1 << 32, 10007 if fn != "erf" else 100003, dtype=np.uint64).astype(np.uint32)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.72283, 88.72284, -87.33655, -103.97207, -103.97208, 1e-45, -1e-45]
    edges += [0.625, 0.921875, 4.0, -4.0, np.pi, np.pi / 2, 1.0, 2.0**-126]
    near = random.uniform(-dense, dense, 1 << (18 if fn != "erf" else 15))
    x = np.concatenate([bits.view(np.float32), np.array([*edges], np.float32), near.astype(np.float32)])
    return np.concatenate([x, np.ones(-len(x) % LANES, np.float32)])


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_error_is_within_the_bound(compiled: Module, fn: str) -> None:
    exact, bound, dense = FUNCTIONS[fn]
    x = points(fn, dense)
    found = np.zeros_like(x)
    compiled.run(fn, [x, found], [], 0, len(x) // LANES)
    if fn in ("sin", "cos"):
        beyond = (np.abs(x) >= LARGEST_ANGLE) & np.isfinite(x)
        assert beyond.any() and (np.abs(found[beyond]) <= 1.0).all()
        x, found = x[~beyond], found[~beyond]
    with np.errstate(all="ignore"):
        wide = exact(x.astype(np.float64))
        expected = wide.astype(np.float32)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(found[np.isinf(expected)], expected[np.isinf(expected)])
    np.testing.assert_array_equal(np.signbit(found[expected == 0]), np.signbit(expected[expected == 0]))
    ulp = np.spacing(np.abs(expected[finite])).astype(np.float64)
    error = np.abs(found[finite].astype(np.float64) - wide[finite]) / ulp
    assert error.max() <= bound, f"{error.max()} ulp at {x[finite][error.argmax()]!r}"
    assert finite.sum() > 10_000


def test_angles_up_to_the_bound(compiled: Module) -> None:
    random = np.random.default_rng(7)
    exponents = np.repeat(np.arange(17, 45), 4096)
    x = (random.uniform(1, 2, len(exponents)) * 2.0**exponents).astype(np.float32)
    for fn in ("sin", "cos"):
        found = np.zeros_like(x)
        compiled.run(fn, [x, found], [], 0, len(x) // LANES)
        wide = FUNCTIONS[fn][0](x.astype(np.float64))
        error = np.abs(found - wide) / np.spacing(np.abs(wide.astype(np.float32)))
        assert error.max() <= FUNCTIONS[fn][1]
