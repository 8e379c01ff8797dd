"""The generation loop: a prompt's ids through a session, then one token after another until something ends it.

Arrives: prompt ids, a `Session`, a `Sampler`; leaves: a stream of `Piece`s (id and text) and a `Result`. Text comes out
as soon as it is certain: characters whose bytes are not all there, and text that may become a stop string, are held
back. However the text is cut into tokens, the streamed pieces joined are the result's text. Next module:
`models/chat.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from gml.errors import ContextFullError, UsageError
from gml.models.sampling import Sampler
from gml.records import dataclass, field

StopReason = Literal["eos", "stop", "length", "context", "cancelled"]


class Evaluates(Protocol):
    """What the loop needs of a session; see `gml.models.session.Session`."""

    n_ctx: int
    tokens: list[int]

    @property
    def n_past(self) -> int: ...

    def evaluate(
        self, ids: Sequence[int] | np.ndarray, *, logits: Any = "last", cancel: Callable[[], bool] | None = None
    ) -> np.ndarray: ...

    def truncate(self, n: int) -> None: ...


class Streams(Protocol):
    """What the loop needs of a tokenizer; see `gml.models.tokenizer.Tokenizer`."""

    @property
    def eog_ids(self) -> frozenset[int]: ...

    def stream(self, *, skip_special: bool = False, continuation: bool = False) -> Any: ...


@dataclass(frozen=True)
class Piece:
    """One generated token, or the text flushed at the end (`id` None). `text` may be empty while text is held back."""

    id: int | None
    text: str


@dataclass
class Timings:
    """Tokens and seconds of both phases; `n_reused` prompt tokens were in the session already."""

    n_prompt: int = 0
    n_reused: int = 0
    n_generated: int = 0
    prompt_s: float = 0.0
    generation_s: float = 0.0

    def as_dict(self) -> dict[str, float]:
        """For JSON, with tokens per second."""
        n_evaluated = self.n_prompt - self.n_reused
        return {
            "n_prompt": self.n_prompt,
            "n_reused": self.n_reused,
            "n_generated": self.n_generated,
            "prompt_s": round(self.prompt_s, 6),
            "generation_s": round(self.generation_s, 6),
            "prompt_tokens_per_s": round(n_evaluated / self.prompt_s, 3) if self.prompt_s else 0.0,
            "generation_tokens_per_s": round(self.n_generated / self.generation_s, 3) if self.generation_s else 0.0,
        }


@dataclass
class Result:
    """What a generation gave so far; complete once its iterator is exhausted.

    ids          generated tokens, without the end-of-generation token, with those that spell a stop string
    text         their text, up to the stop string
    stop_reason  "eos", "stop" (a stop string), "length" (max_tokens), "context" (it is full), "cancelled"
    """

    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    text: str = ""
    stop_reason: StopReason = "cancelled"
    timings: Timings = field(default_factory=Timings)


class StopStrings:
    """Text in, text out that is certain not to belong to a stop string.

    The stop string that is complete first wins, of several that end together the longest. Each is matched character by
    character with its own table of fall-backs (Knuth, Morris, Pratt), so the outcome cannot depend on how the text is
    cut.

    Raises `UsageError` for an empty stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(isinstance(stop, str) and stop for stop in stops):
            raise UsageError(f"stop strings must be texts that are not empty, found {list(stops)!r}")
        self.stops = tuple(dict.fromkeys(stops))
        self._falls = [_fall_backs(stop) for stop in self.stops]
        self._matched = [0] * len(self.stops)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """The text that becomes certain. After a stop string was found, nothing does."""
        if self.found is not None or not self.stops:
            return "" if self.found is not None else text
        for i, character in enumerate(text):
            self._advance(character)
            complete = [stop for stop, n in zip(self.stops, self._matched, strict=True) if n == len(stop)]
            if complete:
                self.found = max(complete, key=len)
                certain = (self._held + text[: i + 1])[: -len(self.found)]
                self._held = ""
                return certain
        text = self._held + text
        n_certain = len(text) - max(self._matched)
        self._held = text[n_certain:]
        return text[:n_certain]

    def flush(self) -> str:
        """What was held back: nothing more comes, so it is no stop string."""
        text, self._held = self._held, ""
        self._matched = [0] * len(self.stops)
        return text

    def _advance(self, character: str) -> None:
        for k, (stop, falls) in enumerate(zip(self.stops, self._falls, strict=True)):
            n = self._matched[k]
            while n and stop[n] != character:
                n = falls[n - 1]
            self._matched[k] = n + 1 if stop[n] == character else 0


