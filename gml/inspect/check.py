"""`GML_CHECK`: a program that compares every region with the ops' references while it runs.

Arrives: a program; its steps then run one region at a time: inputs are copied, the region is run, its nodes are
evaluated in numpy on the copies, and both results are compared. The first difference ends the step with a `CheckError`
and leaves a reproducer behind. Next module: `reproduce.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gml.compiler.lower_region import chunks_of, lower_region, region_roots
from gml.compiler.plan import Invocation
from gml.compiler.program import PlannedProgram, count_chunks
from gml.compiler.regions import Region
from gml.dims import Dim, max_of, value_of
from gml.dtypes import BF16, F16, DType
from gml.errors import Error
from gml.inspect.reproduce import write_reproducer
from gml.inspect.text import kernel_name, parts
from gml.kernel_ir import KernelError
from gml.kernel_ir.interp import run
from gml.ops.base import resolved
from gml.ops.evaluate import evaluate
from gml.tensor import Tensor, strided

#: how far from the reference a result may be: squared differences over squared values (NMSE), by the coarsest type on
#: the way. float32 sums in another order stay below 1e-12, one short float rounded the other way below the others
MAX_NMSE = 1e-9
MAX_NMSE_OF = {"F16": 1e-5, "BF16": 1e-4}
MAX_NMSE_QUANTISED = 1e-4
#: differences this small beside the values that went in are cancellation
CANCELLATION = 1e-6
#: whole numbers (indices of the largest, ...) that may differ where floats were computed before them in the same region
MAX_OTHER_INDICES = 0.01
#: work beyond which no op of a region is tried alone: the interpreter takes seconds
MAX_BLAMED_ELEMENTS = 1 << 17


class CheckError(Error):
    """A region of a compiled graph computed something else than the ops' references."""


@dataclass
class Difference:
    """How far a result is from its reference.

    error    sum of squared differences over the sum of squared values; inf for NaN or infinity at other places
    allowed  the largest error that is none
    index    of the largest difference, in ggml's order
    found, expected  the values there
    """

    error: float
    allowed: float
    index: list[int]
    found: float
    expected: float


@dataclass
class Before:
    """A region's view of memory before it runs.

    storage   root -> bytes; roots that something may write are copies
    values    run-time sizes
    made      nodes of the region -> blocks that the references make
    """

    storage: dict[Tensor, np.ndarray]
    values: dict[Dim, int]
    made: dict[Tensor, np.ndarray] = field(default_factory=dict)

    def blocks(self, tensor: Tensor) -> np.ndarray:
        """A tensor's blocks, computed or as they lay in memory."""
        found = self.made.get(tensor)
        return strided(tensor, self.storage[tensor.root], self.values) if found is None else found

    def decoded(self, tensor: Tensor) -> np.ndarray:
        """A tensor's values."""
        return tensor.type.decode(self.blocks(tensor))


def check_steps(program: PlannedProgram, folder: Path | None = None) -> None:
    """From now on every region that the program runs is compared; reproducers go to `folder`, or to the current one."""
    # nothing in the background: the setup's regions are looked at too, one by one
    program.prepare = lambda: None
    program._execute = Checker(program, folder).step


class Checker:
    """Runs a program's steps region by region; one that is `reproducing` leaves no reproducer behind."""

    def __init__(self, program: PlannedProgram, folder: Path | None, *, reproducing: bool = False) -> None:
        self.program, self.folder, self.reproducing = program, folder, reproducing
        self._set_up = False

    def step(self, values: dict[Dim, int]) -> None:
        """One step. Raises `CheckError` at the first region that differs."""
        for part, phase, invocations in parts(self.program.compiled):
            if part == "setup" and self._set_up:
                continue
            for number, invocation in invocations:
                self.run(invocation, values, f"{number} (phase {phase} of the {part})")
        self._set_up = True

    def run(self, invocation: Invocation, values: dict[Dim, int], where: str) -> None:
        """Run a region and compare. Raises `CheckError`."""
        program, region = self.program, invocation.region
        if region.callback:
            # the reference is what runs
            program.call_back(region, values)
            return
        before = self._copy(region, values)
        program.run_alone(invocation, values)
        with np.errstate(all="ignore"):
            difference, expected = compare(region, before, program.storage(region.out.root))
        if difference.error <= difference.allowed:
            return
        what = f"region {where}, kernel {kernel_name(invocation)}, of graph {program.graph.name or '(unnamed)'}"
        message = f"{what}: {self._blame(region, before)}: {_describe(region.out, difference)}"
        if self.reproducing:
            raise CheckError(message)
        found = np.array(program.storage(region.out.root))
        place = write_reproducer(program, invocation, before.storage, values, found, expected, message, self.folder)
        raise CheckError(f"{message}; `python {place}` shows it")

    def _copy(self, region: Region, values: dict[Dim, int]) -> Before:
        """What the region reads. Constants and packed weights are never written; all else is copied."""
        program = self.program
        fixed = set(program.compiled.hoisted)
        found = {}
        for root in region_roots(region):
            if root is region.out.root and root not in region.reads:
                continue
            storage = program.storage(root)
            found[root] = storage if root.role == "constant" or root in fixed else storage.copy()
        return Before(found, values)

    def _blame(self, region: Region, before: Before) -> str:
        """Which op it is: the first one whose kernel, interpreted alone, differs from its reference."""
        names = ", ".join(n.op.name for n in region.nodes if n.op is not None)
        options, dims = self.program.compiled.state.options, self.program.compiled.state.dims
        for node in region.nodes:
            alone = Region([node])
            if _work(alone, before.values) > MAX_BLAMED_ELEMENTS:
                return f"op{'s' if len(region.nodes) > 1 else ''} {names}"
            try:
                kernel = lower_region(alone, "alone", dims, options)
            except (KernelError, Error):
                continue
            roots = region_roots(alone)
            buffers = {root: _bytes_of(root, before) for root in roots}
            sizes = [before.values[d] for d in dims]
            with np.errstate(all="ignore"):
                run(kernel, [buffers[r] for r in roots], sizes, 0, count_chunks(chunks_of(alone), before.values))
                inputs = Before({r: _bytes_of(r, before) for r in roots}, before.values)
                inputs.made = {s: before.made[s] for s in node.src if s in before.made}
                difference, _ = compare(alone, inputs, buffers[node.root])
            if difference.error > difference.allowed:
                return f"op {node.op.name if node.op else ''}, whose kernel differs from its reference"
        whole = f"op {names}" if len(region.nodes) == 1 else f"ops {names}, each right by itself but not fused"
        return f"{whole}; the kernel is right when interpreted" if len(region.nodes) == 1 else whole


