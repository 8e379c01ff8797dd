"""The CPU backend and its programs: a plan turned into machine code, tables of addresses, and buffers.

Arrives: a `Graph`; leaves: a `CpuProgram`. What depends on constants alone (packed weights) is computed before the
first step by the same workers, shared by all programs of the process over the same weights (`hoisted.py`), and the
pages of the model file that only it has read are given back.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gml.arena import aligned_bytes
from gml.backends.cpu import hoisted
from gml.backends.cpu.cache import entry_key, fetch
from gml.backends.cpu.driver import Entry
from gml.backends.cpu.hoisted import Origin
from gml.backends.cpu.jit import KERNEL, assembly, compile_object, llvm_text
from gml.backends.cpu.runtime import Pool, choose_threads, get_pool, inside_step, useful_threads
from gml.backends.cpu.target import Target, detect
from gml.compiler.pipeline import PASSES, compile_graph
from gml.compiler.plan import CompiledGraph, Invocation
from gml.compiler.program import PlannedProgram, count_chunks, watched
from gml.compiler.regions import Region
from gml.compiler.state import Options
from gml.debug import knobs
from gml.dims import Dim, max_of
from gml.errors import Error, GraphError, UsageError
from gml.graph import Graph
from gml.kernel_ir import Kernel
from gml.ops.lower import Chunks
from gml.tensor import Tensor

LAYOUTS = ("packed", "file")
LANES = (1, 2, 4, 8, 16, 32, 64)
#: passes that `make_plan` asks for by name, beside those of the pipeline
PLAN_PASSES = ("fuse", "hoist")
#: bytes of constants that are packed before their file's pages are given back
BATCH_BYTES = 32 << 20
#: runs of chunks that each thread takes from a kernel, about
RUNS_PER_THREAD = 4


class CancelledError(Error):
    """A step was ended by `CpuProgram.cancel`."""


class CpuBackend:
    """Compiles graphs to vector code for this machine.

    threads   worker threads (default: `GML_THREADS`, else one per physical core), at most one per processor
    exact     float activations instead of 8-bit ones for quantised weights: slower, equal to float32 arithmetic
    layout    "packed": weights are rearranged at first use; "file": used where they lie
    target    a row of the ISA table by name (default: `GML_TARGET`, else the best this machine has)
    lanes     width of row loops; disabled: names of passes to leave out

    Raises `UsageError` for values that do not exist.
    """

    name = "cpu"

    def __init__(
        self,
        threads: int | None = None,
        *,
        exact: bool = False,
        layout: str = "packed",
        target: str | None = None,
        lanes: int = 16,
        disabled: Sequence[str] = (),
    ) -> None:
        self.n_threads = useful_threads(choose_threads(threads))
        self.target = detect(target)
        left_out = frozenset(disabled) | {n.strip().lstrip("-") for n in knobs.passes.split(",") if n.strip()}
        _check(layout, LAYOUTS, "layout")
        _check(lanes, LANES, "lanes")
        for name in sorted(left_out):
            _check(name, [n for n, _, required in PASSES if not required] + [*PLAN_PASSES], "a pass to leave out")
        self.options = Options(exact=exact, layout=layout, lanes=lanes, disabled=left_out)

    def compile(self, graph: Graph) -> CpuProgram:
        return watched(self.program(compile_graph(graph, self.options)))

    def program(self, compiled: CompiledGraph) -> CpuProgram:
        """A program from a plan."""
        return CpuProgram(compiled, self.target, self.n_threads)


def _check(value: Any, known: Sequence[Any], what: str) -> None:
    if value not in known:
        choices = ", ".join(str(k) for k in dict.fromkeys(known))
        raise UsageError(f"{what}: expected one of {choices}; found {value!r}")


class PhaseTable:
    """Phases of invocations as the driver reads them.

    `addresses` are the control block's words from PHASES on: phase ends, their number, entries, run-time sizes, cancel
    word.
    """

    def __init__(self, program: CpuProgram, phases: Sequence[Sequence[Invocation]]) -> None:
        invocations = [i for phase in phases for i in phase]
        self.n_entries = len(invocations)
        self._n_threads = program.n_threads
        self._dims = program.compiled.state.dims
        self.ends = np.cumsum([len(phase) for phase in phases], dtype=np.int64)
        self.entries = aligned_bytes(self.n_entries * Entry.N_WORDS * 8).view(np.int64).reshape(-1, Entry.N_WORDS)
        self.entries[:] = 0
        self.sizes = np.zeros(len(self._dims) + 1, dtype=np.int64)
        self._fill(program, invocations)
        distinct: dict[Chunks, int] = {}
        self._which = np.array([distinct.setdefault(i.chunks, len(distinct)) for i in invocations], dtype=np.int64)
        self._distinct = list(distinct)
        self._counts = np.zeros(len(distinct), dtype=np.int64)
        self.addresses = np.array(
            [
                self.ends.ctypes.data,
                len(self.ends),
                self.entries.ctypes.data,
                self.sizes.ctypes.data,
                program.cancel_word.ctypes.data,
            ],
            dtype=np.int64,
        )

    def _fill(self, program: CpuProgram, invocations: Sequence[Invocation]) -> None:
        """Addresses of kernels and of their arrays of buffers."""
        roots = {root: program.storage(root).ctypes.data for i in invocations for root in i.buffers}
        self.pointers = np.array([roots[root] for i in invocations for root in i.buffers], dtype=np.int64)
        at = self.pointers.ctypes.data
        for row, invocation in zip(self.entries, invocations, strict=True):
            row[Entry.KERNEL] = program.kernel_address(invocation)
            row[Entry.ARGS] = at
            at += 8 * len(invocation.buffers)

    def prepare(self, values: dict[Dim, int]) -> None:
        """Fill in the run-time sizes and what follows from them: how much work each entry is."""
        for i, dim in enumerate(self._dims):
            self.sizes[i] = values[dim]
        self.sizes[-1] = 0
        for i, chunks in enumerate(self._distinct):
            self._counts[i] = count_chunks(chunks, values)
        # one thread takes an entry at once
        n_runs = RUNS_PER_THREAD * self._n_threads if self._n_threads > 1 else 1
        self.entries[:, Entry.N_CHUNKS] = self._counts[self._which]
        self.entries[:, Entry.GRAIN] = np.maximum(self._counts // n_runs, 1)[self._which]
        self.entries[:, Entry.COUNTER] = 0

    @property
    def failure(self) -> int:
        """The number that a kernel left behind which refused its input, or 0."""
        return int(self.sizes[-1])


class CpuProgram(PlannedProgram):
    """A compiled graph that runs as machine code on the workers.

    One step at a time: `run` raises `UsageError` while another thread runs the same program. Programs of their own may
    run on as many Python threads as one likes.
    """

    def __init__(self, compiled: CompiledGraph, target: Target, n_threads: int) -> None:
        super().__init__(compiled)
        self.n_threads, self.target = n_threads, target
        self.cancel_word = np.zeros(1, dtype=np.int64)
        self._callbacks: list[Any] = []
        self._failed: BaseException | None = None
        self._turn, self._pid = threading.Lock(), os.getpid()
        self._module, head = self._load()
        self._failures = {int(k): v for k, v in head.get("failures", {}).items()}
        self._n_scratch_bytes = max(self._module.scratch.values(), default=0)
        self._step: PhaseTable | None = None
        self._preparation: threading.Thread | None = None
        self._waited_for = True
        self._times: np.ndarray | None = None

    def _load(self) -> tuple[Any, dict[str, Any]]:
        compiled = self.compiled
        text = "\n\n".join(f"{name}\n{signature}" for name, signature in compiled.signatures.items())
        dims = [(d.name, d.min, d.max) for d in compiled.state.dims]
        # signatures name ops and formats: what they mean is known by gml's version only for gml's own
        foreign = [compiled.kernels[name] for name, region in compiled.regions.items() if not _is_own(region)]
        if foreign:
            text += llvm_text(foreign, self.target)

        def compile_now() -> tuple[bytes, dict[str, Any]]:
            kernels = list(compiled.kernels.values())
            code, scratch = compile_object(kernels, self.target)
            failures = {n: m for k in kernels for n, m in k.meta["failures"].items()}
            return code, {"scratch": scratch, "failures": failures}

        return fetch(entry_key(f"{dims}\n{text}", self.target), compile_now)

    def buffer(self, n_bytes: int, what: str) -> np.ndarray:
        # in huge pages: the processor's prefetching ends where a page does
        return hoisted.huge_bytes(n_bytes, what)

    def kernel_address(self, invocation: Invocation) -> int:
        """The machine code of an invocation, or a way into Python for callbacks."""
        if not invocation.region.callback:
            return self._module.address(invocation.kernel)
        program = weakref.ref(self)

        def call(args: int, sizes: int, scratch: int, begin: int, end: int) -> None:
            me = program()
            if me is not None:
                me._call_back(invocation.region)

        wrapped = KERNEL(call)
        self._callbacks.append(wrapped)
        return ctypes.cast(wrapped, ctypes.c_void_p).value or 0

    def _call_back(self, region: Region) -> None:
        """Run a user's function in the middle of a step; what it raises ends the step and reaches who called `run`."""
        try:
            with inside_step():
                self.call_back(region, self.values)
        except BaseException as error:
            if self._failed is None:
                self._failed = error
            self.cancel()

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, **sizes: int) -> None:
        """One step, as in `Program.run`.

        Raises `CancelledError` after `cancel`, `UsageError` while this program is running already, and what a user's
        function raised.
        """
        if self._pid != os.getpid():  # in a forked child a lock may be held by a thread that is not here
            self._turn, self._pid = threading.Lock(), os.getpid()
        if not self._turn.acquire(blocking=False):
            raise UsageError("this program is running on another thread; compile one program per thread")
        try:
            super().run(**sizes)
        finally:
            self._turn.release()

    def timed_run(self, **sizes: int) -> np.ndarray:
        """One step, and seconds [phases, threads, 2]: how long each thread worked, and then waited for the others."""
        self.run(**sizes)  # what is done once is done
        assert self._step is not None
        ticks = np.zeros((1 + len(self._step.ends), self.n_threads, 2), dtype=np.int64)
        self._times = ticks
        try:
            started = time.perf_counter()
            self.run(**sizes)
            seconds = time.perf_counter() - started
        finally:
            self._times = None
        whole = ticks[-1, 0, 1] - ticks[0, 0, 1]
        worked = ticks[1:, :, 0] - ticks[:-1, :, 1]
        waited = ticks[1:, :, 1] - ticks[1:, :, 0]
        return np.stack([worked, waited], axis=-1) * (seconds / max(int(whole), 1))

    def cancel(self) -> None:
        """End the running step at the end of its phase: `run` raises `CancelledError`. Safe from any thread."""
        self.cancel_word[0] = 1

    def _execute(self, values: dict[Dim, int]) -> None:
        step = self._ready(values)
        self._run(get_pool(self.n_threads), step, values)

    def _run(self, pool: Pool, table: PhaseTable, values: dict[Dim, int]) -> None:
        if not table.n_entries:
            return
        table.prepare(values)
        finished = pool.step(table, self._n_scratch_bytes, self._times)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        if not finished:
            raise CancelledError("the step was cancelled")
        if table.failure:
            raise GraphError(self._failures.get(table.failure, "a kernel refused its input"))

    # -- being looked at -----------------------------------------------------------------------------------------------

    def run_alone(self, invocation: Invocation, values: dict[Dim, int]) -> None:
        self.cancel_word[0], self._failed = 0, None
        self._run(get_pool(self.n_threads), PhaseTable(self, [[invocation]]), values)

    def native_text(self, stage: str, kernels: Sequence[Kernel]) -> str:
        return (assembly if stage == "asm" else llvm_text)(kernels, self.target)

    def recipe(self) -> str:
        return f"gml.get_backend('cpu', threads={self.n_threads}, target={self.target.name!r})"

    # -- what is done once ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Begin in the background what the first run would do first: computing what depends on constants alone.

        It leaves one core to the caller, who has a vocabulary to load, until the first run waits for it. Where it
        fails, that run tries again and raises what it finds.
        """
        if self._step is not None or self._preparation is not None or not self.compiled.setup:
            return

        def work() -> None:
            with contextlib.suppress(Exception):
                self._step = self._set_up({d: d.min for d in self.compiled.state.dims})

        self._waited_for = False
        self._preparation = threading.Thread(target=work, name="gml-prepare", daemon=True)
        self._preparation.start()

    def _ready(self, values: dict[Dim, int]) -> PhaseTable:
        """The table of the steps, after what has to be done once."""
        preparation, self._preparation = self._preparation, None
        self._waited_for = True
        if preparation is not None:
            preparation.join()  # at once in a forked child, where it counts as ended
        self.cancel_word[0], self._failed = 0, None
        if self._step is None:
            self._step = self._set_up(values)
        return self._step

    def _set_up(self, values: dict[Dim, int]) -> PhaseTable:
        """Compute what depends on constants alone, or take it from another program; gives the table of the steps."""
        compiled = self.compiled
        read = {root for phase in compiled.step for i in phase for root in i.buffers}
        read |= {t.root for t in compiled.state.needed}
        known: dict[Tensor, bytes] = {}
        origins = {root: Origin(root, known) for root in compiled.hoisted if root in read}
        with hoisted.one_program():
            self.hoisted = {root: found for root, o in origins.items() if (found := hoisted.find(o)) is not None}
            for batch in self._batches(self._missing(origins)):
                made = [root for root in dict.fromkeys(i.region.writes for i in batch) if root not in self.hoisted]
                self.hoisted |= zip(made, hoisted.huge_pieces([max_of(root.n_bytes) for root in made]), strict=True)
                n_threads = self.n_threads if self._waited_for else max(1, self.n_threads - 1)
                self._run(get_pool(n_threads), PhaseTable(self, [batch]), values)
                # the file's pages go as soon as their packed twins are here: both at once would double the peak
                used = {root for i in batch for root in i.buffers if root.is_leaf}
                hoisted.release_pages(root.bytes() for root in used - read)
            self.hoisted = {root: hoisted.share(origin, self.hoisted[root]) for root, origin in origins.items()}
        return PhaseTable(self, compiled.step)

    def _batches(self, phases: list[list[Invocation]]) -> Iterator[list[Invocation]]:
        """Invocations of one phase after another, as many together as read `BATCH_BYTES` of constants."""
        for phase in phases:
            batch: list[Invocation] = []
            n_bytes = 0
            for invocation in phase:
                batch.append(invocation)
                n_bytes += sum(max_of(root.n_bytes) for root in invocation.buffers if root.is_leaf)
                if n_bytes >= BATCH_BYTES:
                    yield batch
                    batch, n_bytes = [], 0
            if batch:
                yield batch

    def _missing(self, wanted: dict[Tensor, Origin]) -> list[list[Invocation]]:
        """What of the setup has to be run for results that are not here yet."""
        missing = set(wanted).difference(self.hoisted)
        phases: list[list[Invocation]] = []
        for phase in reversed(self.compiled.setup):
            chosen = [i for i in phase if i.region.writes in missing]
            missing |= {r for i in chosen for r in i.buffers if not r.is_leaf and r not in self.hoisted}
            if chosen:
                phases.append(chosen)
        return phases[::-1]


# -- whose code a kernel is made from ----------------------------------------------------------------------------------


def _is_own(region: Region) -> bool:
    """Whether all ops and formats of a region are gml's own."""
    tensors = [*region.inputs, *region.nodes]
    lowerings = [n.op.lower for n in region.nodes if n.op is not None]
    return all(_in_gml(type(t.type)) for t in tensors) and all(map(_lowering_is_own, lowerings))


def _lowering_is_own(form: Any) -> bool:
    if not dataclasses.is_dataclass(form):
        return _in_gml(form)
    parts = [getattr(form, field.name) for field in dataclasses.fields(form)]
    return _in_gml(type(form)) and all(_in_gml(part) for part in parts if callable(part))


def _in_gml(thing: Any) -> bool:
    while isinstance(thing, functools.partial):
        thing = thing.func
    module = getattr(thing, "__module__", None) or ""
    return module == "gml" or module.startswith("gml.")
