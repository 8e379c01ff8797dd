"""A graph: everything that some outputs need, in a stable order, with counts, a structural hash and dumps.

Arrives: output tensors; leaves: the leaves and the op nodes in creation order, which is a topological order because
sources exist before what uses them. Effects (ops that write states) happen in that order too. No node limit, no
recursion. Next module: `gml/backend.py`, which says what a backend makes of a graph.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gml.dims import Dim
from gml.errors import GraphError
from gml.tensor import Tensor


class Graph:
    """The sub-graph that `outputs` depend on.

    outputs   tensors that can be read after a run, and effects (results of `cpy`, `set_rows`, ...) that must happen
    nodes     results in execution order; leaves in creation order
    dims      the run-time sizes by name

    Raises `GraphError` when two different tensors share a name that was given to an input, or two dims share a name.
    """

    def __init__(self, outputs: Sequence[Tensor] | Tensor, name: str = "") -> None:
        if not isinstance(outputs, (Tensor, Sequence)):
            found = type(outputs).__name__
            raise GraphError(f"outputs of a graph must be a Tensor or a sequence of them, found {found}")
        self.outputs: tuple[Tensor, ...] = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
        if not self.outputs:
            raise GraphError("a graph needs at least one output")
        self.name = name
        reached = _reach(self.outputs)
        self.leaves = [t for t in reached if t.is_leaf]
        self.nodes = [t for t in reached if not t.is_leaf]
        self.index = {t: i for i, t in enumerate(self.leaves + self.nodes)}
        self.inputs = _by_name([t for t in self.leaves if t.role == "input"])
        self.dims = _dims_by_name(reached)

    @property
    def kept(self) -> list[Tensor]:
        """Tensors that can be read after a run: outputs, and what was asked for with `Tensor.keep`."""
        outputs = set(self.outputs)
        return [t for t in self.nodes + self.leaves if t in outputs or t.kept]

    def counts(self) -> dict[str, int]:
        """How many nodes there are of each op, most frequent first."""
        return dict(Counter(t.op.name for t in self.nodes if t.op).most_common())

    def hash(self) -> str:
        """SHA-256 of the structure: ops, attributes, types, sizes, strides, wiring, outputs.

        Names and values of leaves do not matter.
        """
        digest = hashlib.sha256()
        for tensor in self.leaves + self.nodes:
            row = (
                tensor.op.name if tensor.op else tensor.role,
                repr(tensor.attrs),
                tensor.type.name,
                *(str(n) for n in (*tensor.ne, *tensor.nb, tensor.offset)),
                *(self.index[s] for s in tensor.src),
                self.index[tensor.view_of] if tensor.view_of is not None else -1,
                tensor.kept,
            )
            digest.update(repr(row).encode())
        digest.update(repr([self.index[t] for t in self.outputs]).encode())
        for dim in self.dims.values():
            digest.update(repr((dim.name, dim.min, dim.max)).encode())
        return digest.hexdigest()

    def label(self, tensor: Tensor) -> str:
        """The tensor's name in dumps: `%index`, with its own name behind it."""
        number = f"%{self.index[tensor]}"
        return f"{number}:{tensor.name}" if tensor.name else number

    def text(self) -> str:
        """One line per tensor: leaves, then nodes in execution order. The same graph always gives the same text."""
        dims = ", ".join(f"{d.name} in {d.min}..{d.max}" for d in self.dims.values())
        lines = [f"graph {self.name or '(unnamed)'}: {len(self.leaves)} leaves, {len(self.nodes)} nodes"]
        lines += [f"  run-time sizes: {dims}"] if dims else []
        lines += [f"  {self.label(t)} = {t.role} {type_text(t)}" for t in self.leaves]
        outputs = set(self.outputs)
        for t in self.nodes:
            arguments = ", ".join([self.label(s) for s in t.src] + attr_texts(t.attrs))
            mark = " -> output" if t in outputs else " -> kept" if t.kept else ""
            lines.append(f"  {self.label(t)} = {t.op.name if t.op else ''}({arguments}) {type_text(t)}{mark}")
        return "\n".join(lines) + "\n"

    def to_dot(self) -> str:
        """The graph in Graphviz's DOT language."""
        outputs = set(self.outputs)
        lines = ["digraph gml {", "  rankdir=TB; node [shape=box, fontname=monospace, fontsize=10];"]
        for t in self.leaves + self.nodes:
            what = t.op.name if t.op else t.role
            text = _dot_escape(f"{what}\n{t.name or self.label(t)}\n{type_text(t)}")
            style = ', style=filled, fillcolor="#e8e8e8"' if t.is_leaf else ", penwidth=2" if t in outputs else ""
            lines.append(f'  n{self.index[t]} [label="{text}"{style}];')
        for t in self.nodes:
            lines += [f'  n{self.index[s]} -> n{self.index[t]} [label="{i}"];' for i, s in enumerate(t.src)]
        return "\n".join([*lines, "}"]) + "\n"

    def to_json(self) -> str:
        """The graph as one JSON object: dims, leaves, nodes, outputs."""

        def row(t: Tensor) -> dict[str, Any]:
            shape = {"type": t.type.name, "ne": [_json_size(n) for n in t.ne], "nb": [_json_size(n) for n in t.nb]}
            made: dict[str, Any] = {}
            if t.op:
                made = {"op": t.op.name, "src": [self.index[s] for s in t.src], "attrs": attr_texts(t.attrs)}
            return {"id": self.index[t], "name": t.name, "role": t.role, **shape, **made}

        return json.dumps(
            {
                "name": self.name,
                "dims": [{"name": d.name, "min": d.min, "max": d.max} for d in self.dims.values()],
                "leaves": [row(t) for t in self.leaves],
                "nodes": [row(t) for t in self.nodes],
                "outputs": [self.index[t] for t in self.outputs],
            },
            indent=1,
        )

    def find(self, name: str) -> Tensor:
        """The tensor of this name. Raises `GraphError` when there is none or more than one."""
        found = [t for t in self.leaves + self.nodes if t.name == name]
        if len(found) != 1:
            raise GraphError(f"{len(found)} tensors are called {name!r} in graph {self.name!r}; expected exactly one")
        return found[0]

    def __repr__(self) -> str:
        return f"<Graph {self.name or '(unnamed)'}: {len(self.leaves)} leaves, {len(self.nodes)} nodes>"


