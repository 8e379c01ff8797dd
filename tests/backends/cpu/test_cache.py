"""The object cache: what is stored is loaded, what is damaged or somebody else's is compiled anew, never run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gml.backends.cpu import cache
from gml.backends.cpu.jit import compile_object
from gml.backends.cpu.target import by_name, detect
from gml.debug import knobs
from gml.kernel_ir import I64, Builder, Kernel

posix_only = pytest.mark.skipif(os.name != "posix", reason="permissions are of POSIX")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty cache."""
    knobs.set(cache_dir=str(tmp_path))
    yield tmp_path / "compiled"
    knobs.set(cache_dir=None)


def adding(n: int) -> Kernel:
    b = Builder("adding")
    x = b.param("x")
    b.param("sizes")
    b.loop(b.param("begin", I64), b.param("end", I64), lambda i: b.store(x, i * 8, b.load(x, i * 8, I64) + n))
    return b.finish()


class Compiler:
    """Compiles a kernel that adds n, and counts how often."""

    def __init__(self, n: int = 5) -> None:
        self.n, self.calls = n, 0

    def __call__(self) -> tuple[bytes, dict[str, Any]]:
        self.calls += 1
        code, scratch = compile_object([adding(self.n)], detect())
        return code, {"scratch": scratch, "failures": {"1": f"message {self.n}"}}

    def result(self, key: str) -> int:
        """What the fetched code adds to 1."""
        module, head = cache.fetch(key, self)
        assert head["failures"] == {"1": f"message {self.n}"}
        x = np.ones(3, np.int64)
        module.run("adding", [x], [], 0, 3)
        assert (x == x[0]).all()
        return int(x[0]) - 1


def test_stored_code_is_loaded(folder: Path) -> None:
    compiler = Compiler()
    assert [compiler.result("k") for _ in range(3)] == [5, 5, 5]
    assert compiler.calls == 1
    assert [p.name for p in folder.iterdir()] == ["k.o"]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "only the magic": lambda raw: raw[:8],
    "no body": lambda raw: raw[:40],
    "short body": lambda raw: raw[:45],
    "cut in the head": lambda raw: raw[:60],
    "cut in the code": lambda raw: raw[: len(raw) // 2],
    "one byte less": lambda raw: raw[:-1],
    "one byte more": lambda raw: raw + b"\0",
    "a bit of the code": lambda raw: raw[:-100] + bytes([raw[-100] ^ 1]) + raw[-99:],
    "a bit of the head": lambda raw: raw[:50] + bytes([raw[50] ^ 1]) + raw[51:],
    "a bit of the digest": lambda raw: raw[:20] + bytes([raw[20] ^ 1]) + raw[21:],
    "another version": lambda raw: b"GMLOBJ0\n" + raw[8:],
    "something else": lambda raw: b"\x7fELF" + b"\0" * 500,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries_are_compiled_anew(folder: Path, damage: str) -> None:
    compiler = Compiler()
    compiler.result("k")
    path = folder / "k.o"
    sound = path.read_bytes()
    path.write_bytes(DAMAGES[damage](sound))
    assert compiler.result("k") == 5
    assert compiler.calls == 2
    assert path.read_bytes() == sound
    assert compiler.result("k") == 5 and compiler.calls == 2


def test_every_single_byte_counts(folder: Path) -> None:
    compiler = Compiler()
    compiler.result("k")
    path = folder / "k.o"
    raw = path.read_bytes()
    for at in range(0, len(raw), max(len(raw) // 200, 1)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :])
        assert cache._read(path) is None, at
        assert not path.exists()


def test_an_entry_under_another_name_is_not_loaded(folder: Path) -> None:
    five, six = Compiler(5), Compiler(6)
    five.result("five")
    os.replace(folder / "five.o", folder / "six.o")
    assert six.result("six") == 6
    assert six.calls == 1


def test_a_huge_file_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler()
    compiler.result("k")
    monkeypatch.setattr(cache, "MAX_ENTRY_BYTES", 100)
    assert compiler.result("k") == 5
    assert compiler.calls == 2


@posix_only
def test_the_folder_is_private(folder: Path) -> None:
    Compiler().result("k")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "k.o").stat().st_mode & 0o077 == 0


@posix_only
@pytest.mark.parametrize("which", ["folder", "entry"])
def test_what_others_can_write_is_not_loaded(folder: Path, which: str) -> None:
    compiler = Compiler()
    compiler.result("k")
    (folder if which == "folder" else folder / "k.o").chmod(0o777)
    assert compiler.result("k") == 5
    assert compiler.calls == 2


@posix_only
def test_what_belongs_to_others_is_not_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler()
    compiler.result("k")
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert compiler.result("k") == 5
    assert compiler.calls == 2


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    knobs.set(cache_dir=str(file))
    try:
        compiler = Compiler()
        assert [compiler.result("k"), compiler.result("k")] == [5, 5]
        assert compiler.calls == 2
    finally:
        knobs.set(cache_dir=None)


def test_the_least_recently_used_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler()
    for key in "abcd":
        compiler.result(key)
    size = (folder / "a.o").stat().st_size
    for age, key in enumerate("bcda"):  # b is the oldest
        os.utime(folder / f"{key}.o", (1000 + age, 1000 + age))
    compiler.result("b")  # ... until it is used
    monkeypatch.setattr(cache, "MAX_CACHE_BYTES", 2 * size + size // 2)
    cache._trim(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["a.o", "b.o"]


def test_temporary_files_of_killed_processes_go(folder: Path) -> None:
    Compiler().result("k")
    old, new = folder / "old.tmp", folder / "new.tmp"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 2 * cache.STALE_SECONDS,) * 2)
    cache._trim(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["k.o", "new.tmp"]


def test_keys_depend_on_text_and_target() -> None:
    keys = {cache.entry_key(text, by_name(name)) for text in ("a", "b") for name in ("avx2", "x86-64", "neon")}
    assert len(keys) == 6
    assert cache.entry_key("a", by_name("avx2")) in keys


_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from test_cache import Compiler
for round in range(20):
    assert Compiler(round % 4).result(f"k{round % 4}") == round % 4
"""


def test_several_processes_at_once(folder: Path) -> None:
    environment = os.environ | {"GML_CACHE_DIR": str(folder.parent)}
    command = [sys.executable, "-c", _PROCESS, str(Path(__file__).parent)]
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(3)]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert sorted(p.name for p in folder.iterdir()) == ["k0.o", "k1.o", "k2.o", "k3.o"]
