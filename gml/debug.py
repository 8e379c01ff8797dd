"""Debugging knobs: one row each. Every knob is an environment variable and an attribute of `gml.debug.knobs`.

Imports nothing but the errors. Next module: `gml/dtypes.py`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from gml.errors import UsageError
from gml.records import dataclass, field


@dataclass(frozen=True)
class Knob:
    """One row: the environment variable, what kind of value it takes, its default and its meaning."""

    variable: str
    kind: type
    default: Any
    meaning: str


KNOBS = {
    "debug": Knob(
        "GML_DEBUG",
        int,
        0,
        "what is printed while compiling, each level more: 1 timings, and tracebacks of errors; 2 the graph; 3 fused "
        "regions, phases, memory; 4 kernel IR; 5 the tensor ops after every pass; 6 LLVM IR; 7 assembly",
    ),
    "dump": Knob("GML_DUMP", str, "", "folder that gets a numbered folder per compiled graph, every stage as text"),
    "check": Knob(
        "GML_CHECK",
        int,
        0,
        "1: passes are verified, and every region is compared with the ops' references while it runs; the first one "
        "that differs is an error and leaves a reproducer behind",
    ),
    "threads": Knob("GML_THREADS", int, 0, "worker threads; 0: one per physical core"),
    "target": Knob(
        "GML_TARGET", str, "", "instruction set to compile for (x86-64, avx2, ...); empty: the best this machine has"
    ),
    "passes": Knob("GML_PASSES", str, "", "passes to leave out, each with a minus: -fuse,-merge"),
    "poison": Knob("GML_POISON", int, 0, "1: memory released by an arena is filled with NaN"),
    "cache_dir": Knob(
        "GML_CACHE_DIR", str, "", "folder for pulled models and compiled code; empty: the user's cache folder"
    ),
}


def _parse(knob: Knob, text: str) -> Any:
    try:
        return knob.kind(text)
    except ValueError:
        raise UsageError(f"{knob.variable}: expected {knob.kind.__name__}, found {text!r}; {knob.meaning}") from None


@dataclass
class Knobs:
    """Values of the knobs: what was set from Python, else the environment variable, else the default."""

    overrides: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        knob = KNOBS.get(name)
        if knob is None:
            raise AttributeError(f"no knob {name!r}; known: {', '.join(KNOBS)}")
        if name in self.overrides:
            return self.overrides[name]
        text = os.environ.get(knob.variable, "")
        return _parse(knob, text) if text else knob.default

    def set(self, **values: Any) -> None:
        """Override knobs from Python; `None` goes back to the environment."""
        for name, value in values.items():
            if name not in KNOBS:
                raise UsageError(f"no knob {name!r}; known: {', '.join(KNOBS)}")
            if value is None:
                self.overrides.pop(name, None)
            else:
                self.overrides[name] = _parse(KNOBS[name], str(value))


knobs = Knobs()


def inspector() -> Any:
    """The package `gml.inspect`, imported when something is to be looked at.

    It comes after the compiler and the backends, which ask for it here by name, so that nobody pays for what is off.
    """
    return import_module("gml.inspect")
