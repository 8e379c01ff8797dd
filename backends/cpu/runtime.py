"""Worker threads: a pool that runs one step at a time.

Arrives: a phase table; leaves: work done. The calling thread takes part as thread 0, the others wait in native code
(one foreign call for the whole life of a worker, the GIL released), spinning briefly and then asleep. A pool belongs to
the process that made it: after a fork the child makes its own. Next module: `executable.py`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

import numpy as np

from gml.arena import aligned_bytes
from gml.backends.cpu.cores import n_cores, n_processors
from gml.backends.cpu.driver import WAIT_FUTEX, WAIT_MACOS, WAIT_WINDOWS, ControlBlock, driver_text
from gml.debug import knobs
from gml.errors import Error, UsageError

MAX_THREADS = 256
#: how long a waiting thread spins before it goes to sleep
SPIN_SECONDS = 50e-6
#: pauses with more threads than processors, when whoever is waited for may need this one
CROWDED_SPINS = 20
PAGE_BYTES = 4096

_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_PAUSE = ctypes.CFUNCTYPE(None, ctypes.c_int64)


class ThreadError(Error):
    """The system gives no more threads."""


class Table(Protocol):
    """What a pool runs.

    addresses  the control block's words from PHASES to CANCEL
    """

    addresses: np.ndarray


def choose_threads(wanted: int | None) -> int:
    """How many threads to use: what is asked for, else `GML_THREADS`, else one per physical core (at most 256).

    Raises `UsageError` unless 1 <= threads <= 256.
    """
    n = wanted if wanted is not None else knobs.threads or min(n_cores(), MAX_THREADS)
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_THREADS:
        raise UsageError(f"threads must be a whole number from 1 to {MAX_THREADS}, found {n!r}")
    return n


#: whether a backend may use more threads than there are processors; tests of many threads do
allow_crowds = False


def useful_threads(n_threads: int) -> int:
    """So many threads, but not more than processors: these would wait for one another at hundreds of barriers a step
    (8 on 2 cores: 0.4 times the speed of 2). Results do not depend on the number.
    """
    return n_threads if allow_crowds else min(n_threads, n_processors())


#: modules that must stay loaded
_loaded: list[Any] = []


@cache
def _driver() -> dict[str, int]:
    """Addresses of the driver's functions; LLVM is not asked again, so that a forked child needs none of its locks."""
    from gml.backends.cpu.cache import load_or_compile
    from gml.backends.cpu.target import detect

    module = load_or_compile("driver", [], detect(), driver_text())[0]
    _loaded.append(module)
    return {name: module.address(name) for name in ("gml_run", "gml_worker", "gml_pause")}


@cache
def _spins() -> int:
    """How many pauses take `SPIN_SECONDS`: 5 to 150 cycles each, by processor."""
    pause = _PAUSE(_driver()["gml_pause"])
    n, best = 500, 1.0
    for _ in range(3):
        start = time.perf_counter()
        pause(n)
        best = min(best, time.perf_counter() - start)
    return max(1, min(100_000, int(n * SPIN_SECONDS / max(best, 1e-9))))


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _choose_waiting(control: np.ndarray) -> None:
    """Fill in how threads sleep on this system."""
    c = ControlBlock
    if sys.platform == "win32":
        api = ctypes.WinDLL("api-ms-win-core-synch-l1-2-0")
        control[c.WAIT_KIND] = WAIT_WINDOWS
        control[c.WAIT], control[c.WAKE] = _address(api.WaitOnAddress), _address(api.WakeByAddressAll)
        return
    libc = ctypes.CDLL(None)
    control[c.WAIT] = _address(libc.usleep)
    if sys.platform == "linux":
        number = {"x86_64": 202, "aarch64": 98, "riscv64": 98}.get(os.uname().machine)
        if number is not None and sys.maxsize > 2**32:
            control[c.WAIT_KIND], control[c.FUTEX] = WAIT_FUTEX, number
            control[c.WAIT] = _address(libc.syscall)
    elif hasattr(libc, "os_sync_wait_on_address"):
        control[c.WAIT_KIND] = WAIT_MACOS
        control[c.WAIT] = _address(libc.os_sync_wait_on_address)
        control[c.WAKE] = _address(libc.os_sync_wake_by_address_all)


