"""The CPU backend and its programs: a plan turned into machine code, tables of addresses, and buffers.

Arrives: a `Graph`; leaves: a `CpuProgram`. What depends on constants alone (packed weights) is computed before the first step by the
same workers, shared by all programs of the process over the same weights, and the pages of the model file that only it has
read are given back.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from gml.arena import aligned_bytes
from gml.backends.cpu.cache import entry_key, fetch
from gml.backends.cpu.driver import Entry
from gml.backends.cpu.jit import KERNEL, compile_object
from gml.backends.cpu.runtime import Pool, choose_threads, get_pool
from gml.backends.cpu.target import Target, detect
from gml.compiler.pipeline import compile_graph
from gml.compiler.plan import CompiledGraph, Invocation
from gml.compiler.program import PlannedProgram, count_chunks
from gml.compiler.state import Options
from gml.debug import knobs
from gml.dims import Dim, max_of
from gml.errors import ArenaError, Error, GraphError
from gml.graph import Graph
from gml.ops.lower import Chunks
from gml.tensor import Tensor

#: runs of chunks that each thread takes from a kernel, about
RUNS_PER_THREAD = 4
HUGE_PAGE_BYTES = 2 << 20


class CancelledError(Error):
    """A step was ended by `CpuProgram.cancel`."""


class CpuBackend:
    """Compiles graphs to vector code for this machine.

    threads   worker threads (default: `GML_THREADS`, else one per physical core)
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
        self.n_threads = choose_threads(threads)
        self.target = detect(target)
        left_out = {name.strip().lstrip("-") for name in knobs.passes.split(",") if name.strip()}
        self.options = Options(exact=exact, layout=layout, lanes=lanes, disabled=frozenset(disabled) | left_out)

    def compile(self, graph: Graph) -> CpuProgram:
        return CpuProgram(compile_graph(graph, self.options), self.target, self.n_threads)


