"""The worker threads: every chunk once, phases in order, cancelled steps, forks, signals, and nothing left behind."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import gml
from gml.backends.cpu import CpuBackend, runtime
from gml.backends.cpu.cores import cpu_quota, n_cores, n_processors
from gml.backends.cpu.driver import Entry
from gml.backends.cpu.jit import KERNEL, Module, compile_kernels
from gml.backends.cpu.runtime import Pool, ThreadError, choose_threads, close_pools, get_pool, inside_step
from gml.kernel_ir import I64, Builder

THREADS = [1, 2, 3, 8]


def count_kernel() -> gml.kernel_ir.Kernel:
    """p[i] += 1 for every chunk i."""
    b = Builder("count")
    p, b_sizes, begin, end = b.param("p"), b.param("sizes"), b.param("begin", I64), b.param("end", I64)
    del b_sizes
    b.loop(begin, end, lambda i: b.store(p, i * 8, b.load(p, i * 8, I64) + 1))
    return b.finish()


def mix_kernel() -> gml.kernel_ir.Kernel:
    """q[i] = 3 p[i] + p[n - 1 - i]: chunks of one phase read what other threads wrote in the phase before."""
    b = Builder("mix")
    p, q, sizes, begin, end = b.param("p"), b.param("q"), b.param("sizes"), b.param("begin", I64), b.param("end", I64)
    n = b.load(sizes, 0, I64, constant=True)

    def one(i):
        b.store(q, i * 8, b.load(p, i * 8, I64) * 3 + b.load(p, (n - 1 - i) * 8, I64))

    b.loop(begin, end, one)
    return b.finish()


@pytest.fixture(scope="module")
def kernels() -> Module:
    return compile_kernels([count_kernel(), mix_kernel()])


class Table:
    """A phase table by hand: phases of (kernel address, buffers, chunks, grain)."""

    def __init__(self, phases: Sequence[Sequence[tuple[int, Sequence[np.ndarray], int, int]]], size: int = 0) -> None:
        items = [item for phase in phases for item in phase]
        self.ends = np.cumsum([len(phase) for phase in phases], dtype=np.int64)
        self.entries = gml.arena.aligned_bytes(len(items) * Entry.N_WORDS * 8).view(np.int64).reshape(len(items), -1)
        self.args = [np.array([b.ctypes.data for b in buffers] or [0], dtype=np.int64) for _, buffers, _, _ in items]
        self.sizes = np.array([size, 0], dtype=np.int64)
        self.cancel = np.zeros(1, dtype=np.int64)
        for row, args, (kernel, _, n_chunks, grain) in zip(self.entries, self.args, items, strict=True):
            row[:4] = kernel, args.ctypes.data, n_chunks, grain
        self.addresses = np.array(
            [self.ends.ctypes.data, len(phases)] + [a.ctypes.data for a in (self.entries, self.sizes, self.cancel)],
            dtype=np.int64,
        )

    def run(self, pool: Pool, n_scratch_bytes: int = 0) -> bool:
        self.entries[:, Entry.COUNTER] = 0
        self.cancel[0] = 0
        return pool.step(self, n_scratch_bytes)


class Calls:
    """Python functions as kernels; keeps them alive."""

    def __init__(self) -> None:
        self.kept: list[object] = []

    def address(self, function) -> int:
        wrapped = KERNEL(function)
        self.kept.append(wrapped)
        return ctypes.cast(wrapped, ctypes.c_void_p).value


@pytest.fixture
def calls() -> Calls:
    return Calls()


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("gml-")]


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize(("n_chunks", "grain"), [(0, 1), (1, 1), (7, 3), (1000, 1), (1000, 64), (5, 100)])
def test_every_chunk_is_done_once_per_phase(kernels: Module, n_threads: int, n_chunks: int, grain: int) -> None:
    counts, other = np.zeros(n_chunks + 1, dtype=np.int64), np.zeros(40, dtype=np.int64)
    kernel = kernels.address("count")
    table = Table([[(kernel, [counts], n_chunks, grain), (kernel, [other], 39, 2)]] * 50)
    for _ in range(3):
        assert table.run(get_pool(n_threads))
    np.testing.assert_array_equal(counts[:-1], 150)
    np.testing.assert_array_equal(other[:-1], 150)
    assert counts[-1] == other[-1] == 0


@pytest.mark.parametrize("n_threads", THREADS)
def test_a_phase_sees_all_of_the_phase_before(kernels: Module, n_threads: int) -> None:
    n, n_phases = 101, 300
    a, b = np.arange(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    expected = a.copy()
    for _ in range(n_phases):
        expected = expected * 3 + expected[::-1]
    kernel = kernels.address("mix")
    phases = [[(kernel, [a, b] if i % 2 == 0 else [b, a], n, 1)] for i in range(n_phases)]
    assert Table(phases, size=n).run(get_pool(n_threads))
    np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("n_threads", THREADS)
def test_a_cancelled_step_ends_at_its_phase_and_the_next_is_whole(
    kernels: Module, calls: Calls, n_threads: int
) -> None:
    counts = np.zeros(64, dtype=np.int64)
    count = (kernels.address("count"), [counts], 64, 1)
    pool = get_pool(n_threads)
    whole = Table([[count]] * 5)
    cancelled = Table([[count], [(calls.address(lambda *_: cancelled.cancel.fill(1)), [], 1, 1)], [count], [count]])
    for _ in range(100):
        assert not cancelled.run(pool)
        assert whole.run(pool)
    np.testing.assert_array_equal(counts, 100 * (1 + 5))


def test_cancelling_in_the_last_phase_is_seen(calls: Calls) -> None:
    table = Table([[(calls.address(lambda *_: table.cancel.fill(1)), [], 1, 1)]])
    assert not table.run(get_pool(2))


@pytest.mark.parametrize("n_threads", THREADS)
def test_private_memory_is_apart_and_aligned(calls: Calls, n_threads: int) -> None:
    found: set[int] = set()
    barrier = threading.Barrier(n_threads)

    def look(args: int, sizes: int, scratch: int, begin: int, end: int) -> None:
        found.add(scratch)
        ctypes.memset(scratch, 1, 5000)
        barrier.wait(60)

    pool = Pool(n_threads)
    # as many chunks as threads, and each waits for all: every thread has one
    table = Table([[(calls.address(look), [], n_threads, 1)]])
    assert table.run(pool, 5000)
    assert table.run(pool, 100)
    pool.close()
    places = sorted(found)
    assert len(places) == n_threads
    assert all(place % 64 == 0 for place in places)
    assert all(b - a >= 5000 for a, b in itertools.pairwise(places))


def test_steps_of_many_python_threads_take_turns(kernels: Module) -> None:
    arrays = [np.zeros(200, dtype=np.int64) for _ in range(6)]

    def work(counts: np.ndarray, n_threads: int) -> None:
        table = Table([[(kernels.address("count"), [counts], 200, 1)]] * 4)
        for _ in range(50):
            assert table.run(get_pool(n_threads), 64 * n_threads)

    threads = [threading.Thread(target=work, args=(a, 2 + i % 2)) for i, a in enumerate(arrays)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all((a == 200).all() for a in arrays)


def test_pools_are_shared_and_leave_no_threads() -> None:
    close_pools()
    assert workers() == []
    pool = get_pool(3)
    assert get_pool(3) is pool
    assert len(workers()) == 2
    get_pool(2)
    assert len(workers()) == 3
    close_pools()
    assert workers() == []
    assert get_pool(3) is not pool
    close_pools()


def test_a_closed_pool_still_runs_what_is_given_to_it(kernels: Module) -> None:
    counts = np.zeros(10, dtype=np.int64)
    pool = Pool(3)
    pool.close()
    pool.close()
    assert Table([[(kernels.address("count"), [counts], 10, 1)]] * 2).run(pool)
    np.testing.assert_array_equal(counts, 2)


def test_a_system_out_of_threads_is_a_gml_error(monkeypatch: pytest.MonkeyPatch) -> None:
    close_pools()
    start, started = threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ThreadError, match="2 of 4 worker threads"):
        Pool(5)
    assert workers() == []


def test_inside_a_step_other_programs_get_a_pool_of_their_own(kernels: Module, calls: Calls) -> None:
    counts = np.zeros(10, dtype=np.int64)

    def nested(*_: int) -> None:
        with inside_step():
            assert Table([[(kernels.address("count"), [counts], 10, 1)]]).run(get_pool(2))

    assert Table([[(calls.address(nested), [], 1, 1)]] * 3).run(get_pool(2))
    np.testing.assert_array_equal(counts, 3)


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal to the main thread")
@pytest.mark.parametrize("n_threads", [1, 3])
def test_ctrl_c_surfaces_after_the_step(kernels: Module, n_threads: int) -> None:
    counts = np.zeros(2000, dtype=np.int64)
    table = Table([[(kernels.address("count"), [counts], 2000, 1)]] * 50)
    pool = get_pool(n_threads)
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    n_steps = 0
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        while n_steps < 10**6:
            table.run(pool)
            n_steps += 1
    before = counts[0]
    assert table.run(pool)
    np.testing.assert_array_equal(counts, before + 50)


SCRIPT = """
import os, sys, threading
import numpy as np
from gml.backends.cpu import runtime
from gml.backends.cpu.runtime import close_pools, get_pool
import gml
from gml.backends.cpu import CpuBackend

