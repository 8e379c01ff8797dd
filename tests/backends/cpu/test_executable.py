"""Programs on the CPU backend: the same bits for all thread counts, no allocations, shared setups, errors."""

from __future__ import annotations

import gc
import mmap
import sys
import threading
import tracemalloc
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gml
from gml.backends.cpu import CancelledError, CpuBackend, CpuProgram, hoisted
from gml.ops.base import registry
from gml.ops.lower import Elementwise

THREADS = [1, 2, 3, 8]


def block_graph(weights: gml.Context, seed: int = 3) -> tuple[gml.Graph, list[gml.Tensor]]:
    """A feed-forward block over quantised weights with a residual, for up to 40 tokens."""
    random = np.random.default_rng(seed)
    ctx = gml.Context()
    x = ctx.input("x", gml.F32, [256, gml.Dim("n_tokens", max=40)])

    def matrix(n: int, k: int, dtype: gml.DType) -> gml.Tensor:
        return weights.constant((random.normal(size=(n, k)) / k**0.5).astype(np.float32), type=dtype)

    up, gate, down = matrix(512, 256, gml.Q4_0), matrix(512, 256, gml.Q8_0), matrix(256, 512, gml.Q6_K)
    h = gml.rms_norm(x, eps=1e-6)
    h = gml.mul_mat(down, gml.silu(gml.mul_mat(gate, h)) * gml.mul_mat(up, h))
    return gml.Graph(gml.soft_max(h + x)), [up, gate, down]


def tokens(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 256)).astype(np.float32)


def program_of(graph: gml.Graph, threads: int = 2, **options) -> CpuProgram:
    return gml.compile(graph, CpuBackend(threads, **options))


@pytest.mark.parametrize("layout", ["packed", "file"])
@pytest.mark.parametrize("exact", [False, True])
def test_the_same_bits_for_every_number_of_threads_and_split(layout: str, exact: bool) -> None:
    graph, _ = block_graph(gml.Context())
    x = tokens(40)
    results = []
    for n_threads in THREADS:
        program = program_of(graph, n_threads, layout=layout, exact=exact)
        results.append(program(x=x))
        for step in (1, 7, 32):
            parts = [program(x=x[i : i + step]) for i in range(0, len(x), step)]
            results.append(np.concatenate(parts))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    reference = gml.compile(graph)(x=x)
    # 8-bit activations cost precision, float ones do not
    assert np.abs(results[0] / reference - 1).max() < (1e-4 if exact else 0.1)


def test_a_step_allocates_nothing() -> None:
    graph, _ = block_graph(gml.Context())
    program = program_of(graph, 3)
    x = tokens(40)
    program(x=x)
    program.run(n_tokens=40)
    tracemalloc.start()
    try:
        for i in range(100):
            program.run(n_tokens=1 + i % 40)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for i in range(200):
            program.run(n_tokens=1 + i % 40)
        peak = tracemalloc.get_traced_memory()[1]
        gc.collect()  # Python keeps up to 80 dead dictionaries for itself
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < 4096
    assert peak - before < 32768


def test_run_time_sizes_from_none_to_the_bound() -> None:
    ctx = gml.Context()
    n, m = gml.Dim("n", max=9, min=0), gml.Dim("m", max=33, min=0)
    x = ctx.input("x", gml.F32, [m, n])
    program = program_of(gml.Graph(x + x))
    for rows in (0, 1, 9):
        for columns in (0, 1, 15, 16, 33):
            array = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            np.testing.assert_array_equal(program(x=array), 2 * array)


def test_a_graph_of_leaves_alone() -> None:
    ctx = gml.Context()
    x = ctx.input("x", gml.F32, [4])
    program = program_of(gml.Graph(x))
    np.testing.assert_array_equal(program(x=np.arange(4.0)), [0, 1, 2, 3])


# -- setups ----------------------------------------------------------------------------------------------------------


def test_programs_over_the_same_weights_share_what_is_made_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = gml.Context()
    graph, leaves = block_graph(weights)
    first, second = program_of(graph), program_of(graph, 3)
    assert first.compiled.setup
    expected = first(x=tokens(2))
    made = []
    allocate = hoisted.huge_bytes
    monkeypatch.setattr(hoisted, "huge_bytes", lambda *args: made.append(args) or allocate(*args))
    np.testing.assert_array_equal(second(x=tokens(2)), expected)
    assert made == []
    ours, theirs = ({id(b) for b in p.hoisted.values()} for p in (first, second))
    assert ours == theirs
    assert len(leaves) == 3


def test_two_first_steps_at_once_end_with_one_copy() -> None:
    graph, _ = block_graph(gml.Context())
    programs = [program_of(graph, 2) for _ in range(4)]
    start = threading.Barrier(4)
    results: dict[int, np.ndarray] = {}

    def work(i: int) -> None:
        start.wait(60)
        results[i] = programs[i](x=tokens(5))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({id(b) for p in programs for b in p.hoisted.values()}) == len(programs[0].hoisted)
    for i in range(1, 4):
        np.testing.assert_array_equal(results[i], results[0])


