"""Rotary position embedding.

Arrives: heads and positions; leaves: heads whose pairs are rotated by their position's angles. The op is made of a
table and a rotation (`rope_kernel.py`), so that all layers share one table. Next module: `gml/ops/attention.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gml.dims import is_static, min_of
from gml.dtypes import BF16, F16, I32
from gml.ops.base import Inferred, OpDef, Sample, SampleBuilder, declare, rule
from gml.ops.elementwise import needs_float, needs_number
from gml.ops.rope_kernel import RopeTableAttrs, pair_angles, rope_rotate, rope_table
from gml.ops.views import permute, view
from gml.records import dataclass, fields
from gml.tensor import Tensor

__all__ = ["rope"]

#: how elements are paired
MODES = ("normal", "neox")


@dataclass(frozen=True)
class RopeAttrs(RopeTableAttrs):
    """mode: "normal" pairs neighbours, "neox" pairs element i with i + n_dims / 2; the rest as `rope` says."""

    mode: str = "normal"

    @property
    def table(self) -> dict[str, Any]:
        """The attributes of the table."""
        return {f.name: getattr(self, f.name) for f in fields(RopeTableAttrs)}


def _check_numbers(attrs: RopeAttrs) -> None:
    for name in ("freq_base", "freq_scale", "ext_factor", "attn_factor", "beta_fast", "beta_slow"):
        value = getattr(attrs, name)
        needs_number(value, name)
        rule(math.isfinite(value), f"{name} must be finite, found {value}")
    rule(attrs.freq_base > 0, f"freq_base must be above 0, found {attrs.freq_base}")
    rule(attrs.freq_scale > 0, f"freq_scale must be above 0, found {attrs.freq_scale}")
    if attrs.ext_factor:
        fits = attrs.freq_base > 1 and attrs.beta_fast > 0 and attrs.beta_slow > 0
        rule(
            fits and isinstance(attrs.n_ctx_orig, int) and attrs.n_ctx_orig > 0,
            "YaRN (ext_factor not 0) needs freq_base above 1, beta_fast and beta_slow above 0 and n_ctx_orig, the "
            f"context that the model was trained for; found n_ctx_orig = {attrs.n_ctx_orig!r}",
        )


def _infer(attrs: RopeAttrs, x: Tensor, positions: Tensor, factors: Tensor | None = None) -> Inferred:
    needs_float(x, "x")
    n_dims = attrs.n_dims
    whole = isinstance(n_dims, int) and not isinstance(n_dims, bool)
    rule(
        is_static(x.ne[0]) and whole and 0 < n_dims <= min_of(x.ne[0]) and n_dims % 2 == 0,
        f"n_dims must be an even number from 2 to ne[0] of x, which is fixed; found {n_dims!r} and ne[0] = {x.ne[0]}",
    )
    rule(attrs.mode in MODES, f"mode must be one of {', '.join(MODES)}, found {attrs.mode!r}")
    _check_numbers(attrs)
    rule(
        positions.type is I32 and positions.ne == (x.ne[2], 1, 1, 1),
        f"positions must be I32[{x.ne[2]}], one per token of x, found {positions.type.name}{list(positions.ne)}",
    )
    if factors is not None:
        needs_float(factors, "factors")
        fits = is_static(factors.ne[0]) and min_of(factors.ne[0]) >= n_dims // 2 and factors.ne[1:] == (1, 1, 1)
        rule(fits, f"factors must be [{n_dims // 2}], one per pair; found {list(factors.ne)}")
    return Inferred(x.type, x.ne)


def _reference(attrs: RopeAttrs, x: np.ndarray, positions: np.ndarray, factors: np.ndarray | None = None) -> np.ndarray:
    half = attrs.n_dims // 2
    angles = pair_angles(attrs, positions.reshape(-1), None if factors is None else factors.reshape(-1))
    cos, sin = ((f(angles) * attrs.magnitude)[:, None] for f in (np.cos, np.sin))
    first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    if attrs.mode == "neox":
        first, second = slice(0, half), slice(half, 2 * half)
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def _expand(attrs: RopeAttrs, x: Tensor, positions: Tensor, factors: Tensor | None = None) -> Tensor:
    table = rope_table(positions, *(() if factors is None else (factors,)), **attrs.table)
    return rope_rotate(x, table, n_dims=attrs.n_dims, neox=attrs.mode == "neox")


_YARN: dict[str, Any] = {"ext_factor": 1.0, "freq_scale": 0.25, "n_ctx_orig": 64}


def _sample(name: str, ne: tuple[int, ...], n_dims: int, factors: bool = False, **how: Any) -> Sample:
    def make(s: SampleBuilder) -> Tensor:
        x, positions = s.f32(*ne), s.ids(ne[2], high=100)
        return rope(x, positions, s.f32(n_dims // 2, low=1.0, high=4.0) if factors else None, n_dims=n_dims, **how)

    return Sample(name, make)


def _run_time(s: SampleBuilder) -> Tensor:
    n = s.dim("n_tokens", 3, max=5)
    positions = s.context.input("positions", I32, [n]).set(np.array([5, 6, 9], np.int32))
    return rope(s.input([8, 2, n]), positions, n_dims=8, mode="neox")


_ROPE = declare(
    OpDef(
        "rope",
        _infer,
        _reference,
        (
            _sample("normal", (16, 3, 5), 16),
            _sample("neox", (16, 3, 5), 16, mode="neox"),
            _sample("partial", (24, 2, 3, 2), 16),
            _sample("partial_neox", (20, 2, 3), 8, mode="neox"),
            _sample("wide", (64, 2, 3), 64, freq_base=500000.0),
            _sample("wide_neox", (96, 2, 3), 64, mode="neox"),
            _sample("linear", (8, 2, 3), 8, freq_scale=0.5),
            _sample("factors", (8, 2, 3), 8, factors=True),
            _sample("yarn", (32, 2, 3), 32, **_YARN),
            _sample("yarn_neox_factors", (32, 2, 3), 32, factors=True, mode="neox", attn_factor=1.5, **_YARN),
            _sample("one_pair", (2, 1, 1), 2),
            _sample("no_tokens", (8, 2, 0), 8),
            Sample(
                "permuted",
                lambda s: rope(permute(s.f32(8, 3, 2), 0, 2, 1, 3), s.ids(3, high=50), n_dims=8, mode="neox"),
            ),
            Sample(
                "strided",
                lambda s: rope(view(s.f32(24, 6), [8, 2, 3], nb=[32, 192], offset=32), s.ids(3, high=50), n_dims=8),
            ),
            Sample("F16", lambda s: rope(s.f32(8, 2, 3, type=F16), s.ids(3, high=50), n_dims=8)),
            Sample("BF16", lambda s: rope(s.f32(32, 2, 3, type=BF16), s.ids(3, high=50), n_dims=32, mode="neox")),
            Sample("run_time", _run_time),
        ),
        attrs=RopeAttrs,
        expand=_expand,
    )
)


def rope(
    x: Tensor,
    positions: Tensor,
    factors: Tensor | None = None,
    *,
    n_dims: int,
    mode: str = "normal",
    freq_base: float = 10000.0,
    freq_scale: float = 1.0,
    ext_factor: float = 0.0,
    attn_factor: float = 1.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    n_ctx_orig: int = 0,
) -> Tensor:
    """x [d, n_head, n_tokens, batch] with its first n_dims elements rotated in pairs, the rest unchanged.

    Pair i of token t turns by freq_scale * positions[t] * freq_base**(-2 i / n_dims) / factors[i]. Result: x's type and
    sizes.

    positions   I32 [n_tokens]
    factors     [n_dims / 2], divide the frequencies (None: 1)
    mode        "normal" pairs neighbours, "neox" pairs element i with i + n_dims / 2
    freq_scale  below 1 stretches positions (linear scaling)
    ext_factor  not 0: YaRN, which stretches slow pairs only; pairs that turn more than beta_fast times within
                n_ctx_orig positions stay, those below beta_slow times are stretched
    attn_factor multiplies the result of the rotation

    Sources: https://arxiv.org/abs/2104.09864, https://arxiv.org/abs/2309.00071, `ggml_rope_ext`. Raises `ShapeError`
    when types or sizes do not fit, or a number is out of its range.
    """
    src = (x, positions) if factors is None else (x, positions, factors)
    return _ROPE(
        *src,
        n_dims=n_dims,
        mode=mode,
        freq_base=freq_base,
        freq_scale=freq_scale,
        ext_factor=ext_factor,
        attn_factor=attn_factor,
        beta_fast=beta_fast,
        beta_slow=beta_slow,
        n_ctx_orig=n_ctx_orig,
    )