ctx = gml.Context()
x = ctx.input("x", gml.F32, [64, 33])
runtime.allow_crowds = True
program = gml.compile(gml.rms_norm(x, eps=1e-6), CpuBackend(3))
def run():
    return program(x=np.ones((33, 64), np.float32)).sum()
"""


def run_script(body: str, tmp_path: Path) -> str:
    env = {**os.environ, "GML_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + body], capture_output=True, text=True, timeout=60, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("used_before", [False, True])
def test_a_forked_child_makes_its_own_pool(used_before: bool, tmp_path: Path) -> None:
    body = f"""
if {used_before}:
    run()
pid = os.fork()
if pid == 0:
    ok = run() > 2111
    os._exit(0 if ok and sum(t.name.startswith("gml-") for t in threading.enumerate()) == 2 else 1)
assert run() > 2111
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run_script(body, tmp_path).strip() == "0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_in_the_middle_of_a_step(tmp_path: Path) -> None:
    body = """
run()  # LLVM's own locks allow no fork in the middle of compiling
stop = False
def spin():
    while not stop:
        run()
thread = threading.Thread(target=spin)
thread.start()
found = []
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if run() > 2111 else 1)
    found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop = True
thread.join()
print(found)
"""
    assert run_script(body, tmp_path).strip() == "[0, 0, 0, 0, 0]"


