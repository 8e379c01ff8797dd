"""Phases: regions that do not depend on each other run side by side, with one barrier behind each phase.

Arrives: regions in execution order; leaves: phases, each a list of regions. A region comes after those whose results it
reads, after those that read what it overwrites, and after those that wrote the same storage before. Next module:
`memory.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gml.compiler.regions import Region
from gml.tensor import Tensor


def lay_out(regions: Sequence[Region]) -> list[list[Region]]:
    """Regions by the earliest phase that they can be in."""
    phases: list[list[Region]] = []
    written: dict[Tensor, int] = {}
    read: dict[Tensor, int] = {}
    for region in regions:
        level = 0
        for root in region.reads:
            level = max(level, written.get(root, -1) + 1)
        target = region.writes
        level = max(level, written.get(target, -1) + 1, read.get(target, -1) + 1)
        written[target] = level
        for root in region.reads:
            read[root] = max(read.get(root, -1), level)
        while len(phases) <= level:
            phases.append([])
        phases[level].append(region)
    return phases
