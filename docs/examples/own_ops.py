"""Two ops of one's own: soft_cap works element by element, quiet_soft_max row by row. See docs/extending.md."""

from dataclasses import dataclass

import numpy as np

import gml
from gml import kernel_ir
from gml.ops.cases import one_source


# an elementwise op -----------------------------------------------------------
@dataclass(frozen=True)
class SoftCapAttrs:
    """cap: no result is larger."""

    cap: float


def infer_float(attrs, a):
    gml.rule(a.type in (gml.F32, gml.F16, gml.BF16), f"a must be F32, F16 or BF16, found {a.type.name}")
    return gml.Inferred(a.type, a.ne)


SOFT_CAP = gml.declare(
    gml.OpDef(
        "soft_cap",
        infer_float,
        reference=lambda attrs, a: np.float32(attrs.cap) * np.tanh(a / np.float32(attrs.cap)),
        samples=one_source(lambda a: soft_cap(a, 1.5)),
        attrs=SoftCapAttrs,
        elementwise=True,
        in_place=(0,),
        lower=gml.Elementwise(lambda b, attrs, x: b.math("tanh", x / attrs.cap) * attrs.cap),
    )
)


def soft_cap(a, cap):
    """cap * tanh(a / cap)."""
    return SOFT_CAP(a, cap=cap)


# a rowwise op ----------------------------------------------------------------
def reference_quiet(attrs, a):
    top = a.max(axis=-1, keepdims=True, initial=0.0)
    powers = np.exp(a - top, dtype=np.float64)
    return powers / (powers.sum(axis=-1, keepdims=True) + np.exp(-top))


def lower_quiet(k, attrs, row, a):
    b, n = k.b, k.size(a.tensor.ne[0])
    top = b.max(k.max_row(n, lambda i, lanes: a.at((i, *row), lanes)), 0.0)

    def power(i, lanes):
        return b.math("exp", a.at((i, *row), lanes) - b.splat(top, lanes))

    total = b.cast(k.sum_row(n, power), kernel_ir.F32) + b.math("exp", -top)
    return lambda i, lanes: power(i, lanes) / b.splat(total, lanes)


QUIET = gml.declare(
    gml.OpDef(
        "quiet_soft_max",
        infer_float,
        reference_quiet,
        samples=one_source(lambda a: quiet_soft_max(a)),
        lower=gml.Rowwise(lower_quiet),
    )
)


def quiet_soft_max(a):
    """exp(a) / (1 + sum of exp(a)) along rows: a soft_max that may choose nothing."""
    return QUIET(a)


# a graph with both -----------------------------------------------------------
def graph():
    """A head of an imagined model over 4-bit weights: for each token, how much it wants each of 48 things."""
    ctx, random = gml.Context(), np.random.default_rng(0)
    x = ctx.input("x", gml.F32, [256, gml.Dim("n_tokens", max=32)])
    w = ctx.constant(random.normal(size=(48, 256)) / 16, type=gml.Q4_0)
    bias = ctx.constant(random.normal(size=48).astype(np.float32))
    scores = soft_cap(gml.mul_mat(w, gml.rms_norm(x, eps=1e-6)), 5.0) + bias
    return gml.Graph(quiet_soft_max(scores) * 2.0)


if __name__ == "__main__":
    from gml.testing import check_op

    for op in (SOFT_CAP, QUIET):
        check_op(op)
    program = gml.compile(graph(), "cpu", exact=True)
    print(program.dump("fused"))
    x = np.random.default_rng(1).normal(size=(3, 256))
    assert np.abs(program(x=x) - gml.compile(graph(), "reference")(x=x)).max() < 1e-6
