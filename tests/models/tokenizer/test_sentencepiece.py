"""SentencePiece model files give the ids and texts of package `sentencepiece`, on small files that it trains here."""

from __future__ import annotations

import io
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sentencepiece = pytest.importorskip("sentencepiece")

from gml.errors import Error, TokenizerError  # noqa: E402
from gml.models.tokenizer.sentencepiece import SentencePieceFile, from_file, load_sentencepiece  # noqa: E402

CORPUS = [
    "The quick brown fox isn't lazy; it's 12345 years old.",
    "Größe, naïve, Ελληνικά, русский, 中文字符 and 日本語 too! 3.14 don't WE'LL  you've",
    "of the and to in that he shall unto for is his they be not him them with as all thou upon was my",
    *["lorem ipsum dolor sit amet consectetur " + "word" * n for n in range(4)],
] * 3
MODELS = {
    "bpe": {"model_type": "bpe", "vocab_size": 200},
    "bpe-bytes": {"model_type": "bpe", "vocab_size": 450, "byte_fallback": True, "character_coverage": 0.98},
    "bpe-plain": {
        "model_type": "bpe",
        "vocab_size": 200,
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
        "user_defined_symbols": ["ownfo", "##", "the"],
    },
    "unigram": {"model_type": "unigram", "vocab_size": 140},
    "unigram-bytes": {"model_type": "unigram", "vocab_size": 380, "byte_fallback": True, "character_coverage": 0.98},
    "unigram-user": {"model_type": "unigram", "vocab_size": 150, "user_defined_symbols": ["ownfo", "##", "the"]},
    "unigram-suffix": {"model_type": "unigram", "vocab_size": 140, "treat_whitespace_as_suffix": True},
    "word": {"model_type": "word", "vocab_size": 30},
    "char": {"model_type": "char", "vocab_size": 60, "user_defined_symbols": ["##"]},
}
TEXTS = st.lists(
    st.sampled_from(
        [
            " ",
            "  ",
            "\n",
            "\t",
            "\u3000",
            "\u200b",
            "▁",
            "the",
            " the",
            "quick",
            "##",
            "ownfo",
            "brownfo",
            "é",
            "e\u0301",
            "中文",
        ]
        + [
            "日本",
            "русс",
            "1",
            "123",
            "!",
            "...",
            "😀",
            "ﬁ",
            "Ａ",
            "\ufffd",
            "²",
            "<s>",
            "<unk>",
            "word",
            "lorem ",
            "\0",
            "<0x41>",
        ]
    )
    | st.characters(exclude_categories=["Cs"]),
    max_size=20,
).map("".join)
EXAMPLES = settings(max_examples=150, deadline=None)


@cache
def train(name: str) -> bytes:
    model = io.BytesIO()
    options = {"hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1, "max_sentence_length": 1000}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, **options, **MODELS[name]
    )
    return model.getvalue()


@cache
def both(name: str):
    return sentencepiece.SentencePieceProcessor(model_proto=train(name)), from_file(SentencePieceFile.read(train(name)))


@pytest.mark.parametrize("name", list(MODELS))
@EXAMPLES
@given(text=TEXTS)
def test_ids(name, text):
    other, ours = both(name)
    ids = other.encode(text)
    assert ours.encode(text).tolist() == ids
    assert ours.encode(text, add_special=True).tolist() == other.encode(text, add_bos=True)


@pytest.mark.parametrize("name", ["bpe", "bpe-bytes", "unigram", "unigram-bytes", "unigram-user"])
@EXAMPLES
@given(text=TEXTS)
def test_texts(name, text):
    other, ours = both(name)
    ids = other.encode(text)
    assert ours.decode(ids) == other.decode(ids)


def test_control_tokens_on_request():
    _, ours = both("bpe")
    assert ours.encode("<s>", parse_special=True).tolist() == [ours.bos_id]
    assert ours.bos_id not in ours.encode("<s>").tolist()
    assert ours.eog_ids == {ours.eos_id}


def test_files(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(train("unigram"))
    assert load_sentencepiece(path).encode("the quick").tolist() == both("unigram")[0].encode("the quick")
    for data, message in ((b"", "found no pieces"), (b"\x0a\xff", "does not end"), (b"GGUF\x03", "unknown wire type")):
        path.write_bytes(data)
        with pytest.raises(TokenizerError, match=message):
            load_sentencepiece(path)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_files_give_a_tokenizer_or_an_error(data):
    """Bytes changed, and files cut short, at any place."""
    name = data.draw(st.sampled_from(list(MODELS)))
    content = bytearray(train(name))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(content), 8000) - 1) | st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.just(len(content)) | st.integers(0, len(content)))]
    try:
        ours = from_file(SentencePieceFile.read(bytes(content)))
        ours.decode(ours.encode("the quick ﬁ 中文"))
    except Error as error:
        assert str(error)
