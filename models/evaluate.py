"""How well a model predicts a text: perplexity, and the divergence from another run of the same text.

Arrives: a session and token ids; leaves: `Score`s per chunk and their sums. The convention is llama.cpp's: the text is
cut into chunks of the context size, each starts from an empty cache (with BOS in place of its first token where the
model wants one), and the second half of each chunk is scored.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gml.errors import UsageError
from gml.models.session import Session
from gml.records import dataclass, field


@dataclass(frozen=True)
class Chunk:
    """Ids of a chunk and the positions that are scored: the logits at `first` .. n - 2 predict the ids behind them."""

    ids: np.ndarray
    first: int

    @property
    def targets(self) -> np.ndarray:
        """The ids that should have been predicted."""
        return self.ids[self.first + 1 :]

    @property
    def positions(self) -> list[int]:
        """Positions whose logits are needed."""
        return list(range(self.first, len(self.ids) - 1))


def chunks_of(ids: np.ndarray, n_ctx: int, n_chunks: int | None, bos: int | None) -> list[Chunk]:
    """Whole chunks of n_ctx ids. Raises `UsageError` when the text has none."""
    if n_ctx < 4:
        raise UsageError(f"a context of at least 4 tokens is needed to score the second half, found {n_ctx}")
    available = len(ids) // n_ctx
    if available == 0:
        raise UsageError(
            f"the text has {len(ids)} tokens, one chunk needs {n_ctx}; take a longer text or a smaller --ctx"
        )
    found = []
    for i in range(available if n_chunks is None else min(n_chunks, available)):
        chunk = np.array(ids[i * n_ctx : (i + 1) * n_ctx])
        if bos is not None:
            chunk[0] = bos
        found.append(Chunk(chunk, n_ctx // 2))
    return found


def chunk_logits(session: Session, chunk: Chunk) -> np.ndarray:
    """float32 logits [scored positions, n_vocab] of a chunk, from an empty cache."""
    session.reset()
    return session.evaluate(chunk.ids, logits=chunk.positions)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Natural logarithms of the probabilities, float64, along the last axis."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


@dataclass
class Totals:
    """Sums over all scored positions so far."""

    nll: list[np.ndarray] = field(default_factory=list)
    kl: list[np.ndarray] = field(default_factory=list)
    same_top: list[np.ndarray] = field(default_factory=list)

    def add(self, chunk: Chunk, logits: np.ndarray, base: np.ndarray | None = None) -> None:
        """Score a chunk; with `base` logits also the divergence KL(base || this)."""
        mine = log_softmax(logits)
        self.nll.append(-mine[np.arange(len(mine)), chunk.targets])
        if base is not None:
            theirs = log_softmax(base)
            self.kl.append((np.exp(theirs) * (theirs - mine)).sum(axis=-1))
            self.same_top.append(mine.argmax(axis=-1) == theirs.argmax(axis=-1))

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood."""
        return math.exp(float(np.concatenate(self.nll).mean()))

    def result(self) -> dict[str, Any]:
        """`ppl`, `ppl_error` (one standard error), and with a base `kl_mean`, `kl_max`, `same_top`."""
        nll = np.concatenate(self.nll)
        error = float(nll.std(ddof=1) / math.sqrt(len(nll))) * self.perplexity if len(nll) > 1 else math.nan
        found: dict[str, Any] = {"ppl": self.perplexity, "ppl_error": error, "n_scored": len(nll)}
        if self.kl:
            kl = np.concatenate(self.kl)
            found |= {
                "kl_mean": float(kl.mean()),
                "kl_max": float(kl.max()),
                "same_top": float(np.concatenate(self.same_top).mean()),
            }
        return found


def score(
    session: Session,
    chunks: list[Chunk],
    base: Iterator[np.ndarray] | None = None,
    save: Callable[[np.ndarray], None] = lambda logits: None,
) -> Iterator[Totals]:
    """Score chunk after chunk; yields the running totals after each. `save` is given each chunk's logits."""
    totals = Totals()
    for chunk in chunks:
        logits = chunk_logits(session, chunk)
        save(logits)
        totals.add(chunk, logits, next(base) if base is not None else None)
        yield totals


@contextlib.contextmanager
def saving(path: str | None) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends float32 logits to a file; the file appears, whole, when all went well."""
    if path is None:
        yield lambda logits: None
        return
    temporary = Path(f"{path}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:

            def save(logits: np.ndarray) -> None:
                file.write(np.ascontiguousarray(logits, dtype="<f4").tobytes())

            yield save
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def saved_logits(path: str, chunks: list[Chunk], n_vocab: int) -> Iterator[np.ndarray]:
    """What `saving` wrote, chunk by chunk. Raises `UsageError` for a file of another model, text or context."""
    needed = sum(len(chunk.targets) for chunk in chunks) * n_vocab * 4
    try:
        size = os.stat(path).st_size
        if size < needed:
            raise UsageError(
                f"{path}: has {size} bytes of logits, these chunks need {needed}: another text, context or model"
            )
        saved = np.memmap(path, dtype="<f4", mode="r")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    at = 0
    for chunk in chunks:
        n = len(chunk.targets) * n_vocab
        yield np.array(saved[at : at + n]).reshape(-1, n_vocab)
        at += n
