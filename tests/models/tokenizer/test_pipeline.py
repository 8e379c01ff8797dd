"""Pipelines of tokenizer.json give the ids and texts of package `tokenizers`, on small files that it trains here."""

from __future__ import annotations

import base64
import json
import unicodedata
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tokenizers = pytest.importorskip("tokenizers")

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

from gml.errors import Error, TokenizerError, UnsupportedError  # noqa: E402
from gml.models.tokenizer.pipeline import Pipeline  # noqa: E402

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
CORPUS = [
    "The quick brown fox isn't lazy; it's 12345 years old.\n\tdef f(x):\n        return x + 1  # café\n",
    "Größe, naïve, Ελληνικά, русский, 中文字符 and 日本語 too! <s> 3.14 don't WE'LL  you've",
    "of the and to in that he shall unto for is his they be not him them with as all thou upon was my " * 3,
    *["lorem ipsum dolor sit amet consectetur " + "word" * n for n in range(4)],
]
EXAMPLES = settings(max_examples=120, deadline=None)


def known(text: str) -> bool:
    """Package regex knows a newer Unicode than Oniguruma: characters that only it knows are no test."""
    return all(unicodedata.category(character) not in ("Cn", "Cs") for character in text)


ATOMS = st.one_of(
    st.sampled_from(
        [
            " ",
            "  ",
            "\n",
            "\r\n",
            "\t",
            "\x1c",
            "\x85",
            "\xa0",
            "\u2003",
            "\u3000",
            "▁",
            "\u200b",
            "'s",
            "'LL",
            "the",
            " and",
        ]
        + [
            "İ",
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
            "①",
            "1",
            "123",
            "4567",
            "!",
            "...",
            "$",
        ]
        + [
            "<s>",
            "</s>",
            "[MASK]",
            " wo ",
            "wo",
            "Word",
            "(",
            "。",
            "😀",
            "\U0001f469\u200d",
            "ﬁ",
            "Ａ",
            "\ufffd",
            "²",
            "_",
        ]
    ),
    st.characters(exclude_categories=["Cs", "Cn"]),
)
TEXTS = st.lists(ATOMS, max_size=20).map("".join).filter(known)


@pytest.fixture(scope="session")
def charsmap(load_metadata):
    """The real character map of NFKC, of XLM-R."""
    return load_metadata("nomic-bert-moe")["tokenizer.ggml.precompiled_charsmap"].tobytes()


def _train(tokenizer, trainer):
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def byte_level():
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder, tokenizer.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _train(tokenizer, trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet))
    added = [
        AddedToken("wo", single_word=True),
        AddedToken("fo", lstrip=True, rstrip=True),
        AddedToken("é", normalized=True),
    ]
    tokenizer.add_tokens(added)
    return tokenizer


def llama3():
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _train(tokenizer, trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>"], initial_alphabet=alphabet))
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 0)])
    return tokenizer


def llama2():
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    _train(tokenizer, trainers.BpeTrainer(vocab_size=500, special_tokens=special, limit_alphabet=60))
    tokenizer.pre_tokenizer = None
    return tokenizer


def affixes():
    model = models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", end_of_word_suffix="</w>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder()
    options = {"end_of_word_suffix": "</w>", "continuing_subword_prefix": "##", "limit_alphabet": 40}
    return _train(tokenizer, trainers.BpeTrainer(vocab_size=300, special_tokens=["[UNK]"], **options))


def bert():
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    _train(tokenizer, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, limit_alphabet=60))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    tokenizer.enable_truncation(12)
    tokenizer.enable_padding(pad_id=3, pad_token="[PAD]", length=16)
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    return tokenizer


