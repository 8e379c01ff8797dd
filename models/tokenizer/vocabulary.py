"""The vocabulary of a GGUF file, checked: tokens, types, scores, special ids, end-of-generation set, strip rules.

Arrives: the file's metadata (keys `tokenizer.ggml.*`). Leaves: a `Vocabulary`. What a file leaves out or gets wrong
(the end-of-turn token, the type of `</s>`, white space around phi-3's tokens) is amended by token text and model name
as llama.cpp does (llama_vocab::impl::load). Next modules: `bpe.py` and `spm.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from gml.errors import TokenizerError
from gml.records import dataclass, field

PREFIX = "tokenizer.ggml."


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`, as gguf.TokenType numbers them."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Tokens recognised by their text. In each group the first that the vocabulary has is the one, if no key names it.
EOT_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>"),
    *("[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"),
)
EOM_TEXTS = ("<|eom_id|>",)
FIM_PAD_TEXTS = ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")
FIM_REP_TEXTS = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")
FIM_SEP_TEXTS = ("<|file_sep|>",)
# Every one of these ends generation.
EOG_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
    *("<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>"),
    *("<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["),
)
# gpt-oss: always shown as text.
SHOWN_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


def string_list(values: Any, key: str) -> list[str]:
    """A metadata array as a list of str; bytes that are not UTF-8 become surrogate escapes.

    Raises TokenizerError for anything that is not a sequence of strings.
    """
    if isinstance(values, (str, bytes, Mapping)) or not (hasattr(values, "__len__") and hasattr(values, "__iter__")):
        raise TokenizerError(f"{key}: expected an array of strings, found {type(values).__name__}")
    items = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if set(map(type, items)) <= {str}:
        return items
    for n, item in enumerate(items):
        if isinstance(item, (bytes, bytearray, memoryview)):
            items[n] = bytes(item).decode("utf-8", "surrogateescape")
        elif isinstance(item, str):
            items[n] = str(item)
        else:
            raise TokenizerError(f"{key}: expected strings, found {type(item).__name__} at entry {n}")
    return items


def _number_array(values: Any, key: str, n_tokens: int, kinds: str) -> np.ndarray:
    """A metadata array of at least n_tokens numbers whose numpy kind is one of `kinds`, cut to n_tokens."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):  # ragged lists, among others
        array = np.asarray(None)
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise TokenizerError(f"{key}: expected an array of {n_tokens} numbers, found {type(values).__name__}")
    if len(array) < n_tokens:
        raise TokenizerError(
            f"{key}: expected {n_tokens} entries, one for each of tokenizer.ggml.tokens, found {len(array)}"
        )
    return array[:n_tokens]