def _reach(outputs: Sequence[Tensor]) -> list[Tensor]:
    """All tensors that the outputs depend on, in creation order."""
    seen: set[Tensor] = set()
    pending = list(outputs)
    while pending:
        tensor = pending.pop()
        if not isinstance(tensor, Tensor):
            raise GraphError(f"outputs of a graph must be Tensors, found {type(tensor).__name__}")
        if tensor not in seen:
            seen.add(tensor)
            pending.extend(tensor.src)
    return sorted(seen, key=lambda t: t.serial)


def _by_name(inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for tensor in inputs:
        if tensor.name in found:
            raise GraphError(f"two inputs are called {tensor.name!r}; give them different names")
        found[tensor.name] = tensor
    return found


def _dims_by_name(tensors: Sequence[Tensor]) -> dict[str, Dim]:
    found: dict[str, Dim] = {}
    for tensor in tensors:
        for dim in tensor.dims:
            if found.setdefault(dim.name, dim) != dim:
                other = found[dim.name]
                bounds = f"{other.min}..{other.max} and {dim.min}..{dim.max}"
                raise GraphError(f"two run-time sizes are called {dim.name!r}, with bounds {bounds}; rename one")
    return dict(sorted(found.items()))


def type_text(t: Tensor) -> str:
    """Type and sizes in dumps, with the strides where the tensor is not contiguous."""
    text = f"{t.type.name}[{', '.join(str(n) for n in t.ne[: t.n_dims])}]"
    return text if t.is_contiguous() else text + f" nb=[{', '.join(str(n) for n in t.nb)}]"


def attr_texts(attrs: Any) -> list[str]:
    """`name=value` of the attributes that are not the default."""
    fields = getattr(attrs, "__dataclass_fields__", {})
    texts = []
    for name, field in fields.items():
        value = getattr(attrs, name)
        if value != field.default:
            texts.append(f"{name}={getattr(value, '__name__', None) or value}")
    return texts


def _json_size(size: Any) -> Any:
    return size if isinstance(size, int) else str(size)


def _dot_escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
