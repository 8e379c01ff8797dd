"""From a model file to a `Model`: hyper-parameters, weights as zero-copy tensors, tokenizer.

Arrives: a path; leaves: a `Model` that any number of sessions share. Every tensor is checked against the architecture's
weight table before anything runs. Next module: `models/session.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from gml import Context, Tensor
from gml.errors import FormatError
from gml.models.arch.base import Architecture, Weights, expand_table, find_architecture
from gml.models.gguf import GGUFFile
from gml.models.tokenizer import Tokenizer


class Model:
    """A model file, opened: `Model.load("model.gguf")`. Weights stay in the mapped file until something reads them.

    Raises `FormatError` for missing tensors or wrong sizes, `UnsupportedError` for an architecture that is not known.
    """

    def __init__(self, file: GGUFFile, pre: str | None = None) -> None:
        self.file = file
        self.metadata: Mapping[str, Any] = file.metadata
        self._pre = pre
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str):
            raise FormatError(f"{file.path}: metadata key general.architecture: expected a string, found {name!r:.80}")
        self.arch: Architecture = find_architecture(name)
        self.hparams = self.arch.hparams(self.metadata, self._n_vocab())
        self.context = Context()
        self.tensors = self._load_weights()
        self.weights = Weights(self.tensors)

    @classmethod
    def load(cls, path: str | Path, *, pre: str | None = None) -> Model:
        """Open a GGUF file (any shard of a split one). `pre` overrides `tokenizer.ggml.pre`."""
        return cls(GGUFFile.open(path), pre)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The file's tokenizer, made when first asked for."""
        return Tokenizer.from_metadata(self.metadata, pre=self._pre)

    @property
    def name(self) -> str:
        """The model's own name, else its file's."""
        name = self.metadata.get("general.name")
        return name if isinstance(name, str) and name else Path(self.file.path).stem

    @property
    def chat_template(self) -> str | None:
        """The Jinja chat template in the file."""
        template = self.metadata.get("tokenizer.chat_template")
        return template if isinstance(template, str) else None

    @property
    def n_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(t.n_bytes for t in self.file.tensors.values())

    @property
    def n_step_bytes(self) -> int:
        """Bytes of weights that a step reads whole: all of them, but not an embedding that is no output matrix too."""
        apart = self.file.tensors.get("token_embd.weight") if "output.weight" in self.tensors else None
        return self.n_bytes - (apart.n_bytes if apart is not None else 0)

    def _n_vocab(self) -> int:
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.ne) != 2:
            found = "no such tensor" if embedding is None else f"ne = {list(embedding.ne)}"
            raise FormatError(f"{self.file.path}: expected a tensor token_embd.weight of 2 dimensions, found {found}")
        return embedding.ne[1]

    def _load_weights(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for row in expand_table(self.arch.weights(self.hparams), self.hparams.n_layer):
            found = self.file.tensors.get(row.name)
            if found is None:
                if row.optional:
                    continue
                raise FormatError(f"{self.file.path}: tensor {row.name} is missing; expected ne = {list(row.ne)}")
            ne = tuple(found.ne)
            if _padded(ne) != _padded(row.ne):
                raise FormatError(
                    f"{self.file.path}: tensor {row.name}: expected ne = {list(row.ne)}, found {list(ne)}"
                )
            if not found.type.is_float:
                raise FormatError(
                    f"{self.file.path}: tensor {row.name}: expected a float type, found {found.type.name}"
                )
            tensors[row.name] = self.context.from_buffer(found.data, found.type, row.ne, name=row.name)
        return tensors


def _padded(ne: tuple[int, ...]) -> tuple[int, ...]:
    return (*ne, 1, 1, 1, 1)[:4]
