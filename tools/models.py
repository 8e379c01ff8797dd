"""The MODEL argument: a path, or a name that is pulled when it is used for the first time.

Arrives: what the user typed; leaves: the path of a GGUF file. Fetching is `gml.models.cache`; here is what it shows
meanwhile. Next: `tools/run.py`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from gml.models import cache


def model_path(model: str) -> Path:
    """The file of a model given by name or path. Raises as `cache.resolve` and `cache.pull` do."""
    if model in cache.REGISTRY and not cache.is_pulled(model):
        return pull(model)
    return cache.resolve(model)


def pull(name: str) -> Path:
    """Fetch a model, if it is not here, with progress on standard error. Raises as `cache.pull` does."""
    if name not in cache.REGISTRY or cache.is_pulled(name):
        return cache.pull(name)
    model = cache.REGISTRY[name]
    click.echo(f"{model.description}; licence: {model.licence}", err=True)
    with Progress(f"pull {name}") as progress:
        return cache.pull(name, progress)


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
        """Show how far it is; without a total, another process is fetching the same."""
        if self._bar is not None:
            self._bar.update(self._task, completed=n_done, total=n_total)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + self.INTERVAL_S
            state = f"{n_done / 1e6:.0f} of {n_total / 1e6:.0f} MB" if n_total else "another process is at it, waiting"
            click.echo(f"{self.what}: {state}", err=True)
