"""What an architecture is: hyper-parameters read from metadata, a table of weights, and `build`, which wires the graph.

Arrives: GGUF metadata and tensors; leaves: one graph per model, with run-time sizes for the tokens of a step
(`n_tokens`), the cells of the KV cache in use (`n_kv`) and the positions whose logits are wanted (`n_out`).
Architectures are found by the name in `general.architecture`: gml's own in a table, others by the entry point
`gml.architectures`. Next module:
`models/arch/layers.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gml import Context, Dim, DType, Tensor
from gml.errors import FormatError, UnsupportedError
from gml.plugins import find_plugin, plugin_names
from gml.records import dataclass, field

#: more than any model has; a hostile file must not make us build a graph of a billion nodes
MAX_LAYERS = 1024
MAX_WIDTH = 1 << 24


class Keys:
    """Typed, bounds-checked access to the metadata of one architecture: `keys.size("block_count")` reads
    `llama.block_count`.

    Raises `FormatError` naming the key, what was expected and what was found.
    """

    def __init__(self, metadata: Mapping[str, Any], arch: str) -> None:
        self.metadata, self.arch = metadata, arch

    def get(self, key: str, default: Any = None) -> Any:
        """The raw value of `ARCH.key`, or the default."""
        return self.metadata.get(f"{self.arch}.{key}", default)

    def size(self, key: str, default: int | None = None, *, low: int = 1, high: int = MAX_WIDTH) -> int:
        """A whole number low <= value <= high."""
        value = self._present(key, default)
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not (whole and low <= value <= high):
            raise self._wrong(key, f"a whole number from {low} to {high}", value)
        return int(value)

    def number(self, key: str, default: float | None = None, *, low: float = -1e30, high: float = 1e30) -> float:
        """A finite number low <= value <= high."""
        value = self._present(key, default)
        real = isinstance(value, (int, float, np.floating)) and not isinstance(value, bool)
        if not (real and low <= value <= high):
            raise self._wrong(key, f"a number from {low:g} to {high:g}", value)
        return float(value)

    def text(self, key: str, default: str) -> str:
        """A string."""
        value = self._present(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def _present(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is None:
            raise FormatError(
                f"metadata key {self.arch}.{key} is missing; the file is not a complete {self.arch} model"
            )
        return value

    def _wrong(self, key: str, expected: str, found: Any) -> FormatError:
        return FormatError(f"metadata key {self.arch}.{key}: expected {expected}, found {found!r:.80}")


@dataclass(frozen=True)
class Weight:
    """A row of an architecture's weight table.

    name      GGUF name; `{i}` stands for the layer
    ne        sizes, fastest first
    optional  may be missing from the file
    """

    name: str
    ne: tuple[int, ...]
    optional: bool = False

    @property
    def per_layer(self) -> bool:
        """True when every layer has one."""
        return "{i}" in self.name


class Weights:
    """Weights of a model by GGUF name without the `.weight` ending; `None` for optional ones that the file lacks."""

    def __init__(self, tensors: Mapping[str, Tensor], prefix: str = "") -> None:
        self._tensors, self._prefix = tensors, prefix

    def layer(self, i: int) -> Weights:
        """The weights of layer `i`, with names as in `attn_q`."""
        return Weights(self._tensors, f"blk.{i}.")

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[f"{self._prefix}{name}.weight"]

    def get(self, name: str) -> Tensor | None:
        """An optional weight."""
        return self._tensors.get(f"{self._prefix}{name}.weight")

    def bias(self, name: str) -> Tensor | None:
        """An optional bias."""
        return self._tensors.get(f"{self._prefix}{name}.bias")


@dataclass
class Step:
    """What one step of a decoder gets: inputs, run-time sizes and the KV cache.

    tokens     I32 [n_tokens] ids
    positions  I32 [n_tokens] positions for rotary embeddings
    cells      I32 [n_tokens] rows of the cache that the new keys and values go to
    out_ids    I32 [n_out] which of the tokens' logits are wanted
    k, v       per layer the cache, [n_embd_head * n_head_kv, n_ctx]
    """

    context: Context
    n_ctx: int
    n_batch: int
    kv_type: DType
    n_tokens: Dim
    n_kv: Dim
    n_out: Dim
    tokens: Tensor
    positions: Tensor
    cells: Tensor
    out_ids: Tensor
    k: list[Tensor] = field(default_factory=list)
    v: list[Tensor] = field(default_factory=list)


class HParams(Protocol):
    """What every architecture's hyper-parameters have."""

    n_vocab: int
    n_ctx_train: int
    n_layer: int


class Architecture(Protocol):
    """One file of this package, or of anybody's package that declares the entry point."""

    name: str

    def hparams(self, metadata: Mapping[str, Any], n_vocab: int) -> Any:
        """Hyper-parameters.

        Raises `FormatError` for missing or impossible ones, `UnsupportedError` for unknown variants.
        """
        ...

    def weights(self, h: Any) -> list[Weight]:
        """The weight table."""
        ...

    def cache_widths(self, h: Any) -> list[tuple[int, int]]:
        """Per layer the row widths of the K and the V cache."""
        ...

    def build(self, h: Any, w: Weights, step: Step) -> Tensor:
        """The logits, F32 [n_vocab, n_out]."""
        ...


GROUP = "gml.architectures"
#: the architectures that come with gml
OWN = {"llama": "gml.models.arch.llama:Llama", "gemma3": "gml.models.arch.gemma3:Gemma3"}


def find_architecture(name: str) -> Architecture:
    """The architecture of this name: gml's own, or one that a package declares by the entry point.

    Raises `UnsupportedError` naming those that are installed.
    """
    found = find_plugin(GROUP, OWN, name)
    if found is None:
        known = plugin_names(GROUP, OWN)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnsupportedError(f"architecture {name!r} is not known; installed: {', '.join(known)}{hint}")
    return found()


def expand_table(table: Sequence[Weight], n_layer: int) -> Iterator[Weight]:
    """The weight table with one row per layer in place of each `{i}`."""
    for row in table:
        if row.per_layer:
            for i in range(n_layer):
                yield Weight(row.name.format(i=i), row.ne, row.optional)
        else:
            yield row


def make_step(
    context: Context,
    *,
    n_ctx: int,
    n_batch: int,
    kv_type: DType,
    widths: Sequence[tuple[int, int]],
    input_type: DType,
    on_state: Callable[[str], None] = lambda name: None,
) -> Step:
    """Inputs, run-time sizes and an empty KV cache for a decoder, all leaves of `context`."""
    n_tokens = Dim("n_tokens", max=n_batch)
    n_kv = Dim("n_kv", max=n_ctx)
    n_out = Dim("n_out", max=n_batch, min=0)
    step = Step(
        context,
        n_ctx,
        n_batch,
        kv_type,
        n_tokens,
        n_kv,
        n_out,
        tokens=context.input("tokens", input_type, [n_tokens]),
        positions=context.input("positions", input_type, [n_tokens]),
        cells=context.input("cells", input_type, [n_tokens]),
        out_ids=context.input("out_ids", input_type, [n_out]),
    )
    for i, (k_width, v_width) in enumerate(widths):
        on_state(f"cache of layer {i}")
        step.k.append(context.state(f"cache_k.{i}", kv_type, [k_width, n_ctx]))
        step.v.append(context.state(f"cache_v.{i}", kv_type, [v_width, n_ctx]))
    return step
