"""Reproducers: a region that went wrong, as a folder that shows it without the model it came from.

Arrives: an invocation, the bytes that it read, the values that were expected; leaves: `region.npz`, the kernel as
`kernel.ir`, and `reproduce.py`, which builds the region from its ops, runs it on the saved bytes and compares. Next
module: `replay.py`, which those scripts use.
"""

from __future__ import annotations

import dataclasses
import io
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gml.compiler.lower_region import region_roots
from gml.compiler.plan import Invocation
from gml.compiler.program import PlannedProgram
from gml.dims import Dim, SizeExpr
from gml.dtypes import DType
from gml.errors import Error
from gml.inspect.files import new_folder, write
from gml.kernel_ir.printer import print_kernel
from gml.ops.base import OpDef, registry
from gml.tensor import Tensor

HEAD = '''"""{message}

`python reproduce.py` compiles this region alone, runs it on the saved inputs (region.npz) and compares the result with
the ops' references; exit status 1 when it differs. kernel.ir is the kernel as it was when the program ran.
"""

import {module}

from gml.inspect.replay import Replay

r = Replay(__file__)
'''


def write_reproducer(
    program: PlannedProgram,
    invocation: Invocation,
    storage: Mapping[Tensor, np.ndarray],
    values: Mapping[Dim, int],
    found: np.ndarray,
    expected: np.ndarray,
    message: str,
    parent: Path | None,
) -> Path:
    """Write a reproducer into a folder of its own below `parent` (the current folder); gives the script's path.

    storage   root -> bytes before the region ran
    found     the bytes of its result's root
    expected  the values of the result

    Raises `Error` where the system refuses to write.
    """
    folder = new_folder(parent or Path.cwd(), "gml-check-")
    roots = region_roots(invocation.region)
    arrays = {f"root{i}": storage[root] for i, root in enumerate(roots) if root in storage}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, found=found, expected=expected, **arrays)
    write(folder / "region.npz", buffer.getvalue())
    write(folder / "kernel.ir", print_kernel(program.compiled.kernels[invocation.kernel]))
    # the script last: where it is, everything is
    write(folder / "reproduce.py", script(program, invocation, values, message))
    return folder / "reproduce.py"


def script(program: PlannedProgram, invocation: Invocation, values: Mapping[Dim, int], message: str) -> str:
    """The text of `reproduce.py`."""
    region, state = invocation.region, program.compiled.state
    recipe = program.recipe()
    text = message.replace("\\", "\\\\").replace('"""', "'''")
    lines = [HEAD.format(message="\n".join(_wrapped(text)), module=recipe.split("(")[0].rpartition(".")[0])]
    for dim in state.dims:
        lines.append(f"{dim.name} = r.dim({dim.name!r}, {values[dim]}, min={dim.min}, max={dim.max})")
    names: dict[Tensor, str] = {}
    roots = {root: f"root{i}" for i, root in enumerate(region_roots(region))}
    for root, name in roots.items():
        if root in {t.root for t in region.inputs}:
            role = root.role if root.is_leaf else "input"
            lines.append(f"{name} = r.leaf({name!r}, {_shape(root)}, role={role!r})")
            names[root] = name
    for i, tensor in enumerate(region.inputs):
        if tensor not in names:
            names[tensor] = f"in{i}"
            at = f"offset={_value(tensor.offset)}"
            lines.append(f"in{i} = r.view({roots[tensor.root]}, {_shape(tensor)}, {at})")
    for i, node in enumerate(region.nodes):
        names[node] = f"n{i}"
        sources = ", ".join(names[s] for s in node.src)
        lines.append(f"n{i} = r.node({_op(node)}, {_attrs(node.attrs)}, [{sources}], {_shape(node)})")
    nodes = ", ".join(names[n] for n in region.nodes)
    options = f"lanes={state.options.lanes}"
    lines.append(f"\nraise SystemExit(r.run({invocation.kernel!r}, [{nodes}], {recipe}, {options}))")
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int = 118) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _shape(t: Tensor) -> str:
    return f"{t.type.name!r}, ne={_value(t.ne)}, nb={_value(t.nb)}"


def _op(node: Tensor) -> str:
    """The op as `r.op(...)` finds it again: by its name, or as a module's variable."""
    op = node.op
    assert op is not None
    if registry.get(op.name) is op and op.reference.__module__.startswith("gml."):
        return f"r.op({op.name!r})"
    found = _variable(op)
    if found is None:
        # nobody can import it: the script says what it needs
        return f"r.op({op.name!r})"
    module, name = found
    path = getattr(sys.modules[module], "__file__", None)
    where = "" if module.startswith("gml.") or path is None else f", path={path!r}"
    return f"r.op({name!r}, module={module!r}{where})"


def _variable(op: OpDef) -> tuple[str, str] | None:
    """(module, name) of a global variable that is the op; the module of its functions is looked into first."""
    modules = [op.reference.__module__, op.infer.__module__, *list(sys.modules)]
    for module in modules:
        for name, value in list(vars(sys.modules[module]).items()) if module in sys.modules else []:
            if value is op:
                return module, name
    return None


def _attrs(attrs: Any) -> str:
    kind = type(attrs)
    fields = [f"{f.name}={_value(getattr(attrs, f.name))}" for f in dataclasses.fields(attrs)]
    path = getattr(sys.modules[kind.__module__], "__file__", None)
    where = f", path={path!r}" if not kind.__module__.startswith("gml.") and path is not None else ""
    make = f"r.attrs({kind.__qualname__!r}, module={kind.__module__!r}{where})"
    return f"{make}({', '.join(fields)})"


def _value(value: Any) -> str:
    """A Python expression for an attribute or a size."""
    if isinstance(value, SizeExpr):
        terms = [" * ".join([str(c), *(d.name for d in monomial)]) for monomial, c in value.terms]
        return value.name if isinstance(value, Dim) else " + ".join(terms)
    if isinstance(value, tuple):
        return "(" + "".join(f"{_value(v)}, " for v in value).rstrip(" ") + ")"
    if isinstance(value, DType):
        return f"r.type({value.name!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise Error(f"a reproducer cannot write down {type(value).__name__} {value!r}")
