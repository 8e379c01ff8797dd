"""State-space models (Mamba): the short convolution and the selective scan.

Arrives: inputs of some tokens and the states of their sequences; leaves: F32. Next module: `gml/ops/loss.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gml.dims import exact_div, is_static, max_of, min_of
from gml.dtypes import BF16, F16, F32, I32
from gml.errors import GraphError
from gml.kernel_ir import F32 as KF32
from gml.kernel_ir import I64, Node
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, SampleBuilder, declare, rule
from gml.ops.elementwise import needs_float
from gml.ops.lower import Chunks, Direct, Index, Indexed, KernelContext, Place
from gml.ops.views import permute, transpose
from gml.tensor import Tensor

__all__ = ["ssm_conv", "ssm_scan"]

#: where softplus(x) is x in float32, as in ggml
LINEAR = 20.0


def _infer_conv(attrs: NoAttrs, x: Tensor, c: Tensor) -> Inferred:
    needs_float(x, "x")
    needs_float(c, "c")
    d_conv = c.ne[0]
    rule(is_static(d_conv) and min_of(d_conv) >= 1, f"ne[0] of c must be fixed and at least 1, found {d_conv}")
    rule(
        c.ne[1] == x.ne[1] and c.ne[2:] == (1, 1) and x.ne[3] == 1,
        f"c must be [d_conv, {x.ne[1]}] and x [d_conv - 1 + n_tokens, {x.ne[1]}, n_seqs], found {list(c.ne)} and "
        f"{list(x.ne)}",
    )
    n_tokens = x.ne[0] - d_conv + 1
    rule(min_of(n_tokens) >= 0, f"rows of x must have at least d_conv - 1 = {d_conv - 1} elements, found {x.ne[0]}")
    return Inferred(F32, (x.ne[1], n_tokens, x.ne[2]))


def _reference_conv(attrs: NoAttrs, x: np.ndarray, c: np.ndarray) -> np.ndarray:
    d_conv = c.shape[3]
    n_tokens = x.shape[3] - d_conv + 1
    out = np.zeros((x.shape[1], x.shape[2], n_tokens), np.float64)
    for i in range(d_conv):
        out += x[0, :, :, i : i + n_tokens] * c[0, 0, None, :, i : i + 1].astype(np.float64)
    return out.swapaxes(1, 2)


def _lower_conv(k: KernelContext, attrs: NoAttrs, index: Index, lanes: int, x: Any, c: Any) -> Node:
    b = k.b
    channel, token, seq = index[0], k.value(index[1]), index[2]

    def tap(i: Node, total: Node) -> Node:
        return b.fma(x.at((token + i, channel, seq, 0), 1), c.at((i, channel, 0, 0), 1), total)

    (total,) = b.loop(0, k.size(c.tensor.ne[0]), tap, [b.const(0.0, KF32)])
    return total


# -- the scan ----------------------------------------------------------------------------------------------------------


def _infer_scan(
    attrs: NoAttrs, s: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, ids: Tensor
) -> Inferred:
    for tensor, name in ((s, "s"), (x, "x"), (dt, "dt"), (a, "A"), (b, "B"), (c, "C")):
        needs_float(tensor, name)
    d_state, dim, n_head = s.ne[:3]
    n_tokens, n_seqs = x.ne[2:]
    rule(is_static(d_state), f"ne[0] of s, the state size, must be fixed, found {d_state}")
    rule(x.ne[:2] == (dim, n_head), f"x must be [{dim}, {n_head}, n_tokens, n_seqs] to go with s, found {list(x.ne)}")
    rule(
        dt.ne == (n_head, n_tokens, n_seqs, 1),
        f"dt must be [{n_head}, {n_tokens}, {n_seqs}], found {list(dt.ne)}",
    )
    rule(
        a.ne[0] in (1, d_state) and a.ne[1:] == (n_head, 1, 1),
        f"A must be [{d_state} (Mamba-1) or 1 (Mamba-2), {n_head}], found {list(a.ne)}",
    )
    rule(b.ne == c.ne, f"B and C must have equal sizes, found {list(b.ne)} and {list(c.ne)}")
    rule(
        b.ne[0] == d_state and b.ne[2:] == (n_tokens, n_seqs) and exact_div(n_head, b.ne[1]) is not None,
        f"B must be [{d_state}, n_group, {n_tokens}, {n_seqs}] where n_group divides {n_head}, found {list(b.ne)}",
    )
    rule(
        ids.type is I32 and ids.ne == (n_seqs, 1, 1, 1),
        f"ids must be I32[{n_seqs}], one state per sequence, found {ids.type.name}{list(ids.ne)}",
    )
    return Inferred(F32, (x.n_elements + d_state * dim * n_head * n_seqs,))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.where(x > LINEAR, x, np.log1p(np.exp(np.minimum(x, LINEAR))))


def _reference_scan(
    attrs: NoAttrs,
    s: np.ndarray,
    x: np.ndarray,
    dt: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    ids: np.ndarray,
) -> np.ndarray:
    """Token by token, states in float64."""
    ids = ids.reshape(-1)
    if ids.size and not 0 <= ids.min() <= ids.max() < s.shape[0]:
        raise GraphError(f"ssm_scan: ids must be 0 to {s.shape[0] - 1}, found {ids.min()} to {ids.max()}")
    n_tokens, n_head = x.shape[1:3]
    state = s[ids].astype(np.float64)
    y = np.empty(x.shape, np.float64)
    per_group = n_head // b.shape[2] if b.shape[2] else 1
    steps = _softplus(dt[0].astype(np.float64))
    for t in range(n_tokens):
        step = steps[:, t, :, None, None]
        b_t, c_t = (np.repeat(z[:, t], per_group, axis=1)[:, :, None, :] for z in (b, c))
        state = state * np.exp(step * a[0, 0][None, :, None, :]) + x[:, t, :, :, None] * step * b_t
        y[:, t] = np.sum(state * c_t, axis=-1)
    return np.concatenate([y.reshape(-1), state.reshape(-1)])


def _chunks_scan(attrs: NoAttrs, out: Tensor, s: Tensor, x: Tensor, *rest: Tensor) -> Chunks:
    return Chunks(((s.ne[1], 1), (s.ne[2], 1), (x.ne[3], 1)))


def _lower_scan(
    k: KernelContext,
    attrs: NoAttrs,
    out: Place,
    s: Place,
    x: Place,
    dt: Place,
    a: Place,
    b_in: Place,
    c_in: Place,
    ids: Place,
) -> None:
    """A chunk is one row of one head's state in one sequence: it runs through the tokens in order."""
    b = k.b
    d_state = max_of(s.tensor.ne[0])
    dim, n_head = k.value(s.ne[1]), k.value(s.ne[2])
    n_tokens, n_seqs = k.value(x.ne[2]), k.value(x.ne[3])
    n_y = dim * n_head * n_tokens * n_seqs
    state = b.scratch(max(d_state, 1) * 4)

    def chunk(n: Node) -> None:
        i, head, seq = (k.value(v) for v in k.split(n, [s.ne[1], s.ne[2], x.ne[3]]))
        found = b.cast(ids.at((seq, 0, 0, 0), 1), I64)
        inside = b.and_(b.cmp("ge", found, 0), b.cmp("lt", found, s.ne[3]))
        k.require(inside, "ssm_scan: ids must be numbers of states of s, found one out of range")
        slot = b.select(inside, found, b.i64(0))
        group = head // k.value(k.size(exact_div(s.tensor.ne[2], b_in.tensor.ne[1]) or 1))
        b.loop(0, d_state, lambda j: b.store(state, j * 4, s.at((j, i, head, slot), 1)))

        def token(t: Node) -> None:
            step = _step(k, dt.at((head, t, seq, 0), 1))
            scaled = x.at((i, head, t, seq), 1) * step

            def element(j: Node, total: Node) -> Node:
                decay = b.math("exp", step * a.at((0 if a.tensor.ne[0] == 1 else j, head, 0, 0), 1))
                new = b.load(state, j * 4, KF32) * decay + scaled * b_in.at((j, group, t, seq), 1)
                b.store(state, j * 4, new)
                return total + new * c_in.at((j, group, t, seq), 1)

            (total,) = b.loop(0, d_state, element, [b.const(0.0, KF32)])
            out.put((((seq * n_tokens + t) * n_head + head) * dim + i, 0, 0, 0), total)

        b.loop(0, n_tokens, token)
        start = n_y + ((seq * n_head + head) * dim + i) * d_state
        b.loop(0, d_state, lambda j: out.put((start + j, 0, 0, 0), b.load(state, j * 4, KF32)))

    b.loop(k.begin, k.end, chunk)