def test_the_process_ends_while_a_daemon_is_at_work(tmp_path: Path) -> None:
    body = """
def spin():
    while True:
        run()
threading.Thread(target=spin, daemon=True).start()
import time
time.sleep(0.2)
print("end")
"""
    assert run_script(body, tmp_path).strip() == "end"


def test_number_of_threads() -> None:
    assert choose_threads(5) == 5
    for wrong in (0, -1, 257, 2.0, True, "2"):
        with pytest.raises(gml.UsageError, match="from 1 to 256"):
            choose_threads(wrong)
    gml.knobs.set(threads=7)
    try:
        assert choose_threads(None) == 7
    finally:
        gml.knobs.set(threads=None)


def test_the_default_is_at_most_one_thread_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GML_THREADS", raising=False)
    assert 1 <= n_cores() <= n_processors() <= (os.cpu_count() or 1)
    assert choose_threads(None) == n_cores()
    monkeypatch.setattr(runtime, "n_cores", lambda: 1000)
    assert choose_threads(None) == 256


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "250000 100000\n"}, 2.5),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "100000 100000\n"}, 1.0),
        ({"a/b/cpu.max": "400000 100000\n", "cpu.max": "800000 100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1.5),
        ({"cpu.max": "nonsense\n"}, None),
        ({"cpu.max": "5 0\n"}, None),
    ],
)
def test_quota_of_control_groups(tmp_path: Path, files: dict[str, str], expected: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path, "/a/b") == expected


def test_no_more_threads_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "allow_crowds", False)
    assert runtime.useful_threads(256) == n_processors()
    assert runtime.useful_threads(1) == 1
    assert CpuBackend(200).n_threads == n_processors()
    monkeypatch.setattr(runtime, "allow_crowds", True)
    assert runtime.useful_threads(200) == 200