def _fall_backs(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of the longest proper prefix that also ends it."""
    falls, n = [0] * len(stop), 0
    for i in range(1, len(stop)):
        while n and stop[i] != stop[n]:
            n = falls[n - 1]
        n += stop[i] == stop[n]
        falls[i] = n
    return falls


class Generation:
    """An iterator of `Piece`s, and the `Result` that grows with them.

        for piece in (generation := Generation(session, tokenizer, ids, Sampler())):
            print(piece.text, end="", flush=True)
        print(generation.result.stop_reason)

    prompt_ids  not empty; what they share with the session's tokens is not evaluated again
    max_tokens  None or negative: until the model ends, or the context is full
    stop        texts that end the generation and are not part of it
    shift       when the context is full, forget half of it and go on; otherwise end with "context"
    n_keep      tokens at the start that a shift keeps; negative: the prompt
    cancel      asked before every chunk of the prompt and every token; True ends with "cancelled"

    An interrupt (`KeyboardInterrupt`) may come at any time: the session keeps the steps that were complete. Raises
    `UsageError` for an empty prompt or a bad stop string, `ContextFullError` for a prompt that is longer than the
    context.
    """

    def __init__(
        self,
        session: Evaluates,
        tokenizer: Streams,
        prompt_ids: Sequence[int] | np.ndarray,
        sampler: Sampler,
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        shift: bool = False,
        n_keep: int = 0,
        cancel: Callable[[], bool] | None = None,
    ) -> None:
        ids = [int(id) for id in prompt_ids]
        if not ids:
            raise UsageError("the prompt is empty and the vocabulary adds no BOS token: give at least one token")
        if len(ids) > session.n_ctx:
            raise ContextFullError(
                f"the prompt has {len(ids)} tokens, the context holds {session.n_ctx}; raise the context size "
                "or shorten the prompt"
            )
        self.n_keep = len(ids) if n_keep < 0 else n_keep
        if shift and self.n_keep >= session.n_ctx:
            raise UsageError(f"n_keep = {self.n_keep} leaves nothing to forget in a context of {session.n_ctx}")
        self.session, self.sampler, self.shift, self.cancel = session, sampler, shift, cancel
        self.max_tokens = None if max_tokens is None or max_tokens < 0 else max_tokens
        self.eog_ids = tokenizer.eog_ids
        self.result = Result(prompt_ids=ids)
        self._decoder = tokenizer.stream(skip_special=True, continuation=True)
        self._stops = StopStrings(stop)
        self._pieces = self._run()

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        return next(self._pieces)

    def finish(self) -> Result:
        """Run to the end and return the result."""
        for _ in self:
            pass
        return self.result

    def _run(self) -> Iterator[Piece]:
        logits = self._evaluate_prompt()
        reason: StopReason | None = "cancelled" if not len(logits) else None
        if reason is None and self.max_tokens == 0:
            reason = "length"
        while reason is None:
            if self._cancelled():
                reason = "cancelled"
                break
            started = time.perf_counter()
            id = self.sampler.sample(logits[-1])
            self.sampler.accept(id)
            if id in self.eog_ids:
                reason = "eos"
                break
            text = self._append(id, started)
            reason = self._end_reason()
            yield Piece(id, text)
            if reason is None:
                started = time.perf_counter()
                logits = self._evaluate_next(id)
                self.result.timings.generation_s += time.perf_counter() - started
                if not len(logits):
                    reason = "cancelled"
        self.result.stop_reason = reason
        if rest := self._flush():
            yield Piece(None, rest)

    def _append(self, id: int, started: float) -> str:
        text = self._stops.push(self._decoder.push(id))
        result = self.result
        result.ids.append(id)
        result.text += text
        result.timings.n_generated += 1
        result.timings.generation_s += time.perf_counter() - started
        return text

    def _end_reason(self) -> StopReason | None:
        if self._stops.found is not None:
            return "stop"
        if self.max_tokens is not None and len(self.result.ids) >= self.max_tokens:
            return "length"
        if not self.shift and self.session.n_past >= self.session.n_ctx:
            return "context"
        return None

    def _flush(self) -> str:
        """Text that was held back; a stop string may still be complete in it."""
        if self._stops.found is not None:
            return ""
        rest = self._stops.push(self._decoder.flush()) + self._stops.flush()
        if self._stops.found is not None:
            self.result.stop_reason = "stop"
        self.result.text += rest
        return rest

    def _evaluate_prompt(self) -> np.ndarray:
        """Logits of the prompt's last token, or none when cancelled."""
        ids, session, timings = self.result.prompt_ids, self.session, self.result.timings
        started = time.perf_counter()
        # the last token is evaluated in any case: its logits are wanted
        n_reused = common_prefix(session.tokens, ids[:-1])
        session.truncate(n_reused)
        timings.n_prompt, timings.n_reused = len(ids), n_reused
        for id in ids:
            self.sampler.accept(id)
        logits = session.evaluate(ids[n_reused:], cancel=self.cancel)
        timings.prompt_s = time.perf_counter() - started
        return logits

    def _evaluate_next(self, id: int) -> np.ndarray:
        session, n_keep = self.session, self.n_keep
        if session.n_past < session.n_ctx:
            return session.evaluate([id])
        rest = session.tokens[n_keep:]
        n_dropped = max(1, len(rest) // 2)
        session.truncate(n_keep)
        return session.evaluate([*rest[n_dropped:], id], cancel=self.cancel)

    def _cancelled(self) -> bool:
        return self.cancel is not None and self.cancel()


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids two sequences share at their start."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
