"""Machine code on disk: compiled once, loaded ever after.

Arrives: a key and a way to compile; leaves: a loaded `Module`. An entry is one file for a program's kernels: a digest
of its name and contents, a JSON head (scratch bytes and failure messages of the kernels) and an object file. Code is
only run from files that nobody but this user can have written and whose digest holds; others are removed and compiled
anew. Entries are written under a temporary name and moved, so several processes may use the folder at once; the least
recently used go when there are too many. Next module: `runtime.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gml.backends.cpu.target import Target
from gml.debug import knobs
from gml.kernel_ir import Kernel

MAGIC = b"GMLOBJ2\n"
DIGEST_BYTES = 32
#: bytes that all entries together may have, and one alone
MAX_CACHE_BYTES, MAX_ENTRY_BYTES = 256 << 20, 64 << 20
#: age in seconds from which a temporary file is one that a killed process left behind
STALE_SECONDS = 3600.0
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

    path = _entry_path(key)
    found = _read(path) if path is not None else None
    if found is None:
        found = compile_now()
        if path is not None:
            _write(path, *found)
    code, head = found
    return Module(code, head["scratch"]), head


def _entry_path(key: str) -> Path | None:
    """Where an entry is, in a folder of this user's own; None without such a folder."""
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder / f"{key}.o" if _is_private(folder.stat()) else None
    except (OSError, RuntimeError):  # not writable, or there is no home
        return None


def _is_private(status: os.stat_result) -> bool:
    """Whether nobody else can have written a file or folder. Elsewhere than on POSIX the user's folders are."""
    if os.name != "posix":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _digest(path: Path, body: bytes) -> bytes:
    """Of name and contents: an entry under another name is not this entry."""
    return hashlib.sha256(path.name.encode() + b"\0" + body).digest()


def _read(path: Path) -> tuple[bytes, dict[str, Any]] | None:
    """A sound entry, or None; a damaged or foreign one is removed."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            usable = _is_private(status) and stat.S_ISREG(status.st_mode) and status.st_size <= MAX_ENTRY_BYTES
            raw = file.read(MAX_ENTRY_BYTES) if usable else b""
    except OSError:
        return None
    body = raw[len(MAGIC) + DIGEST_BYTES :]
    if len(body) < 8 or raw != b"".join((MAGIC, _digest(path, body), body)):
        _remove(path)
        return None
    n_head = int.from_bytes(body[:8], "little")
    with contextlib.suppress(OSError):
        os.utime(path)  # used now
    return body[8 + n_head :], json.loads(body[8 : 8 + n_head])


def _write(path: Path, code: bytes, head: dict[str, Any]) -> None:
    """Store an entry; a folder that cannot be written costs a compilation next time, nothing else."""
    import tempfile  # here: what it imports takes longer than reading an entry

    text = json.dumps(head).encode()
    body = b"".join((len(text).to_bytes(8, "little"), text, code))
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(b"".join((MAGIC, _digest(path, body), body)))
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
            if path.suffix == ".o":
                entries.append((status.st_mtime, status.st_size, path))
            elif path.suffix == ".tmp" and time.time() - status.st_mtime > STALE_SECONDS:
                _remove(path)
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= MAX_CACHE_BYTES:
            break
        _remove(path)
        total -= size


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
