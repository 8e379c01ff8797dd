"""What these tests share: tables beside them (`import op_truth`), wherever pytest is started, and references."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def libgguf() -> ModuleType:
    """ggml's quantisers; they belong to the `conformance` extra."""
    try:
        return importlib.import_module("libgguf")
    except ImportError:
        reason = "libgguf, ggml's quantisers, is not installed (extra `conformance`)"
        if os.environ.get("GML_REQUIRE_ALL"):
            pytest.fail(reason)
        pytest.skip(reason)
