"""A tokenizer of a GGUF file written as a tokenizer.json.

Arrives: a `Tokenizer`. Leaves: the JSON object that `Pipeline` and package `tokenizers` read, with the same ids. The
expressions of a pre-tokenizer become Oniguruma's, with llama.cpp's classes spelled out. Where the two differ by design:
tokenizers takes the leftmost special token, llama.cpp the longest; SentencePiece BPE breaks ties of equal scores from
the left, merges have an order; BertNormalizer and Precompiled are the originals of what llama.cpp does nearly so, and
Oniguruma's classes are of Unicode 16. Next module: `files.py`.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from gml.errors import UnsupportedError
from gml.models.tokenizer.bpe import ByteLevelBpe
from gml.models.tokenizer.character_bpe import CharacterBpe
from gml.models.tokenizer.splitting import DIGITS_BY_THREE, NUMBERS_BY_THREE, POWERS, SPACES_BY_POWERS
from gml.models.tokenizer.spm import SPACE, SentencePieceBpe
from gml.models.tokenizer.text import HAN
from gml.models.tokenizer.tokenizer import Tokenizer
from gml.models.tokenizer.unigram import Unigram
from gml.models.tokenizer.vocabulary import TokenType
from gml.models.tokenizer.wordpiece import WordPiece

Json = dict[str, Any]

_HAN = "".join(f"{chr(first)}-{chr(last)}" for first, last in HAN)
_CLASSES = {
    r"\p{S}": r"[\p{S}&&[^~]]",
    r"\p{Lu}": r"[\p{L}&&[^a-z]]",
    r"\p{Ll}": r"[\p{L}&&[^A-Z]]",
    r"\p{Han}": f"[{_HAN}]",
    r"\p{HanL}": rf"[\p{{L}}&&[{_HAN}]]",
}


def oniguruma(expression: str) -> str:
    """An expression of the table of pre-tokenizers for a tokenizer.json."""
    if expression == NUMBERS_BY_THREE:
        return r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
    if expression == SPACES_BY_POWERS:
        # Only in pieces of nothing else, which begin where the piece does; longer runs in steps of 512.
        rest = "|".join(rf"[^\S\r\n]{{{length}}}" for length in POWERS)
        return rf"(?:{rest})(?=[^\S\r\n]*\z)"
    if expression == DIGITS_BY_THREE:
        return r"(?=(?:[0-9]{3})+(?![0-9]))"
    if not expression.isascii():
        # llama.cpp's white space is in no class that lists characters.
        expression = re.sub(r"\[([^\]^][^\]]*)\]", r"[[\1]&&\\S]", expression)
    classes = dict(_CLASSES)
    if r"\p{Han" in expression:
        classes[r"\p{L}"] = rf"[\p{{L}}&&[^{_HAN}]]"

    def rewrite(match: re.Match[str]) -> str:
        found = match.group()
        return r"\z" if found == "$" else classes.get(found, found)

    return re.sub(r"\\p\{\w+\}|\\.|\$(?=\Z)", rewrite, expression, flags=re.DOTALL)


def to_json(tokenizer: Tokenizer) -> Json:
    """The tokenizer.json of a tokenizer. Raises UnsupportedError for a model that tokenizers has not."""
    model = tokenizer.model
    for kind, write in _WRITERS.items():
        if isinstance(model, kind):
            parts = write(tokenizer, model)
            break
    else:
        raise UnsupportedError(f"tokenizer.json has no model like {type(model).__name__}")
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "decoder"))
    added, template = _added_tokens(tokenizer), _template(tokenizer)
    return {"version": "1.0", **empty, "added_tokens": added, "post_processor": template, **parts}


def _added_tokens(tokenizer: Tokenizer) -> list[Json]:
    vocabulary = tokenizer.vocabulary
    added = []
    for token in sorted(vocabulary.special_ids(parse_special=True)):
        added.append(
            {
                "id": token,
                "content": _text(vocabulary.tokens[token]),
                "single_word": False,
                "lstrip": token in vocabulary.strip_left,
                "rstrip": token in vocabulary.strip_right,
                "normalized": False,
                "special": bool(vocabulary.types[token] != TokenType.USER_DEFINED),
            }
        )
    return added


def _text(token: str) -> str:
    """A token's spelling; one that is not UTF-8 cannot stand in JSON."""
    try:
        token.encode("utf-8")
    except UnicodeEncodeError:
        raise UnsupportedError(f"tokenizer.json: the token {token!r:.80} is not UTF-8") from None
    return token


def _template(tokenizer: Tokenizer) -> Json | None:
    names = [name for name, added in (("bos", tokenizer.add_bos), (tokenizer.end, tokenizer.add_eos)) if added]
    if not names:
        return None
    ids = {name: tokenizer.vocabulary.specials[name] for name in names}
    spellings = {name: _text(tokenizer.vocabulary.tokens[token]) for name, token in ids.items()}
    items: dict[str, list[Json]] = {}
    for key, texts in (("single", ("A",)), ("pair", ("A", "B"))):
        items[key] = []
        for n, text in enumerate(texts):
            for name in ("bos", text, tokenizer.end):
                if name == text:
                    items[key].append({"Sequence": {"id": text, "type_id": n}})
                elif name in names:
                    items[key].append({"SpecialToken": {"id": spellings[name], "type_id": n}})
    tokens = {spellings[name]: {"id": spellings[name], "ids": [ids[name]], "tokens": [spellings[name]]} for name in ids}
    return {"type": "TemplateProcessing", **items, "special_tokens": tokens}


