"""A session: one sequence of tokens, its KV cache, and the compiled graph that extends it.

Arrives: token ids; leaves: logits. A prompt longer than the batch is fed in chunks. Next modules: `models/sampling.py`,
which chooses the next id from the logits, and `models/generate.py`, which loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

import gml
from gml import Backend, Context, Graph
from gml.errors import ContextFullError, GraphError, UsageError
from gml.models.arch.base import make_step
from gml.models.loader import Model

KV_TYPES = {"F32": gml.F32, "F16": gml.F16, "Q8_0": gml.Q8_0}
DEFAULT_N_CTX = 4096

Logits = Literal["last", "all"]


class Session:
    """Evaluates tokens one after another or in batches, remembering those before.

    n_ctx     tokens that the cache can hold (default: what the model was trained for, at most 4096)
    n_batch   tokens per step; longer prompts are split
    kv_type   storage type of the cache, "F32", "F16" or "Q8_0"
    backend   a name or a `Backend`
    threads   worker threads, where the backend has them

    Raises `UsageError` for impossible sizes.
    """

    def __init__(
        self,
        model: Model,
        *,
        backend: str | Backend | None = None,
        n_ctx: int | None = None,
        n_batch: int = 512,
        kv_type: str = "F16",
        threads: int | None = None,
    ) -> None:
        h = model.hparams
        self.model = model
        self.n_ctx = min(h.n_ctx_train, DEFAULT_N_CTX) if n_ctx is None else n_ctx
        if not 1 <= self.n_ctx <= 1 << 24:
            raise UsageError(f"n_ctx must be from 1 to {1 << 24}, found {self.n_ctx}")
        if n_batch < 1:
            raise UsageError(f"n_batch must be at least 1, found {n_batch}")
        if kv_type.upper() not in KV_TYPES:
            raise UsageError(f"kv_type must be one of {', '.join(KV_TYPES)}, found {kv_type!r}")
        self.n_batch = min(n_batch, self.n_ctx)
        self.tokens: list[int] = []
        self.context = Context()
        self._step = make_step(
            self.context,
            n_ctx=self.n_ctx,
            n_batch=self.n_batch,
            kv_type=KV_TYPES[kv_type.upper()],
            widths=model.arch.cache_widths(h),
            input_type=gml.I32,
        )
        # written in place: `Tensor.set` checks and converts, which takes longer than some steps' phases
        self._inputs = [
            t.bytes().view(np.int32)
            for t in (self._step.tokens, self._step.positions, self._step.cells, self._step.out_ids)
        ]
        self._logits = model.arch.build(h, model.weights, self._step)
        self.graph = Graph(self._logits, name=model.name)
        chosen = backend if backend is not None else gml.default_backend()
        if isinstance(chosen, str):
            options = {} if threads is None else {"threads": threads}
            chosen = gml.get_backend(chosen, **options)
        self.program = chosen.compile(self.graph)
        self.program.prepare()

    @property
    def n_past(self) -> int:
        """Tokens in the cache."""
        return len(self.tokens)

    @property
    def n_vocab(self) -> int:
        """Logits per position."""
        return self.model.hparams.n_vocab

    def evaluate(
        self,
        ids: Sequence[int] | np.ndarray,
        *,
        logits: Logits | Sequence[int] = "last",
        cancel: Callable[[], bool] | None = None,
    ) -> np.ndarray:
        """Append tokens; float32 logits of shape [n, n_vocab] for the positions asked for.

        logits  "last", "all", or ascending indices into `ids` (an empty list: none)
        cancel  asked before every chunk; when it says True, what was evaluated stays and no logits come back

        Raises `ContextFullError` before anything is evaluated when the tokens do not fit, `GraphError` for ids outside
        the vocabulary.
        """
        ids = np.asarray(ids, dtype=np.int64).reshape(-1)
        wanted = self._wanted(len(ids), logits)
        if self.n_past + len(ids) > self.n_ctx:
            raise ContextFullError(
                f"{len(ids)} more tokens do not fit: {self.n_past} of {self.n_ctx} are used; "
                "raise the context size, shorten the prompt or allow a shift"
            )
        bad = np.flatnonzero((ids < 0) | (ids >= self.n_vocab))
        if len(bad):
            raise GraphError(f"token {ids[bad[0]]} at position {bad[0]} is outside the vocabulary of {self.n_vocab}")
        result = np.empty((len(wanted), self.n_vocab), dtype=np.float32)
        for start in range(0, len(ids), self.n_batch):
            if cancel is not None and cancel():
                return result[:0]
            chunk = ids[start : start + self.n_batch]
            here = (wanted >= start) & (wanted < start + len(chunk))
            self._run(chunk, wanted[here] - start)
            if here.any():
                result[here] = self.program.read(self._logits).reshape(-1, self.n_vocab)
        return result

    def truncate(self, n: int) -> None:
        """Keep the first `n` tokens of the cache and forget the rest."""
        if not 0 <= n <= self.n_past:
            raise UsageError(f"cannot keep {n} tokens, the session has {self.n_past}")
        del self.tokens[n:]

    def reset(self) -> None:
        """Forget everything."""
        self.tokens.clear()

    def _wanted(self, n: int, logits: Logits | Sequence[int]) -> np.ndarray:
        if isinstance(logits, str):
            return np.arange(n) if logits == "all" else np.arange(max(n - 1, 0), n)
        wanted = np.asarray(logits, dtype=np.int64).reshape(-1)
        if len(wanted) and (wanted[0] < 0 or wanted[-1] >= n or (np.diff(wanted) <= 0).any()):
            raise UsageError(f"logits must be ascending indices below {n}, found {list(logits)[:20]}")
        return wanted

    def _run(self, chunk: np.ndarray, out_ids: np.ndarray) -> None:
        n_past, n = self.n_past, len(chunk)
        tokens, positions, cells, wanted = self._inputs
        tokens[:n] = chunk
        positions[:n] = cells[:n] = np.arange(n_past, n_past + n, dtype=np.int32)
        wanted[: len(out_ids)] = out_ids
        self.program.run(n_tokens=n, n_kv=n_past + n, n_out=len(out_ids))
        self.tokens.extend(chunk.tolist())