def _step(k: KernelContext, x: Node) -> Node:
    """softplus(x)"""
    b = k.b
    small = b.min(x, LINEAR)
    return b.select(b.cmp("gt", x, LINEAR), x, b.math("log", b.math("exp", small) + 1.0))


# -- declarations ------------------------------------------------------------------------------------------------------

_SSM_CONV = declare(
    OpDef(
        "ssm_conv",
        _infer_conv,
        _reference_conv,
        (
            Sample("prompt", lambda s: ssm_conv(s.f32(10, 5), s.f32(4, 5))),
            Sample("sequences", lambda s: ssm_conv(s.f32(6, 17, 3), s.f32(4, 17))),
            Sample("one_token", lambda s: ssm_conv(s.f32(4, 8, 2), s.f32(4, 8))),
            Sample("no_token", lambda s: ssm_conv(s.f32(3, 8, 2), s.f32(4, 8))),
            Sample("one", lambda s: ssm_conv(s.f32(1), s.f32(1))),
            Sample("transposed", lambda s: ssm_conv(transpose(s.f32(5, 9)), transpose(s.f32(5, 4)))),
            Sample("no_channels", lambda s: ssm_conv(s.f32(6, 0), s.f32(4, 0))),
            Sample("F16", lambda s: ssm_conv(s.f32(7, 5, type=F16), s.f32(4, 5, type=F16))),
            Sample("run_time", lambda s: ssm_conv(s.input([s.dim("n", 6, max=9, min=3), 5]), s.f32(4, 5))),
        ),
        lower=Indexed(_lower_conv, lambda attrs, out, x, c: False),
    )
)


