"""What block formats are encoded to by ggml's quantisers, for `test_quants_encode.py` and `test_quants_weights.py`."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from gml.quants import QuantType, all_types

#: formats that gml writes
ENCODED = [t for t in all_types() if isinstance(t, QuantType) and type(t).encode_blocks is not QuantType.encode_blocks]
#: those that libgguf 0.2.2 knows
REFERENCED = [t for t in ENCODED if t.name != "Q2_0"]
#: ggml takes half a minute for the tables of these grids when it is first asked
_SLOW = ("IQ1_S", "IQ1_M", "IQ2_S")
every_encoded = pytest.mark.parametrize("dtype", [pytest.param(t, id=t.name) for t in ENCODED])
every_referenced = pytest.mark.parametrize(
    "dtype", [pytest.param(t, id=t.name, marks=pytest.mark.slow if t.name in _SLOW else ()) for t in REFERENCED]
)


def encode(dtype: QuantType, values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Blocks of gml; formats that need weights get ones."""
    if weights is None and dtype.needs_weights:
        weights = np.ones(np.shape(values)[-1:], np.float32)
    return dtype.encode(values, weights)


def assert_same_blocks(dtype: QuantType, values: np.ndarray, weights: np.ndarray | None, libgguf: ModuleType) -> None:
    """The same bits as ggml's quantiser.

    But for one fault of ggml's: its IQ3_S leaves out the place of a group of 32 zeros, so that what follows in the
    block of 256 is written too early and decodes to other values. There gml must be nearer to the values.
    """
    if weights is None and dtype.needs_weights:
        weights = np.ones(values.shape[-1], np.float32)
    expected = libgguf.quantize_rows(values, dtype.ggml_id, weights)
    found = dtype.encode(values, weights)
    assert found.dtype == dtype.numpy and found.shape == (*values.shape[:-1], values.shape[-1] // dtype.block_size)
    ours, theirs = found.reshape(-1), expected.reshape(-1, dtype.type_size)
    kept = np.ones(len(ours), bool)
    if dtype.name == "IQ3_S":
        kept = ~misplaced(values)
        x = values.reshape(-1, 256)[~kept]
        errors = [
            ((dtype.decode(b.reshape(-1, 1)) - x) ** 2).sum() for b in (ours[~kept], theirs[~kept].view(dtype.numpy))
        ]
        assert errors[0] <= errors[1]
    np.testing.assert_array_equal(ours.view(np.uint8).reshape(theirs.shape)[kept], theirs[kept])


def misplaced(values: np.ndarray) -> np.ndarray:
    """Which blocks of 256 have a group of 32 zeros before one that has others."""
    groups = (values.reshape(-1, 8, 32) != 0).any(axis=2)
    return (~groups[:, :-1] & np.logical_or.accumulate(groups[:, ::-1], axis=1)[:, ::-1][:, 1:]).any(axis=1)
