"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of test vectors (`GML_VECTORS`, or `shared/vectors` beside the repository); skipped where it is missing."""
    folder = Path(os.environ.get("GML_VECTORS", ROOT.parent / "shared" / "vectors"))
    if not folder.is_dir():
        if os.environ.get("GML_REQUIRE_ALL"):
            pytest.fail(f"test vectors are required here but {folder} does not exist")
        pytest.skip(f"no test vectors at {folder}; set GML_VECTORS to their folder")
    return folder
