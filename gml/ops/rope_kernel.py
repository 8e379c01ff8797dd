"""Rotary embedding in two ops: a table of sines and cosines, made once per step, and the rotation.

`rope` expands into `rope_rotate(x, rope_table(positions, factors))`. All layers' queries and keys ask for the same
table, which is computed once, since common subexpressions are merged. Source: Su et al.,
https://arxiv.org/abs/2104.09864; YaRN: https://arxiv.org/abs/2309.00071; `ggml_rope_ext`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gml.dtypes import F32 as TF32
from gml.kernel_ir import F32, Node
from gml.ops.base import Inferred, OpDef, Sample, declare, rule
from gml.ops.lower import Index, Indexed, KernelContext, Row, Rowwise
from gml.records import dataclass
from gml.tensor import Tensor


@dataclass(frozen=True)
class RopeTableAttrs:
    """See `rope`: how positions become angles."""

    n_dims: int
    freq_base: float
    freq_scale: float
    ext_factor: float
    attn_factor: float
    beta_fast: float
    beta_slow: float
    n_ctx_orig: int

    @property
    def theta_scale(self) -> float:
        """Each pair's frequency over the one before."""
        return self.freq_base ** (-2.0 / self.n_dims)

    @property
    def magnitude(self) -> float:
        """What sines and cosines are multiplied with."""
        if self.ext_factor == 0.0:
            return self.attn_factor
        return self.attn_factor * (1.0 + 0.1 * math.log(1.0 / self.freq_scale))

    def ramp_bounds(self) -> tuple[float, float]:
        """The pairs between which YaRN goes from extrapolation to interpolation."""

        def corrected(n_rotations: float) -> float:
            turns = self.n_ctx_orig / (n_rotations * 2 * math.pi)
            return self.n_dims * math.log(turns) / (2 * math.log(self.freq_base))

        low = math.floor(corrected(self.beta_fast))
        high = math.ceil(corrected(self.beta_slow))
        return max(0.0, float(low)), min(self.n_dims - 1.0, float(high))


def pair_angles(attrs: RopeTableAttrs, positions: np.ndarray, factors: np.ndarray | None) -> np.ndarray:
    """float64 angles [n_positions, n_dims / 2]."""
    pairs = np.arange(attrs.n_dims // 2, dtype=np.float64)
    extrapolated = positions.reshape(-1, 1).astype(np.float64) * attrs.theta_scale**pairs
    if factors is not None:
        extrapolated = extrapolated / factors.reshape(1, -1)[:, : len(pairs)]
    angles = attrs.freq_scale * extrapolated
    if attrs.ext_factor:
        low, high = attrs.ramp_bounds()
        ramp = 1.0 - np.clip((pairs - low) / max(0.001, high - low), 0.0, 1.0)
        mix = ramp * attrs.ext_factor
        angles = angles * (1.0 - mix) + extrapolated * mix
    return angles


def _infer_table(attrs: RopeTableAttrs, positions: Tensor, *factors: Tensor) -> Inferred:
    rule(positions.type.is_integer, f"positions must be whole numbers, found {positions.type.name}")
    return Inferred(TF32, (attrs.n_dims, positions.ne[0]))


def _reference_table(attrs: RopeTableAttrs, positions: np.ndarray, *factors: np.ndarray) -> np.ndarray:
    angles = pair_angles(attrs, positions.reshape(-1), factors[0].reshape(-1) if factors else None)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=-1) * attrs.magnitude


def _lower_table(k: KernelContext, attrs: RopeTableAttrs, row: Row, positions: Any, *factors: Any) -> Any:
    b, half = k.b, attrs.n_dims // 2
    position = b.cast(positions.at((row[0], 0, 0, 0), 1), F32)
    log_scale = math.log(attrs.theta_scale)

    def element(i0: Any, lanes: int) -> Node:
        in_sines = b.cmp("ge", k.value(i0), half)
        pair = b.select(in_sines, k.value(i0) - half, k.value(i0))
        step = b.cast(pair, F32)
        frequency = b.const(1.0)
        # powers of the scale by repeated squaring of constants: exact to rounding, unlike exp of a long product
        for bit in range(max(half - 1, 1).bit_length()):
            power = math.exp(log_scale * (1 << bit))
            taken = b.cmp("ne", (pair >> bit) & 1, 0)
            frequency = b.select(taken, frequency * power, frequency)
        extrapolated = position * frequency
        if factors:
            extrapolated = extrapolated / factors[0].at((pair, 0, 0, 0), 1)
        angle = extrapolated * attrs.freq_scale
        if attrs.ext_factor:
            low, high = attrs.ramp_bounds()
            ramp = 1.0 - b.min(b.max((step - low) / max(0.001, high - low), 0.0), 1.0)
            mix = ramp * attrs.ext_factor
            angle = angle * (1.0 - mix) + extrapolated * mix
        value = b.select(in_sines, b.math("sin", angle), b.math("cos", angle))
        return value * attrs.magnitude

    def one_by_one(i0: Any, lanes: int) -> Node:
        if lanes == 1:
            return element(i0, 1)
        vector = b.const(0.0, F32.vec(lanes))
        for lane in range(lanes):
            vector = b.insert(vector, element(k.value(i0) + lane, 1), lane)
        return vector

    return one_by_one


