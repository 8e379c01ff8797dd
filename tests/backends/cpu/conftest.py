"""Compiled code of the tests goes to a folder of its own."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def compiled_here(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An empty object cache, so that every run compiles what it tests."""
    patch = pytest.MonkeyPatch()
    patch.setenv("GML_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
