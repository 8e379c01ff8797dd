"""Artefacts on disk: numbered folders that no two compiles share, files that are there whole or not at all.

Arrives: texts and arrays; leaves: paths. Next module: `watch.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from gml.errors import Error

#: numbered folders of one parent
MAX_FOLDERS = 100_000


def new_folder(parent: str | Path, prefix: str, name: str = "") -> Path:
    """A new folder `prefix` + number + `-name` in `parent`, which is made where it is missing.

    Processes at the same parent get folders of their own. Raises `Error` where the system refuses.
    """
    label = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:60]
    parent = Path(parent)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(_first_free(parent, prefix), MAX_FOLDERS):
            # whoever makes the claim first has the number, whatever its folder is called
            claim = parent / f".{prefix}{number:03d}"
            try:
                claim.mkdir()
            except FileExistsError:
                continue
            try:
                if number >= _first_free(parent, prefix):
                    folder = parent / (f"{prefix}{number:03d}" + (f"-{label}" if label else ""))
                    folder.mkdir()
                    return folder
            finally:
                claim.rmdir()
    except OSError as error:
        raise Error(f"cannot make a folder for dumps in {parent}: {error.strerror}") from None
    raise Error(f"{parent} has {MAX_FOLDERS} dumps; remove some")


def _first_free(parent: Path, prefix: str) -> int:
    numbers = [re.match(rf"{re.escape(prefix)}(\d+)", p.name) for p in parent.iterdir()]
    return max((int(m[1]) + 1 for m in numbers if m), default=0)


def write(path: Path, content: str | bytes) -> None:
    """Write a file so that nobody ever sees a part of it. Raises `Error` where the system refuses."""
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError as error:
        raise Error(f"cannot write {path}: {error.strerror}") from None
