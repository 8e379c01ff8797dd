"""Graphs: order, hash, dumps, names, and graphs of any depth."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gml
from gml.tensor import Tensor


def network(width: int = 8, eps: float = 1e-5, dims: int = 4) -> gml.Graph:
    context = gml.Context()
    x = context.input("x", gml.F32, [width, gml.Dim("n", max=dims)])
    w = context.constant(np.random.default_rng().random(width, dtype=np.float32))
    y = gml.rms_norm(x, eps=eps) * w
    return gml.Graph(gml.silu(y) + x, name="network")


def test_order_is_topological_and_stable() -> None:
    context = gml.Context()
    a = context.constant([1.0])
    b, c = gml.neg(a), gml.sqr(a)
    d = gml.add(c, b)
    for outputs in ([d], [d, b], [b, d, c]):
        graph = gml.Graph(outputs)
        assert graph.nodes == [b, c, d]
        assert graph.leaves == [a]
    assert gml.Graph(d).text() == gml.Graph(d).text()


def test_effects_happen_in_creation_order() -> None:
    context = gml.Context()
    state = context.state("s", gml.F32, [1])
    first = gml.cpy(context.constant([1.0]), state)
    second = gml.cpy(context.constant([2.0]), state)
    gml.compile(gml.Graph([second, first]), "reference").run()
    assert state.numpy() == 2


def test_equal_structure_has_an_equal_hash() -> None:
    assert network().hash() == network().hash()
    others = [network(width=9), network(eps=1e-6), network(dims=5)]
    assert len({g.hash() for g in (network(), *others)}) == 4


def test_the_hash_sees_wiring_outputs_types_and_what_is_kept() -> None:
    context = gml.Context()
    a, b = context.constant([1.0]), context.constant([2.0])
    half = context.constant([1.0], type=gml.F16)
    x, y = gml.neg(a), gml.sqr(a)
    graphs = [
        gml.Graph(gml.sub(a, b)), gml.Graph(gml.sub(b, a)), gml.Graph(gml.sub(a, a)), gml.Graph(gml.sub(half, a)),
        gml.Graph([x, y]), gml.Graph([y, x]), gml.Graph(gml.reshape(a, [1])), gml.Graph(gml.scale(a, 2.0)),
        gml.Graph(gml.scale(a, 3.0)), gml.Graph(gml.map_custom(np.sin, a)), gml.Graph(gml.map_custom(np.cos, a)),
    ]  # fmt: skip
    hashes = [g.hash() for g in graphs]
    assert len(set(hashes)) == len(graphs)


def test_a_function_hashes_by_name_and_not_by_address() -> None:
    def graph() -> gml.Graph:
        def twice(x: np.ndarray) -> np.ndarray:
            return 2 * x

        return gml.Graph(gml.map_custom(twice, gml.Context().constant([1.0])))

    assert graph().hash() == graph().hash()
    assert "0x" not in graph().text()


def test_text_dot_json_and_counts() -> None:
    graph = network()
    text = graph.text()
    assert "graph network: 2 leaves, 4 nodes" in text
    assert "n in 1..4" in text
    assert "rms_norm(%0:x, eps=1e-05) F32[8, n]" in text
    assert text.count("-> output") == 1
    assert graph.counts() == {"rms_norm": 1, "mul": 1, "silu": 1, "add": 1}
    rows = json.loads(graph.to_json())
    assert [n["op"] for n in rows["nodes"]] == ["rms_norm", "mul", "silu", "add"]
    assert rows["outputs"] == [5]
    dot = graph.to_dot()
    assert dot.startswith("digraph")
    assert dot.count("->") == 6
    assert dot.count("{") == dot.count("}")


def test_names_with_quotes_do_not_break_dot() -> None:
    dot = gml.Graph(gml.neg(gml.Context().constant([1.0], name='a"b\\c'))).to_dot()
    assert 'a\\"b\\\\c' in dot


def test_find_and_names() -> None:
    context = gml.Context()
    a = context.input("a", gml.F32, [2])
    b = gml.neg(a).named("b")
    graph = gml.Graph(b)
    assert graph.find("b") is b
    with pytest.raises(gml.GraphError, match="0 tensors are called 'c'"):
        graph.find("c")
    with pytest.raises(gml.GraphError, match="two inputs are called 'a'"):
        gml.Graph(gml.add(a, gml.Context().input("a", gml.F32, [2])))


def test_two_sizes_of_one_name_are_refused() -> None:
    context = gml.Context()
    x = context.input("x", gml.F32, [gml.Dim("n", max=4)])
    y = context.input("y", gml.F32, [gml.Dim("n", max=5)])
    with pytest.raises(gml.GraphError, match="two run-time sizes are called 'n'"):
        gml.Graph([gml.neg(x), gml.neg(y)])


@pytest.mark.parametrize("outputs", [[], [1], "x", None, 3])
def test_outputs_must_be_tensors(outputs: object) -> None:
    with pytest.raises(gml.GraphError):
        gml.Graph(outputs)  # type: ignore[arg-type]


DEPTH = 100_000


def test_a_chain_of_100_000_nodes_builds_dumps_and_runs() -> None:
    context = gml.Context()
    x: Tensor = context.input("x", gml.F32, [1])
    for _ in range(DEPTH):
        x = gml.scale(x, 1.0, 1.0)
    graph = gml.Graph(x)
    assert len(graph.nodes) == DEPTH
    assert graph.text().count("\n") == DEPTH + 2
    assert graph.to_dot().count("->") == DEPTH
    assert len(json.loads(graph.to_json())["nodes"]) == DEPTH
    assert len(graph.hash()) == 64
    assert gml.compile(graph, "reference")(x=[0.0]) == DEPTH
    # quadratic work would take hours here
    del graph, x


def test_a_chain_of_100_000_views_builds_and_runs() -> None:
    context = gml.Context()
    x: Tensor = context.constant(np.array([[1, 2], [3, 4]], np.float32))
    for _ in range(DEPTH // 2):
        x = gml.transpose(gml.permute(x, 1, 0, 2, 3))
    graph = gml.Graph(gml.neg(x))
    np.testing.assert_array_equal(gml.compile(graph, "reference")(), [[-1, -2], [-3, -4]])


def test_a_graph_of_many_outputs_dumps() -> None:
    a = gml.Context().constant([1.0])
    graph = gml.Graph([gml.neg(a) for _ in range(20_000)])
    assert graph.text().count("-> output") == 20_000
    assert graph.to_dot().count("penwidth") == 20_000