def _ids(tokenizer: Tokenizer) -> dict[str, int]:
    return {_text(token): number for number, token in enumerate(tokenizer.vocabulary.tokens)}


def _merges(tokenizer: Tokenizer, packed: dict[int, int], radix: int) -> list[list[str]]:
    tokens = tokenizer.vocabulary.tokens
    in_order = sorted(packed.items(), key=lambda item: item[1])
    return [[tokens[key // radix], tokens[key % radix]] for key, _ in in_order]


def _bpe(ids: dict[str, int], merges: list[list[str]], **options: Any) -> Json:
    settings = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    flags = {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {"type": "BPE", **settings, **flags, **options, "vocab": ids, "merges": merges}


def _splits(expressions: tuple[str, ...]) -> list[Json]:
    return [
        {"type": "Split", "pattern": {"Regex": oniguruma(expression)}, "behavior": "Isolated", "invert": False}
        for expression in expressions
    ]


def _byte_level(tokenizer: Tokenizer, model: ByteLevelBpe) -> Json:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    merges = _merges(tokenizer, model.table.packed, model.table.radix)
    return {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*_splits(model.row.expressions), level]},
        "model": _bpe(_ids(tokenizer), merges, ignore_merges=model.row.ignore_merges),
        "decoder": level,
    }


_FALLBACK = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_UNSPACES = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}


def _character_bpe(tokenizer: Tokenizer, model: CharacterBpe) -> Json:
    if model.row.drop_spaces or model.row.whole_newlines or not model.row.escape_spaces:
        raise UnsupportedError(f"tokenizer.json cannot say what the pre-tokenizer {model.row.name!r} does")
    merges = _merges(tokenizer, model.table.packed, model.table.radix)
    return {
        "normalizer": _SPACES,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _splits(model.row.expressions)},
        "model": _bpe(_ids(tokenizer), merges, byte_fallback=True),
        "decoder": {"type": "Sequence", "decoders": [_UNSPACES, *_FALLBACK["decoders"]]},
    }


def _sentencepiece_bpe(tokenizer: Tokenizer, model: SentencePieceBpe) -> Json:
    """Each way to join two tokens to a third is a merge, in the order of the third's score."""
    ids = _ids(tokenizer)
    ways = []
    for token, rank in model.ranks.items():
        for at in range(1, len(token)):
            if token[:at] in ids and token[at:] in ids:
                ways.append((rank, len(ways), token[:at], token[at:]))
    merges = [[left, right] for _, _, left, right in sorted(ways)]
    unk = None if model.unk is None else tokenizer.vocabulary.tokens[model.unk]
    prepend = [{"type": "Prepend", "prepend": SPACE}] if model.add_space_prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if model.add_space_prefix else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, _SPACES]},
        "model": _bpe(ids, merges, unk_token=unk, fuse_unk=True, byte_fallback=True),
        "decoder": {"type": "Sequence", "decoders": [_UNSPACES, *_FALLBACK["decoders"], *strip]},
    }


def _unigram(tokenizer: Tokenizer, model: Unigram) -> Json:
    vocabulary = tokenizer.vocabulary
    assert vocabulary.scores is not None
    steps: list[Json] = []
    if model.charsmap:
        charsmap = base64.b64encode(model.charsmap.data).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if model.merge_spaces:
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    scheme = "always" if model.add_space_prefix or model.merge_spaces else "never"
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": False}
    scores = zip(map(_text, vocabulary.tokens), vocabulary.scores.tolist(), strict=True)
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.specials["unk"],
            "vocab": [list(entry) for entry in scores],
            "byte_fallback": False,
        },
        "decoder": metaspace,
    }


def _wordpiece(tokenizer: Tokenizer, model: WordPiece) -> Json:
    special = set(tokenizer.vocabulary.special_ids(parse_special=True))
    ids = {}
    for number, token in enumerate(tokenizer.vocabulary.tokens):
        whole = token.startswith(SPACE) or number in special or (token.startswith("[") and token.endswith("]"))
        ids[_text(token).removeprefix(SPACE) if whole else "##" + _text(token)] = number
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": model.strip_accents,
            "lowercase": model.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.vocabulary.tokens[model.unk],
            "continuing_subword_prefix": "##",
            # llama.cpp knows no bound.
            "max_input_chars_per_word": 1 << 30,
            "vocab": ids,
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    }


_WRITERS: dict[type, Any] = {
    ByteLevelBpe: _byte_level,
    CharacterBpe: _character_bpe,
    SentencePieceBpe: _sentencepiece_bpe,
    Unigram: _unigram,
    WordPiece: _wordpiece,
}
