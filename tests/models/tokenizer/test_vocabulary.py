"""Broken, hostile and unknown metadata is refused by name; nothing crashes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gml.errors import Error, TokenizerError, UnsupportedError
from gml.models.tokenizer import Tokenizer, TokenType
from gml.models.tokenizer.text import BYTE_ALPHABET
from gml.models.tokenizer.vocabulary import string_list

G = "tokenizer.ggml."


def bpe_metadata(**changes):
    """A small byte-level vocabulary: 256 bytes, "ab", "abc", and two control tokens."""
    tokens = [*BYTE_ALPHABET, "ab", "abc", "<|im_start|>", "<|im_end|>"]
    metadata = {
        G + "model": "gpt2",
        G + "pre": "gpt-2",
        G + "tokens": tokens,
        G + "token_type": np.array([1] * 258 + [3, 3], np.int32),
        G + "merges": ["a b", "ab c"],
        G + "bos_token_id": 258,
        G + "eos_token_id": 259,
    }
    metadata.update({G + key: value for key, value in changes.items()})
    return {key: value for key, value in metadata.items() if value is not None}


def spm_metadata(**changes):
    """A small SentencePiece vocabulary: specials, byte tokens, and a few pieces."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "ab", "▁ab"]
    metadata = {
        G + "model": "llama",
        G + "tokens": tokens,
        G + "scores": np.array([0.0] * 259 + [-5, -4, -3, -2, -1], np.float32),
        G + "token_type": np.array([2, 3, 3] + [6] * 256 + [1] * 5, np.int32),
    }
    metadata.update({G + key: value for key, value in changes.items()})
    return {key: value for key, value in metadata.items() if value is not None}


def test_small_vocabularies_work():
    bpe, spm = Tokenizer.from_metadata(bpe_metadata()), Tokenizer.from_metadata(spm_metadata())
    assert bpe.encode("abcab").tolist() == [257, 256]
    assert bpe.eog_ids == {259} and bpe.eot_id == 259
    assert spm.encode("ab a€").tolist() == [263, 259, 260, *(3 + byte for byte in "€".encode())]
    assert spm.encode("ab", add_special=True).tolist() == [1, 263]
    assert spm.encode("</s>ab", parse_special=True).tolist() == [2, 263]
    assert bpe.encode("<|im_end|>", parse_special=True).tolist() == [259]
    assert 259 not in bpe.encode("<|im_end|>").tolist()


BROKEN = [
    ({"model": None}, TokenizerError, "tokenizer.ggml.model is missing"),
    ({"model": 5}, TokenizerError, "tokenizer.ggml.model is missing or no string"),
    ({"model": "nonesuch"}, UnsupportedError, "'nonesuch' is not supported; supported: gpt2, "),
    ({"pre": "no-such"}, UnsupportedError, "'no-such' is unknown.*`pre`"),
    ({"pre": 7}, UnsupportedError, "'7' is unknown"),
    ({"pre": None}, UnsupportedError, "pre is missing and the merges are of no known vocabulary.*`pre`"),
    ({"tokens": None}, TokenizerError, "tokens is missing"),
    ({"tokens": []}, TokenizerError, "tokens is empty"),
    ({"tokens": "abc"}, TokenizerError, "expected an array of strings, found str"),
    ({"tokens": 7}, TokenizerError, "expected an array of strings, found int"),
    ({"tokens": ["a", 5]}, TokenizerError, "expected strings, found int at entry 1"),
    ({"tokens": ["a", "b", "a"]}, TokenizerError, "'a' has two ids, 0 and 2"),
    ({"token_type": [1, 2]}, TokenizerError, "expected 260 entries.*found 2"),
    ({"token_type": [[1], [2, 3]]}, TokenizerError, "token_type: expected an array"),
    ({"token_type": ["x"] * 260}, TokenizerError, "token_type: expected an array"),
    ({"scores": [1.0]}, TokenizerError, "scores: expected 260 entries"),
    ({"scores": [float("nan")] * 260}, TokenizerError, "scores: entry 0 is not a number"),
    ({"merges": None}, TokenizerError, "merges is missing"),
    ({"merges": ["ab"]}, TokenizerError, "entry 0 is 'ab', expected two tokens"),
    ({"merges": ["a b", "b c"]}, TokenizerError, "entry 1 .'b c'. needs the token 'bc'"),
    ({"merges": ["a", "b a b"]}, TokenizerError, "entry 0 is 'a'"),
    ({"merges": {"a": "b"}}, TokenizerError, "merges: expected an array of strings"),
    ({"bos_token_id": "x"}, TokenizerError, "bos_token_id: expected a token id"),
    ({"add_bos_token": "yes"}, TokenizerError, "add_bos_token: expected true or false"),
    ({"add_bos_token": True, "bos_token_id": None}, TokenizerError, "add_bos_token is true"),
    ({"add_eos_token": True, "eos_token_id": 2**32 - 1}, TokenizerError, "add_eos_token is true"),
]


