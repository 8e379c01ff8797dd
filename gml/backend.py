"""What a backend is: it compiles a graph into a program, and a program runs.

Arrives: a `Graph`; leaves: a `Program` whose results can be read. Backends are found by name (`plugins.py`): gml's own
in a table, others by the entry point `gml.backends`, so that they can live in anybody's package. Next:
`backends/reference`, then `models/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from gml.debug import inspector
from gml.dims import Dim
from gml.errors import GraphError, UnsupportedError
from gml.graph import Graph
from gml.plugins import find_plugin, plugin_names
from gml.tensor import Tensor, match_shape

GROUP = "gml.backends"
#: the backends that come with gml
OWN = {"cpu": "gml.backends.cpu:CpuBackend", "reference": "gml.backends.reference:ReferenceBackend"}


class Backend(Protocol):
    """Turns graphs into programs."""

    name: str

    def compile(self, graph: Graph) -> Program:
        """A program for the graph."""
        ...


class Program(ABC):
    """A compiled graph. `run` executes one step with the inputs as they are; `read` gives kept values of the last step.

    Calling the program sets inputs by name, runs, and returns the outputs:

        y = program(x=np.ones((4, 784)))
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: dict[Dim, int] = {}

    @abstractmethod
    def _execute(self, values: dict[Dim, int]) -> None:
        """Run one step at these run-time sizes."""

    def dump(self, stage: str = "graph", only: str | None = None, kind: str = "text") -> str:
        """One stage of the way from the graph to machine code: graph, ops, fused, phases, memory, kernel, llvm or asm.

        only  a tensor's or a kernel's name, a pattern with * and ?, or the number in front of a kernel's name (k12)
        kind  "text"; "json" for graph, fused, phases and memory; "dot" for graph

        Raises `UsageError` for what does not exist, `UnsupportedError` for a stage that this backend does not have.
        """
        return inspector().dump(self, stage, only, kind)

    @abstractmethod
    def read(self, tensor: Tensor) -> np.ndarray:
        """The value of an output, a kept tensor or a leaf after the last run, in numpy's order; valid until the next
        run.

        Raises `GraphError` for tensors that were neither outputs nor kept, or before the first run.
        """

    def prepare(self) -> None:
        """Begin what the first run has to do before its step, where a backend can do it in the background."""
        return

    def run(self, **sizes: int) -> None:
        """One step. Run-time sizes are given by name; those that inputs were `set` with are known.

        Raises `GraphError` for a missing, unknown or out-of-bounds size.
        """
        self.values = self._sizes(sizes)
        self._execute(self.values)

    def __call__(self, *, sizes: Mapping[str, int] | None = None, **inputs: Any) -> Any:
        """Set inputs by name, run one step, return copies of the outputs (one array, or a list for several outputs)."""
        found = dict(sizes or {})
        missing = self.graph.inputs.keys() - inputs.keys()
        unknown = inputs.keys() - self.graph.inputs.keys()
        if unknown or missing:
            complaint = f"unknown inputs {sorted(unknown)}" if unknown else f"missing inputs {sorted(missing)}"
            raise GraphError(f"{complaint}; this program takes {sorted(self.graph.inputs)}")
        for name, array in inputs.items():
            tensor = self.graph.inputs[name].set(array)
            for dim, value in match_shape(tensor, np.shape(array)).items():
                other = found.setdefault(dim.name, value)
                if other != value:
                    raise GraphError(f"input {name!r} has {dim.name} = {value}, another input or sizes= has {other}")
        self.run(**found)
        results = [self.read(t).copy() for t in self.graph.outputs]
        return results[0] if len(results) == 1 else results

    def _sizes(self, given: Mapping[str, int]) -> dict[Dim, int]:
        dims = self.graph.dims
        if unknown := given.keys() - dims.keys():
            raise GraphError(f"unknown run-time sizes {sorted(unknown)}; this program has {sorted(dims)}")
        learnt: dict[Dim, int] = {}
        for tensor in self.graph.inputs.values():
            if tensor.owner is not None:
                learnt.update(tensor.owner.dim_values)
        values: dict[Dim, int] = {}
        for name, dim in dims.items():
            value = given.get(name, learnt.get(dim))
            if value is None:
                raise GraphError(f"the run-time size {name!r} has no value; pass {name}=... (at most {dim.max})")
            if not isinstance(value, (int, np.integer)):
                raise GraphError(f"{name} must be a whole number, found {value!r}")
            if not dim.min <= value <= dim.max:
                raise GraphError(f"{name} = {value} is out of bounds: this graph was made for {dim.min} to {dim.max}")
            values[dim] = int(value)
        return values


def backend_names() -> list[str]:
    """Names of the installed backends."""
    return plugin_names(GROUP, OWN)


def get_backend(name: str, **options: Any) -> Backend:
    """The backend of this name, made with `options`. Raises `UnsupportedError` when none is installed under it."""
    found = find_plugin(GROUP, OWN, name)
    if found is None:
        raise UnsupportedError(f"unknown backend {name!r}; installed: {', '.join(backend_names())}")
    return found(**options)


def compile(graph: Graph | Tensor, backend: str | Backend = "reference", **options: Any) -> Program:
    """A program for a graph (or for one output tensor) on a backend given by name or as an object."""
    if isinstance(graph, Tensor):
        graph = Graph(graph)
    chosen = get_backend(backend, **options) if isinstance(backend, str) else backend
    return chosen.compile(graph)


def default_backend() -> str:
    """The name of the backend that is used when none is asked for: the compiled one."""
    return "cpu"
