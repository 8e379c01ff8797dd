"""How fast a session is: prompt and generation speed, and the memory bandwidth beside it.

Arrives: a session; leaves: rows of numbers. Speeds are medians of repeated runs with their extremes; bandwidth is what
the same number of threads reads from memory with nothing else to do.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gml.models.session import Session

#: bytes that each thread reads to measure bandwidth: far more than caches hold
BANDWIDTH_BYTES = 192 << 20


@dataclass(frozen=True)
class Row:
    """One test: `pp512` (prompt) or `tg64` (generation), tokens per second, and GB/s of weights read in generation."""

    test: str
    threads: int
    tok_s: float
    tok_s_min: float
    tok_s_max: float
    gb_s: float | None

    def as_dict(self) -> dict[str, Any]:
        """The row for JSON."""
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in vars(self).items()}


def read_bandwidth(n_threads: int) -> float:
    """GB/s of plain reading by so many threads, the best of three."""
    blocks = [np.ones(BANDWIDTH_BYTES // 8, dtype=np.int64) for _ in range(n_threads)]
    best = 0.0
    for _ in range(3):
        threads = [threading.Thread(target=np.bitwise_or.reduce, args=(block,)) for block in blocks]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = max(best, n_threads * BANDWIDTH_BYTES / (time.perf_counter() - started) / 1e9)
    return best


def _ids(session: Session, n: int) -> np.ndarray:
    """The same arbitrary tokens every time."""
    return (np.arange(n, dtype=np.int64) * 7919 + 1000) % session.n_vocab


def _row(test: str, threads: int, n_tokens: int, seconds: list[float], n_bytes: int | None) -> Row:
    speeds = [n_tokens / s for s in seconds]
    median = statistics.median(speeds)
    gb_s = None if n_bytes is None else median * n_bytes / 1e9
    return Row(test, threads, median, min(speeds), max(speeds), gb_s)


def bench_prompt(session: Session, n: int, repeats: int, threads: int) -> Row:
    """Evaluate n tokens from an empty cache, logits of the last one."""
    ids, seconds = _ids(session, n), []
    for _ in range(repeats):
        session.reset()
        started = time.perf_counter()
        session.evaluate(ids)
        seconds.append(time.perf_counter() - started)
    return _row(f"pp{n}", threads, n, seconds, None)


def bench_generation(session: Session, n: int, repeats: int, threads: int) -> Row:
    """Evaluate n tokens one by one, from an empty cache."""
    ids, seconds = _ids(session, n), []
    for _ in range(repeats):
        session.reset()
        session.evaluate(ids[:1])
        session.reset()
        started = time.perf_counter()
        for i in ids:
            session.evaluate([int(i)])
        seconds.append(time.perf_counter() - started)
    return _row(f"tg{n}", threads, n, seconds, session.model.n_bytes)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What some work gives, and the seconds it took."""
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started
