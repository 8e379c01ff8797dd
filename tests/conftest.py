"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


@pytest.fixture(scope="session", autouse=True)
def verified_passes() -> None:
    """Whatever a test compiles is verified after every pass of the compiler."""
    from gml.compiler import pipeline

    pipeline.always_verify = True


@pytest.fixture(scope="session", autouse=True)
def crowds() -> None:
    """As many threads as a test asks for, also on a machine with fewer processors."""
    from gml.backends.cpu import runtime

    runtime.allow_crowds = True


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of test vectors (`GML_VECTORS`, or `shared/vectors` beside the repository), or a visible skip."""
    folder = Path(os.environ.get("GML_VECTORS", ROOT.parent / "shared" / "vectors"))
    if not folder.is_dir():
        if os.environ.get("GML_REQUIRE_ALL"):
            pytest.fail(f"test vectors are required here but {folder} does not exist")
        pytest.skip(f"no test vectors at {folder}; set GML_VECTORS to their folder")
    return folder


@pytest.fixture(scope="session")
def pulled():
    """name of a model -> its file; skipped, with the command that brings it, where it was not pulled."""
    from gml.models import cache

    # found before any test moves the cache folder
    found = {name: cache.resolve(name) for name in ("smollm2", "gemma3-270m") if cache.is_pulled(name)}

    def path(name: str) -> Path:
        if name not in found:
            if os.environ.get("GML_REQUIRE_ALL"):
                pytest.fail(f"the model {name} is required here; run `gml pull {name}`")
            pytest.skip(f"the model is not here; run `gml pull {name}`")
        return Path(found[name])

    return path