class Pool:
    """Threads that run steps together; `get_pool` shares them between programs.

    Raises `ThreadError` when the system refuses so many threads.
    """

    def __init__(self, n_threads: int) -> None:
        c = ControlBlock
        self.n_threads = n_threads
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.control = aligned_bytes(c.N_WORDS * 8).view(np.int64)
        self.control[:] = 0
        self.control[c.N_THREADS] = n_threads
        driver = _driver()
        self._run, self._work = _RUN(driver["gml_run"]), _WORK(driver["gml_worker"])
        self._address = self.control.ctypes.data
        self._stride = 0
        self._scratch = aligned_bytes(64)
        self.threads: list[threading.Thread] = []
        if n_threads > 1:
            self.control[c.SPINS] = _spins() if n_threads <= n_processors() else CROWDED_SPINS
            _choose_waiting(self.control)
            self._start()

    def _start(self) -> None:
        try:
            for i in range(1, self.n_threads):
                args = (self._address, i, 0)
                thread = threading.Thread(target=self._work, args=args, name=f"gml-{i}", daemon=True)
                thread.start()
                self.threads.append(thread)
        except BaseException as error:
            n_started = len(self.threads)
            self.close()
            if isinstance(error, RuntimeError):
                raise ThreadError(
                    f"the system gave {n_started} of {self.n_threads - 1} worker threads ({error}); "
                    f"ask for fewer threads"
                ) from None
            raise

    def step(self, table: Table, n_scratch_bytes: int = 0, times: np.ndarray | None = None) -> bool:
        """Run a phase table to its end, every thread with so much private memory; False when it was cancelled.

        times: i64 [1 + phases, threads, 2] for the clock's readings (`ControlBlock.TIMES`), where they are wanted.
        One step at a time per pool: others wait for their turn. Raises `ArenaError` when memory is out.
        """
        c = ControlBlock
        with self.lock:
            self._reserve(n_scratch_bytes)
            self.control[c.PHASES : c.CANCEL + 1] = table.addresses
            self.control[c.TIMES] = 0 if times is None else times.ctypes.data
            return self._run(self._address) != 0

    def _reserve(self, n_bytes: int) -> None:
        """See to it that every thread has this much private memory, on pages of its own."""
        if n_bytes <= self._stride:
            return
        stride = -(-n_bytes // PAGE_BYTES) * PAGE_BYTES
        self._scratch = aligned_bytes(stride * self.n_threads, "private memory of the worker threads")
        self._stride = stride
        self.control[ControlBlock.SCRATCH] = self._scratch.ctypes.data
        self.control[ControlBlock.SCRATCH_STRIDE] = stride

    def close(self) -> None:
        """Send the workers home and wait for them; a step that is running comes to its end first."""
        if self.pid != os.getpid():
            return
        with self.lock:
            c = ControlBlock
            threads, self.threads = self.threads, []
            # steps of whoever still holds this pool are run by the caller alone
            self.control[c.STOP], self.control[c.N_THREADS], self.control[c.N_PHASES] = 1, 1, 0
            self._run(self._address)
        for thread in threads:
            thread.join()


_pools: dict[int, Pool] = {}
_pools_lock = threading.Lock()
_inside = threading.local()


@contextlib.contextmanager
def inside_step() -> Iterator[None]:
    """Marks this thread as one that is busy with a step: programs that are run meanwhile must not wait for its pool."""
    before = getattr(_inside, "a_step", False)
    _inside.a_step = True
    try:
        yield
    finally:
        _inside.a_step = before


def is_inside_step() -> bool:
    """Whether this thread is busy with a step (see `inside_step`)."""
    return getattr(_inside, "a_step", False)


def get_pool(n_threads: int) -> Pool:
    """The process's pool of so many threads, made when first asked for.

    Inside a step (a user's Python function that runs another program) a pool of this thread alone.
    """
    if is_inside_step():
        return Pool(1)
    with _pools_lock:
        pool = _pools.get(n_threads)
        if pool is None or pool.pid != os.getpid():
            pool = _pools[n_threads] = Pool(n_threads)
        return pool


def close_pools() -> None:
    """Close all pools of this process; the next step makes new ones."""
    with _pools_lock:
        pools = list(_pools.values())
        _pools.clear()
    for pool in pools:
        pool.close()


def _in_child() -> None:
    """After a fork: the workers are not here, and locks may be held by threads that are not here either."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()
    _inside.a_step = False


atexit.register(close_pools)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
