"""Where a step's time goes: per phase the time, the bytes, the multiplications and the waiting.

Arrives: a session on the compiled backend; leaves: `PhaseRow`s, equal phases of all layers added up. Next module:
`tools/bench.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gml.models.peer_worker import test_ids
from gml.models.session import Session
from gml.records import dataclass


@dataclass
class PhaseRow:
    """Equal phases, added up.

    ops      what their regions are made of
    count    how many
    seconds  from barrier to barrier, the medians of the runs
    waited   seconds that threads waited at the barrier, the mean over threads
    """

    ops: str
    count: int
    seconds: float
    waited: float
    n_bytes: int
    n_macs: int

    def as_dict(self) -> dict[str, Any]:
        """The row for JSON."""
        return vars(self)


def phase_rows(session: Session, kind: str, n: int, depth: int, repeats: int) -> list[PhaseRow]:
    """The phases of one step: `n` tokens at once for `pp`, one for `tg`, behind `depth` others."""
    program: Any = session.program
    n_tokens = min(n, session.n_batch) if kind == "pp" else 1
    ids = test_ids(depth + n_tokens, session.n_vocab)
    session.reset()
    session.evaluate(ids[:depth] if depth else ids[:1], logits=[])
    session.truncate(depth)
    session.evaluate(ids[depth:])
    sizes = {"n_tokens": n_tokens, "n_kv": depth + n_tokens, "n_out": 1}
    runs = np.stack([program.timed_run(**sizes) for _ in range(repeats)])
    # work and wait add up to the time between barriers, about the same for every thread
    spans, waits = runs.sum(axis=3).max(axis=2), runs[..., 1].mean(axis=2)
    seconds, waited = np.median(spans, axis=0), np.median(waits, axis=0)
    rows: dict[tuple[str, ...], PhaseRow] = {}
    for i, (key, ops, cost) in enumerate(program.phase_costs()):
        row = rows.setdefault(key, PhaseRow(ops, 0, 0.0, 0.0, 0, 0))
        row.count += 1
        row.seconds += float(seconds[i])
        row.waited += float(waited[i])
        row.n_bytes += cost.n_bytes
        row.n_macs += cost.n_macs
    return sorted(rows.values(), key=lambda row: -row.seconds)
