"""Sampling: llama.cpp's chain against a plain, sorted-list transcription of its definitions, and determinism."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gml.errors import Error, UsageError
from gml.models.sampling import Sampler, SamplerParams, cut_top_k

NEUTRAL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0, "seed": 0}


def plain_chain(logits: list[float], params: SamplerParams) -> list[tuple[int, float]]:
    """Candidates and probabilities, one rule after the other on a sorted list, as the definitions read."""
    left = sorted(enumerate(logits), key=lambda pair: (-pair[1], pair[0]))

    def probabilities() -> list[float]:
        weights = [math.exp(value - left[0][1]) for _, value in left]
        return [w / sum(weights) for w in weights]

    if params.top_k > 0:
        left = left[: params.top_k]
    if params.typical_p < 1:
        p = probabilities()
        entropy = -sum(x * math.log(x) for x in p if x > 0)
        order = sorted(range(len(p)), key=lambda i: (abs(-math.log(p[i]) - entropy), i))
        kept, total = [], 0.0
        for i in order:
            kept.append(i)
            total += p[i]
            if total > params.typical_p:
                break
        left = [left[i] for i in sorted(kept)]
    if params.top_p < 1:
        total = 0.0
        for i, x in enumerate(probabilities()):
            total += x
            if total >= params.top_p:
                left = left[: i + 1]
                break
    if params.min_p > 0:
        p = probabilities()
        left = [pair for pair, x in zip(left, p, strict=True) if x >= params.min_p * p[0]]
    left = [(id, value / params.temperature) for id, value in left]
    return [(id, p) for (id, _), p in zip(left, probabilities(), strict=True)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top_k": 5},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"typical_p": 0.6},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 12, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.95},
        {"top_p": 0.0},
        {"min_p": 1.0},
        {"top_k": 10_000},
    ],
)
def test_frequencies_are_those_of_the_definitions(options):
    logits = np.random.default_rng(1).normal(size=50).astype(np.float32) * 2
    params = SamplerParams(**{**NEUTRAL, **options})
    expected = dict(plain_chain([float(x) for x in logits], params))
    sampler, n = Sampler(params), 4000
    found = Counter(sampler.sample(logits) for _ in range(n))
    assert found.keys() <= expected.keys()
    for id, p in expected.items():
        # five standard deviations; the seed is fixed, so this cannot flicker
        assert abs(found[id] - n * p) <= 5 * math.sqrt(n * p * (1 - p)) + 1, id


def test_defaults_are_those_of_llama_cpp():
    p = SamplerParams()
    assert (p.top_k, p.top_p, p.min_p, p.temperature, p.typical_p) == (40, 0.95, 0.05, 0.8, 1.0)
    assert (p.repeat_last_n, p.repeat_penalty, p.frequency_penalty, p.presence_penalty) == (64, 1.0, 0.0, 0.0)


def test_greedy_takes_the_largest_and_the_lowest_id_of_equals():
    logits = np.array([1, 3, 2, 3, 3], dtype=np.float32)
    assert Sampler(SamplerParams(temperature=0)).sample(logits) == 1
    assert Sampler(SamplerParams(temperature=-1, top_k=1)).sample(logits) == 1
    assert Sampler(SamplerParams(temperature=1, top_k=1, seed=3)).sample(logits) == 1


def test_greedy_respects_typical_as_the_chain_does():
    # a flat distribution with one spike: the spike is not typical
    logits = np.array([2.0] + [0.0] * 40, dtype=np.float32)
    assert Sampler(SamplerParams(temperature=0)).sample(logits) == 0
    assert Sampler(SamplerParams(temperature=0, top_k=0, typical_p=0.3)).sample(logits) != 0


def test_a_seed_gives_fixed_ids():
    logits = np.linspace(-2, 2, 1000).astype(np.float32)
    sampler = Sampler(SamplerParams(seed=42))
    ids = [sampler.sample(logits) for _ in range(8)]
    sampler.reset()
    assert [sampler.sample(logits) for _ in range(8)] == ids
    # PCG64(42).random_raw(), cut to 53 bits, on an exactly known distribution
    flat = np.zeros(256, dtype=np.float32)
    uniform = Sampler(SamplerParams(**{**NEUTRAL, "seed": 42}))
    assert [uniform.sample(flat) for _ in range(6)] == [198, 112, 219, 178, 24, 249]


def test_without_a_seed_the_one_in_use_can_be_repeated():
    logits = np.zeros(5000, dtype=np.float32)
    first = Sampler(SamplerParams(top_k=0))
    again = Sampler(SamplerParams(top_k=0, seed=first.seed))
    assert [first.sample(logits) for _ in range(5)] == [again.sample(logits) for _ in range(5)]


def test_tiny_temperature_is_the_limit_of_greedy():
    logits = np.array([0.0, 1e4, -1e4], dtype=np.float32)
    assert Sampler(SamplerParams(temperature=1e-300, top_k=0, seed=0)).sample(logits) == 1


def test_penalties_follow_the_definition():
    logits = np.array([2.0, -2.0, 1.0, 0.5], dtype=np.float32)
    params = SamplerParams(temperature=0, repeat_penalty=4.0, repeat_last_n=3)
    sampler = Sampler(params)
    assert sampler.sample(logits) == 0
    sampler.accept(0)
    assert sampler.sample(logits) == 2  # 2 / 4 = 0.5 < 1
    sampler.accept(2)
    assert sampler.sample(logits) == 0  # 0.5, 0.25, and 0.5 of id 3: the lowest id
    for id in (1, 1, 1):
        sampler.accept(id)
    assert sampler.sample(logits) == 0  # out of the window of three
    assert logits.tolist() == [2.0, -2.0, 1.0, 0.5]


def test_frequency_and_presence_penalties_count():
    logits = np.array([5.0, 4.0, 0.0], dtype=np.float32)
    frequency = Sampler(SamplerParams(temperature=0, frequency_penalty=0.4, repeat_last_n=-1))
    picks = []
    for _ in range(6):
        picks.append(frequency.sample(logits))
        frequency.accept(picks[-1])
    assert picks == [0, 0, 0, 1, 0, 1]
    presence = Sampler(SamplerParams(temperature=0, presence_penalty=1.5))
    for _ in range(3):
        presence.accept(0)
    assert presence.sample(logits) == 1


def test_bias_and_ignore_eos():
    logits = np.array([5.0, 4.0, 3.0], dtype=np.float32)
    assert Sampler(SamplerParams(temperature=0, logit_bias={2: 10.0})).sample(logits) == 2
    assert Sampler(SamplerParams(temperature=0, logit_bias={0: -math.inf})).sample(logits) == 1
    assert Sampler(SamplerParams(temperature=0, ignore_eos=True), eog_ids=[0, 1]).sample(logits) == 2
    assert {Sampler(SamplerParams(top_k=0, min_p=0, top_p=1, ignore_eos=True, seed=s), eog_ids=[0, 1]).sample(logits)
            for s in range(20)} == {2}  # fmt: skip
    with pytest.raises(Error, match="every token is banned"):
        Sampler(SamplerParams(ignore_eos=True), eog_ids=[0, 1, 2]).sample(logits)
    with pytest.raises(UsageError, match="token 7 is outside the vocabulary of 3"):
        Sampler(SamplerParams(logit_bias={7: 1.0})).sample(logits)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad):
    logits = np.zeros(1000, dtype=np.float32)
    logits[700] = bad
    for temperature in (0.0, 0.8):
        with pytest.raises(Error, match=r"the logit of token 700 is (nan|inf)"):
            Sampler(SamplerParams(temperature=temperature)).sample(logits)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("top_p", 1.5, "from 0 to 1"),
        ("top_p", math.nan, "from 0 to 1"),
        ("min_p", -0.1, "from 0 to 1"),
        ("typical_p", 2, "from 0 to 1"),
        ("temperature", math.inf, "at most"),
        ("temperature", math.nan, "at most"),
        ("top_k", 1.5, "a whole number"),
        ("repeat_penalty", 0.0, "from 0.001 to 1000"),
        ("repeat_last_n", -2, "from -1"),
        ("seed", -1, "from 0 to 18446744073709551615"),
        ("logit_bias", {3: math.nan}, "token 3"),
        ("logit_bias", {-3: 1.0}, "from 0"),
    ],
)
def test_bad_parameters_name_the_range(name, value, allowed):
    with pytest.raises(UsageError, match=allowed):
        SamplerParams(**{name: value})


@settings(max_examples=60, deadline=None)
@given(
    n=st.sampled_from([1, 7, 100, 16384, 16391, 40000]),
    k=st.sampled_from([1, 2, 40, 2048, 2049, 16384]),
    levels=st.sampled_from([2, 50, 10**6]),
    seed=st.integers(0, 2**32 - 1),
)
def test_top_k_equals_a_full_sort(n, k, levels, seed):
    logits = np.random.default_rng(seed).integers(0, levels, size=n).astype(np.float32)
    expected = sorted(range(n), key=lambda i: (-logits[i], i))[:k]
    ids, values = cut_top_k(logits, k)
    assert ids.tolist() == expected
    assert values.tolist() == logits[expected].tolist()


def test_banned_tokens_never_fill_up_the_candidates():
    logits = np.full(100, -np.inf, dtype=np.float32)
    logits[[3, 50]] = 1.0
    ids, _ = cut_top_k(logits, 40)
    assert ids.tolist() == [3, 50]
