"""The compiler's own rules: good graphs pass, and every rule is broken once by hand and found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import gml
from gml.compiler import graph_passes, pipeline, verify
from gml.compiler.memory import Lifetime
from gml.compiler.pipeline import PASSES, compile_graph
from gml.compiler.plan import CompiledGraph
from gml.compiler.regions import Region
from gml.compiler.state import Options, State
from gml.compiler.verify import VerifyError, verify_plan, verify_state
from gml.tensor import Tensor


def block_with_cache() -> gml.Graph:
    """A quantised block that writes a state, reads it behind the write, and keeps a value on the way."""
    context = gml.Context()
    random = np.random.default_rng(1)
    tokens = gml.Dim("n_tokens", max=8)
    x = context.input("x", gml.F32, [64, tokens])
    cells = context.input("cells", gml.I32, [tokens])
    cache = context.state("cache", gml.F16, [64, 16])
    weights = [context.constant(random.normal(size=(64, 64)).astype(np.float32), type=gml.Q4_0) for _ in range(3)]
    norm = context.constant(np.ones(64, np.float32), name="norm")
    old = gml.scale(gml.get_rows(cache, cells), 0.5).named("old")
    h = (gml.rms_norm(x, eps=1e-5) * norm).named("h").keep()
    k = gml.mul_mat(weights[0], h).named("k")
    stored = gml.set_rows(cache, k, cells).named("stored")
    read = gml.get_rows(stored, cells)
    gate, up = gml.mul_mat(weights[1], read), gml.mul_mat(weights[2], read)
    y = gml.swiglu_split(gate, up) + x + old
    return gml.Graph(gml.relu(gml.reshape(y, [64, tokens])).named("y"))


def final_state(graph: gml.Graph | None = None) -> State:
    state = State.start(graph or block_with_cache(), Options())
    for _, run, _ in PASSES:
        state = run(state)
    return state


def named(state: State, name: str) -> Tensor:
    return next(n for n in state.nodes if n.name == name)


@pytest.mark.parametrize("disabled", [(), ("fuse",), ("merge", "canonicalise"), ("refine", "hoist")])
def test_a_good_graph_keeps_all_rules(disabled: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "always_verify", True)
    compiled = compile_graph(block_with_cache(), Options(disabled=frozenset(disabled)))
    assert sum(len(phase) for phase in compiled.step) >= 6


# -- tensor ops --------------------------------------------------------------------------------------------------------


def swap_order(state: State) -> None:
    state.nodes.reverse()


def lose_a_node(state: State) -> None:
    state.nodes.remove(named(state, "k"))


def repeat_a_node(state: State) -> None:
    state.nodes.append(state.nodes[-1])


def foreign_source(state: State) -> None:
    node = state.nodes[-1]
    node.src = (gml.Context().input("foreign", gml.F32, node.src[0].ne),)


def lose_an_output(state: State) -> None:
    state.outputs.clear()


def lose_a_kept_tensor(state: State) -> None:
    kept = next(t for t in state.moved if t.name == "h")
    del state.moved[kept]


def move_to_another_size(state: State) -> None:
    kept = next(t for t in state.moved if t.name == "h")
    state.moved[kept] = named(state, "k").src[0]


def output_not_computed(state: State) -> None:
    state.outputs[0] = gml.relu(state.outputs[0])


def wrong_type(state: State) -> None:
    named(state, "h").type = gml.I32


def wrong_sizes(state: State) -> None:
    named(state, "h").ne = (32, 1, 1, 1)


def wrong_strides(state: State) -> None:
    node = named(state, "h")
    node.nb = (8, *node.nb[1:])


def view_without_its_source(state: State) -> None:
    node = next(n for n in state.nodes if n.op is not None and n.op.view)
    node.view_of = None


def refused_sources(state: State) -> None:
    node = next(n for n in state.nodes if n.op is not None and n.op.name == "swiglu_split")
    node.src = (node.src[0], gml.Context().input("other", gml.F32, [3]))
    state.graph.leaves.append(node.src[1])


def read_after_the_write(state: State) -> None:
    """The rows of the old state are read behind the op that writes new ones."""
    reader = next(n for n in state.nodes if n.op is not None and n.op.name == "get_rows" and n.src[0].is_leaf)
    user = named(state, "old")
    for node in (reader, user):
        state.nodes.remove(node)
    at = state.nodes.index(named(state, "stored")) + 1
    state.nodes[at:at] = [reader, user]


def lose_a_write(state: State) -> None:
    """What is read is the state without the write."""
    stored = named(state, "stored")
    cache = stored.src[0]
    state.nodes.remove(stored)
    for node in state.nodes:
        node.src = tuple(cache if s is stored else s for s in node.src)


STATE_RULES: dict[Callable[[State], None], str] = {
    swap_order: "comes later",
    lose_a_node: "neither a node nor a leaf",
    repeat_a_node: "occurs twice",
    foreign_source: "neither a node nor a leaf",
    lose_an_output: "expected 1 outputs, found 0",
    lose_a_kept_tensor: "nothing is known of where its values are",
    move_to_another_size: "type and ne must stay",
    output_not_computed: "is not computed",
    wrong_type: "type and ne must stay|op mul makes F32",
    wrong_sizes: "type and ne must stay|op mul makes F32",
    wrong_strides: "expected nb",
    view_without_its_source: "must look into its source",
    refused_sources: "refuses its sources",
    read_after_the_write: "saw 'cache' F16.* after 0 writes, now after 1",
    lose_a_write: "was written by 1 ops, now by 0",
}


@pytest.mark.parametrize("spoil", STATE_RULES, ids=lambda f: f.__name__)
def test_a_broken_rule_of_tensor_ops_is_found(spoil: Callable[[State], None]) -> None:
    before = final_state()
    # the same tensors in states of their own
    state = State(before.graph, before.options, list(before.nodes), list(before.outputs), dict(before.moved))
    reference = State(before.graph, before.options, list(before.nodes), list(before.outputs), dict(before.moved))
    verify_state(state, "pass test", reference)
    spoil(state)
    with pytest.raises(VerifyError, match=STATE_RULES[spoil]) as error:
        verify_state(state, "pass test", reference)
    assert "after pass test: " in str(error.value) and "\n" not in str(error.value)


def test_reads_that_a_pass_made_anew_are_held_to_what_was_seen_before() -> None:
    graph = block_with_cache()
    before = State.start(graph, Options())
    # every node is another one: readers cannot be matched by identity
    state = final_state(block_with_cache())
    state = State(state.graph, state.options, state.nodes, state.outputs, state.moved)
    read_after_the_write(state)
    cache = next(t for t in graph.leaves if t.role == "state")
    for node in state.nodes:
        node.src = tuple(cache if s.role == "state" else s for s in node.src)
    stored = named(state, "stored")
    stored.view_of, stored._viewed_root = cache, cache
    with pytest.raises(VerifyError, match="is read after 1 writes, where no op read it before"):
        verify._verify_effects(state, before, "pass test")


def test_a_pass_that_breaks_a_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(state: State) -> State:
        state = graph_passes.merge(state)
        wrong_strides(state)
        return state

    passes = tuple((name, careless if name == "merge" else run, needed) for name, run, needed in PASSES)
    monkeypatch.setattr(pipeline, "PASSES", passes)
    with monkeypatch.context() as patch:
        patch.setenv("GML_CHECK", "1")
        with pytest.raises(VerifyError, match="after pass merge: 'h' F32"):
            compile_graph(block_with_cache())


# -- regions, phases, memory -------------------------------------------------------------------------------------------


def plan() -> CompiledGraph:
    return compile_graph(block_with_cache())


def find(compiled: CompiledGraph, op: str) -> tuple[int, int]:
    """(phase, place) of the step's first region with an op of this name."""
    for i, phase in enumerate(compiled.step):
        for j, invocation in enumerate(phase):
            if any(n.op is not None and n.op.name == op for n in invocation.region.nodes):
                return i, j
    raise AssertionError(op)


