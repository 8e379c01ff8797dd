"""Properties: round trips, streams of any chunking, fast code = slow twins, text of every kind."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gml.errors import TokenizerError
from gml.models.tokenizer import special
from gml.models.tokenizer.pretokenizers import PRETOKENIZERS, TABLE
from gml.models.tokenizer.special import SpecialMatcher
from gml.models.tokenizer.splitting import split_chain, split_fused
from gml.models.tokenizer.spm import splitter

LOSSLESS = ("gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "llama-spm", "phi-3")
BYTE_LEVEL = ("gpt-2", "llama-bpe", "qwen2", "falcon", "starcoder", "deepseek-llm")

# Words, runs, digits, white space of all kinds, contractions, scripts, specials: what pre-tokenizers tell apart.
ATOMS = st.one_of(
    st.sampled_from(
        [" ", "  ", "\n", "\r\n", "\t", "\x0b", "\x1c", "\x85", "\xa0", "\u2003", "\u3000", "\u2581", "\u200b", "'s"]
        + [
            "'LL",
            "'ve",
            "’",
            "the",
            " and",
            "Hello",
            "ſ",
            "é",
            "e\u0301",
            "Ä",
            "中文",
            "が",
            "한국",
            "ру",
            "١٢",
            "½",
            "Ⅳ",
        ]
        + [
            "1",
            "123",
            "4567",
            "!",
            "...",
            "$",
            "`",
            "~^|",
            "<s>",
            "</s>",
            "<|endoftext|>",
            "😀",
            "\U0001f469\u200d",
            "𝒳",
        ]
        + ["Ġ", "\0", "\ufffd", "ꟊ", "\u0e33", "_", "aaaa", "ab" * 40, " " * 140, "\u2581" * 3]
    ),
    st.characters(exclude_categories=["Cs"]),
)
TEXTS = st.lists(ATOMS, max_size=24).map("".join)
EXAMPLES = settings(max_examples=150, deadline=None)


def twin_merge_bpe(ids: list[int], packed: dict[int, int], radix: int) -> list[int]:
    """Byte-pair merging as the definition says: look at all pairs, merge the first of lowest rank, start over."""
    ids = list(ids)
    while True:
        best = None
        for at in range(len(ids) - 1):
            value = packed.get(ids[at] * radix + ids[at + 1])
            if value is not None and (best is None or value < best[0]):
                best = (value, at)
        if best is None:
            return ids
        value, at = best
        ids[at : at + 2] = [value % radix]


def twin_merge_spm(text: str, ids: dict[str, int], scores) -> list[str]:
    """SentencePiece merging over a whole text: the first pair whose token has the highest score, again and again."""
    symbols = list(text)
    while True:
        best = None
        for at in range(len(symbols) - 1):
            token = ids.get(symbols[at] + symbols[at + 1])
            if token is not None and (best is None or scores[token] > best[0]):
                best = (scores[token], at)
        if best is None:
            return symbols
        at = best[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


def twin_partition(text: str, specials: list[tuple[str, int]]) -> list[str | int]:
    """Special tokens cut out one token after the other, in the order given, each from the left."""
    fragments: list[str | int] = [text] if text else []
    for spelling, token in specials:
        divided: list[str | int] = []
        for fragment in fragments:
            while isinstance(fragment, str) and spelling in fragment:
                at = fragment.index(spelling)
                divided += [fragment[:at], token]
                fragment = fragment[at + len(spelling) :]
            divided.append(fragment)
        fragments = [fragment for fragment in divided if fragment != ""]
    return fragments


@pytest.mark.parametrize("name", LOSSLESS)
@EXAMPLES
@given(text=TEXTS)
def test_round_trip(name, load, text):
    tokenizer = load(name)
    # SentencePiece spells a space as U+2581, so the two are one; phi-3 and llama know no token of user text otherwise.
    expected = text.replace("\u2581", " ") if tokenizer.add_space_prefix else text
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == expected
    with_special = tokenizer.encode(text, add_special=True)
    assert tokenizer.decode(with_special, skip_special=True) == expected
    assert tokenizer.encode(text.encode()).tolist() == ids.tolist()


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "phi-3"])
@EXAMPLES
@given(data=st.data())
def test_stream_is_one_shot(name, load, data):
    """Any ids, not only those that encoding gives: broken characters come out the same as well."""
    tokenizer = load(name)
    ids = data.draw(st.lists(st.integers(0, 400) | st.integers(0, tokenizer.n_vocab - 1), max_size=30))
    ids += tokenizer.encode(data.draw(TEXTS)).tolist()
    for skip_special in (False, True):
        for continuation in (False, True):
            options = {"skip_special": skip_special, "continuation": continuation}
            stream = tokenizer.stream(**options)
            text = "".join([stream.push(token) for token in ids]) + stream.flush()
            assert text == tokenizer.decode(ids, **options)


def test_stream_holds_back_an_incomplete_character(load):
    tokenizer = load("llama-spm")
    stream = tokenizer.stream(continuation=True)
    ids = [tokenizer.token_id(f"<0x{byte:02X}>") for byte in "😀".encode()]
    assert [stream.push(token) for token in ids] == ["", "", "", "😀"]
    assert stream.push(ids[0]) == "" and stream.flush() == "\ufffd"


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "llama-spm", "phi-3"])
@EXAMPLES
@given(data=st.binary(max_size=40) | TEXTS.map(lambda text: text.encode()[1:-1]))
def test_any_bytes(name, load, data):
    tokenizer = load(name)
    ids = tokenizer.encode(data)
    assert ids.dtype == "int32" and all(0 <= token < tokenizer.n_vocab for token in ids.tolist())
    if tokenizer.add_space_prefix and b" " not in data and "\u2581".encode() not in data:
        assert tokenizer.decode_bytes(ids) == data


@pytest.mark.parametrize("name", BYTE_LEVEL)
@EXAMPLES
@given(text=TEXTS)
def test_merging_equals_the_twin(name, load, text):
    model = load(name).model
    byte_ids = [model.byte_ids[byte] for byte in text.encode()]
    table = model.table
    slow = twin_merge_bpe(byte_ids, table.packed, table.radix)
    assert table._merge_short(list(byte_ids)) == slow
    assert table._merge_long(list(byte_ids)) == slow


@pytest.mark.parametrize("name", ["llama-spm", "phi-3", "gemma3"])
@EXAMPLES
@given(text=TEXTS)
def test_spm_equals_the_twin_on_the_uncut_text(name, load, text):
    """Cutting into words first and the heap change nothing."""
    tokenizer = load(name)
    model, scores = tokenizer.model, tokenizer.vocabulary.scores
    text = text.replace(" ", "\u2581")
    slow = twin_merge_spm(text, model.ids, scores)
    assert model._merge_long(list(text)) == slow
    assert [symbol for word in model.split(text) for symbol in model._merge_short(list(word))] == slow


@pytest.mark.parametrize("row", [row for row in TABLE if row.fused], ids=lambda row: row.name)
@EXAMPLES
@given(text=TEXTS)
def test_one_expression_cuts_as_all_in_turn(row, text):
    words = split_chain(row.expressions)(text)
    assert "".join(words) == text
    assert split_fused(row.fused)(text) == words


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
@EXAMPLES
@given(text=TEXTS)
def test_words_make_up_the_text(row, text):
    assert "".join(row.split(text)) == text


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_long_runs_are_cut_in_linear_time(row):
    """A quadratic step over 100,000 characters would take minutes."""
    for unit in ["a", " ", "\n", "^", "1", "中", "aB", " \t", "'", "1a", "( "]:
        text = unit * (100_000 // len(unit))
        assert "".join(row.split(text)) == text


def test_every_name_has_one_row():
    assert len(PRETOKENIZERS) == sum(len(row.names) for row in TABLE)
    assert {"gpt-2", "llama-bpe", "qwen2", "smollm", "starcoder", "falcon", "deepseek-llm", "default"} <= set(
        PRETOKENIZERS
    )


@EXAMPLES
@given(
    text=st.text(alphabet="ab<>\n", max_size=40),
    spellings=st.lists(st.text(alphabet="ab<>\n", min_size=1, max_size=5), unique=True, max_size=8),
)
def test_special_tokens_equal_the_twin(make_vocabulary, text, spellings):
    vocabulary = make_vocabulary(spellings)
    tokens = vocabulary.special_ids(parse_special=True)
    specials = [(vocabulary.tokens[token], token) for token in tokens]
    expected = twin_partition(text, specials)
    for few in (0, special.FEW):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(special, "FEW", few)
            assert SpecialMatcher(vocabulary, tokens).partition(text) == expected


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "smollm2", "deepseek-llm"])
@pytest.mark.parametrize("unit", ["a", " ", "\n", "^", "ab", " \t", "が", "   a \n", "1"])
def test_long_runs_end_soon(name, load, unit):
    """100,000 characters without a word boundary: a quadratic step would take minutes."""
    tokenizer = load(name)
    text = unit * (100_000 // len(unit))
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("name", ["gpt-2", "starcoder", "llama-spm", "smollm2", "gemma3"])
@pytest.mark.parametrize("corpus", ["prose", "code", "multi"])
def test_corpora_round_trip(name, corpus, load, vectors):
    tokenizer = load(name)
    with (vectors / "text" / f"corpus-{corpus}.jsonl").open(encoding="utf-8") as lines:
        documents = [json.loads(line) for _, line in zip(range(60), lines, strict=False)]
    assert documents
    for document in documents:
        assert tokenizer.decode(tokenizer.encode(document)) == document


@EXAMPLES
@given(text=st.text(alphabet="ab\u2581\n", max_size=30), pieces=st.lists(st.text("ab\u2581\n", min_size=2, max_size=4)))
def test_spm_cuts_only_where_no_token_can_span(text, pieces):
    """Vocabularies whose tokens hold spaces and newlines in their middle allow fewer cuts."""
    tokens = list(dict.fromkeys([*"ab\u2581\n", *pieces]))
    scores = [-float(n % 3) for n in range(len(tokens))]
    ids = {token: n for n, token in enumerate(tokens)}
    whole = twin_merge_spm(text, ids, scores)
    assert [symbol for word in splitter(tokens)(text) for symbol in twin_merge_spm(word, ids, scores)] == whole


def test_lone_surrogates_are_refused(load):
    with pytest.raises(TokenizerError, match=r"U\+D800 at character 1"):
        load("gpt-2").encode("a\ud800")
    replaced = load("gpt-2").encode("a\ud800b", errors="replace")
    assert replaced.tolist() == load("gpt-2").encode("a\ufffdb").tolist()
