"""What the ops of networks mean, a second time: rows for `op_truth.TRUTH`, in scalar float64 loops like those there."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np


def filled(ne: tuple[int, ...], value: Callable[..., Any]) -> np.ndarray:
    """The array whose element at (i3, i2, i1, i0) is value(i3, i2, i1, i0)."""
    out = np.empty(tuple(reversed(ne)))
    for index in itertools.product(*(range(n) for n in reversed(ne))):
        out[index] = value(*index)
    return out


def dot(x: Any, y: Any) -> float:
    return math.fsum(float(p) * float(q) for p, q in zip(x, y, strict=True))


def shared(i: int, n: int, n_shared: int) -> int:
    """Which of n_shared things the i-th of n uses, when neighbours share."""
    return i // (n // n_shared)


def mul_mat(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    def one(i3: int, i2: int, i1: int, i0: int) -> float:
        return dot(a[shared(i3, ne[3], a.shape[0]), shared(i2, ne[2], a.shape[1]), i0], b[i3, i2, i1])

    return filled(ne, one)


def mul_mat_id(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray, ids: np.ndarray) -> np.ndarray:
    def one(i3: int, token: int, used: int, row: int) -> float:
        return dot(a[0, int(ids[0, 0, token, used]), row], b[0, token, used % b.shape[2]])

    return filled(ne, one)


def out_prod(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    def one(i3: int, i2: int, i1: int, i0: int) -> float:
        return dot(a[shared(i3, ne[3], a.shape[0]), shared(i2, ne[2], a.shape[1]), :, i0], b[i3, i2, :, i1])

    return filled(ne, one)


def rope(attrs: Any, ne: Any, x: np.ndarray, positions: np.ndarray, *factors: np.ndarray) -> np.ndarray:
    half = attrs.n_dims // 2

    def pair_that_turns(n_turns: float) -> float:
        """The pair (as a real number) that turns so often within the trained context."""
        wavelength = attrs.n_ctx_orig / n_turns
        return attrs.n_dims * math.log(wavelength / (2 * math.pi), attrs.freq_base) / 2

    def angle(position: float, pair: int) -> float:
        turned = position / attrs.freq_base ** (2 * pair / attrs.n_dims)
        if factors:
            turned /= float(factors[0].ravel()[pair])
        if attrs.ext_factor == 0:
            return turned * attrs.freq_scale
        low = max(math.floor(pair_that_turns(attrs.beta_fast)), 0)
        high = min(math.ceil(pair_that_turns(attrs.beta_slow)), attrs.n_dims - 1)
        kept = attrs.ext_factor * (1 - min(max((pair - low) / max(high - low, 0.001), 0), 1))
        return turned * kept + turned * attrs.freq_scale * (1 - kept)

    magnitude = attrs.attn_factor
    if attrs.ext_factor != 0:
        magnitude *= 1 - 0.1 * math.log(attrs.freq_scale)

    def one(i3: int, token: int, head: int, i: int) -> float:
        row = x[i3, token, head]
        if i >= attrs.n_dims:
            return float(row[i])
        pair, second = (i % half, i >= half) if attrs.mode == "neox" else (i // 2, i % 2 == 1)
        re, im = (pair, pair + half) if attrs.mode == "neox" else (2 * pair, 2 * pair + 1)
        turned = complex(row[re], row[im]) * cmath.rect(magnitude, angle(float(positions.ravel()[token]), pair))
        return turned.imag if second else turned.real

    return filled(ne, one)


def slope(head: int, n_head: int, max_bias: float) -> float:
    """ALiBi: powers of 2**(-max_bias / n), n the power of two below; odd half powers for the heads behind."""
    if max_bias == 0:
        return 1.0
    n = 2 ** math.floor(math.log2(n_head))
    exponent = (head + 1) if head < n else (head - n) + 0.5
    return 2 ** (-max_bias * exponent / n)


def weights(scores: list[float], sink: float | None) -> list[float]:
    """The softmax of scores, one more of which may be counted only."""
    largest = max([*scores, *([] if sink is None else [sink])], default=-math.inf)
    if largest == -math.inf:
        return [0.0 for _ in scores]
    e = [math.exp(s - largest) for s in scores]
    total = math.fsum([*e, *([] if sink is None else [math.exp(sink - largest)])])
    return [x / total for x in e]


def flash_attn_ext(attrs: Any, ne: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    n_head, n_q, n_kv = q.shape[1], q.shape[2], k.shape[2]
    mask = rest[0] if attrs.mask else None
    out = np.empty(tuple(reversed(ne)))

    def score(s: int, i: int, h: int, j: int, key: np.ndarray) -> float:
        behind = i + n_kv - n_q - j
        if (attrs.causal and behind < 0) or (attrs.window and behind >= attrs.window):
            return -math.inf
        x = dot(q[s, h, i], key) * attrs.scale
        if attrs.logit_softcap:
            x = attrs.logit_softcap * math.tanh(x / attrs.logit_softcap)
        if mask is None:
            return x
        return x + slope(h, n_head, attrs.max_bias) * float(mask[s % mask.shape[0], h % mask.shape[1], i, j])

    for s, i, h in np.ndindex(out.shape[:3]):
        kv = shared(s, q.shape[0], k.shape[0]), shared(h, n_head, k.shape[1])
        sink = float(rest[-1].ravel()[h]) if attrs.sinks else None
        p = weights([score(s, i, h, j, k[kv][j]) for j in range(n_kv)], sink)
        out[s, i, h] = [dot(p, v[kv][:, c]) for c in range(ne[0])]
    return out


def soft_max(attrs: Any, ne: Any, a: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    mask = rest[0] if attrs.mask else None
    out = np.empty(a.shape)
    for s, h, i in np.ndindex(a.shape[:3]):
        scores = [float(x) * attrs.scale for x in a[s, h, i]]
        if mask is not None:
            factor = slope(h, ne[2], attrs.max_bias)
            bias = mask[s % mask.shape[0], h % mask.shape[1], i]
            scores = [x + factor * float(m) for x, m in zip(scores, bias, strict=True)]
        out[s, h, i] = weights(scores, float(rest[-1].ravel()[h]) if attrs.sinks else None)
    return out


def diag_mask_inf(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
    return filled(ne, lambda i3, i2, i1, i0: -math.inf if i0 > attrs.n_past + i1 else a[i3, i2, i1, i0])


def value_at(x: np.ndarray, *index: int) -> float | None:
    """The element of x at an index, None outside."""
    inside = all(0 <= i < n for i, n in zip(index, x.shape, strict=True))
    return float(x[index]) if inside else None


def im2col(attrs: Any, ne: Any, b: np.ndarray) -> np.ndarray:
    (kw, kh), (sw, sh), (pw, ph), (dw, dh) = attrs.kernel, attrs.stride, attrs.padding, attrs.dilation

    def one(i3: int, i2: int, i1: int, i0: int) -> float:
        column, row, channel = i0 % kw, i0 // kw % kh, i0 // (kw * kh)
        x = i1 * sw - pw + column * dw
        if attrs.is_2d:
            return value_at(b, i3, channel, i2 * sh - ph + row * dh, x) or 0.0
        return value_at(b, 0, i2, channel, x) or 0.0

    return filled(ne, one)


def conv_1d(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    (stride,), (padding,), (dilation,) = attrs.stride, attrs.padding, attrs.dilation

    def one(i3: int, batch: int, channel_out: int, i: int) -> float:
        taps = itertools.product(range(a.shape[2]), range(a.shape[3]))
        return math.fsum(
            a[0, channel_out, c, j] * (value_at(b, 0, batch, c, i * stride - padding + j * dilation) or 0.0)
            for c, j in taps
        )

    return filled(ne, one)


def conv_2d(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    (sw, sh), (pw, ph), (dw, dh) = attrs.stride, attrs.padding, attrs.dilation

    def one(batch: int, channel_out: int, y: int, x: int) -> float:
        taps = itertools.product(*(range(n) for n in a.shape[1:]))
        return math.fsum(
            a[channel_out, c, i, j] * (value_at(b, batch, c, y * sh - ph + i * dh, x * sw - pw + j * dw) or 0.0)
            for c, i, j in taps
        )

    return filled(ne, one)


def pool_1d(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
    def one(i3: int, i2: int, i1: int, i0: int) -> float:
        start = i0 * attrs.stride[0] - attrs.padding[0]
        row = [value_at(a, i3, i2, i1, start + j) for j in range(attrs.kernel[0])]
        inside = [x for x in row if x is not None]
        return max(inside) if attrs.op == "max" else math.fsum(inside) / len(inside)

    return filled(ne, one)


def pool_2d(attrs: Any, ne: Any, a: np.ndarray) -> np.ndarray:
    (kw, kh), (sw, sh), (pw, ph) = attrs.kernel, attrs.stride, attrs.padding

    def one(i3: int, i2: int, i1: int, i0: int) -> float:
        taps = itertools.product(range(kh), range(kw))
        window = [value_at(a, i3, i2, i1 * sh - ph + i, i0 * sw - pw + j) for i, j in taps]
        inside = [x for x in window if x is not None]
        return max(inside) if attrs.op == "max" else math.fsum(inside) / (kw * kh)

    return filled(ne, one)


def ssm_conv(attrs: Any, ne: Any, x: np.ndarray, c: np.ndarray) -> np.ndarray:
    n = c.shape[3]
    return filled(ne, lambda i3, seq, token, i: dot(x[0, seq, i, token : token + n], c[0, 0, i]))


def ssm_scan(attrs: Any, ne: Any, *sources: np.ndarray) -> np.ndarray:
    s, x, dt, a, b, c, ids = sources
    n_seqs, n_tokens, n_head, dim = x.shape
    h = np.array([s[int(i)] for i in ids.ravel()])
    y = np.zeros(x.shape)
    for seq, t, head, i in np.ndindex(n_seqs, n_tokens, n_head, dim):
        raw = float(dt[0, seq, t, head])
        step = raw if raw > 20 else math.log1p(math.exp(raw))
        group = shared(head, n_head, b.shape[2])
        for j in range(s.shape[3]):
            decay = math.exp(step * a[0, 0, head, j % a.shape[3]])
            h[seq, head, i, j] = h[seq, head, i, j] * decay + step * b[seq, t, group, j] * x[seq, t, head, i]
        y[seq, t, head, i] = dot(h[seq, head, i], c[seq, t, group])
    return np.array([*y.ravel(), *h.ravel()]).reshape(1, 1, 1, -1)


def cross_entropy_loss(attrs: Any, ne: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = 0.0
    for i in np.ndindex(a.shape[:3]):
        largest = max(a[i], default=0.0)
        log_sum = math.log(math.fsum(math.exp(x - largest) for x in a[i])) + largest if a[i].size else 0.0
        total -= math.fsum(float(p) * (float(x) - log_sum) for x, p in zip(a[i], b[i], strict=True))
    return np.full((1, 1, 1, 1), total / max(math.prod(a.shape[:3]), 1))


TRUTH: dict[str, Callable[..., np.ndarray]] = {
    "mul_mat": mul_mat,
    "mul_mat_id": mul_mat_id,
    "out_prod": out_prod,
    "rope": rope,
    "flash_attn_ext": flash_attn_ext,
    "soft_max": soft_max,
    "diag_mask_inf": diag_mask_inf,
    "im2col": im2col,
    "conv_1d": conv_1d,
    "conv_2d": conv_2d,
    "pool_1d": pool_1d,
    "pool_2d": pool_2d,
    "ssm_conv": ssm_conv,
    "ssm_scan": ssm_scan,
    "cross_entropy_loss": cross_entropy_loss,
}