def region_lost(compiled: CompiledGraph) -> None:
    compiled.step[-1].pop()


def region_twice(compiled: CompiledGraph) -> None:
    compiled.step[-1].append(compiled.step[0][0])
    compiled.step[-1][-1] = type(compiled.step[0][0])("again", (), compiled.step[0][0].chunks, again(compiled))


def again(compiled: CompiledGraph) -> Region:
    return Region(list(compiled.step[0][0].region.nodes))


def inner_value_kept(compiled: CompiledGraph) -> None:
    inner = next(i.region.nodes[0] for phase in compiled.step for i in phase if len(i.region.nodes) > 1)
    compiled.state.outputs.append(inner)


def inner_value_read(compiled: CompiledGraph) -> None:
    inner = next(i.region.nodes[0] for phase in compiled.step for i in phase if len(i.region.nodes) > 1)
    last = compiled.step[-1][-1].region.out
    last.src = (inner, *last.src[1:])


def read_before_made(compiled: CompiledGraph) -> None:
    at, j = find(compiled, "swiglu_split")
    moved = compiled.step[at].pop(j)
    compiled.step[0].append(moved)


def write_before_read(compiled: CompiledGraph) -> None:
    """The region that reads the old state runs beside the one that writes it."""
    invocations = [i for phase in compiled.step for i in phase]
    region = next(i for i in invocations if i.region.out.op is not None and i.region.out.op.name == "get_rows")
    for phase in compiled.step:
        if region in phase:
            phase.remove(region)
    at, _ = find(compiled, "set_rows")
    compiled.step[at].append(region)