class PhaseTable:
    """Phases of invocations as the driver reads them.

    `addresses` are the control block's words from PHASES on: phase ends, their number, entries, run-time sizes.
    """

    def __init__(self, program: CpuProgram, phases: Sequence[Sequence[Invocation]]) -> None:
        self.running: Pool | None = None
        self.invocations = [i for phase in phases for i in phase]
        n = len(self.invocations)
        self.ends = np.cumsum([len(phase) for phase in phases], dtype=np.int64) if phases else np.zeros(0, np.int64)
        self.entries = aligned_bytes(max(n, 1) * Entry.N_WORDS * 8).view(np.int64).reshape(-1, Entry.N_WORDS)
        self.entries[:] = 0
        pointers: list[int] = []
        starts = []
        for invocation in self.invocations:
            starts.append(len(pointers))
            pointers += [program.storage(root).ctypes.data for root in invocation.buffers]
        self.pointers = np.array(pointers or [0], dtype=np.int64)
        distinct: dict[Chunks, int] = {}
        self._which = np.array([distinct.setdefault(i.chunks, len(distinct)) for i in self.invocations], dtype=np.int64)
        self._distinct = list(distinct)
        for row, (invocation, start) in enumerate(zip(self.invocations, starts, strict=True)):
            self.entries[row, Entry.KERNEL] = program.kernel_address(invocation)
            self.entries[row, Entry.ARGS] = self.pointers.ctypes.data + 8 * start
        self.sizes = np.zeros(len(program.compiled.state.dims) + 1, dtype=np.int64)
        self.addresses = np.array(
            [self.ends.ctypes.data, len(self.ends), self.entries.ctypes.data, self.sizes.ctypes.data], dtype=np.int64
        )
        self._n_runs = RUNS_PER_THREAD * program.n_threads

    def prepare(self, dims: Sequence[Dim], values: dict[Dim, int]) -> None:
        """Fill in the run-time sizes and what follows from them: how much work each entry is."""
        for i, dim in enumerate(dims):
            self.sizes[i] = values[dim]
        self.sizes[-1] = 0
        if not len(self._which):
            return
        counts = np.array([count_chunks(c, values) for c in self._distinct], dtype=np.int64)
        grains = np.maximum(counts // self._n_runs, 1)
        self.entries[: len(self._which), Entry.N_CHUNKS] = counts[self._which]
        self.entries[: len(self._which), Entry.GRAIN] = grains[self._which]
        self.entries[:, Entry.COUNTER] = 0


class CpuProgram(PlannedProgram):
    """A compiled graph that runs as machine code on the workers."""

    def __init__(self, compiled: CompiledGraph, target: Target, n_threads: int) -> None:
        super().__init__(compiled)
        self.n_threads, self.target = n_threads, target
        self._callbacks: list[Any] = []
        self._failed: BaseException | None = None
        self._module, head = self._load()
        self._failures = {int(k): v for k, v in head.get("failures", {}).items()}
        self._n_scratch_bytes = max(self._module.scratch.values(), default=0)
        self._share_hoisted()
        self._setup: PhaseTable | None = PhaseTable(self, self._missing_setup())
        self._step = PhaseTable(self, compiled.step)

    def _load(self) -> tuple[Any, dict[str, Any]]:
        compiled = self.compiled
        text = "\n\n".join(f"{name}\n{signature}" for name, signature in compiled.signatures.items())
        dims = [(d.name, d.min, d.max) for d in compiled.state.dims]

        def compile_now() -> tuple[bytes, dict[str, Any]]:
            kernels = list(compiled.kernels.values())
            code, scratch = compile_object(kernels, self.target)
            failures = {n: m for k in kernels for n, m in k.meta["failures"].items()}
            return code, {"scratch": scratch, "failures": failures}

        return fetch(entry_key(f"{dims}\n{text}", self.target), compile_now)

    def kernel_address(self, invocation: Invocation) -> int:
        """The machine code of an invocation, or a way into Python for callbacks."""
        if not invocation.region.callback:
            return self._module.address(invocation.kernel)

        def call(args: int, sizes: int, scratch: int, begin: int, end: int) -> None:
            try:
                self.call_back(invocation.region, self.values)
            except BaseException as error:
                self._failed = error
                self.cancel()

        wrapped = KERNEL(call)
        self._callbacks.append(wrapped)
        return ctypes.cast(wrapped, ctypes.c_void_p).value or 0

    # -- running ----------------------------------------------------------------------------------------------------------

    def _execute(self, values: dict[Dim, int]) -> None:
        pool = get_pool(self.n_threads)
        pool.reserve(self._n_scratch_bytes)
        if self._setup is not None:
            self._run(pool, self._setup, values)
            self._setup = None
            _keep_hoisted(self)
            self._release_files()
        self._run(pool, self._step, values)

    def _run(self, pool: Pool, table: PhaseTable, values: dict[Dim, int]) -> None:
        if not table.invocations:
            return
        table.prepare(self.compiled.state.dims, values)
        self._failed = None
        finished = pool.step(table)
        if self._failed is not None:
            raise self._failed
        if not finished:
            raise CancelledError("the step was cancelled")
        if table.sizes[-1]:
            raise GraphError(self._failures.get(int(table.sizes[-1]), "a kernel refused its input"))

    def cancel(self) -> None:
        """End the running step at the end of its phase; the caller of `run` gets a `CancelledError`. Safe from any thread."""
        for table in (self._setup, self._step):
            if table is not None and table.running is not None:
                table.running.cancel()

    # -- what the setup makes ---------------------------------------------------------------------------------------------

    def _share_hoisted(self) -> None:
        """Take results of the setup that another program of this process has made already; memory for the others."""
        self._shared: set[Tensor] = set()
        for root in self.compiled.hoisted:
            found = _hoisted.get(_origin(root))
            if found is not None:
                self.hoisted[root] = found.buffer
                self._shared.add(root)
            else:
                self.hoisted[root] = huge_bytes(max_of(root.n_bytes), root.describe())

    def _missing_setup(self) -> list[list[Invocation]]:
        return [[i for i in phase if i.region.writes not in self._shared] for phase in self.compiled.setup]

    def _release_files(self) -> None:
        """Give back the pages of mapped files that only the setup has read."""
        read = {t for phase in self.compiled.step for i in phase for t in i.buffers}
        for phase in self.compiled.setup:
            for invocation in phase:
                for root in invocation.buffers:
                    if root.is_leaf and root not in read:
                        release_pages(root.bytes())


# -- results of setups, shared by the process ------------------------------------------------------------------------------


class _Hoisted:
    """A buffer and the leaves that it was made from; it goes when one of them does."""

    def __init__(self, key: tuple, buffer: np.ndarray, leaves: Sequence[Tensor]) -> None:
        self.buffer = buffer
        self._watch = [weakref.ref(leaf, lambda _: _hoisted.pop(key, None)) for leaf in leaves]


_hoisted: dict[tuple, _Hoisted] = {}
_hoisted_lock = threading.Lock()


def _origin(tensor: Tensor) -> tuple:
    """How a hoisted result was made, down to the identities of its leaves."""
    if tensor.is_leaf:
        return ("leaf", id(tensor))
    assert tensor.op is not None
    view = (tensor.nb, tensor.offset) if tensor.view_of is not None else ()
    return (tensor.op.name, tensor.attrs, tensor.type.name, tensor.ne, view, *(_origin(s) for s in tensor.src))


def _leaves(tensor: Tensor) -> list[Tensor]:
    return [tensor] if tensor.is_leaf else [leaf for s in tensor.src for leaf in _leaves(s)]


def _keep_hoisted(program: CpuProgram) -> None:
    with _hoisted_lock:
        for root in program.compiled.hoisted:
            leaves = _leaves(root)
            if leaves:
                key = _origin(root)
                _hoisted.setdefault(key, _Hoisted(key, program.hoisted[root], leaves))


def huge_bytes(n_bytes: int, what: str) -> np.ndarray:
    """Memory for a large buffer that is read in order: in huge pages where the system has them.

    Raises `ArenaError` when memory is out.
    """
    if n_bytes < HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return aligned_bytes(n_bytes, what)
    try:
        block = mmap.mmap(-1, n_bytes + HUGE_PAGE_BYTES)
    except (OSError, ValueError, OverflowError):
        raise ArenaError(f"{what}: the system has no {n_bytes} bytes of memory left") from None
    try:
        block.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        pass
    raw = np.frombuffer(block, dtype=np.uint8)
    shift = -raw.ctypes.data % HUGE_PAGE_BYTES
    return raw[shift : shift + n_bytes]


def release_pages(array: np.ndarray) -> None:
    """Tell the system that the pages under a view into a mapped file are not needed for now."""
    base: Any = array
    while isinstance(base, np.ndarray):
        whole, base = base, base.base
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, mmap.mmap) or not hasattr(base, "madvise"):
        return
    start = array.ctypes.data - whole.ctypes.data + (whole.ctypes.data - np.frombuffer(base, np.uint8).ctypes.data)
    page = mmap.PAGESIZE
    first = -(-start // page) * page
    length = (start + array.nbytes) // page * page - first
    if length > 0:
        base.madvise(mmap.MADV_DONTNEED, first, length)
