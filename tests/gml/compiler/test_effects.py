"""Random graphs that read and write states, copies and views in any order: compiled as the reference runs them."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gml
from gml.backends.cpu import CpuBackend
from gml.compiler.interpret import InterpretingBackend
from gml.compiler.state import Options

N_ROWS, N_COLUMNS = 4, 16
#: ops whose results do not depend on the order of anything inside them
PURE = (
    gml.relu, gml.neg, gml.sqr, gml.dup, gml.cont,
    lambda x: gml.cont(gml.permute(gml.permute(x, 1, 0, 2, 3), 1, 0, 2, 3)),
    lambda x: gml.reshape(x, [N_COLUMNS, N_ROWS]),
    lambda x: gml.repeat(x, [N_COLUMNS, N_ROWS]),
)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("pure", "pure", "add", "cpy", "cpy_view", "set_rows", "get_rows", "keep")),
        *[st.integers(0, 60)] * 3,
    ),
    min_size=2,
    max_size=14,
)


def build(steps: list[tuple[str, int, int, int]]) -> tuple[gml.Graph, list[gml.Tensor]]:
    """The graph of a program over two states, a constant and an input, all [16, 4]; every write is an output."""
    context = gml.Context()
    random = np.random.default_rng(5)
    fill = [random.integers(-8, 8, size=(N_ROWS, N_COLUMNS)).astype(np.float32) for _ in range(4)]
    states = [context.state(f"s{i}", gml.F32, [N_COLUMNS, N_ROWS]).set(fill[i]) for i in range(2)]
    values = [*states, context.constant(fill[2]), context.input("x", gml.F32, [N_COLUMNS, N_ROWS]).set(fill[3])]
    rows = context.constant(np.array([2, 0], np.int32))
    outputs: list[gml.Tensor] = []
    for kind, which, one, two in steps:
        a, b = values[one % len(values)], values[two % len(values)]
        if kind == "pure":
            values.append(PURE[which % len(PURE)](a))
        elif kind == "add":
            values.append(gml.add(a, b))
        elif kind == "get_rows":
            values.append(gml.repeat(gml.get_rows(a, rows), [N_COLUMNS, N_ROWS]))
        elif kind == "keep":
            values.append(gml.scale(a, 0.5).keep())
        elif b.root.role in ("constant", "input") or a.root is b.root:
            continue
        else:
            if kind == "cpy":
                made = gml.cpy(a, b)
            elif kind == "cpy_view":
                made = gml.cpy(
                    gml.view(a, [8, 2], nb=[a.nb[1]]), gml.view(b, [8, 2], nb=[b.nb[1]], offset=b.nb[1] + 16)
                )
            else:
                made = gml.set_rows(b, gml.view(a, [N_COLUMNS, 2], nb=[a.nb[1]]), rows)
            outputs.append(made)
            if made.ne == b.ne:
                values.append(made)
    return gml.Graph([*outputs, values[-1]]), states


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_effects_happen_in_the_order_of_the_graph(steps: list[tuple[str, int, int, int]]) -> None:
    results = []
    everything_off = Options(disabled=frozenset(("fuse", "merge", "canonicalise", "hoist", "fold")))
    for backend in ("reference", InterpretingBackend(), InterpretingBackend(everything_off)):
        graph, states = build(steps)
        program = gml.compile(graph, backend)
        found = []
        for _ in range(2):
            program.run()
            found += [np.array(program.read(t)) for t in graph.kept]
            found += [np.array(s.numpy()) for s in states]
        results.append(found)
    for other in results[1:]:
        for expected, value in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(value, expected)


def test_a_read_of_a_written_result_stays_before_and_behind_the_write() -> None:
    """What is copied from a result that is written later is the value of its time."""
    context = gml.Context()
    x = context.input("x", gml.F32, [N_COLUMNS, N_ROWS])
    target = gml.dup(x)
    before = gml.neg(target)
    write = gml.cpy(gml.sqr(x), target)
    behind = gml.neg(target)
    graph = gml.Graph([before, write, behind])
    for backend in ("reference", CpuBackend(2)):
        first, second, third = gml.compile(graph, backend)(x=np.full((N_ROWS, N_COLUMNS), 3.0))
        assert (first == -3).all() and (second == 9).all() and (third == -9).all()
