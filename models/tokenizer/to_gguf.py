"""A tokenizer as the keys of a GGUF file.

Arrives: a `Tokenizer`, a SentencePiece file or a `Pipeline`. Leaves: metadata with keys `tokenizer.ggml.*` from which
`Tokenizer.from_metadata` makes a tokenizer with the same ids. A pipeline is recognised by what it does: its
pre-tokenizer is the row of the table that cuts a probe text as it does. Next module: `models/gguf/writer.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gml.errors import UnsupportedError
from gml.models.tokenizer.bpe import ByteLevelBpe
from gml.models.tokenizer.character_bpe import CharacterBpe
from gml.models.tokenizer.pipeline import Pipeline
from gml.models.tokenizer.pipeline_models import Bpe
from gml.models.tokenizer.pretokenizers import TABLE, PreTokenizer
from gml.models.tokenizer.sentencepiece import BPE, UNIGRAM, SentencePieceFile
from gml.models.tokenizer.spm import SentencePieceBpe
from gml.models.tokenizer.text import to_byte_alphabet
from gml.models.tokenizer.tokenizer import Tokenizer
from gml.models.tokenizer.unigram import Unigram
from gml.models.tokenizer.vocabulary import PREFIX, SPECIAL_KEYS, TokenType
from gml.models.tokenizer.wordpiece import WordPiece

Metadata = dict[str, Any]

# Pieces on which the rows of the table differ: contractions, digits, marks, scripts, runs of white space, punctuation.
PROBE = (
    "Hello World's IT'S McDonald's 1234567 don't  中文ab  cafe\u0301 ١٢٣٤\n\n x  y\r\n\t(z)/ ~`^|$ ..., a_b ½Ⅳ\u3000ὈÀ "
    "가ㄅ。、!\n'stress \n \n    IMGIMGABZ <sentinel:1> 12 345678 9,5\u0903 \u200b'RE　ーカ'll\n"
)


def to_gguf(source: Tokenizer | SentencePieceFile | Pipeline) -> Metadata:
    """The keys `tokenizer.ggml.*` of a tokenizer. Raises UnsupportedError for one that GGUF has no name for."""
    if isinstance(source, SentencePieceFile):
        return _from_sentencepiece(source)
    return _from_pipeline(source) if isinstance(source, Pipeline) else _from_tokenizer(source)


def _with_prefix(keys: Metadata) -> Metadata:
    return {PREFIX + key: value for key, value in keys.items()}


def _from_tokenizer(tokenizer: Tokenizer) -> Metadata:
    vocabulary, model = tokenizer.vocabulary, tokenizer.model
    keys: Metadata = {"tokens": list(vocabulary.tokens), "token_type": vocabulary.types.astype(np.int32)}
    if vocabulary.scores is not None:
        keys["scores"] = vocabulary.scores
    for name, token in vocabulary.specials.items():
        if name in SPECIAL_KEYS:
            keys[SPECIAL_KEYS[name]] = token
    keys |= {"add_bos_token": tokenizer.add_bos, "add_eos_token": tokenizer.add_eos}
    if isinstance(model, (ByteLevelBpe, CharacterBpe)):
        table = model.table
        pairs = [key for key, _ in sorted(table.packed.items(), key=lambda item: item[1])]
        tokens = vocabulary.tokens
        keys["merges"] = [f"{tokens[pair // table.radix]} {tokens[pair % table.radix]}" for pair in pairs]
        keys |= {"model": "gpt2", "pre": model.row.name}
        if isinstance(model, CharacterBpe) and model.drop_spaces:
            keys |= {"model": "whitespace", "normalizer.lowercase": model.lowercase}
    elif isinstance(model, SentencePieceBpe):
        keys |= {"model": "llama", "pre": "default", "add_space_prefix": model.add_space_prefix}
    elif isinstance(model, Unigram):
        keys |= {"model": "t5", "pre": "default", "add_space_prefix": model.add_space_prefix}
        keys["remove_extra_whitespaces"] = model.merge_spaces
        if model.charsmap:
            keys["precompiled_charsmap"] = np.frombuffer(model.charsmap.data, np.uint8)
    elif isinstance(model, WordPiece):
        keys |= {"model": "bert", "pre": "default", "normalizer.lowercase": model.lowercase}
        keys["normalizer.strip_accents"] = model.strip_accents
        del keys["add_bos_token"], keys["add_eos_token"]
    else:
        raise UnsupportedError(f"GGUF keys of a {type(model).__name__} are not known")
    return _with_prefix(keys)


def _from_sentencepiece(file: SentencePieceFile) -> Metadata:
    if file.model_type not in (BPE, UNIGRAM) or file.whitespace_as_suffix or not file.escape_whitespaces:
        raise UnsupportedError("GGUF has no name for SentencePiece models of words, characters or suffixed spaces")
    keys: Metadata = {
        "model": "llama" if file.model_type == BPE else "t5",
        "pre": "default",
        "tokens": list(file.tokens),
        "scores": np.array(file.scores, np.float32),
        "token_type": np.array(file.types, np.int32),
        "add_space_prefix": file.add_dummy_prefix,
        "add_bos_token": file.ids["bos"] >= 0,
        "add_eos_token": False,
    }
    if file.model_type == UNIGRAM:
        keys["remove_extra_whitespaces"] = file.remove_extra_whitespaces
        if file.charsmap:
            keys["precompiled_charsmap"] = np.frombuffer(file.charsmap, np.uint8)
    for name, token in file.ids.items():
        if 0 <= token < len(file.tokens):
            keys[SPECIAL_KEYS[name]] = token
    return _with_prefix(keys)


def _from_pipeline(pipeline: Pipeline) -> Metadata:
    """Byte-level BPE; the other models of a tokenizer.json have normalizers that GGUF cannot say."""
    model = pipeline.model
    if not isinstance(model, Bpe) or model.byte_ids or model.prefix or model.suffix or model.unk is not None:
        raise UnsupportedError("only byte-level BPE of a tokenizer.json can be written as GGUF keys")
    if any(token.single_word or token.lstrip or token.rstrip for token in pipeline.added.tokens):
        raise UnsupportedError("GGUF keys cannot say single_word, lstrip or rstrip of an added token")
    row = recognise_pipeline(pipeline)
    n_tokens = pipeline.n_vocab
    tokens = [pipeline.spelling(token) for token in range(n_tokens)]
    types = np.full(n_tokens, TokenType.NORMAL, np.int32)
    for n, token in enumerate(tokens):
        if token is None:
            tokens[n], types[n] = f"[PAD{n}]", TokenType.UNUSED
    for token in pipeline.added.spellings:
        types[token] = TokenType.CONTROL if token in pipeline.added.special else TokenType.USER_DEFINED
    keys: Metadata = {
        "model": "gpt2",
        "pre": row.name,
        "tokens": tokens,
        "token_type": types,
        "merges": [f"{left} {right}" for left, right in model.merges],
        **_added_by_template(pipeline),
    }
    return _with_prefix(keys)


def _added_by_template(pipeline: Pipeline) -> Metadata:
    items = pipeline.template.single
    at = items.index("A") if "A" in items else -1
    before, after = items[:at], items[at + 1 :]
    if at < 0 or any(len(ids) != 1 for ids in (*before, *after)) or len(before) > 1 or len(after) > 1:
        raise UnsupportedError("GGUF keys can say one special token before the text and one after it, not more")
    keys: Metadata = {"add_bos_token": bool(before), "add_eos_token": bool(after)}
    if before:
        keys["bos_token_id"] = before[0][0]
    if after:
        keys["eos_token_id"] = after[0][0]
    return keys


def recognise_pipeline(pipeline: Pipeline) -> PreTokenizer:
    """The row of the table that cuts text as a pipeline does. Raises UnsupportedError where none does."""
    if pipeline.normalize(PROBE) != PROBE:
        raise UnsupportedError("GGUF keys of byte-level BPE have no normalizer; this tokenizer.json has one")
    pieces = pipeline.split(PROBE)
    flag = isinstance(pipeline.model, Bpe) and pipeline.model.ignore_merges
    for row in TABLE:
        if row.byte_level and row.ignore_merges == flag:
            words = [to_byte_alphabet(word.encode("utf-8")) for word in row.split(PROBE)]
            if words == pieces:
                return row
    raise UnsupportedError("no pre-tokenizer of the table cuts text as this tokenizer.json does")
