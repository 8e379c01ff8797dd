"""Random graphs give the same bits fused and unfused, with all optimising passes and without, on one thread and three.

Every value of such a graph is F32 [n, n_tokens], so that any of them can be a source of any step: arithmetic, rows,
float and quantised products, rope, attention, permutes, views, short floats, and states written and read in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gml
from gml.backends.cpu import CpuBackend

UNARY = (gml.relu, gml.silu, gml.sqr, gml.neg, gml.tanh, gml.sigmoid, lambda x: x * 0.5, lambda x: gml.abs(x) + 1.0)
ROWS = (
    lambda x: gml.rms_norm(x, eps=1e-5),
    lambda x: gml.norm(x, eps=1e-5),
    gml.soft_max,
    lambda x: x + gml.sum_rows(x),
    gml.cumsum,
)
BINARY = (gml.add, gml.sub, gml.mul, gml.swiglu_split)
WEIGHTS = (gml.F32, gml.F16, gml.Q8_0, gml.Q4_1, gml.Q5_0)
N_KEPT = 12


@dataclass
class World:
    """A graph being made: its values, and all names of the one state that ops write."""

    n: int
    random: np.random.Generator
    context: gml.Context = field(default_factory=gml.Context)
    values: list[gml.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = gml.Dim("tokens", max=8, min=1)
        self.values = [self.context.input("x", gml.F32, [self.n, self.tokens])]
        self.ids = self.context.input("ids", gml.I32, [self.tokens])
        self.state = self.context.state("s", gml.F32, [self.n, N_KEPT])
        self.state.set(self.random.normal(size=(N_KEPT, self.n)))
        self.aliases = [self.state]
        #: the ids are always there, so that there is one way to run the program
        self.values.append(gml.get_rows(self.context.constant(self.normal(N_KEPT)), self.ids))

    def normal(self, rows: int) -> np.ndarray:
        return self.random.normal(size=(rows, self.n)).astype(np.float32)

    @property
    def heads(self) -> int:
        return 2 if self.n % 4 == 0 else 1

    def in_heads(self, a: gml.Tensor) -> gml.Tensor:
        return gml.reshape(a, [self.n // self.heads, self.heads, self.tokens])


def product(w: World, which: int, a: gml.Tensor, b: gml.Tensor) -> gml.Tensor:
    dtype = WEIGHTS[which % len(WEIGHTS)]
    if w.n % dtype.block_size:
        dtype = gml.F32
    return gml.mul_mat(w.context.constant(w.normal(w.n) / w.n, type=dtype), a)


def scores(w: World, which: int, a: gml.Tensor, b: gml.Tensor) -> gml.Tensor:
    """Two products without weights."""
    return gml.mul_mat(gml.cont(gml.transpose(b)), gml.soft_max(gml.mul_mat(b, a) * (1 / w.n)))


def rope(w: World, which: int, a: gml.Tensor, b: gml.Tensor) -> gml.Tensor:
    size = w.n // w.heads
    if size % 2:
        return a
    mode = ("normal", "neox")[which % 2]
    return gml.reshape(gml.rope(w.in_heads(a), w.ids, n_dims=size, mode=mode), [w.n, w.tokens])


def attention(w: World, which: int, a: gml.Tensor, b: gml.Tensor) -> gml.Tensor:
    q, k = (gml.permute(w.in_heads(t), 0, 2, 1, 3) for t in (a, b))
    if which % 3 == 0:
        k = gml.cast(k, gml.F16)
    return gml.reshape(gml.flash_attn_ext(q, k, k, scale=0.3, causal=which % 2 == 0), [w.n, w.tokens])


def permuted(w: World, which: int, a: gml.Tensor, b: gml.Tensor) -> gml.Tensor:
    """Through other orders of dimensions, copied or not."""
    if which % 3 == 0:
        return gml.cont(gml.transpose(gml.cont(gml.transpose(a))))
    if which % 3 == 1:
        return gml.transpose(gml.transpose(a)) + b
    swapped = gml.cont(gml.permute(w.in_heads(a), 0, 2, 1, 3))
    return gml.reshape(gml.cont(gml.permute(swapped, 0, 2, 1, 3)), [w.n, w.tokens])


def halves(w: World, which: int, a: gml.Tensor, b: gml.Tensor) -> gml.Tensor:
    """Windows into values, put together again."""
    middle = w.n // 2
    left = gml.view(a, [middle, w.tokens], nb=[a.nb[1]])
    right = gml.view(a, [w.n - middle, w.tokens], nb=[a.nb[1]], offset=4 * middle)
    return gml.concat(gml.neg(right), left, 0) if which % 2 else gml.concat(right, left, 0)


def short(w: World, which: int, a: gml.Tensor, b: gml.Tensor) -> gml.Tensor:
    dtype = (gml.F16, gml.BF16)[which % 2]
    return gml.cast(gml.cast(a, dtype) * 0.5, gml.F32)


def write(w: World, which: int, a: gml.Tensor, b: gml.Tensor) -> gml.Tensor:
    """Some rows of the state, by whichever of its names; the value is what is there afterwards."""
    target = w.aliases[which % len(w.aliases)]
    if which % 2:
        after = gml.set_rows(target, a, w.ids)
        w.aliases.append(after)
        return gml.get_rows(after, w.ids)
    window = gml.view(target, [w.n, w.tokens], nb=[target.nb[1]], offset=(which % 5) * target.nb[1])
    # no result can be read by its window's name later: the size is the run's
    return gml.cpy(a, window) + b


def read(w: World, which: int, a: gml.Tensor, b: gml.Tensor) -> gml.Tensor:
    """The state as it is now, by whichever of its names."""
    state = w.aliases[which % len(w.aliases)]
    if which % 2:
        return gml.get_rows(state, w.ids)
    return gml.view(state, [w.n, w.tokens], nb=[state.nb[1]], offset=(which % 4) * state.nb[1]) + a


STEPS = {
    "unary": lambda w, which, a, b: UNARY[which % len(UNARY)](a),
    "rows": lambda w, which, a, b: ROWS[which % len(ROWS)](a),
    "binary": lambda w, which, a, b: BINARY[which % len(BINARY)](a, b),
    "product": product,
    "scores": scores,
    "rope": rope,
    "attention": attention,
    "permuted": permuted,
    "halves": halves,
    "short": short,
    "write": write,
    "read": read,
}
#: kinds that compile fast come more often
KINDS = ("unary", "rows", "binary", "write", "read") * 2 + tuple(STEPS)
Step = tuple[str, int, int, int]


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, int, list[Step]]:
    """Sizes of the input, and steps: a kind, which of it, and which earlier values it takes."""
    step = st.tuples(st.sampled_from(KINDS), *[st.integers(0, 40)] * 3)
    return (
        draw(st.sampled_from((1, 7, 32, 33, 64))),
        draw(st.integers(1, 5)),
        draw(st.lists(step, min_size=2, max_size=8)),
    )


def build(n: int, steps: list[Step]) -> tuple[gml.Graph, World]:
    """The graph of a random program, with some values kept."""
    w = World(n, np.random.default_rng(n))
    for kind, which, one, two in steps:
        a, b = w.values[one % len(w.values)], w.values[two % len(w.values)]
        made = STEPS[kind](w, which, a, b)
        if which % 5 == 4 and not made.is_leaf:
            made.keep()
        w.values.append(made)
    return gml.Graph([w.values[-1], w.values[1]]), w


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_fused_and_unfused_graphs_give_the_same_bits(program: tuple[int, int, list[Step]]) -> None:
    n, m, steps = program
    results = []
    for threads, disabled in ((3, ()), (1, ("fuse", "merge", "canonicalise", "hoist", "fold"))):
        graph, w = build(n, steps)
        compiled = CpuBackend(threads, disabled=disabled).compile(graph)
        x = np.random.default_rng(m).normal(size=(m, n)).astype(np.float32)
        found = []
        # the second step meets the state that the first one left
        for first in (0, 5):
            inputs = {"x": x, "ids": first + np.arange(m)}
            with np.errstate(all="ignore"):
                compiled(**{name: inputs[name] for name in graph.inputs}, sizes={"tokens": m} if graph.dims else {})
            found += [np.array(compiled.read(t)) for t in graph.kept]
        results.append([*found, w.state.numpy()])
    for fused, unfused in zip(*results, strict=True):
        np.testing.assert_array_equal(fused, unfused)


def test_every_kind_of_step_is_built() -> None:
    for n in (1, 7, 32, 33, 64):
        for kind in STEPS:
            for which in range(10):
                graph, _ = build(n, [(kind, which, 0, 1)])
                assert graph.outputs
