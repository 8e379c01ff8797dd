"""Worker threads: a pool that runs one step at a time.

Arrives: a phase table; leaves: work done. The calling thread takes part as thread 0, the others wait in native code (one foreign
call for the whole life of a worker, the GIL released), spinning briefly and then asleep. A pool belongs to the process that made
it: after a fork the child makes its own. Next module: `executable.py`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gml.arena import aligned_bytes
from gml.backends.cpu.driver import ControlBlock, driver_text
from gml.debug import knobs
from gml.errors import UsageError

MAX_THREADS = 256
#: pauses before a waiting thread goes to sleep: about 50 microseconds
SPINS = 2000
#: the same with more threads than processors, when whoever is waited for may need this one
CROWDED_SPINS = 20

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def n_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


@cache
def n_cores() -> int:
    """Physical cores that this process may use: processors that share a core count once, where the system tells."""
    processors = n_processors()
    cores: set[tuple[str, str]] = set()
    if hasattr(os, "sched_getaffinity"):
        for cpu in os.sched_getaffinity(0):
            folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
            try:
                cores.add(((folder / "physical_package_id").read_text(), (folder / "core_id").read_text()))
            except OSError:
                return processors
    return len(cores) or processors


def choose_threads(wanted: int | None) -> int:
    """How many threads to use: what is asked for, else `GML_THREADS`, else one per physical core.

    Raises `UsageError` unless 1 <= threads <= 256.
    """
    n = wanted if wanted is not None else knobs.threads or n_cores()
    if not isinstance(n, int) or not 1 <= n <= MAX_THREADS:
        raise UsageError(f"threads must be a whole number from 1 to {MAX_THREADS}, found {n!r}")
    return n


@cache
def _driver() -> Any:
    from gml.backends.cpu.cache import load_or_compile
    from gml.backends.cpu.target import detect

    return load_or_compile("driver", [], detect(), driver_text())[0]


def _waiting(control: np.ndarray) -> None:
    """Fill in how threads sleep on this system."""
    c = ControlBlock
    if sys.platform == "linux":
        numbers = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
        number = numbers.get(os.uname().machine)
        libc = ctypes.CDLL(None)
        if number is not None:
            control[[c.WAIT_KIND, c.FUTEX]] = 1, number
            control[c.WAIT] = ctypes.cast(libc.syscall, ctypes.c_void_p).value
            return
        control[c.WAIT] = ctypes.cast(libc.usleep, ctypes.c_void_p).value
    elif sys.platform == "win32":
        api = ctypes.WinDLL("api-ms-win-core-synch-l1-2-0")
        control[c.WAIT_KIND] = 2
        control[c.WAIT] = ctypes.cast(api.WaitOnAddress, ctypes.c_void_p).value
        control[c.WAKE] = ctypes.cast(api.WakeByAddressAll, ctypes.c_void_p).value
    else:
        control[c.WAIT] = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value


class Pool:
    """Threads that run steps together; `get_pool` shares them between programs."""

    def __init__(self, n_threads: int) -> None:
        c = ControlBlock
        self.n_threads = n_threads
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.control = aligned_bytes(c.N_WORDS * 8).view(np.int64)
        self.control[:] = 0
        self.control[c.N_THREADS] = n_threads
        self.control[c.SPINS] = SPINS if n_threads <= n_processors() else CROWDED_SPINS
        _waiting(self.control)
        self._address = self.control.ctypes.data
        self._module = _driver()
        self._run = _RUN(self._module.address("gml_run"))
        self._work = _WORK(self._module.address("gml_worker"))
        self._scratch = aligned_bytes(64)
        self.threads = [
            threading.Thread(target=self._work, args=(self._address, i, 0), name=f"gml-{i}", daemon=True)
            for i in range(1, n_threads)
        ]
        for thread in self.threads:
            thread.start()

    def reserve(self, n_bytes: int) -> None:
        """Make sure that every thread has this much private memory."""
        stride = -(-n_bytes // 4096) * 4096 + 64
        if stride * self.n_threads > self._scratch.nbytes:
            with self.lock:
                self._scratch = aligned_bytes(stride * self.n_threads, "private memory of the worker threads")
                self.control[ControlBlock.SCRATCH] = self._scratch.ctypes.data
                self.control[ControlBlock.SCRATCH_STRIDE] = stride

    def step(self, table: Any) -> bool:
        """Run a phase table to its end; False when it was cancelled. One step at a time per pool."""
        c, control = ControlBlock, self.control
        with self.lock:
            control[c.PHASES : c.SIZES + 1] = table.addresses
            control[c.CANCEL] = control[c.ABORT] = 0
            table.running = self
            self._run(self._address)
            table.running = None
            return control[c.ABORT] == 0

    def cancel(self) -> None:
        """End the running step at its next barrier."""
        self.control[ControlBlock.CANCEL] = 1

    def close(self) -> None:
        """Send the workers home and wait for them."""
        if self.pid != os.getpid() or not self.threads:
            return
        with self.lock:
            c = ControlBlock
            self.control[c.STOP] = 1
            self.control[[c.N_PHASES]] = 0
            threads, self.threads = self.threads, []
            self.control[c.N_THREADS] = 1
            self._run(self._address)
        for thread in threads:
            thread.join()


_pools: dict[int, Pool] = {}
_pools_lock = threading.Lock()


def get_pool(n_threads: int) -> Pool:
    """The process's pool of so many threads, made when first asked for."""
    with _pools_lock:
        pool = _pools.get(n_threads)
        if pool is None or pool.pid != os.getpid() or (n_threads > 1 and not pool.threads):
            pool = _pools[n_threads] = Pool(n_threads)
        return pool


def close_pools() -> None:
    """Close all pools of this process."""
    with _pools_lock:
        for pool in _pools.values():
            pool.close()
        _pools.clear()


def _in_child() -> None:
    """After a fork: locks may be held by threads that are gone."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()


atexit.register(close_pools)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

__all__ = ["MAX_THREADS", "Pool", "choose_threads", "close_pools", "get_pool", "n_cores", "n_processors", "weakref"]