def _describe(out: Tensor, d: Difference) -> str:
    where = f"largest difference at {d.index}: found {d.found:.9g}, expected {d.expected:.9g}"
    return f"tensor {out.describe()} differs, NMSE {d.error:.3g} where {d.allowed:.1g} is allowed, {where}"


def _work(region: Region, values: dict[Dim, int]) -> int:
    out = region.out
    assert out.op is not None
    n = value_of(out.n_elements, values)
    if out.op.macs is not None:
        n = max(n, value_of(out.op.macs(out.attrs, out, *out.src), values))
    return max(n, *(value_of(s.n_elements, values) for s in region.inputs), 0)


def _bytes_of(root: Tensor, before: Before) -> np.ndarray:
    """A copy of a root's bytes for a node that runs alone."""
    made = before.made.get(root)
    whole = np.zeros(max_of(root.n_bytes) + 64, dtype=np.uint8)
    known = before.storage.get(root) if made is None else np.ascontiguousarray(made).reshape(-1).view(np.uint8)
    if known is not None:
        whole[: known.nbytes] = known
    return whole


# -- comparing ---------------------------------------------------------------------------------------------------------


def compare(region: Region, before: Before, storage: np.ndarray) -> tuple[Difference, np.ndarray]:
    """What is in `storage` of the region's result against the references, and the values that were expected."""
    values, out = before.values, region.out
    assert out.op is not None
    attrs = resolved(out.attrs, values)
    for node in region.nodes[:-1]:
        made = evaluate(node, values, before.blocks, before.decoded)
        assert made is not None
        before.made[node] = made
    tolerance, scale = max(_tolerance(t.type) for t in region.nodes), _scale(region, before)
    floats = any(s in before.made and not s.type.is_integer for s in out.src)
    if out.op.compare is not None:
        arrays = [before.decoded(s) for s in out.src]
        found, expected = out.op.compare(attrs, strided(out, storage, values), *arrays)
        return _difference(found, expected, max(tolerance, MAX_NMSE_QUANTISED), scale, floats), expected
    # an op that writes must leave the rest of the storage alone
    seen = out.root if out.op.writes is not None else out
    if out.op.writes is not None:
        after = Before({**before.storage, out.root: before.storage[out.root].copy()}, values, before.made)
        evaluate(out, values, after.blocks, after.decoded)
        expected = seen.type.decode(strided(seen, after.storage[out.root], values))
    else:
        blocks = evaluate(out, values, before.blocks, before.decoded)
        assert blocks is not None
        before.made[out] = blocks
        expected = seen.type.decode(blocks)
    found = seen.type.decode(strided(seen, storage, values))
    return _difference(found, expected, tolerance, scale, floats), expected


def _tolerance(type: DType) -> float:
    if not type.is_scalar:
        return MAX_NMSE_QUANTISED
    return MAX_NMSE_OF.get(type.name, MAX_NMSE) if type in (F16, BF16) else MAX_NMSE


def _scale(region: Region, before: Before) -> float:
    """The size of the values that go into a region: the largest root mean square of a source."""
    largest = 0.0
    for node in region.nodes:
        for source in node.src:
            if source.type.is_integer or not source.type.is_scalar:
                continue
            values = before.decoded(source).astype(np.float64)
            finite = values[np.isfinite(values)]
            if finite.size:
                largest = max(largest, float(np.sqrt(np.mean(np.square(finite)))))
    return largest


def _difference(found: np.ndarray, expected: np.ndarray, tolerance: float, scale: float, floats: bool) -> Difference:
    a, b = (np.asarray(x) for x in (found, expected))
    b = b.reshape(a.shape)
    if a.size == 0:
        return Difference(0.0, tolerance, [], 0.0, 0.0)
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        apart = (a != b).astype(np.float64)
        return _at_largest(apart, float(apart.mean()), MAX_OTHER_INDICES if floats else 0.0, a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    broken = ~same & ~(np.isfinite(a) & np.isfinite(b))
    apart = np.where(same | broken, 0.0, a - b)
    size = float(np.sum(np.square(b[np.isfinite(b)])))
    squared = float(np.sum(np.square(apart)))
    noise = a.size * (CANCELLATION * scale) ** 2
    if broken.any():
        return _at_largest(broken.astype(np.float64), float("inf"), tolerance, a, b)
    error = 0.0 if squared <= noise else squared / size if size else float("inf")
    return _at_largest(np.abs(apart), error, tolerance, a, b)


def _at_largest(apart: np.ndarray, error: float, allowed: float, a: np.ndarray, b: np.ndarray) -> Difference:
    at: Sequence[int] = np.unravel_index(int(np.argmax(apart)), apart.shape)  # type: ignore[assignment]
    index = [int(i) for i in reversed(at)]
    return Difference(error, allowed, index, float(a[tuple(at)]), float(b[tuple(at)]))
