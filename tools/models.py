"""The MODEL argument: a path, or a name that is pulled when it is used for the first time.

Arrives: what the user typed; leaves: the path of a GGUF file. Fetching is `gml.models.cache`; here is what it shows
meanwhile. Next: `tools/run.py`.
"""

from __future__ import annotations

import difflib
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from gml.errors import UsageError


def model_path(model: str) -> Path:
    """The file of a model given by path or name; an unknown name is a `UsageError` with what is near it."""
    path = Path(model)
    if path.is_file():
        return path
    from gml.models import cache

    if model in cache.REGISTRY:
        return cache.resolve(model) if cache.is_pulled(model) else pull(model)
    if path.is_dir():
        raise UsageError(f"{model} is a folder; expected a GGUF file or one of the names {', '.join(cache.REGISTRY)}")
    looks_like_path = model.endswith(".gguf") or os.sep in model or "/" in model
    if looks_like_path:
        near = difflib.get_close_matches(path.name, [p.name for p in _files_beside(path)], n=1)
        hint = f"did you mean {path.with_name(near[0])}?" if near else "check the path"
        raise UsageError(f"no file {model}; {hint}")
    near = difflib.get_close_matches(model, [*cache.REGISTRY, *(p.name for p in _files_beside(path))], n=1)
    hint = f"did you mean {near[0]}?" if near else f"names: {', '.join(cache.REGISTRY)}"
    raise UsageError(f"no file and no model called {model!r}; {hint}")


def _files_beside(path: Path) -> list[Path]:
    try:
        return sorted(path.parent.glob("*.gguf"))[:1000]
    except OSError:
        return []


def pull(name: str) -> Path:
    """Fetch a model, with progress on standard error. Raises `DownloadError`."""
    from gml.models import cache

    with Progress(f"pull {name}") as progress:
        return cache.pull(name, progress=progress)


class Progress:
    """Called with (bytes done, bytes in all or None): a bar on a terminal, elsewhere a line every few seconds."""

    INTERVAL_S = 5.0

    def __init__(self, what: str) -> None:
        self.what = what
        self._bar: Any = None
        self._task: Any = None
        self._next_line = 0.0

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
            self._bar = Bar(TextColumn("{task.description}"), *columns, console=Console(stderr=True))
            self._task = self._bar.add_task(self.what, total=None)
            self._bar.start()
        else:
            click.echo(f"{self.what} ...", err=True)
            self._next_line = time.monotonic() + self.INTERVAL_S
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif kind is None:
            click.echo(f"{self.what} done", err=True)

    def __call__(self, n_done: int, n_total: int | None = None) -> None:
        """Show how far it is."""
        if self._bar is not None:
            self._bar.update(self._task, completed=n_done, total=n_total)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + self.INTERVAL_S
            total = f" of {n_total / 1e6:.0f}" if n_total else ""
            click.echo(f"{self.what}: {n_done / 1e6:.0f}{total} MB", err=True)
