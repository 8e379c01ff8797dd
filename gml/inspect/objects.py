"""The same as `text.py` for programs: stages as plain lists and dicts, to be written as JSON.

Arrives: a `CompiledGraph`; leaves: objects of numbers, strings, lists and dicts. Next module: `stages.py`.
"""

from __future__ import annotations

from typing import Any

from gml.compiler.plan import CompiledGraph
from gml.compiler.verify import lives_of
from gml.dims import is_static, max_of
from gml.graph import attr_texts
from gml.inspect.text import Labels, chunks_text, kernel_name, matches, parts, wanted
from gml.tensor import Tensor


def tensor_object(labels: Labels, t: Tensor) -> dict[str, Any]:
    """A tensor: label, type, ne; how it is made."""
    found: dict[str, Any] = {"id": labels.label(t), "type": t.type.name}
    found["ne"] = [n if is_static(n) else str(n) for n in t.ne]
    if t.op is not None:
        found |= {"op": t.op.name, "src": [labels.label(s) for s in t.src], "attrs": attr_texts(t.attrs)}
    return found


def regions_object(compiled: CompiledGraph, only: str | None = None) -> list[dict[str, Any]]:
    """Regions in the order in which they run; the last node is stored."""
    labels, ask = Labels(compiled.state), wanted(only)
    return [
        {
            "region": number,
            "part": part,
            "phase": at,
            "kernel": kernel_name(invocation),
            "reads": [labels.label(t) for t in invocation.region.inputs],
            "nodes": [tensor_object(labels, n) for n in invocation.region.nodes],
        }
        for part, at, invocations in parts(compiled)
        for number, invocation in invocations
        if matches(invocation, ask)
    ]


def phases_object(compiled: CompiledGraph, only: str | None = None) -> list[dict[str, Any]]:
    """Phases: what runs side by side."""
    labels, ask = Labels(compiled.state), wanted(only)
    found = []
    for part, at, invocations in parts(compiled):
        rows = [
            {
                "region": number,
                "kernel": kernel_name(invocation),
                "chunks": chunks_text(invocation),
                "out": labels.label(invocation.region.out),
            }
            for number, invocation in invocations
            if matches(invocation, ask)
        ]
        if rows:
            found.append({"part": part, "phase": at, "regions": rows})
    return found


def memory_object(compiled: CompiledGraph, only: str | None = None) -> dict[str, Any]:
    """The activation buffer and where results lie in it."""
    labels, ask, plan = Labels(compiled.state), wanted(only), compiled.plan
    return {
        "peak_bytes": plan.peak_bytes,
        "lower_bytes": plan.lower_bytes,
        "hoisted_bytes": sum(max_of(t.n_bytes) for t in compiled.hoisted),
        "results": [
            {
                "tensor": labels.label(life.root),
                "first": life.first,
                "last": life.last,
                "offset": life.start,
                "bytes": life.stop - life.start,
            }
            for life in sorted(lives_of(compiled), key=lambda life: (life.first, life.last, life.start))
            if ask(life.root.name)
        ],
    }
