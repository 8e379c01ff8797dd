"""How fast a session is: prompt and generation speed, the memory bandwidth beside it, and a peer in the same run.

Arrives: a session and tests; leaves: rows of numbers. Speeds are medians of repeated runs with their extremes;
bandwidth is what as many threads read from memory with nothing else to do. Next module: `peers.py`.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gml.models.peer_worker import test_ids
from gml.models.peers import PeerProcess
from gml.models.session import Session
from gml.records import dataclass

#: bytes that each thread reads to measure bandwidth: far more than caches hold
BANDWIDTH_BYTES = 192 << 20


@dataclass(frozen=True)
class Test:
    """What is measured: `pp` evaluates n tokens at once, `tg` one by one, behind `depth` tokens in the cache."""

    kind: str
    n: int
    depth: int = 0

    @property
    def name(self) -> str:
        """As llama-bench writes it."""
        return f"{self.kind}{self.n}" + (f" @ d{self.depth}" if self.depth else "")


@dataclass(frozen=True)
class Row:
    """One test: tokens per second, GB/s of weights read in generation, and what the peer did in the same minutes.

    peer_tok_s  the median of the peer's runs
    ratio       the median of gml's speed over the peer's, pair by pair
    """

    test: str
    threads: int
    tok_s: float
    tok_s_min: float
    tok_s_max: float
    gb_s: float | None
    peer_tok_s: float | None = None
    ratio: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The row for JSON; without the peer's columns where there is none."""
        found = {k: round(v, 3) if isinstance(v, float) else v for k, v in vars(self).items()}
        if self.ratio is None:
            del found["peer_tok_s"], found["ratio"]
        return found


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


def run_test(session: Session, test: Test) -> float:
    """Seconds of one run."""
    ids = test_ids(test.depth + test.n, session.n_vocab)
    session.reset()
    if test.depth:
        session.evaluate(ids[: test.depth], logits=[])
    started = time.perf_counter()
    if test.kind == "pp":
        session.evaluate(ids[test.depth :])
    else:
        for i in ids[test.depth :]:
            session.evaluate([i])
    return time.perf_counter() - started


def measure(session: Session, test: Test, repeats: int, threads: int, peer: PeerProcess | None = None) -> Row:
    """Run a test several times, in turn with the peer when there is one; the first run of each is not counted."""
    warm = Test(test.kind, min(test.n, 16), min(test.depth, 16))
    run_test(session, warm)
    if peer is not None:
        peer.seconds(warm.kind, warm.n, warm.depth)
    seconds, of_peer = [], []
    for _ in range(repeats):
        seconds.append(run_test(session, test))
        if peer is not None:
            of_peer.append(peer.seconds(test.kind, test.n, test.depth))
    speeds = [test.n / s for s in seconds]
    median = statistics.median(speeds)
    return Row(
        test.name,
        threads,
        median,
        min(speeds),
        max(speeds),
        median * session.model.n_step_bytes / 1e9 if test.kind == "tg" else None,
        statistics.median(test.n / s for s in of_peer) if of_peer else None,
        statistics.median(p / s for s, p in zip(seconds, of_peer, strict=True)) if of_peer else None,
    )


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What some work gives, and the seconds it took."""
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started
