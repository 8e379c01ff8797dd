"""`Program.dump`: one stage of a program's way from the graph to machine code.

Arrives: a program, the stage's name; leaves: text or JSON. Next module: `watch.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gml.compiler.plan import CompiledGraph
from gml.errors import UnsupportedError, UsageError
from gml.inspect.objects import memory_object, phases_object, regions_object
from gml.inspect.text import matches, memory_text, parts, phases_text, regions_text, state_text, wanted
from gml.kernel_ir import Kernel
from gml.kernel_ir.printer import print_kernel

if TYPE_CHECKING:
    from gml.backend import Program

#: every stage and what it shows
STAGES = {
    "graph": "the graph as it was defined",
    "ops": "the tensor ops behind all passes",
    "fused": "regions: ops that became one kernel",
    "phases": "what runs side by side, and how much work it is",
    "memory": "where results lie in the activation buffer",
    "kernel": "kernel IR",
    "llvm": "LLVM IR",
    "asm": "assembly",
}

_TEXTS: dict[str, Callable[[CompiledGraph, str | None], str]] = {
    "ops": lambda compiled, only: state_text(compiled.state, only),
    "fused": regions_text,
    "phases": phases_text,
    "memory": memory_text,
}
_OBJECTS: dict[str, Callable[[CompiledGraph, str | None], Any]] = {
    "fused": regions_object,
    "phases": phases_object,
    "memory": memory_object,
}


def dump(program: Program, stage: str = "graph", only: str | None = None, kind: str = "text") -> str:
    """A stage of a program as text, JSON (graph, fused, phases, memory) or DOT (graph).

    only  a tensor's or a kernel's name, a pattern with * and ?, or the number in front of a kernel's name (k12)

    Raises `UsageError` for a stage, format or name that does not exist, `UnsupportedError` for a stage that the
    program's backend does not have.
    """
    if stage not in STAGES:
        raise UsageError(f"stage: expected one of {', '.join(STAGES)}; found {stage!r}")
    kinds = ["text", *(["json", "dot"] if stage == "graph" else ["json"] if stage in _OBJECTS else [])]
    if kind not in kinds:
        raise UsageError(f"format of stage {stage}: expected one of {', '.join(kinds)}; found {kind!r}")
    if stage == "graph":
        if only is not None and kind != "text":
            raise UsageError(f"a graph as {kind} is shown whole; leave out {only!r}")
        return _graph(program, only, kind)
    compiled = getattr(program, "compiled", None)
    if not isinstance(compiled, CompiledGraph):
        raise UnsupportedError(f"this program has no stage {stage!r}: its backend runs the graph as it is")
    if stage in _TEXTS and only is not None:
        _require(compiled, stage, only)
    if stage in _OBJECTS and kind == "json":
        return json.dumps(_OBJECTS[stage](compiled, only), indent=1) + "\n"
    if stage in _TEXTS:
        return _TEXTS[stage](compiled, only)
    return kernels_text(program, stage, choose(compiled, only))


def _graph(program: Program, only: str | None, kind: str) -> str:
    graph = program.graph
    text = {"text": graph.text, "json": graph.to_json, "dot": graph.to_dot}[kind]().rstrip("\n") + "\n"
    if only is None:
        return text
    ask = wanted(only)
    tensors = [t for t in graph.leaves + graph.nodes if t.name and ask(t.name)]
    if not tensors:
        raise UsageError(f"no tensor of the graph is called {only!r}")
    shown = {graph.label(t) for t in tensors}
    return "".join(f"{line.strip()}\n" for line in text.splitlines() if line.split(" = ")[0].strip() in shown)


def _require(compiled: CompiledGraph, stage: str, only: str) -> None:
    """Raises `UsageError` when a stage has nothing of this name."""
    ask = wanted(only)
    if stage == "ops":
        found = any(t.name and ask(t.name) for t in compiled.state.leaves + compiled.state.nodes)
    elif stage == "memory":
        found = any(t.name and ask(t.name) for t in compiled.plan.offsets)
    else:
        found = any(matches(i, ask) for _, _, invocations in parts(compiled) for _, i in invocations)
    if not found:
        what = "tensor" if stage in ("ops", "memory") else "kernel or tensor"
        raise UsageError(f"no {what} of stage {stage} is called {only!r}")


def choose(compiled: CompiledGraph, only: str | None) -> dict[str, Kernel]:
    """The kernels that are asked for. Raises `UsageError` when there are none."""
    ask = wanted(only)
    found = {name: kernel for name, kernel in compiled.kernels.items() if ask(name)}
    if not found and only is not None:
        some = ", ".join(list(compiled.kernels)[:4])
        raise UsageError(f"no kernel is called {only!r}; there are {len(compiled.kernels)}: {some}, ...")
    return found


def kernels_text(program: Program, stage: str, kernels: dict[str, Kernel]) -> str:
    """Kernels as kernel IR, or as what the backend makes of it."""
    if stage == "kernel":
        return "\n".join(print_kernel(kernel) for kernel in kernels.values())
    native = getattr(program, "native_text", None)
    if native is None:
        raise UnsupportedError(f"this program has no stage {stage!r}: its backend interprets kernel IR")
    return native(stage, list(kernels.values())).rstrip("\n") + "\n"
