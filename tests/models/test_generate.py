"""The generation loop against a session that plays back a script, and stop strings against their definition."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gml.errors import ContextFullError, UsageError
from gml.models.generate import Generation, StopStrings, common_prefix
from gml.models.sampling import Sampler, SamplerParams
from gml.models.tokenizer import StreamDecoder

GREEDY = SamplerParams(temperature=0)


class ByteTokenizer:
    """256 tokens of one byte each, 256 and 257 end generation, from 258 on whatever pieces a test wants."""

    add_space_prefix = False
    skipped_ids = frozenset({256, 257})
    eog_ids = frozenset({256, 257})

    def __init__(self, pieces: list[bytes] | None = None) -> None:
        self.pieces = [bytes([i]) for i in range(256)] + [b"<eos>", b"<eot>"] + list(pieces or [])

    def piece(self, token: int) -> bytes:
        return self.pieces[token]

    def is_special(self, token: int) -> bool:
        return token in self.skipped_ids

    def stream(self, **options: bool) -> StreamDecoder:
        return StreamDecoder(self, **options)  # type: ignore[arg-type]


class ScriptedSession:
    """Wants the tokens of `script` one after the other, wherever it stands; records what it is asked."""

    def __init__(self, script: list[int], n_ctx: int = 1000, n_batch: int = 4, n_vocab: int = 600) -> None:
        self.script, self.n_ctx, self.n_batch, self.n_vocab = script, n_ctx, n_batch, n_vocab
        self.tokens: list[int] = []
        self.evaluated: list[list[int]] = []
        self.n_wanted = 0

    @property
    def n_past(self) -> int:
        return len(self.tokens)

    def evaluate(self, ids, *, logits="last", cancel=None):
        ids = [int(i) for i in ids]
        if self.n_past + len(ids) > self.n_ctx:
            raise ContextFullError("full")
        for start in range(0, len(ids), self.n_batch):
            if cancel is not None and cancel():
                return np.empty((0, self.n_vocab), np.float32)
            self.tokens += ids[start : start + self.n_batch]
        self.evaluated.append(ids)
        row = np.zeros((1, self.n_vocab), np.float32)
        row[0, self.script[min(self.n_wanted, len(self.script) - 1)]] = 1
        self.n_wanted += 1
        return row

    def truncate(self, n: int) -> None:
        del self.tokens[n:]


def generate(script: list[int], *, prompt=(1, 2, 3), tokenizer=None, n_ctx: int = 1000, **options):
    session = ScriptedSession(script, n_ctx)
    generation = Generation(session, tokenizer or ByteTokenizer(), prompt, Sampler(GREEDY), **options)
    return session, generation, list(generation)


def test_text_streams_and_the_model_ends_it():
    session, generation, pieces = generate([*b"Paris", 257])
    result = generation.result
    assert [p.text for p in pieces] == list("Paris")
    assert (result.text, result.ids, result.stop_reason) == ("Paris", list(b"Paris"), "eos")
    assert result.prompt_ids == [1, 2, 3]
    assert session.evaluated == [[1, 2, 3], *[[i] for i in b"Paris"]]
    assert (result.timings.n_prompt, result.timings.n_reused, result.timings.n_generated) == (3, 0, 5)
    assert result.timings.as_dict().keys() >= {"prompt_s", "generation_s", "generation_tokens_per_s"}


@pytest.mark.parametrize("end", [256, 257])
def test_every_end_token_ends(end):
    assert generate([end])[1].result.stop_reason == "eos"


@pytest.mark.parametrize(("n", "text"), [(0, ""), (1, "a"), (3, "abc")])
def test_length(n, text):
    session, generation, _ = generate([*b"abcdef", 256], max_tokens=n)
    assert (generation.result.text, generation.result.stop_reason) == (text, "length")
    # the last token needs no evaluation
    assert len(session.evaluated) == max(n, 1)


def test_negative_max_tokens_is_no_limit():
    assert generate([*b"ab", 256], max_tokens=-1)[1].result.stop_reason == "eos"


def test_half_a_character_is_held_back_and_flushed():
    _, generation, pieces = generate([*"é".encode(), 0xE2, 0x82, 256])
    assert [p.text for p in pieces] == ["", "é", "", "", "\ufffd"]
    assert pieces[-1].id is None
    assert generation.result.text == "é\ufffd"


def test_stop_string_spans_tokens():
    tokenizer = ByteTokenizer([b"Hello", b" wor", b"ld. EN", b"D of"])
    _, generation, pieces = generate([258, 259, 260, 261, 256], tokenizer=tokenizer, stop=["END"])
    assert [p.text for p in pieces] == ["Hello", " wor", "ld. ", ""]
    result = generation.result
    assert (result.text, result.stop_reason, result.ids) == ("Hello world. ", "stop", [258, 259, 260, 261])


def test_what_only_looked_like_a_stop_string_comes_out():
    tokenizer = ByteTokenizer([b"a EN", b"EN", b"E"])
    _, generation, pieces = generate([258, 259, 260, 256], tokenizer=tokenizer, stop=["END"])
    assert [p.text for p in pieces] == ["a ", "EN", "EN", "E"]
    assert (generation.result.text, generation.result.stop_reason) == ("a ENENE", "eos")


def test_stop_string_complete_only_in_the_flush():
    _, generation, _ = generate([ord("a"), 0xE2, 256], stop=["\ufffd"])
    assert (generation.result.text, generation.result.stop_reason) == ("a", "stop")


def test_context_ends_or_shifts():
    session, generation, _ = generate([*b"abcdefgh", 256], n_ctx=6)
    assert (generation.result.text, generation.result.stop_reason) == ("abcd", "context")
    assert session.n_past == 6

    session, generation, _ = generate([*b"abcdefgh", 256], n_ctx=6, shift=True, n_keep=2)
    assert (generation.result.text, generation.result.stop_reason) == ("abcdefgh", "eos")
    # full with [1 2 | 3 a b c]: the first two stay, half of the rest goes, the remainder is evaluated again with the
    # next
    assert session.evaluated[4] == [*b"bcd"]
    assert session.tokens[:2] == [1, 2]
    assert session.n_past <= 6


@pytest.mark.parametrize("n_keep", [0, 1, 4, 5])
def test_shifting_never_stalls(n_keep):
    _, generation, _ = generate([ord("a")], n_ctx=6, shift=True, n_keep=n_keep, max_tokens=50)
    assert (len(generation.result.ids), generation.result.stop_reason) == (50, "length")


def test_prompt_longer_than_the_context_is_refused():
    with pytest.raises(ContextFullError, match="prompt has 7 tokens, the context holds 6"):
        generate([1], prompt=range(7), n_ctx=6)
    with pytest.raises(UsageError, match="prompt is empty"):
        generate([1], prompt=[])
    with pytest.raises(UsageError, match="n_keep = 6 leaves nothing"):
        generate([1], n_ctx=6, shift=True, n_keep=6)
    with pytest.raises(UsageError, match="not empty"):
        generate([1], stop=["a", ""])


def test_cancel_between_chunks_and_tokens():
    calls = iter([False, False, True])
    session, generation, pieces = generate([*b"abc", 256], prompt=range(12), cancel=lambda: next(calls))
    assert (generation.result.stop_reason, pieces, session.n_past) == ("cancelled", [], 8)

    calls = iter([False] * 3 + [True])
    _, generation, _ = generate([*b"abc", 256], cancel=lambda: next(calls))
    assert (generation.result.stop_reason, generation.result.text) == ("cancelled", "ab")


def test_an_abandoned_generation_is_a_cancelled_one():
    session = ScriptedSession([*b"abc", 256])
    generation = Generation(session, ByteTokenizer(), [1], Sampler(GREEDY))
    assert next(generation).text == "a"
    assert (generation.result.stop_reason, generation.result.text) == ("cancelled", "a")


def test_interrupt_leaves_the_session_usable():
    class Interrupted(ScriptedSession):
        def evaluate(self, ids, **options):
            if len(self.evaluated) == 2:
                self.evaluated.append([])
                raise KeyboardInterrupt
            return super().evaluate(ids, **options)

    session = Interrupted([*b"abcd", 256])
    generation = Generation(session, ByteTokenizer(), [1, 2], Sampler(GREEDY))
    with pytest.raises(KeyboardInterrupt):
        generation.finish()
    assert (generation.result.text, generation.result.stop_reason, session.tokens) == (
        "ab",
        "cancelled",
        [1, 2, ord("a")],
    )
    again = Generation(session, ByteTokenizer(), [1, 2, ord("a"), ord("b")], Sampler(GREEDY))
    again.finish()
    assert again.result.timings.n_reused == 3


def test_shared_prefix_is_not_evaluated_again():
    session = ScriptedSession([256])
    session.tokens = [1, 2, 3, 9, 9]
    Generation(session, ByteTokenizer(), [1, 2, 3, 4, 5], Sampler(GREEDY)).finish()
    assert session.evaluated == [[4, 5]]
    # the same prompt again: its last token is evaluated for its logits
    generation = Generation(session, ByteTokenizer(), [1, 2, 3, 4, 5], Sampler(GREEDY))
    generation.finish()
    assert session.evaluated == [[4, 5], [5]]
    assert generation.result.timings.n_reused == 4


def test_the_prompt_counts_for_penalties():
    session = ScriptedSession([7, 256])
    sampler = Sampler(SamplerParams(temperature=0, presence_penalty=2.0))
    generation = Generation(session, ByteTokenizer(), [7], sampler, max_tokens=1)
    assert generation.finish().ids == [0]


def test_common_prefix():
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2, 3], [1, 2]) == 2
    assert common_prefix([1, 2, 3], [1, 5, 3]) == 1


def one_shot(text: str, stops: list[str]) -> tuple[str, bool]:
    """The definition: the stop string whose first occurrence ends first, of those the longest."""
    found = [(text.find(s) + len(s), -len(s)) for s in stops if s in text]
    if not found:
        return text, False
    end, negative_length = min(found)
    return text[: end + negative_length], True


@settings(max_examples=400, deadline=None)
@given(
    text=st.text(alphabet="abé€", max_size=30),
    stops=st.lists(st.text(alphabet="abé€", min_size=1, max_size=6), max_size=4),
    cuts=st.lists(st.integers(0, 80), max_size=20),
)
def test_streamed_text_is_one_shot_text(text, stops, cuts):
    # the bytes of the text, cut anywhere, even inside characters, each part a token
    data = text.encode()
    bounds = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    parts = [data[a:b] for a, b in pairwise(bounds)]
    tokenizer = ByteTokenizer(parts)
    script = [258 + i for i in range(len(parts))] + [256]
    _, generation, pieces = generate(script, tokenizer=tokenizer, stop=stops)
    expected, stopped = one_shot(text, stops)
    assert "".join(p.text for p in pieces) == expected
    assert generation.result.text == expected
    assert generation.result.stop_reason == ("stop" if stopped else "eos")


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(alphabet="ab", max_size=30), stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=3)
)
def test_no_more_is_held_back_than_may_become_a_stop_string(text, stops):
    filter = StopStrings(stops)
    out = ""
    for character in text:
        out += filter.push(character)
        if filter.found:
            break
    assert text.startswith(out)
    if not filter.found:
        held = text[len(out) :]
        assert held == "" or any(s.startswith(held) and s != held for s in stops)
