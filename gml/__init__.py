"""gml: define a static graph of tensor ops, compile it whole, run it.

    import gml

    ctx = gml.Context()
    x = ctx.input("x", gml.F32, [784, gml.Dim("n", max=64)])
    w = ctx.constant(weights)                                 # numpy array of shape (10, 784)
    program = gml.compile(gml.mul_mat(w, x))
    y = program(x=images)                                     # shape (n, 10)

Sizes are given fastest first (`ne`, as in ggml); arrays are numpy's. Every refusal is a `gml.Error`. This package
imports numpy only; backends, models and tools are packages of their own. Reading order: `gml/errors.py` first, each
module names the next one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gml.api import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The API, imported when something of it is first used: `gml --help` needs none of it."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'gml' has no attribute {name!r}")
    # not `from gml import api`, which would ask this function for it
    value = getattr(import_module("gml.api"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(import_module("gml.api").__all__)