def word_level():
    tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token="[UNK]"))
    steps = [normalizers.NFKC(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Strip()]
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Sequence(steps), pre_tokenizers.Whitespace()
    _train(tokenizer, trainers.WordLevelTrainer(vocab_size=100, special_tokens=["[UNK]", "[PAD]"]))
    tokenizer.enable_padding(pad_to_multiple_of=8, direction="left", pad_id=1, pad_token="[PAD]")
    return tokenizer


def unigram(*, byte_fallback=False, scheme="always"):
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    special = ["<s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256) if byte_fallback)]
    _train(tokenizer, trainers.UnigramTrainer(vocab_size=500, special_tokens=special, unk_token="<unk>"))
    state = json.loads(tokenizer.to_str())
    state["model"]["byte_fallback"] = byte_fallback
    return tokenizers.Tokenizer.from_str(json.dumps(state))


FILES = {
    "byte-level": byte_level,
    "llama-3": llama3,
    "llama-2": llama2,
    "affixes": affixes,
    "bert": bert,
    "word-level": word_level,
    "unigram": unigram,
    "unigram-bytes": lambda: unigram(byte_fallback=True, scheme="first"),
}


@cache
def both(name: str):
    """The package's tokenizer and ours of the same file."""
    other = FILES[name]()
    return other, Pipeline.from_json(other.to_str())


@pytest.mark.parametrize("name", list(FILES))
@EXAMPLES
@given(text=TEXTS, pair=TEXTS)
def test_ids_and_texts(name, text, pair):
    other, ours = both(name)
    expected = other.encode(text).ids
    assert ours.encode(text, add_special=True, parse_special=True).tolist() == expected
    assert ours.decode(expected) == other.decode(expected, skip_special_tokens=False)
    assert ours.decode(expected, skip_special=True) == other.decode(expected)
    assert ours.encode(text, parse_special=True).tolist() == other.encode(text, add_special_tokens=False).ids
    together = ours.encode(text, pair, add_special=True, parse_special=True)
    assert together.tolist() == other.encode(text, pair).ids
    try:
        other.encode_special_tokens = True
        assert ours.encode(text, add_special=True).tolist() == other.encode(text).ids
    finally:
        other.encode_special_tokens = False


@pytest.mark.parametrize("name", ["llama-2", "unigram", "unigram-bytes"])
@EXAMPLES
@given(text=TEXTS)
def test_long_pieces_are_cut_without_a_trace(name, text):
    _, ours = both(name)
    normal = "▁".join(ours.normalize(text).split(" "))
    assert ours.model.cut is not None
    whole = ours.model.encode_word(normal)
    parts = [ours.model.encode_word(part) for part in ours.model.cut(normal)]
    assert [token for part in parts for token in part] == whole


@pytest.mark.parametrize("name", list(FILES))
def test_batches(name):
    other, ours = both(name)
    expected = [encoding.ids for encoding in other.encode_batch(CORPUS)]
    batch = ours.encode_batch(CORPUS, add_special=True, parse_special=True)
    assert [ids.tolist() for ids in batch] == expected


@pytest.mark.parametrize("name", list(FILES))
@EXAMPLES
@given(text=TEXTS, data=st.data())
def test_a_stream_is_one_shot(name, text, data):
    """Any ids, not only those that encoding gives."""
    _, ours = both(name)
    ids = data.draw(st.lists(st.integers(0, ours.n_vocab), max_size=12))
    ids += ours.encode(text, parse_special=True).tolist()
    for skip_special in (False, True):
        stream = ours.stream(skip_special=skip_special)
        pieces = [stream.push(token) for token in ids]
        assert "".join(pieces) + stream.flush() == ours.decode(ids, skip_special=skip_special)


def test_bytes_that_are_not_utf8():
    for name in ("byte-level", "llama-2"):
        _, ours = both(name)
        ids = ours.encode(b"the \xff\x80 quick").tolist()
        assert b"".join(map(ours.piece, ids)).endswith(b"the \xff\x80 quick")
    with pytest.raises(TokenizerError, match=r"U\+D800 at character 1"):
        both("bert")[1].encode("a\ud800")


P, N, D = pre_tokenizers, normalizers, decoders
BEHAVIORS = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
PRETOKENIZERS = [
    *(P.Split(Regex(r"\s+|\d"), behavior) for behavior in BEHAVIORS),
    *(P.Split(Regex(r"\w+"), behavior, invert=True) for behavior in BEHAVIORS),
    *(P.Split("a", behavior) for behavior in BEHAVIORS),
    *(P.Punctuation(behavior) for behavior in BEHAVIORS),
    *(P.ByteLevel(), P.ByteLevel(use_regex=False), P.Whitespace(), P.WhitespaceSplit(), P.BertPreTokenizer()),
    *(P.Digits(), P.Digits(True), P.CharDelimiterSplit("a"), P.Metaspace(), P.FixedLength(3)),
    *(P.Metaspace(prepend_scheme="never", split=False), P.Metaspace(prepend_scheme="first")),
    P.Sequence([P.Digits(True), P.Metaspace(prepend_scheme="first"), P.Punctuation("merged_with_next")]),
]


@pytest.mark.parametrize("part", PRETOKENIZERS, ids=str)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS.filter(bool))
def test_pre_tokenizers(part, text):
    ours = _with(pre_tokenizer=part)
    pieces = [piece for piece in ours._split(text, True) if piece]
    assert pieces == [piece for piece, _ in part.pre_tokenize_str(text)]


NORMALIZERS = [
    *(N.NFC(), N.NFD(), N.NFKC(), N.NFKD(), N.Lowercase(), N.Strip(), N.Strip(True, False), N.StripAccents()),
    *(
        N.BertNormalizer(),
        N.BertNormalizer(False, False, True, False),
        N.BertNormalizer(True, True, False, True),
        N.Nmt(),
    ),
    *(N.Replace(Regex(r"\s+"), "_"), N.Replace("a", "bb"), N.Prepend("xx"), N.ByteLevel()),
]


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_normal_forms_of_every_character(form):
    part = getattr(N, form)()
    ours = _with(normalizer=part).normalize
    everything = [
        chr(point) for point in range(1, 0x20000) if unicodedata.category(chr(point)) not in ("Cn", "Cs", "Co")
    ]
    wrong = [character for character in everything if ours(character) != part.normalize_str(character)]
    assert wrong == []


@pytest.mark.parametrize("part", NORMALIZERS, ids=str)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_normalizers(part, text):
    assert _with(normalizer=part).normalize(text) == part.normalize_str(text)


@EXAMPLES
@given(text=TEXTS)
def test_character_maps(charsmap, text):
    part = N.Precompiled(charsmap)
    assert _precompiled(charsmap).normalize(text) == part.normalize_str(text)


@cache
def _precompiled(charsmap: bytes) -> Pipeline:
    part = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}
    return Pipeline({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "normalizer": part})