def test_what_was_shared_goes_with_the_weights() -> None:
    gc.collect()
    before = len(hoisted._entries)
    weights = gml.Context()
    graph, leaves = block_graph(weights)
    program = program_of(graph)
    program(x=tokens(1))
    buffers = [weakref.ref(b) for b in program.hoisted.values()]
    assert buffers
    assert len(hoisted._entries) > before
    del program, graph, leaves, weights
    gc.collect()
    assert len(hoisted._entries) == before
    assert [b() for b in buffers] == [None] * len(buffers)


def test_other_weights_of_the_same_shape_are_not_mistaken() -> None:
    for seed in (1, 2):
        graph, _ = block_graph(gml.Context(), seed)
        program = program_of(graph, exact=True)
        np.testing.assert_allclose(program(x=tokens(3)), gml.compile(graph)(x=tokens(3)), atol=1e-5)


def test_constants_that_depend_on_themselves_many_times() -> None:
    ctx = gml.Context()
    c = ctx.constant(np.ones((3, 8), dtype=np.float32))
    for _ in range(60):
        c = (c + c) * 0.5
    x = ctx.input("x", gml.F32, [8, 2])
    program = program_of(gml.Graph(gml.mul_mat(c, x)), disabled=["fuse"])
    np.testing.assert_array_equal(program(x=np.ones((2, 8))), np.full((2, 3), 8.0))


def test_a_setup_that_fails_is_tried_again() -> None:
    ctx = gml.Context()
    table = ctx.constant(np.eye(4, dtype=np.float32))
    ids = ctx.constant(np.array([1, 9], dtype=np.int32))
    x = ctx.input("x", gml.F32, [4, 2])
    program = program_of(gml.Graph(gml.mul_mat(gml.get_rows(table, ids), x)))
    assert program.compiled.setup
    for _ in range(2):
        with pytest.raises(gml.GraphError, match="get_rows"):
            program(x=np.zeros((2, 4)))


# -- the model file's pages --------------------------------------------------------------------------------------------


def mapped(path: Path, access: int) -> np.ndarray:
    with path.open("r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=access), dtype=np.uint8)


@pytest.fixture
def big_file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(np.arange(1 << 20, dtype=np.int64).tobytes())
    return path


def resident_bytes(path: Path) -> int:
    """Resident bytes of a mapped file in this process."""
    rows = Path("/proc/self/smaps").read_text().splitlines()
    at = next(i for i, row in enumerate(rows) if row.endswith(str(path)))
    return next(int(row.split()[1]) for row in rows[at:] if row.startswith("Rss:")) * 1024


def test_pages_of_a_read_only_map_are_given_back(big_file: Path) -> None:
    array = mapped(big_file, mmap.ACCESS_READ)
    total = int(array.sum(dtype=np.int64))
    view = array[1000 : 7 << 20].reshape(-1, 8)
    if sys.platform == "linux":
        assert resident_bytes(big_file) >= 8 << 20
    hoisted.release_pages([view])
    if sys.platform == "linux":
        assert resident_bytes(big_file) <= 2 << 20
    assert int(array.sum(dtype=np.int64)) == total


def test_pages_that_exist_nowhere_else_are_kept(big_file: Path) -> None:
    private = mapped(big_file, mmap.ACCESS_COPY)
    anonymous = np.frombuffer(mmap.mmap(-1, 1 << 20), dtype=np.uint8)
    for array in (private, anonymous, np.zeros(1 << 20, dtype=np.uint8)):
        array[:] = 7
        hoisted.release_pages([array])
        assert (array == 7).all()


def test_a_program_over_a_mapped_file_gives_its_pages_back(tmp_path: Path) -> None:
    weights = np.random.default_rng(1).normal(size=(512, 1024)).astype(np.float32)
    path = tmp_path / "w.bin"
    path.write_bytes(gml.Context().constant(weights, type=gml.Q8_0).bytes().tobytes())
    ctx = gml.Context()
    w = ctx.from_buffer(mapped(path, mmap.ACCESS_READ), gml.Q8_0, [1024, 512])
    x = ctx.input("x", gml.F32, [1024, 1])
    program = program_of(gml.Graph(gml.mul_mat(w, x)))
    values = np.ones((1, 1024), dtype=np.float32)
    first = program(x=values)
    assert program.compiled.setup
    if sys.platform == "linux":
        assert resident_bytes(path) <= 64 << 10
    np.testing.assert_array_equal(program(x=values), first)


# -- the object cache and ops of the user's ----------------------------------------------------------------------------


def test_a_users_op_is_known_by_what_it_does_not_by_its_name() -> None:
    add = registry["add"]
    ctx = gml.Context()
    x, y = (ctx.input(name, gml.F32, [33]) for name in "xy")
    ours = replace(add, lower=Elementwise(lambda b, attrs, x, y: b.add(x, y)))
    other = replace(add, lower=Elementwise(lambda b, attrs, x, y: b.sub(x, y)))
    values = {"x": np.arange(33.0, dtype=np.float32), "y": np.full(33, 2, dtype=np.float32)}
    for _ in range(2):
        np.testing.assert_array_equal(program_of(gml.Graph(ours(x, y)))(**values), values["x"] + 2)
        np.testing.assert_array_equal(program_of(gml.Graph(other(x, y)))(**values), values["x"] - 2)


def test_gmls_own_kernels_are_not_lowered_when_the_cache_has_them() -> None:
    graph, _ = block_graph(gml.Context())
    program_of(graph)(x=tokens(1))
    again = program_of(graph)
    again(x=tokens(1))
    assert "kernels" not in vars(again.compiled)


# -- Python in the middle of a step, errors, cancelling ----------------------------------------------------------------


def custom_program(function, threads: int = 2) -> CpuProgram:
    """(x + 1) -> function -> + 1"""
    ctx = gml.Context()
    x = ctx.input("x", gml.F32, [64, 10])
    return program_of(gml.Graph(gml.map_custom(function, x + 1.0) + 1.0), threads)


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, gml.GraphError])
def test_what_a_users_function_raises_reaches_the_caller(n_threads: int, error: type[BaseException]) -> None:
    wrong = [True]

    def function(array: np.ndarray) -> np.ndarray:
        if wrong[0]:
            raise error("not today")
        return array * 2

    program = custom_program(function, n_threads)
    for _ in range(3):
        wrong[0] = True
        with pytest.raises(error, match="not today"):
            program(x=np.ones((10, 64)))
        wrong[0] = False
        np.testing.assert_array_equal(program(x=np.ones((10, 64))), np.full((10, 64), 5.0))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_users_function_may_run_another_program(n_threads: int) -> None:
    inner = custom_program(lambda a: a, n_threads)
    middle = custom_program(lambda a: inner(x=a), n_threads)
    outer = custom_program(lambda a: middle(x=a), n_threads)
    np.testing.assert_array_equal(outer(x=np.zeros((10, 64))), np.full((10, 64), 6.0))


