"""What reproducers are made of: a region built from its parts, run alone and compared with the ops' references.

Arrives: calls of a script that `reproduce.py` wrote; leaves: an exit status. Next module: `gml/api.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gml.compiler.lower_region import chunks_of, region_roots, signature
from gml.compiler.memory import plan_memory
from gml.compiler.plan import CompiledGraph, Invocation
from gml.compiler.regions import Region
from gml.compiler.state import Options, State
from gml.dims import Dim, Size
from gml.dtypes import DType
from gml.errors import Error, UsageError
from gml.graph import Graph
from gml.inspect.check import Checker, CheckError
from gml.ops.base import OpDef, registry
from gml.quants import by_name
from gml.tensor import Tensor


class Replay:
    """The parts of a region, by the names in `region.npz` beside the script `file`."""

    def __init__(self, file: str | Path) -> None:
        self.folder = Path(file).resolve().parent
        self.arrays = dict(np.load(self.folder / "region.npz", allow_pickle=False))
        self.values: dict[Dim, int] = {}

    def dim(self, name: str, value: int, *, min: int, max: int) -> Dim:
        """A run-time size and its value."""
        dim = Dim(name, max=max, min=min)
        self.values[dim] = value
        return dim

    def type(self, name: str) -> DType:
        """A type by name."""
        return by_name(name)

    def leaf(self, name: str, type: str, *, ne: Sequence[Size], nb: Sequence[Size], role: str) -> Tensor:
        """A tensor over saved bytes."""
        made = Tensor(by_name(type), ne, nb=nb, role=role, name=name)
        made.storage = self.arrays[name].copy()
        return made

    def view(self, root: Tensor, type: str, *, ne: Sequence[Size], nb: Sequence[Size], offset: Size) -> Tensor:
        """A look into a leaf's bytes."""
        op = registry["view"]
        return Tensor(by_name(type), ne, nb=nb, op=op, attrs=None, src=(root,), view_of=root, offset=offset)

    def op(self, name: str, module: str = "", path: str | None = None) -> OpDef:
        """An op by its name, or as a variable of a module. Raises `UsageError` when there is none."""
        if module:
            return getattr(_module(module, path), name)
        if name not in registry:
            raise UsageError(f"the op {name!r} is in no module that can be imported; import what declares it here")
        return registry[name]

    def attrs(self, name: str, module: str, path: str | None = None) -> Any:
        """A class of attributes."""
        found: Any = _module(module, path)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def node(
        self, op: OpDef, attrs: Any, src: Sequence[Tensor], type: str, *, ne: Sequence[Size], nb: Sequence[Size]
    ) -> Tensor:
        """A result."""
        target = None if op.writes is None else src[op.writes]
        offset = 0 if target is None else target.offset
        return Tensor(
            by_name(type), ne, nb=nb, op=op, attrs=attrs, src=tuple(src), view_of=target, offset=offset, name=op.name
        )

    def run(self, kernel: str, nodes: Sequence[Tensor], backend: Any, *, lanes: int) -> int:
        """Compile the nodes as one region, run it, compare; 1 when it differs from the references, else 0."""
        region, options = Region(list(nodes)), Options(lanes=lanes)
        state = State.start(Graph(region.out, name="reproducer"), options)
        compiled = CompiledGraph(state, {kernel: region}, {kernel: signature(region, options)})
        invocation = Invocation(kernel, tuple(region_roots(region)), chunks_of(region), region)
        compiled.step = [[invocation]]
        compiled.plan = plan_memory([[region]], [region.out], set())
        program = backend.program(compiled)
        values = {dim: self.values[dim] for dim in state.dims}
        try:
            Checker(program, None, reproducing=True).run(invocation, values, "r0")
        except CheckError as error:
            print(error)
            return 1
        print(f"kernel {kernel} agrees with the references of its ops")
        return 0


def _module(name: str, path: str | None) -> Any:
    """A module by name, or from the file it was in when it cannot be imported by name."""
    if name in sys.modules and name != "__main__":
        return sys.modules[name]
    if name != "__main__":
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    spec = importlib.util.spec_from_file_location(name if name != "__main__" else "reproduced", path) if path else None
    if spec is None or spec.loader is None:
        raise Error(f"the module {name!r} cannot be imported; put its folder on PYTHONPATH")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
