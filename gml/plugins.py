"""Things that are found by name: gml's own by a table, other people's by the entry points of their packages.

Arrives: a group of entry points, a table of gml's own and a name; leaves: the object. The table is asked first, so that
a program that uses nothing foreign does not read what is installed (a hundred packages take a tenth of a second).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def plugin_names(group: str, own: Mapping[str, str]) -> list[str]:
    """All names, sorted."""
    from importlib.metadata import entry_points

    return sorted({*own, *(point.name for point in entry_points(group=group))})


def find_plugin(group: str, own: Mapping[str, str], name: str) -> Any:
    """The object of this name, or None. `own` maps names to "module:attribute"."""
    if name in own:
        module, _, attribute = own[name].partition(":")
        return getattr(import_module(module), attribute)
    from importlib.metadata import entry_points

    for point in entry_points(group=group):
        if point.name == name:
            return point.load()
    return None