def test_a_program_inside_itself_is_refused() -> None:
    programs: list[CpuProgram] = []
    programs.append(custom_program(lambda a: programs[0](x=a)))
    with pytest.raises(gml.UsageError, match="running"):
        programs[0](x=np.zeros((10, 64)))


def test_one_program_on_two_threads_is_refused_and_two_are_not() -> None:
    inside, go = threading.Event(), threading.Event()

    def function(array: np.ndarray) -> np.ndarray:
        inside.set()
        assert go.wait(60)
        return array

    program = custom_program(function)
    results: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: results.append(program(x=np.zeros((10, 64)))))
    thread.start()
    assert inside.wait(60)
    with pytest.raises(gml.UsageError, match="one program per thread"):
        program.run()
    go.set()
    thread.join(60)
    np.testing.assert_array_equal(results[0], np.full((10, 64), 2.0))


@pytest.mark.parametrize("n_threads", THREADS)
def test_cancelling_from_another_thread(n_threads: int) -> None:
    inside, go = threading.Event(), threading.Event()

    def function(array: np.ndarray) -> np.ndarray:
        inside.set()
        assert go.wait(60)
        return array

    program = custom_program(function, n_threads)

    def cancel() -> None:
        assert inside.wait(60)
        program.cancel()
        go.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(CancelledError):
        program(x=np.zeros((10, 64)))
    thread.join(60)
    program.cancel()  # nothing runs: forgotten
    np.testing.assert_array_equal(program(x=np.zeros((10, 64))), np.full((10, 64), 2.0))


def test_an_index_out_of_range_is_an_error_and_the_program_goes_on() -> None:
    ctx = gml.Context()
    table = ctx.input("table", gml.F32, [16, 5])
    ids = ctx.input("ids", gml.I32, [3])
    program = program_of(gml.Graph(gml.get_rows(table, ids)), 3)
    values = np.arange(80, dtype=np.float32).reshape(5, 16)
    for wrong in ([0, 5, 1], [-1, 0, 0], [0, 0, 2**31 - 1]):
        with pytest.raises(gml.GraphError, match="get_rows"):
            program(table=values, ids=np.array(wrong, dtype=np.int32))
        np.testing.assert_array_equal(program(table=values, ids=np.array([4, 0, 1])), values[[4, 0, 1]])


def test_a_program_goes_when_nobody_holds_it() -> None:
    program = custom_program(lambda a: a)
    program(x=np.zeros((10, 64)))
    gone = weakref.ref(program)
    del program
    gc.collect()
    assert gone() is None


def test_options_are_checked() -> None:
    with pytest.raises(gml.UsageError):
        CpuBackend(0)
    with pytest.raises(gml.UsageError):
        CpuBackend(1, layout="sideways")
    with pytest.raises(gml.UsageError):
        CpuBackend(1, lanes=3)
    with pytest.raises(gml.UsageError):
        CpuBackend(1, target="pdp-11")
    with pytest.raises(gml.UsageError):
        CpuBackend(1, disabled=["no_such_pass"])
