"""Machine code on disk: compiled once, loaded ever after.

Arrives: a key and a way to compile; leaves: a loaded `Module`. An entry is one file: a digest, a JSON head (scratch
bytes and failure messages of the kernels) and an object file. The folder is private to the user, entries are written to
a temporary name and moved, read only when their digest holds, and removed when they are damaged; the least recently
used go when there are too many. Several processes may use it at once. Next module: `runtime.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gml.backends.cpu.target import Target
from gml.debug import knobs
from gml.kernel_ir import Kernel

MAGIC = b"GMLOBJ1\n"
DIGEST_BYTES = 32
#: bytes that all entries together may have
MAX_CACHE_BYTES = 256 << 20
WRITES_PER_TRIM = 32
_writes = itertools.count()

Compile = Callable[[], "tuple[bytes, dict[str, Any]]"]


def cache_folder() -> Path:
    """Where compiled code is kept: `GML_CACHE_DIR`, else the user's cache folder."""
    if knobs.cache_dir:
        root = Path(knobs.cache_dir)
    elif sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "gml"
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches" / "gml"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gml"
    return root / "compiled"


@cache
def _build() -> str:
    """What compiled code depends on besides its key: versions of gml's own source and of LLVM."""
    import llvmlite

    import gml

    parts = [llvmlite.__version__]
    for package in (Path(gml.__file__).parent, Path(__file__).parent):
        for path in sorted(package.rglob("*.py")):
            status = path.stat()
            parts.append(f"{path.name}:{status.st_size}:{status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def entry_key(text: str, target: Target) -> str:
    """The name of an entry: a digest of what is compiled, the target, and the build."""
    return hashlib.sha256("\0".join([_build(), repr(target), sys.platform, text]).encode()).hexdigest()


def load_or_compile(
    what: str, kernels: Sequence[Kernel], target: Target, extra: str = ""
) -> tuple[Any, dict[str, Any]]:
    """A loaded module of kernels and LLVM IR text that are known already (the driver)."""
    from gml.backends.cpu.jit import compile_object

    def compile_now() -> tuple[bytes, dict[str, Any]]:
        code, scratch = compile_object(kernels, target, extra)
        return code, {"scratch": scratch}

    return fetch(entry_key(what + extra, target), compile_now)


def fetch(key: str, compile_now: Compile) -> tuple[Any, dict[str, Any]]:
    """The module of this key and its head, from the cache or compiled and stored there."""
    from gml.backends.cpu.jit import Module

    path = cache_folder() / f"{key}.o"
    found = _read(path)
    if found is None:
        code, head = compile_now()
        _write(path, code, head)
    else:
        code, head = found
    return Module(code, head["scratch"]), head


def _read(path: Path) -> tuple[bytes, dict[str, Any]] | None:
    """A sound entry, or None; a damaged one is removed."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    body = raw[len(MAGIC) + DIGEST_BYTES :]
    sound = raw.startswith(MAGIC) and hashlib.sha256(body).digest() == raw[len(MAGIC) : len(MAGIC) + DIGEST_BYTES]
    if not sound or len(body) < 8:
        _remove(path)
        return None
    n_head = int.from_bytes(body[:8], "little")
    with contextlib.suppress(OSError):
        os.utime(path)
    return body[8 + n_head :], json.loads(body[8 : 8 + n_head])


def _write(path: Path, code: bytes, head: dict[str, Any]) -> None:
    """Store an entry; a folder that cannot be written costs a compilation next time, nothing else."""
    text = json.dumps(head).encode()
    body = len(text).to_bytes(8, "little") + text + code
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + hashlib.sha256(body).digest() + body)
            os.replace(temporary, path)
        except OSError:
            _remove(Path(temporary))
            raise
        # looking at every entry costs more than it frees: once in a while is enough
        if next(_writes) % WRITES_PER_TRIM == 0:
            _trim(path.parent)
    except OSError:
        return


def _trim(folder: Path) -> None:
    """Remove the least recently used entries until the rest fits, and temporary files that were left behind."""
    entries = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= MAX_CACHE_BYTES:
            break
        _remove(path)
        total -= size


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
