"""Targets: one row each, what a machine's vector units can do.

Arrives: nothing, or a name (`GML_TARGET`, `--target`); leaves: a `Target`. Next module: `legalise.py`.
"""

from __future__ import annotations

import platform

from gml.debug import knobs
from gml.errors import UsageError
from gml.records import dataclass


@dataclass(frozen=True)
class Target:
    """A row of the ISA table.

    name         what users call it
    arch         LLVM's name of the architecture
    cpu          LLVM's CPU name
    features     LLVM feature string
    dot          how u8 x s8 products are summed: "maddubs" (pairs in 16 bits), "vpdpbusd", "sdot", "usdot" or "widen"
    vector_bytes width of a register
    f16          half floats are converted by an instruction
    fma          a fused multiply-add is an instruction
    rounds       rounding to whole numbers is an instruction
    needs        host features (LLVM's names) without which it cannot run here
    """

    name: str
    arch: str
    cpu: str
    features: str
    dot: str
    vector_bytes: int
    f16: bool
    fma: bool
    rounds: bool
    needs: tuple[str, ...]

    @property
    def triple(self) -> str:
        """The triple that assembly for another machine is made with."""
        return f"{self.arch}-unknown-linux-gnu"


_V3 = ("avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_AVX2 = "+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt"
_AVX512 = f"{_AVX2},+avx512f,+avx512bw,+avx512dq,+avx512vl,+prefer-256-bit"

#: from the least to the most able, per architecture
TARGETS = (
    Target("x86-64", "x86_64", "x86-64", "+sse2", "widen", 16, False, False, False, ("sse2",)),
    Target("avx2", "x86_64", "x86-64-v3", _AVX2, "maddubs", 32, True, True, True, _V3),
    Target("avxvnni", "x86_64", "x86-64-v3", f"{_AVX2},+avxvnni", "vpdpbusd", 32, True, True, True, (*_V3, "avxvnni")),
    # registers of 256 bits: kernels give no wider vectors, and wide ones lower the clock of some machines
    Target("avx512", "x86_64", "x86-64-v4", _AVX512, "maddubs", 32, True, True, True, _V4),
    Target(
        "avx512-vnni", "x86_64", "x86-64-v4", f"{_AVX512},+avx512vnni", "vpdpbusd", 32, True, True, True,
        (*_V4, "avx512vnni"),
    ),
    Target(
        "avx512-bf16", "x86_64", "x86-64-v4", f"{_AVX512},+avx512vnni,+avx512bf16", "vpdpbusd", 32, True, True, True,
        (*_V4, "avx512vnni", "avx512bf16"),
    ),
    Target("neon", "aarch64", "generic", "+neon", "widen", 16, True, True, True, ("neon",)),
    Target("neon-dotprod", "aarch64", "generic", "+neon,+dotprod", "sdot", 16, True, True, True, ("neon", "dotprod")),
    Target(
        "neon-i8mm", "aarch64", "generic", "+neon,+dotprod,+i8mm", "usdot", 16, True, True, True,
        ("neon", "dotprod", "i8mm"),
    ),
)  # fmt: skip

_ARCHES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def host_arch() -> str:
    """LLVM's name of this machine's architecture."""
    machine = platform.machine().lower()
    return _ARCHES.get(machine, machine)


def by_name(name: str) -> Target:
    """The row of this name. Raises `UsageError` listing those there are."""
    for target in TARGETS:
        if target.name == name:
            return target
    raise UsageError(f"unknown target {name!r}; known: {', '.join(t.name for t in TARGETS)}")


def runs_here(target: Target, features: dict[str, bool]) -> bool:
    """Whether this machine can execute the target's code."""
    return target.arch == host_arch() and all(features.get(f, False) or f in ("sse2", "neon") for f in target.needs)


def detect(name: str | None = None) -> Target:
    """The target to run on: the one asked for by `name` or `GML_TARGET`, else the best that this machine has.

    Raises `UsageError` for an unknown name or a target that this machine cannot run.
    """
    from gml.backends.cpu.jit import host_features

    features = host_features()
    wanted = name or knobs.target
    usable = [t for t in TARGETS if runs_here(t, features)]
    if wanted:
        target = by_name(wanted)
        if target not in usable:
            raise UsageError(
                f"this machine cannot run target {wanted!r}; it can run {', '.join(t.name for t in usable)}"
            )
        return target
    if not usable:
        raise UsageError(f"no target for this machine ({host_arch()}); use the reference backend")
    return usable[-1]
