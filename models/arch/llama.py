"""llama (1, 2, 3), TinyLlama, SmolLM: pre-norm decoder with rotary embeddings, grouped-query attention and SwiGLU.

Names and keys are those of llama.cpp's GGUF files. Next module: `models/loader.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gml
from gml import Tensor
from gml.errors import FormatError, UnsupportedError
from gml.models.arch.base import MAX_LAYERS, Keys, Step, Weight, Weights
from gml.models.arch.layers import Rope, cached_attention, linear, rms_norm, swiglu
from gml.records import dataclass


@dataclass(frozen=True)
class LlamaParams:
    """Sizes and constants of a llama model."""

    n_vocab: int
    n_ctx_train: int
    n_embd: int
    n_layer: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_embd_head_k: int
    n_embd_head_v: int
    rms_eps: float
    attn_scale: float
    rope: Rope


class Llama:
    """The architecture `llama`."""

    name = "llama"

    def hparams(self, metadata: Mapping[str, Any], n_vocab: int) -> LlamaParams:
        keys = Keys(metadata, self.name)
        if keys.size("expert_count", 0, low=0):
            raise UnsupportedError("this llama file has experts (mixture of experts), which is not supported yet")
        n_embd = keys.size("embedding_length")
        n_head = keys.size("attention.head_count", high=1 << 16)
        n_head_kv = keys.size("attention.head_count_kv", n_head, high=1 << 16)
        if n_head % n_head_kv:
            raise FormatError(f"llama.attention.head_count_kv = {n_head_kv} must divide head_count = {n_head}")
        n_embd_head_k = keys.size("attention.key_length", n_embd // n_head or None)
        n_ctx_train = keys.size("context_length", high=1 << 31)
        return LlamaParams(
            n_vocab=keys.size("vocab_size", n_vocab, high=1 << 31),
            n_ctx_train=n_ctx_train,
            n_embd=n_embd,
            n_layer=keys.size("block_count", high=MAX_LAYERS),
            n_ff=keys.size("feed_forward_length"),
            n_head=n_head,
            n_head_kv=n_head_kv,
            n_embd_head_k=n_embd_head_k,
            n_embd_head_v=keys.size("attention.value_length", n_embd // n_head or None),
            rms_eps=keys.number("attention.layer_norm_rms_epsilon", low=0.0, high=1.0),
            attn_scale=keys.number("attention.scale", 1.0 / math.sqrt(n_embd_head_k)),
            rope=read_rope(keys, n_embd_head_k, n_ctx_train),
        )

    def weights(self, h: LlamaParams) -> list[Weight]:
        n_embd_q, n_embd_k = h.n_embd_head_k * h.n_head, h.n_embd_head_k * h.n_head_kv
        n_embd_v, n_embd_out = h.n_embd_head_v * h.n_head_kv, h.n_embd_head_v * h.n_head
        return [
            Weight("token_embd.weight", (h.n_embd, h.n_vocab)),
            Weight("output_norm.weight", (h.n_embd,)),
            Weight("output.weight", (h.n_embd, h.n_vocab), optional=True),
            Weight("rope_freqs.weight", (h.rope.n_rot // 2,), optional=True),
            Weight("blk.{i}.attn_norm.weight", (h.n_embd,)),
            Weight("blk.{i}.attn_q.weight", (h.n_embd, n_embd_q)),
            Weight("blk.{i}.attn_q.bias", (n_embd_q,), optional=True),
            Weight("blk.{i}.attn_k.weight", (h.n_embd, n_embd_k)),
            Weight("blk.{i}.attn_k.bias", (n_embd_k,), optional=True),
            Weight("blk.{i}.attn_v.weight", (h.n_embd, n_embd_v)),
            Weight("blk.{i}.attn_v.bias", (n_embd_v,), optional=True),
            Weight("blk.{i}.attn_output.weight", (n_embd_out, h.n_embd)),
            Weight("blk.{i}.attn_output.bias", (h.n_embd,), optional=True),
            Weight("blk.{i}.ffn_norm.weight", (h.n_embd,)),
            Weight("blk.{i}.ffn_gate.weight", (h.n_embd, h.n_ff)),
            Weight("blk.{i}.ffn_up.weight", (h.n_embd, h.n_ff)),
            Weight("blk.{i}.ffn_down.weight", (h.n_ff, h.n_embd)),
        ]

    def cache_widths(self, h: LlamaParams) -> list[tuple[int, int]]:
        return [(h.n_embd_head_k * h.n_head_kv, h.n_embd_head_v * h.n_head_kv)] * h.n_layer

    def build(self, h: LlamaParams, w: Weights, step: Step) -> Tensor:
        x = gml.get_rows(w["token_embd"], step.tokens)
        for i in range(h.n_layer):
            layer = w.layer(i)
            x = x + self.attention(h, w, layer, step, i, rms_norm(x, layer["attn_norm"], h.rms_eps))
            ffn_in = rms_norm(x, layer["ffn_norm"], h.rms_eps)
            x = x + swiglu(ffn_in, layer["ffn_gate"], layer["ffn_up"], layer["ffn_down"])
            x.named(f"blk.{i}.out")
        # only the positions asked for go through the head, by far the largest matrix of a small model
        x = rms_norm(gml.get_rows(x, step.out_ids), w["output_norm"], h.rms_eps)
        head = w.get("output")
        return gml.mul_mat(w["token_embd"] if head is None else head, x).named("logits")

    def attention(self, h: LlamaParams, w: Weights, layer: Weights, step: Step, i: int, x: Tensor) -> Tensor:
        """Grouped-query attention of x [n_embd, n_tokens] with the cache of layer i."""
        n_tokens, factors = step.n_tokens, w.get("rope_freqs")
        q = linear(layer["attn_q"], x, layer.bias("attn_q"))
        k = linear(layer["attn_k"], x, layer.bias("attn_k"))
        v = linear(layer["attn_v"], x, layer.bias("attn_v"))
        q = h.rope.apply(gml.reshape(q, [h.n_embd_head_k, h.n_head, n_tokens]), step.positions, factors)
        k = h.rope.apply(gml.reshape(k, [h.n_embd_head_k, h.n_head_kv, n_tokens]), step.positions, factors)
        v = gml.reshape(v, [h.n_embd_head_v, h.n_head_kv, n_tokens])
        out = cached_attention(step, i, q, k, v, scale=h.attn_scale)
        return linear(layer["attn_output"], out, layer.bias("attn_output"))


def read_rope(keys: Keys, n_embd_head: int, n_ctx_train: int, mode: str = "normal") -> Rope:
    """The rotary embedding of a file, scaling included.

    Raises `UnsupportedError` for a scaling type that is not known.
    """
    n_rot = keys.size("rope.dimension_count", n_embd_head, high=n_embd_head)
    if n_rot % 2:
        raise FormatError(f"metadata key {keys.arch}.rope.dimension_count: expected an even number, found {n_rot}")
    base = keys.number("rope.freq_base", 10000.0, low=1e-3)
    scaling = keys.text("rope.scaling.type", "linear" if keys.get("rope.scale_linear") else "none")
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0, low=0.0), low=0.0) or 1.0
    if scaling == "none":
        return Rope(n_rot, mode, base=base)
    if scaling == "linear":
        return Rope(n_rot, mode, base=base, scale=1.0 / factor)
    if scaling == "yarn":
        return Rope(
            n_rot,
            mode,
            base=base,
            scale=1.0 / factor,
            yarn_ext_factor=1.0,
            yarn_attn_factor=keys.number("rope.scaling.attn_factor", 1.0),
            yarn_beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
            yarn_beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
            n_ctx_orig=keys.size("rope.scaling.original_context_length", n_ctx_train, high=1 << 31),
        )
    raise UnsupportedError(f"{keys.arch}.rope.scaling.type = {scaling!r} is not supported; known: none, linear, yarn")