_MADE: dict[tuple[str, str], Pipeline] = {}


def _with(**parts) -> Pipeline:
    """A pipeline of one part, made once."""
    ((name, part),) = parts.items()
    key = name, str(part)
    if key not in _MADE:
        _MADE[key] = _made(name, part)
    return _MADE[key]


def _made(name, part) -> Pipeline:
    tokenizer = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    setattr(tokenizer, name, part)
    return Pipeline.from_json(tokenizer.to_str())


DECODERS = [
    *(D.ByteLevel(), D.WordPiece(), D.WordPiece("@", False), D.Metaspace(), D.Metaspace("_", "never"), D.BPEDecoder()),
    *(
        D.CTC(),
        D.CTC("a", "b", False),
        D.ByteFallback(),
        D.Fuse(),
        D.Strip("a", 1, 0),
        D.Replace(Regex("a+"), "b"),
    ),
    D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]),
]
SPELLINGS = st.sampled_from(
    [
        "a",
        "aa",
        "▁the",
        "##b",
        "@b",
        "x</w>",
        "Ġé",
        "<0xE4>",
        "<0xB8>",
        "<0xAD>",
        "<0x41>",
        "|",
        "<pad>",
        "_",
        " .",
        "n't",
        " '",
    ]
)


@pytest.mark.parametrize("part", DECODERS, ids=str)
@settings(max_examples=60, deadline=None)
@given(tokens=st.lists(SPELLINGS, max_size=8))
def test_decoders(part, tokens):
    assert "".join(_with(decoder=part)._decode(tokens)) == part.decode(tokens)