def _scan(
    s: SampleBuilder,
    d_state: int,
    dim: int,
    n_head: int,
    n_tokens: Any,
    n_seqs: int,
    n_group: int = 1,
    wide: bool = False,
) -> list[Tensor]:
    """Sources of random values; `wide`: an A for each state element."""
    n_slots = n_seqs + 1
    ids = s.array(np.arange(n_slots, 0, -1)[:n_seqs].astype(np.int32) % n_slots)
    return [
        s.f32(d_state, dim, n_head, n_slots),
        s.f32(dim, n_head, n_tokens, n_seqs),
        s.f32(n_head, n_tokens, n_seqs),
        s.f32(d_state if wide else 1, n_head, low=-2.0, high=-0.1),
        s.f32(d_state, n_group, n_tokens, n_seqs),
        s.f32(d_state, n_group, n_tokens, n_seqs),
        ids,
    ]


def _permuted(s: SampleBuilder) -> Tensor:
    state, _, dt, a, b, _, ids = _scan(s, 4, 3, 2, 5, 2)
    return ssm_scan(
        state, permute(s.f32(2, 3, 5, 2), 1, 0, 2, 3), dt, a, b, permute(s.f32(4, 5, 1, 2), 0, 2, 1, 3), ids
    )


def _short(s: SampleBuilder) -> Tensor:
    state, _, dt, a, _, c, ids = _scan(s, 4, 3, 2, 3, 1)
    return ssm_scan(state, s.f32(3, 2, 3, type=BF16), dt, a, s.f32(4, 1, 3, type=F16), c, ids)


def _large_steps(s: SampleBuilder) -> Tensor:
    state, x, _, a, b, c, ids = _scan(s, 4, 3, 2, 3, 1)
    return ssm_scan(state, x, s.f32(2, 3, low=-30.0, high=30.0), a, b, c, ids)


def _run_time(s: SampleBuilder) -> Tensor:
    state, _, _, a, _, _, ids = _scan(s, 4, 3, 2, 1, 1)
    n = s.dim("n_tokens", 4, max=7)
    x, dt, b, c = (s.input(ne) for ne in ([3, 2, n], [2, n], [4, 1, n], [4, 1, n]))
    return ssm_scan(state, x, dt, a, b, c, ids)


_SSM_SCAN = declare(
    OpDef(
        "ssm_scan",
        _infer_scan,
        _reference_scan,
        (
            Sample("mamba_1", lambda s: ssm_scan(*_scan(s, 8, 1, 12, 5, 2, wide=True))),
            Sample("mamba_2", lambda s: ssm_scan(*_scan(s, 8, 4, 6, 5, 2, n_group=2))),
            Sample("one_token", lambda s: ssm_scan(*_scan(s, 16, 4, 2, 1, 3))),
            Sample("one", lambda s: ssm_scan(*_scan(s, 1, 1, 1, 1, 1))),
            Sample("no_tokens", lambda s: ssm_scan(*_scan(s, 4, 3, 2, 0, 2))),
            Sample("no_state", lambda s: ssm_scan(*_scan(s, 0, 3, 2, 2, 1))),
            Sample("permuted", _permuted),
            Sample("short_floats", _short),
            Sample("large_steps", _large_steps),
            Sample("run_time", _run_time),
        ),
        lower=Direct(_lower_scan, _chunks_scan),
    )
)


def ssm_conv(x: Tensor, c: Tensor) -> Tensor:
    """Each channel's row times a short kernel: x [d_conv - 1 + n_tokens, d_inner, n_seqs] and c [d_conv, d_inner] give
    F32 [d_inner, n_tokens, n_seqs].

    The first d_conv - 1 elements of x are those of the tokens before. Source: `ggml_ssm_conv`. Raises `ShapeError` when
    types or sizes do not fit.
    """
    return _SSM_CONV(x, c)


def ssm_scan(s: Tensor, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, ids: Tensor) -> Tensor:
    """The selective scan: per token h = h exp(dt A) + dt B x and y = C h, where dt is the softplus of what is given.

    s    [d_state, dim, n_head, n_slots], the states; sequence i begins with slot ids[i]
    x    [dim, n_head, n_tokens, n_seqs]
    dt   [n_head, n_tokens, n_seqs]
    A    [d_state, n_head] (Mamba-1, dim = 1) or [1, n_head] (Mamba-2)
    B, C [d_state, n_group, n_tokens, n_seqs]; neighbouring heads share a group
    ids  I32 [n_seqs]

    Result: F32 of one dimension: y as x lies, then the new states [d_state, dim, n_head, n_seqs]; use `view`.
    Sources: https://arxiv.org/abs/2312.00752, https://arxiv.org/abs/2405.21060, `ggml_ssm_scan`. Raises `ShapeError`
    when types or sizes do not fit; a run raises `GraphError` for an id that is not the number of a slot.
    """
    return _SSM_SCAN(s, x, dt, A, B, C, ids)
