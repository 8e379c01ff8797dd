"""`gml pull`: fetch a model by name.

Arrives: names; leaves: files in the user's cache folder, their paths on standard output.
"""

from __future__ import annotations

import click


@click.command("pull")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def command(names: tuple[str, ...]) -> None:
    """Fetch models into the cache folder; without NAME, list those that are known."""
    from gml.models import cache
    from gml.tools.models import pull

    if not names:
        for name, model in cache.REGISTRY.items():
            state = str(cache.resolve(name)) if cache.is_pulled(name) else "not here yet"
            click.echo(f"{name:12s}  {model.description}; {model.licence}; {state}")
    # a misspelt name is found before anything is fetched
    for name in names:
        cache.is_pulled(name)
    for name in names:
        click.echo(str(pull(name)))