@pytest.mark.parametrize(("changes", "kind", "message"), BROKEN, ids=lambda value: str(value)[:40])
def test_broken_metadata_is_named(changes, kind, message):
    with pytest.raises(kind, match=message):
        Tokenizer.from_metadata(bpe_metadata(**changes))


def test_scores_are_needed_for_sentencepiece():
    with pytest.raises(TokenizerError, match=r"scores is missing"):
        Tokenizer.from_metadata(spm_metadata(scores=None))


def test_pre_overrides_the_file():
    tokenizer = Tokenizer.from_metadata(bpe_metadata(pre="no-such"), pre="default")
    assert tokenizer.encode("abc").tolist() == [257]
    assert Tokenizer.from_metadata(bpe_metadata(pre=None), pre="default").model.row.name == "default"


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "falcon", "starcoder", "smollm2"])
def test_a_vocabulary_without_the_key_is_recognised(name, load_metadata):
    metadata = load_metadata(name)
    expected = metadata.pop(G + "pre")
    assert Tokenizer.from_metadata(metadata).model.row.name == expected


def test_string_arrays_may_be_bytes_or_lazy(load_metadata):
    class Lazy:
        def __init__(self, items):
            self.items = items

        def __len__(self):
            return len(self.items)

        def __iter__(self):
            return iter(self.items)

    metadata = load_metadata("gpt-2")
    expected = Tokenizer.from_metadata(metadata).encode("Hello world, ünïcode!").tolist()
    for wrap in (Lazy, lambda items: [item.encode() for item in items], np.array, tuple):
        changed = {**metadata, G + "tokens": wrap(metadata[G + "tokens"]), G + "merges": wrap(metadata[G + "merges"])}
        assert Tokenizer.from_metadata(changed).encode("Hello world, ünïcode!").tolist() == expected
    assert string_list([b"\xff", "a"], "key") == ["\udcff", "a"]


def test_tokens_that_are_not_utf8_keep_their_bytes():
    tokens = [*bpe_metadata()[G + "tokens"][:-1], b"\xff\xfe"]
    tokenizer = Tokenizer.from_metadata(bpe_metadata(tokens=tokens))
    assert tokenizer.piece(259) == b"\xff\xfe"
    assert tokenizer.encode(b"a\xff\xfe", parse_special=True).tolist()[-1] == 259


def test_empty_tokens_get_a_name():
    tokenizer = Tokenizer.from_metadata(bpe_metadata(tokens=[*bpe_metadata()[G + "tokens"], "", ""], token_type=None))
    assert tokenizer.token_id("[EMPTY_261]") == 261


@pytest.mark.parametrize("token", [-1, 260, 2**40, 1.5, "a", None, True])
def test_ids_outside_the_vocabulary_are_refused(token):
    tokenizer = Tokenizer.from_metadata(bpe_metadata())
    for decode in (tokenizer.piece, lambda one: tokenizer.decode([one]), tokenizer.stream().push):
        with pytest.raises(TokenizerError, match="token id"):
            decode(token)


def test_text_of_another_type_is_refused():
    with pytest.raises(TokenizerError, match="expected text as str or bytes, found int"):
        Tokenizer.from_metadata(bpe_metadata()).encode(5)  # pyright: ignore[reportArgumentType]


def test_user_defined_tokens_match_always_and_strip_rules_follow_the_model_name():
    tokens = [*bpe_metadata()[G + "tokens"], "<tag>"]
    types = np.array([1] * 258 + [3, 3, TokenType.USER_DEFINED], np.int32)
    metadata = bpe_metadata(tokens=tokens, token_type=types)
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode("ab<tag> ab").tolist() == [256, 260, *tokenizer.encode(" ab").tolist()]
    phi3 = Tokenizer.from_metadata({**metadata, "general.name": "Phi-3-mini"})
    assert phi3.encode("ab<tag> \n ab").tolist() == [256, 260, 256]


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-(2**33), 2**33), max_size=5),
    st.lists(st.text(max_size=3), max_size=5),
    st.lists(st.floats(), max_size=5),
    st.lists(st.one_of(st.text(max_size=2), st.integers(), st.binary(max_size=2), st.none()), max_size=4),
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, -1, 2**31]), min_size=260, max_size=270),
    st.just("<|im_end|>"),
)
KEYS = sorted({*bpe_metadata(), *spm_metadata(), G + "add_bos_token", G + "add_space_prefix", "general.name"})


@settings(max_examples=400, deadline=None)
@given(
    base=st.sampled_from([bpe_metadata, spm_metadata]),
    changes=st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3),
    text=st.text(max_size=20),
)
@pytest.mark.filterwarnings("ignore:the vocabulary")
def test_hostile_metadata_gives_a_tokenizer_or_an_error(base, changes, text):
    try:
        tokenizer = Tokenizer.from_metadata({**base(), **changes})
        ids = tokenizer.encode(text, add_special=True, parse_special=True)
        tokenizer.decode(ids)
    except Error as error:
        assert str(error)
    else:
        assert all(0 <= token < tokenizer.n_vocab for token in ids.tolist())
