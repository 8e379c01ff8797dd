"""Compiled code of the tests goes to a folder of its own; modules beside the tests can be imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
#: bench_panel and the like, and the kernel IR's samples
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "gml")]


@pytest.fixture(scope="session")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An object cache that starts empty, so that every run compiles what it tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def compiled_here(compiled_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use it for the tests of this folder only: others look for pulled models in the user's."""
    monkeypatch.setenv("GML_CACHE_DIR", str(compiled_folder))
