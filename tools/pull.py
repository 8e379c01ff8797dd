"""`gml pull`: fetch a model by name.

Arrives: names; leaves: files in the user's cache folder, their paths on standard output.
"""

from __future__ import annotations

import difflib

import click

from gml.errors import UsageError
from gml.tools.models import pull


@click.command("pull")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def command(names: tuple[str, ...]) -> None:
    """Fetch models into the cache folder; without NAME, list those that are known."""
    from gml.models import cache

    if not names:
        for name, source in cache.REGISTRY.items():
            state = str(cache.resolve(name)) if cache.is_pulled(name) else "not pulled"
            click.echo(f"{name:16s}  {source.description}  ({state})")
        return
    for name in names:
        if name not in cache.REGISTRY:
            near = difflib.get_close_matches(name, cache.REGISTRY, n=1)
            hint = f"did you mean {near[0]}?" if near else f"names: {', '.join(cache.REGISTRY)}"
            raise UsageError(f"no model called {name!r}; {hint}")
    for name in names:
        click.echo(str(cache.resolve(name) if cache.is_pulled(name) else pull(name)))
