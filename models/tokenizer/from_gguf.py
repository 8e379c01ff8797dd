"""Models from GGUF metadata: which of them `tokenizer.ggml.model` names, and the flags that hold where no key says.

Arrives: the file's metadata. Leaves: what `Tokenizer` is made of. Source: llama.cpp (llama_vocab::impl::load). Next
module: `tokenizer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gml.errors import TokenizerError
from gml.models.tokenizer.bpe import ByteLevelBpe
from gml.models.tokenizer.character_bpe import CharacterBpe
from gml.models.tokenizer.charsmap import CharsMap
from gml.models.tokenizer.longest import LongestMatch, ScoredCut
from gml.models.tokenizer.pretokenizers import PreTokenizer, find_pretokenizer, recognise
from gml.models.tokenizer.spm import SentencePieceBpe
from gml.models.tokenizer.unigram import Unigram
from gml.models.tokenizer.vocabulary import PREFIX, Vocabulary, flag, string_list
from gml.models.tokenizer.wordpiece import WordPiece

# Arguments of `Tokenizer`.
Parts = dict[str, Any]


def _row(metadata: Mapping[str, Any], pre: str | None) -> PreTokenizer:
    name = pre if pre is not None else metadata.get(PREFIX + "pre")
    if name is None or name == "":
        return recognise(string_list(metadata[PREFIX + "merges"], PREFIX + "merges"))
    return find_pretokenizer(name if isinstance(name, str) else repr(name))


def _bpe(metadata: Mapping[str, Any], pre: str | None) -> Parts:
    if PREFIX + "merges" not in metadata:
        raise TokenizerError("tokenizer.ggml.merges is missing: a gpt2 vocabulary needs it; take a complete file")
    row = _row(metadata, pre)
    vocabulary = Vocabulary.from_metadata(metadata, {})
    merges = metadata[PREFIX + "merges"]
    if metadata[PREFIX + "model"] == "whitespace":
        lowercase = flag(metadata, "normalizer.lowercase", not row.drop_spaces)
        model = CharacterBpe(vocabulary, merges, row, drop_spaces=True, lowercase=lowercase)
    elif row.byte_level:
        model = ByteLevelBpe(vocabulary, merges, row)
    else:
        model = CharacterBpe(vocabulary, merges, row)
    return {
        "vocabulary": vocabulary,
        "model": model,
        "add_bos": row.force_bos or flag(metadata, "add_bos_token", row.add_bos),
        "add_eos": flag(metadata, "add_eos_token", False),
        "clean_up": row.clean_up,
    }


def _gemma4(metadata: Mapping[str, Any], pre: str | None) -> Parts:
    return _bpe(metadata, pre or "gemma4")


def _sentencepiece_bpe(metadata: Mapping[str, Any], pre: str | None) -> Parts:
    del pre  # SentencePiece vocabularies have no pre-tokenizer; their files say "default"
    add_space_prefix = flag(metadata, "add_space_prefix", True)
    vocabulary = Vocabulary.from_metadata(metadata, {"bos": 1, "eos": 2, "unk": 0})
    return {
        "vocabulary": vocabulary,
        "model": SentencePieceBpe(vocabulary, add_space_prefix=add_space_prefix),
        "add_bos": flag(metadata, "add_bos_token", True),
        "add_eos": flag(metadata, "add_eos_token", False),
        "add_space_prefix": add_space_prefix,
    }


def _wordpiece(metadata: Mapping[str, Any], pre: str | None) -> Parts:
    del pre
    defaults = {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103}
    vocabulary = Vocabulary.from_metadata(metadata, defaults)
    lowercase = flag(metadata, "normalizer.lowercase", True)
    strip_accents = flag(metadata, "normalizer.strip_accents", lowercase)
    return {
        "vocabulary": vocabulary,
        "model": WordPiece(vocabulary, lowercase=lowercase, strip_accents=strip_accents),
        "add_bos": True,
        "add_eos": True,
        "end": "sep",
        "add_space_prefix": flag(metadata, "add_space_prefix", False),
        "clean_up": True,
    }


def _unigram(metadata: Mapping[str, Any], pre: str | None) -> Parts:
    del pre
    add_space_prefix = flag(metadata, "add_space_prefix", False)
    vocabulary = Vocabulary.from_metadata(metadata, {"eos": 1, "unk": 2, "pad": 0})
    model = Unigram(
        vocabulary,
        _charsmap(metadata),
        add_space_prefix=add_space_prefix,
        remove_extra_whitespaces=flag(metadata, "remove_extra_whitespaces", False),
    )
    return {
        "vocabulary": vocabulary,
        "model": model,
        "add_bos": flag(metadata, "add_bos_token", False),
        "add_eos": flag(metadata, "add_eos_token", True),
        "add_space_prefix": add_space_prefix,
    }


def _charsmap(metadata: Mapping[str, Any]) -> CharsMap | None:
    key = PREFIX + "precompiled_charsmap"
    values = metadata.get(key)
    if values is None:
        return None
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        array = np.asarray(None)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.dtype.itemsize != 1:
        raise TokenizerError(f"{key}: expected an array of bytes, found {type(values).__name__}")
    return CharsMap(array.astype(np.uint8).tobytes())


def _rwkv(metadata: Mapping[str, Any], pre: str | None) -> Parts:
    del pre
    vocabulary = Vocabulary.from_metadata(metadata, {})
    return {
        "vocabulary": vocabulary,
        "model": LongestMatch(vocabulary),
        "add_bos": flag(metadata, "add_bos_token", False),
        "add_eos": flag(metadata, "add_eos_token", False),
    }


def _plamo2(metadata: Mapping[str, Any], pre: str | None) -> Parts:
    del pre
    vocabulary = Vocabulary.from_metadata(metadata, {"bos": 1, "eos": 2, "unk": 0, "pad": 3})
    return {
        "vocabulary": vocabulary,
        "model": ScoredCut(vocabulary),
        "add_bos": flag(metadata, "add_bos_token", False),
        "add_eos": flag(metadata, "add_eos_token", False),
    }


# tokenizer.ggml.model -> how to build it.
MODELS = {
    "gpt2": _bpe,
    "whitespace": _bpe,
    "gemma4": _gemma4,
    "llama": _sentencepiece_bpe,
    "bert": _wordpiece,
    "t5": _unigram,
    "rwkv": _rwkv,
    "plamo2": _plamo2,
}
