"""How many processors this process may use: affinity, shared cores and control groups taken into account.

Next module: `runtime.py`.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


@cache
def n_processors() -> int:
    """Processors that this process may use, counting threads of one core apart."""
    quota = cpu_quota(CGROUPS, _own_group())
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, n if quota is None else min(n, int(quota)))


@cache
def n_cores() -> int:
    """Physical cores that this process may use: processors that share a core count once, where the system tells."""
    if not hasattr(os, "sched_getaffinity"):
        return n_processors()
    cores: set[tuple[str, str]] = set()
    for cpu in os.sched_getaffinity(0):
        folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            cores.add(((folder / "physical_package_id").read_text(), (folder / "core_id").read_text()))
        except OSError:
            return n_processors()
    return max(1, min(len(cores), n_processors()))


def _own_group() -> str:
    """The path of this process's control group (version 2)."""
    try:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return line[3:]
    except OSError:
        pass
    return "/"


def cpu_quota(root: Path, group: str) -> float | None:
    """How many processors' time the control groups grant, None for no limit.

    Version 2 has `cpu.max` ("quota period" in microseconds, "max" for none) in the group and all groups around it;
    version 1 has `cpu.cfs_quota_us` (-1 for none) and `cpu.cfs_period_us`.
    """
    found: list[float] = []
    folder = root / group.strip("/")
    for place in (folder, *folder.parents):
        found += _ratio(_words(place / "cpu.max"))
        if place == root:
            break
    for place in (root / "cpu", root):
        found += _ratio(_words(place / "cpu.cfs_quota_us") + _words(place / "cpu.cfs_period_us"))
    return min(found, default=None)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _ratio(words: list[str]) -> list[float]:
    """[quota / period], or nothing where there is no limit."""
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or int(words[1]) == 0:
        return []
    return [int(words[0]) / int(words[1])]