WORDS = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
BROKEN = [
    ({"model": {"type": "Nonesuch"}}, UnsupportedError, "type 'Nonesuch' is not known; known: BPE, WordPiece"),
    ({"normalizer": {"type": "Nonesuch"}}, UnsupportedError, "'Nonesuch' is not known"),
    ({"pre_tokenizer": {"type": "UnicodeScripts"}}, UnsupportedError, "'UnicodeScripts' is not known"),
    ({"decoder": {"type": 5}}, TokenizerError, "expected 'type' to be of type str"),
    ({"post_processor": {"type": "Nonesuch"}}, UnsupportedError, "'Nonesuch' is not known"),
    ({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, TokenizerError, "token 'a' has the id -1"),
    ({"model": {"type": "BPE", "vocab": {"a": 1}, "merges": ["a b"]}}, TokenizerError, "merge 0 .*needs the token 'b'"),
    ({"model": {"type": "BPE", "vocab": {"a": 1}, "merges": ["a"]}}, TokenizerError, "merge 0 is 'a', expected two"),
    ({"model": {"type": "BPE", "vocab": {}, "merges": [], "dropout": 0.1}}, UnsupportedError, "dropout"),
    (
        {"model": {"type": "Unigram", "vocab": [["a"]]}},
        TokenizerError,
        r"entry 0 is \['a'\], expected \[token, score\]",
    ),
    (
        {"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 5}},
        TokenizerError,
        "unk_id 5 is outside 1 tokens",
    ),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "!"}}, TokenizerError, "is no base64"),
    (
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Removed"}},
        TokenizerError,
        "cannot be read",
    ),
    ({"added_tokens": [{"id": "x", "content": "y"}]}, TokenizerError, "expected 'id' to be of type int"),
    ({"truncation": {"max_length": "x"}}, TokenizerError, "expected 'max_length' to be of type int"),
    ({"padding": {"strategy": "Nonesuch"}}, UnsupportedError, "'Nonesuch' is not known"),
]


@pytest.mark.parametrize(("changes", "kind", "message"), BROKEN, ids=lambda value: str(value)[:50])
def test_broken_and_unknown_parts_are_named(changes, kind, message):
    with pytest.raises(kind, match=message):
        Pipeline({"model": WORDS, **changes})


def test_files_that_are_no_tokenizers(tmp_path):
    for text, message in (("{", "expected JSON"), ("[]", "an object with a model"), ("[" * 100_000, "expected JSON")):
        path = tmp_path / "tokenizer.json"
        path.write_text(text)
        with pytest.raises(TokenizerError, match=message):
            Pipeline.from_file(path)
    nested: dict = {"type": "Lowercase"}
    for _ in range(100):
        nested = {"type": "Sequence", "normalizers": [nested]}
    with pytest.raises(TokenizerError, match="nested more than 16 deep"):
        Pipeline({"model": WORDS, "normalizer": nested})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "pattern", "Regex", "a"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), name=st.sampled_from(list(FILES)), text=TEXTS)
def test_hostile_files_give_a_tokenizer_or_an_error(data, name, text):
    state = json.loads(both(name)[0].to_str())
    state["added_tokens"] = state["added_tokens"][:2]
    place = data.draw(st.sampled_from([key for key in state if isinstance(state[key], dict)]))
    key = data.draw(st.sampled_from(sorted(state[place])))
    state[place][key] = data.draw(JSON)
    try:
        pipeline = Pipeline(state)
        pipeline.decode(pipeline.encode(text, add_special=True))
    except Error as error:
        assert str(error)