_TABLE_SAMPLE = {
    "n_dims": 8,
    "freq_base": 10000.0,
    "freq_scale": 1.0,
    "ext_factor": 0.0,
    "attn_factor": 1.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "n_ctx_orig": 4096,
}

rope_table = declare(
    OpDef(
        "rope_table",
        _infer_table,
        _reference_table,
        (
            Sample("plain", lambda s: rope_table(s.array([0, 1, 5, 77]), **_TABLE_SAMPLE)),
            Sample(
                "yarn",
                lambda s: rope_table(s.array([0, 3, 900]), **{**_TABLE_SAMPLE, "ext_factor": 1.0, "freq_scale": 0.25}),
            ),
            Sample("factors", lambda s: rope_table(s.array([2, 9]), s.f32(4, low=1.0, high=8.0), **_TABLE_SAMPLE)),
        ),
        attrs=RopeTableAttrs,
        lower=Rowwise(_lower_table),
    )
)


# -- rotation ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RopeRotateAttrs:
    """n_dims: rotated elements of a head; neox: element i is paired with i + n_dims / 2 instead of its neighbour."""

    n_dims: int
    neox: bool


def _infer_rotate(attrs: RopeRotateAttrs, x: Tensor, table: Tensor) -> Inferred:
    rule(table.ne[0] == attrs.n_dims and table.ne[1] == x.ne[2], f"the table must be [{attrs.n_dims}, {x.ne[2]}]")
    return Inferred(x.type, x.ne)


def _reference_rotate(attrs: RopeRotateAttrs, x: np.ndarray, table: np.ndarray) -> np.ndarray:
    half = attrs.n_dims // 2
    cos, sin = table[0, 0, :, None, :half], table[0, 0, :, None, half:]
    out = x.copy()
    if attrs.neox:
        a, b = x[..., :half], x[..., half : 2 * half]
        out[..., :half], out[..., half : 2 * half] = a * cos - b * sin, a * sin + b * cos
    else:
        a, b = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
        out[..., 0 : 2 * half : 2], out[..., 1 : 2 * half : 2] = a * cos - b * sin, a * sin + b * cos
    return out


def _lower_rotate(k: KernelContext, attrs: RopeRotateAttrs, index: Index, lanes: int, x: Any, table: Any) -> Node:
    b, half = k.b, attrs.n_dims // 2
    i0, token = k.value(index[0]), index[2]

    def rotated() -> Node:
        if attrs.neox:
            second = b.cmp("ge", i0, half)
            pair = b.select(second, i0 - half, i0)
            partner = x.at((b.select(second, i0 - half, i0 + half), *index[1:]), lanes)
            cos, sin = (table.at((pair + start, token, 0, 0), lanes) for start in (0, half))
            signed = b.select(second, sin, -sin)
            return x.at(index, lanes) * cos + partner * signed
        if lanes == 1:
            odd = b.cmp("ne", i0 & 1, 0)
            pair = i0 >> 1
            cos, sin = (table.at((pair + start, token, 0, 0), 1) for start in (0, half))
            partner = x.at((i0 ^ 1, *index[1:]), 1)
            return x.at(index, 1) * cos + partner * b.select(odd, sin, -sin)
        here = x.at(index, lanes)
        partner = b.shuffle(here, None, [i ^ 1 for i in range(lanes)])
        doubled = [i // 2 for i in range(lanes)]
        pair = i0 >> 1
        cos, sin = (b.shuffle(table.at((pair + start, token, 0, 0), lanes // 2), None, doubled) for start in (0, half))
        signs = b.const(tuple(-1.0 if i % 2 == 0 else 1.0 for i in range(lanes)), F32.vec(lanes))
        return here * cos + partner * (sin * signs)

    if x.tensor.ne[0] == attrs.n_dims:
        return rotated()
    (value,) = b.when(b.cmp("lt", i0, attrs.n_dims), rotated, lambda: x.at(index, lanes))
    return value


def _vector_rotate(attrs: RopeRotateAttrs, out: Tensor, x: Tensor, table: Tensor) -> bool:
    """Whether 16 neighbours never straddle the halves or the end of what is rotated."""
    unit = attrs.n_dims // 2 if attrs.neox else attrs.n_dims
    return unit % 16 == 0


rope_rotate = declare(
    OpDef(
        "rope_rotate",
        _infer_rotate,
        _reference_rotate,
        (
            Sample("normal", lambda s: rope_rotate(s.f32(8, 2, 3), s.f32(8, 3), n_dims=8, neox=False)),
            Sample("neox", lambda s: rope_rotate(s.f32(8, 2, 3), s.f32(8, 3), n_dims=8, neox=True)),
            Sample("partial", lambda s: rope_rotate(s.f32(48, 2, 3, 2), s.f32(32, 3), n_dims=32, neox=True)),
            Sample("wide", lambda s: rope_rotate(s.f32(64, 2, 3), s.f32(64, 3), n_dims=64, neox=False)),
            Sample("wide_neox", lambda s: rope_rotate(s.f32(64, 2, 3), s.f32(64, 3), n_dims=64, neox=True)),
        ),
        attrs=RopeRotateAttrs,
        lower=Indexed(_lower_rotate, _vector_rotate),
    )
)