def two_results_at_one_place(compiled: CompiledGraph) -> None:
    for root in compiled.plan.offsets:
        compiled.plan.offsets[root] = 0


def outside_the_buffer(compiled: CompiledGraph) -> None:
    compiled.plan.peak_bytes -= 64


def result_without_memory(compiled: CompiledGraph) -> None:
    compiled.plan.offsets.popitem()


PLAN_RULES: dict[Callable[[CompiledGraph], None], str] = {
    region_lost: "is in no region",
    region_twice: "is in two regions",
    inner_value_kept: "must be readable after a run and is never stored",
    inner_value_read: "which is never stored",
    read_before_made: "before it is made, or while it is",
    write_before_read: "'stored' F16.* must come after 'get_rows' F32",
    two_results_at_one_place: "share memory",
    outside_the_buffer: "outside the activation buffer",
    result_without_memory: "has no memory",
}


@pytest.mark.parametrize("spoil", PLAN_RULES, ids=lambda f: f.__name__)
def test_a_broken_rule_of_the_plan_is_found(spoil: Callable[[CompiledGraph], None]) -> None:
    compiled = plan()
    verify_plan(compiled)
    spoil(compiled)
    with pytest.raises(VerifyError, match=PLAN_RULES[spoil]):
        verify_plan(compiled)


def test_a_take_over_that_is_none_is_found() -> None:
    """A result in the place of one that another region still reads in the same phase."""
    context = gml.Context()
    x = context.input("x", gml.F32, [16, 4])
    a = gml.sqr(x)
    compiled = compile_graph(gml.Graph([gml.sum_rows(a), gml.relu(gml.transpose(a))]))
    verify_plan(compiled)
    (first,), second = compiled.step
    for invocation in second:
        compiled.plan.offsets[invocation.region.out] = compiled.plan.offsets[first.region.out]
        with pytest.raises(VerifyError, match="share memory"):
            verify_plan(compiled)


def test_lifetimes_of_the_plan_are_not_what_is_verified() -> None:
    """The verifier finds lifetimes itself: wrong ones in the plan do not matter, wrong offsets do."""
    compiled = plan()
    compiled.plan.lifetimes = [Lifetime(life.root, 0, 0, 0) for life in compiled.plan.lifetimes]
    verify_plan(compiled)