@dataclass
class Vocabulary:
    """Tokens and what is known about them.

    tokens: their spelling in the file, by id; types: int32[n_vocab] of TokenType; scores: float32[n_vocab] or None;
    ids: spelling to id; specials: named ids (bos, eos, eot, eom, unk, pad, ...) that the file or a token's text gives;
    eog: ids that end generation; strip_left, strip_right: special tokens that swallow white space beside them.
    """

    tokens: list[str]
    types: np.ndarray
    scores: np.ndarray | None
    ids: dict[str, int]
    specials: dict[str, int]
    eog: frozenset[int] = frozenset()
    strip_left: frozenset[int] = field(default_factory=frozenset)
    strip_right: frozenset[int] = field(default_factory=frozenset)

    @property
    def n_vocab(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], default_specials: Mapping[str, int]) -> Vocabulary:
        """Reads and amends the vocabulary; `default_specials` are the ids a model type has where no key says.

        Raises TokenizerError for missing tokens, duplicates, arrays that are too short or of another type.
        """
        if PREFIX + "tokens" not in metadata:
            raise TokenizerError("tokenizer.ggml.tokens is missing: the file holds no vocabulary; take a complete file")
        tokens = string_list(metadata[PREFIX + "tokens"], PREFIX + "tokens")
        if not tokens:
            raise TokenizerError("tokenizer.ggml.tokens is empty: the file holds no vocabulary; take a complete file")
        if "" in tokens:
            tokens = [token or f"[EMPTY_{n}]" for n, token in enumerate(tokens)]
        ids = dict(zip(tokens, range(len(tokens)), strict=True))
        if len(ids) != len(tokens):
            _refuse_duplicate(tokens)
        types = np.full(len(tokens), TokenType.NORMAL, np.int32)
        if PREFIX + "token_type" in metadata:
            given = _number_array(metadata[PREFIX + "token_type"], PREFIX + "token_type", len(tokens), "iu")
            types = np.where((given >= 0) & (given <= 6), given, TokenType.UNDEFINED).astype(np.int32)
        scores = None
        if PREFIX + "scores" in metadata:
            scores = _number_array(metadata[PREFIX + "scores"], PREFIX + "scores", len(tokens), "iuf")
            scores = scores.astype(np.float32)
            if np.isnan(scores).any():
                raise TokenizerError(f"{PREFIX}scores: entry {int(np.isnan(scores).argmax())} is not a number")
        vocabulary = cls(tokens, types, scores, ids, _special_ids(metadata, default_specials, len(tokens)))
        vocabulary._amend()
        vocabulary._set_strip_rules(metadata)
        return vocabulary

    def _find(self, name: str, texts: tuple[str, ...]) -> int | None:
        """The special id `name`, found by text where no key gave it; such a token becomes a control token."""
        if name not in self.specials:
            found = next((self.ids[text] for text in texts if text in self.ids), None)
            if found is None:
                return None
            self.specials[name] = found
            self.types[found] = TokenType.CONTROL
        return self.specials[name]

    def _amend(self) -> None:
        """Finds special tokens by their text, and the set of ids that end generation."""
        ends = {self._find("fim_pad", FIM_PAD_TEXTS), self._find("fim_rep", FIM_REP_TEXTS)}
        ends |= {self._find("fim_sep", FIM_SEP_TEXTS), self._find("eot", EOT_TEXTS), self._find("eom", EOM_TEXTS)}
        by_text = {text: self.ids[text] for text in EOG_TEXTS if text in self.ids}
        for token in by_text.values():
            self.types[token] = TokenType.CONTROL
        ends |= {*by_text.values(), self.specials.get("eos")}
        for text in SHOWN_TEXTS:
            if text in self.ids:
                self.types[self.ids[text]] = TokenType.USER_DEFINED
        # In gpt-oss and solar-open <|end|> ends a message, not the turn; in gemma 4 </s> is plain text.
        calls = "<|call|>" in by_text or "<|calls|>" in by_text
        if "<|end|>" in by_text and calls and ("<|return|>" in by_text or "<|flush|>" in by_text):
            ends.discard(by_text["<|end|>"])
            self.types[by_text["<|end|>"]] = TokenType.USER_DEFINED
        if "<|tool_response>" in by_text and "</s>" in by_text:
            ends.discard(by_text["</s>"])
            self.types[by_text["</s>"]] = TokenType.NORMAL
        self.eog = frozenset(token for token in ends if token is not None)

    def _set_strip_rules(self, metadata: Mapping[str, Any]) -> None:
        """Which special tokens swallow white space: GGUF cannot say, so names of models decide."""
        name = str(metadata.get("general.name", "")).lower()
        pre = str(metadata.get(PREFIX + "pre", ""))
        if any(part in pre for part in ("jina-v2-de", "jina-v2-es", "jina-v2-code")):
            self.strip_left = frozenset(self.ids[text] for text in ("<mask>",) if text in self.ids)
        elif "phi-3" in name or "phi3" in name:
            plain = {self.ids.get(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
            special = {*self.special_ids(parse_special=True), self.ids.get("</s>")}
            self.strip_right = frozenset(token for token in special - plain if token is not None)
        elif "modern-bert" in name:
            self.strip_left = frozenset(self.ids[text] for text in ("[MASK]",) if text in self.ids)

    def special_ids(self, *, parse_special: bool) -> list[int]:
        """Ids that are searched for in text before anything else, longest (in bytes) first.

        User-defined tokens always; control and unknown tokens with parse_special.
        """
        kinds = [TokenType.USER_DEFINED]
        if parse_special:
            kinds += [TokenType.CONTROL, TokenType.UNKNOWN]
        found = np.flatnonzero(np.isin(self.types, kinds)).tolist()
        return sorted(found, key=lambda token: -len(self.tokens[token].encode("utf-8", "surrogateescape")))


def _refuse_duplicate(tokens: list[str]) -> None:
    seen: dict[str, int] = {}
    for n, token in enumerate(tokens):
        if token in seen:
            raise TokenizerError(
                f"tokenizer.ggml.tokens: token {token[:80]!r} has two ids, {seen[token]} and {n}; "
                "convert the model anew"
            )
        seen[token] = n


SPECIAL_KEYS = {
    **{name: f"{name}_token_id" for name in ("bos", "eos", "eot", "eom", "mask")},
    **{f"fim_{name}": f"fim_{name}_token_id" for name in ("pre", "suf", "mid", "pad", "rep", "sep")},
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # the file format's spelling
    "pad": "padding_token_id",
}


def _special_ids(metadata: Mapping[str, Any], defaults: Mapping[str, int], n_tokens: int) -> dict[str, int]:
    """The ids that the keys `*_token_id` name. As in llama.cpp, an id outside the vocabulary counts as not given."""
    specials = {name: token for name, token in defaults.items() if token < n_tokens}
    for name, key in SPECIAL_KEYS.items():
        value = metadata.get(PREFIX + key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TokenizerError(f"{PREFIX}{key}: expected a token id, found {type(value).__name__}")
        if 0 <= value < n_tokens:
            specials[name] = int(value)
    return specials


def flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    """A true-or-false key of `tokenizer.ggml.`, or its default. Raises TokenizerError for another type."""
    value = metadata.get(PREFIX + key, default)
    if not isinstance(value, (bool, np.bool_)):
        raise TokenizerError(f"{PREFIX}{key}: expected true or false, found {type(value).__name__}")
    return bool(value)


def byte_of_token(token: str) -> bytes:
    """The byte of a token of type BYTE, spelled `<0x0A>`. Raises TokenizerError for another spelling."""
    try:
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
    except ValueError:
        pass
    raise TokenizerError(f"tokenizer.ggml.tokens: {token[:80]!r} has the type of a byte, expected a text like '<0x0A>'")
