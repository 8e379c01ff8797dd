"""Building blocks that architectures share: normalisation, rotary embedding, attention over a KV cache, feed-forward.

Each function takes tensors and gives a tensor; sizes in comments are ne, fastest first. Next module:
`models/arch/llama.py`.
"""

from __future__ import annotations

import gml
from gml import Size, Tensor
from gml.models.arch.base import Step
from gml.records import dataclass


@dataclass(frozen=True)
class Rope:
    """How positions turn queries and keys.

    n_rot        elements of each head that are rotated
    mode         "normal" (neighbours are paired) or "neox" (halves are paired)
    base, scale  frequencies are scale * base^(-2i / n_rot)
    yarn_*       YaRN's mixing (ext_factor 0: none), attention factor and ramp, https://arxiv.org/abs/2309.00071
    """

    n_rot: int
    mode: str = "normal"
    base: float = 10000.0
    scale: float = 1.0
    yarn_ext_factor: float = 0.0
    yarn_attn_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    n_ctx_orig: int = 0

    def apply(self, x: Tensor, positions: Tensor, factors: Tensor | None = None) -> Tensor:
        """x [n_embd_head, n_head, n_tokens] rotated; `factors` [n_rot / 2] divide the frequencies."""
        return gml.rope(
            x,
            positions,
            factors,
            n_dims=self.n_rot,
            mode=self.mode,
            freq_base=self.base,
            freq_scale=self.scale,
            ext_factor=self.yarn_ext_factor,
            attn_factor=self.yarn_attn_factor,
            beta_fast=self.yarn_beta_fast,
            beta_slow=self.yarn_beta_slow,
            n_ctx_orig=self.n_ctx_orig,
        )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [n_embd, ...] over its root mean square, times weight [n_embd]."""
    return gml.rms_norm(x, eps=eps) * weight


def linear(weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """weight [k, n] times x [k, m], plus bias [n]: [n, m]."""
    y = gml.mul_mat(weight, x)
    return y if bias is None else y + bias


def store(cache: Tensor, rows: Tensor, cells: Tensor) -> Tensor:
    """Write rows [width, n_tokens] into the cache at `cells`; the result is the cache after the write."""
    return gml.set_rows(cache, rows, cells)


def heads_of_cache(cache: Tensor, n_head: int, n_kv: Size) -> Tensor:
    """The first n_kv rows of a cache [head * n_head, n_ctx], seen as [head, n_kv, n_head]."""
    n_embd_head = cache.ne[0] // n_head
    row_bytes = cache.nb[1]
    head_bytes = row_bytes // n_head
    return gml.view(cache, [n_embd_head, n_kv, n_head], nb=[row_bytes, head_bytes])


def cached_attention(
    step: Step,
    layer: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    """Causal attention of the step's queries over everything in the cache, the step's own keys and values included.

    q [n_embd_head_k, n_head, n_tokens]; k, v [n_embd_head_k|v, n_head_kv, n_tokens]. Result [n_embd_head_v * n_head,
    n_tokens].
    """
    n_head_kv = k.ne[1]
    assert isinstance(n_head_kv, int)
    k_rows = gml.reshape(k, [k.ne[0] * n_head_kv, step.n_tokens])
    v_rows = gml.reshape(v, [v.ne[0] * n_head_kv, step.n_tokens])
    all_k = heads_of_cache(store(step.k[layer], k_rows, step.cells), n_head_kv, step.n_kv)
    all_v = heads_of_cache(store(step.v[layer], v_rows, step.cells), n_head_kv, step.n_kv)
    out = gml.flash_attn_ext(
        gml.permute(q, 0, 2, 1, 3), all_k, all_v, scale=scale, causal=True, window=window, logit_softcap=softcap
    )
    return gml.reshape(out, [v.ne[0] * q.ne[1], step.n_tokens])


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The gated feed-forward of llama: down(silu(gate x) * up x). Source: https://arxiv.org/abs/2002.05202."""
    return gml.mul_mat(down, gml.swiglu_split(gml.mul_mat(gate, x), gml.mul_mat(up, x)))
