"""Sessions on the real model: logits of independent float32 arithmetic, and the same bits however a prompt is fed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gml import UsageError
from gml.backends.cpu import CpuBackend
from gml.errors import ContextFullError, GraphError
from gml.models.loader import Model
from gml.models.session import Session

#: "The capital of France is"
PROMPT = [504, 3575, 282, 4649, 314]


@pytest.fixture(scope="module")
def model(pulled) -> Model:
    return Model.load(pulled("smollm2"))


@pytest.fixture(scope="module")
def expected(vectors) -> list[dict]:
    return json.loads((vectors / "logits" / "smollm2-135m-q4_1.json").read_text())


def largest_difference(logits: np.ndarray, positions: list[dict]) -> float:
    """Over all positions the largest difference of the logits that are listed."""
    assert len(logits) == len(positions)
    return max(
        float(np.abs(row[p["top_ids"]] - np.array(p["top_logits"])).max())
        for row, p in zip(logits, positions, strict=True)
    )


BACKENDS = {
    "reference": lambda: "reference",
    "exact": lambda: CpuBackend(2, exact=True),
    "exact-file": lambda: CpuBackend(2, exact=True, layout="file"),
}


@pytest.mark.parametrize("name", BACKENDS)
def test_logits_and_greedy_ids_of_float32_arithmetic(name, model, expected) -> None:
    session = Session(model, backend=BACKENDS[name](), n_ctx=64, kv_type="F32")
    for case in expected:
        session.reset()
        logits = session.evaluate(case["ids"], logits="all")
        assert largest_difference(logits, case["positions"]) <= 0.01
        log_sums = [p["logsumexp"] for p in case["positions"]]
        mine = np.log(np.exp(logits.astype(np.float64)).sum(-1))
        np.testing.assert_allclose(mine, log_sums, atol=0.01)
        ids, row = [], logits[-1]
        for _ in case["greedy_ids"]:
            ids.append(int(row.argmax()))
            row = session.evaluate(ids[-1:])[0]
        assert ids == case["greedy_ids"]


@pytest.fixture(scope="module")
def long_ids(model, vectors) -> np.ndarray:
    text = (vectors / "text" / "prose-60k.txt").read_text()[:6000]
    return model.tokenizer.encode(text)[:600]


@pytest.fixture(scope="module")
def at_once(model, long_ids) -> np.ndarray:
    return Session(model, backend=CpuBackend(2), n_ctx=600, n_batch=600).evaluate(long_ids, logits=[0, 99, 511, 599])


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_same_bits_for_every_number_of_threads(threads, model, long_ids, at_once) -> None:
    session = Session(model, backend=CpuBackend(threads), n_ctx=600, n_batch=600)
    np.testing.assert_array_equal(session.evaluate(long_ids, logits=[0, 99, 511, 599]), at_once)


@pytest.mark.parametrize("n_batch", [7, 32, 512])
def test_same_bits_for_every_split_of_the_prompt(n_batch, model, long_ids, at_once) -> None:
    session = Session(model, backend=CpuBackend(2), n_ctx=600, n_batch=n_batch)
    np.testing.assert_array_equal(session.evaluate(long_ids, logits=[0, 99, 511, 599]), at_once)


def test_same_bits_token_by_token(model, long_ids, at_once) -> None:
    session = Session(model, backend=CpuBackend(2), n_ctx=600, n_batch=1)
    np.testing.assert_array_equal(session.evaluate(long_ids, logits=[0, 99, 511, 599]), at_once)


@pytest.mark.parametrize(("backend", "kv_type", "tolerance"), [("reference", "F32", 1e-4), ("cpu", "F16", 0.0)])
def test_truncating_and_going_on_gives_the_same_logits(backend, kv_type, tolerance, model) -> None:
    """The compiled backend gives the same bits; numpy's sums depend on the batch, which an F16 cache would magnify."""
    session = Session(model, backend=backend, n_ctx=64, kv_type=kv_type)
    first = session.evaluate(PROMPT)
    session.evaluate([29, 28, 198])
    session.truncate(3)
    assert session.tokens == PROMPT[:3]
    np.testing.assert_allclose(session.evaluate(PROMPT[3:]), first, rtol=0, atol=tolerance)


def test_no_logits_are_computed_when_none_are_wanted(model) -> None:
    session = Session(model, backend="reference", n_ctx=64)
    assert session.evaluate(PROMPT, logits=[]).shape == (0, 49152)
    assert session.n_past == 5


def test_a_full_context_is_refused_before_anything_changes(model) -> None:
    session = Session(model, backend="reference", n_ctx=6)
    session.evaluate(PROMPT)
    with pytest.raises(ContextFullError, match="2 more tokens do not fit: 5 of 6"):
        session.evaluate([1, 2])
    assert session.n_past == 5


def test_bad_requests(model) -> None:
    session = Session(model, backend="reference", n_ctx=16)
    with pytest.raises(GraphError, match="token 49152 at position 1"):
        session.evaluate([1, 49152])
    with pytest.raises(UsageError, match="ascending indices"):
        session.evaluate(PROMPT, logits=[2, 2])
    with pytest.raises(UsageError, match="cannot keep 3 tokens"):
        session.truncate(3)
    with pytest.raises(UsageError, match="n_ctx"):
        Session(model, n_ctx=0)
    with pytest.raises(UsageError, match="kv_type"):
        Session(model, kv_type="Q9")


def test_cancelling_between_chunks_keeps_what_was_evaluated(model) -> None:
    session = Session(model, backend="cpu", n_ctx=64, n_batch=2)
    asked = []
    result = session.evaluate(PROMPT, cancel=lambda: len(asked) == 2 or asked.append(1))
    assert result.shape[0] == 0
    assert session.tokens == PROMPT[:4]


@pytest.mark.parametrize("backend", ["reference", "exact"])
def test_gemma_logits_and_greedy_ids(backend, pulled, vectors) -> None:
    cases = json.loads((vectors / "logits" / "gemma3-270m-q4_k_m.json").read_text())
    gemma = Model.load(pulled("gemma3-270m"))
    session = Session(gemma, backend=BACKENDS[backend](), n_ctx=64, kv_type="F32")
    for case in cases[:3]:
        session.reset()
        assert largest_difference(session.evaluate(case["ids"], logits="all"), case["positions"]) <= 0.01
    session.reset()
    ids, row = [], session.evaluate(cases[0]["ids"])[0]
    for _ in cases[0]["greedy_ids"]:
        ids.append(int(row.argmax()))
        row = session.evaluate(ids[-1:])[0]
    assert ids == cases[0]["greedy_ids"]
