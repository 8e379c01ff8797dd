"""gemma3: sandwich norms, normalised queries and keys, five layers of sliding-window attention to each one that sees
everything.

Names and keys are those of llama.cpp's GGUF files; the norm weights in the file include the + 1 of the original.
Source: Gemma 3 technical report, https://arxiv.org/abs/2503.19786.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gml
from gml import Tensor
from gml.errors import FormatError
from gml.models.arch.base import MAX_LAYERS, Keys, Step, Weight, Weights
from gml.models.arch.layers import Rope, cached_attention, rms_norm
from gml.models.arch.llama import read_rope
from gml.records import dataclass

#: of so many layers the last one has no window
PATTERN = 6


@dataclass(frozen=True)
class Gemma3Params:
    """Sizes and constants of a gemma3 model."""

    n_vocab: int
    n_ctx_train: int
    n_embd: int
    n_layer: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_embd_head: int
    rms_eps: float
    attn_scale: float
    window: int
    rope_global: Rope
    rope_local: Rope

    def is_local(self, layer: int) -> bool:
        """Whether a layer sees a window only."""
        return layer % PATTERN < PATTERN - 1


class Gemma3:
    """The architecture `gemma3`."""

    name = "gemma3"

    def hparams(self, metadata: Mapping[str, Any], n_vocab: int) -> Gemma3Params:
        keys = Keys(metadata, self.name)
        n_embd = keys.size("embedding_length")
        n_head = keys.size("attention.head_count", high=1 << 16)
        n_head_kv = keys.size("attention.head_count_kv", n_head, high=1 << 16)
        if n_head % n_head_kv:
            raise FormatError(f"gemma3.attention.head_count_kv = {n_head_kv} must divide head_count = {n_head}")
        n_embd_head = keys.size("attention.key_length", n_embd // n_head or None)
        n_ctx_train = keys.size("context_length", high=1 << 31)
        n_layer = keys.size("block_count", high=MAX_LAYERS)
        rope_global = read_rope(keys, n_embd_head, n_ctx_train, "neox")
        # the largest model scales by its width per head instead
        width = n_embd // n_head if n_layer == 62 else n_embd_head
        return Gemma3Params(
            n_vocab=n_vocab,
            n_ctx_train=n_ctx_train,
            n_embd=n_embd,
            n_layer=n_layer,
            n_ff=keys.size("feed_forward_length"),
            n_head=n_head,
            n_head_kv=n_head_kv,
            n_embd_head=n_embd_head,
            rms_eps=keys.number("attention.layer_norm_rms_epsilon", low=0.0, high=1.0),
            attn_scale=1.0 / math.sqrt(width),
            window=keys.size("attention.sliding_window", high=1 << 31),
            rope_global=rope_global,
            rope_local=Rope(rope_global.n_rot, "neox", base=keys.number("rope.freq_base_swa", 10000.0, low=1e-3)),
        )

    def weights(self, h: Gemma3Params) -> list[Weight]:
        n_q, n_kv = h.n_embd_head * h.n_head, h.n_embd_head * h.n_head_kv
        return [
            Weight("token_embd.weight", (h.n_embd, h.n_vocab)),
            Weight("output_norm.weight", (h.n_embd,)),
            Weight("output.weight", (h.n_embd, h.n_vocab), optional=True),
            Weight("blk.{i}.attn_norm.weight", (h.n_embd,)),
            Weight("blk.{i}.attn_q.weight", (h.n_embd, n_q)),
            Weight("blk.{i}.attn_k.weight", (h.n_embd, n_kv)),
            Weight("blk.{i}.attn_v.weight", (h.n_embd, n_kv)),
            Weight("blk.{i}.attn_q_norm.weight", (h.n_embd_head,)),
            Weight("blk.{i}.attn_k_norm.weight", (h.n_embd_head,)),
            Weight("blk.{i}.attn_output.weight", (n_q, h.n_embd)),
            Weight("blk.{i}.post_attention_norm.weight", (h.n_embd,)),
            Weight("blk.{i}.ffn_norm.weight", (h.n_embd,)),
            Weight("blk.{i}.ffn_gate.weight", (h.n_embd, h.n_ff)),
            Weight("blk.{i}.ffn_up.weight", (h.n_embd, h.n_ff)),
            Weight("blk.{i}.ffn_down.weight", (h.n_ff, h.n_embd)),
            Weight("blk.{i}.post_ffw_norm.weight", (h.n_embd,)),
        ]

    def cache_widths(self, h: Gemma3Params) -> list[tuple[int, int]]:
        return [(h.n_embd_head * h.n_head_kv, h.n_embd_head * h.n_head_kv)] * h.n_layer

    def build(self, h: Gemma3Params, w: Weights, step: Step) -> Tensor:
        x = gml.get_rows(w["token_embd"], step.tokens) * math.sqrt(h.n_embd)
        for i in range(h.n_layer):
            layer = w.layer(i)
            attended = self.attention(h, layer, step, i, rms_norm(x, layer["attn_norm"], h.rms_eps))
            x = x + rms_norm(attended, layer["post_attention_norm"], h.rms_eps)
            inner = rms_norm(x, layer["ffn_norm"], h.rms_eps)
            gated = gml.geglu_split(gml.mul_mat(layer["ffn_gate"], inner), gml.mul_mat(layer["ffn_up"], inner))
            x = x + rms_norm(gml.mul_mat(layer["ffn_down"], gated), layer["post_ffw_norm"], h.rms_eps)
            x.named(f"blk.{i}.out")
        x = rms_norm(gml.get_rows(x, step.out_ids), w["output_norm"], h.rms_eps)
        head = w.get("output")
        return gml.mul_mat(w["token_embd"] if head is None else head, x).named("logits")

    def attention(self, h: Gemma3Params, layer: Weights, step: Step, i: int, x: Tensor) -> Tensor:
        """Attention of x [n_embd, n_tokens] with the cache of layer i, within the window where the layer has one."""
        local = h.is_local(i)
        rope = h.rope_local if local else h.rope_global
        q = gml.reshape(gml.mul_mat(layer["attn_q"], x), [h.n_embd_head, h.n_head, step.n_tokens])
        k = gml.reshape(gml.mul_mat(layer["attn_k"], x), [h.n_embd_head, h.n_head_kv, step.n_tokens])
        v = gml.reshape(gml.mul_mat(layer["attn_v"], x), [h.n_embd_head, h.n_head_kv, step.n_tokens])
        q = rope.apply(rms_norm(q, layer["attn_q_norm"], h.rms_eps), step.positions)
        k = rope.apply(rms_norm(k, layer["attn_k_norm"], h.rms_eps), step.positions)
        out = cached_attention(step, i, q, k, v, scale=h.attn_scale, window=h.window if local else 0)
        return gml.mul_mat(layer["attn_output"], out)
