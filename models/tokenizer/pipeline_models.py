"""Models of a tokenizer.json: a piece of text to ids.

Arrives: the `model` object, then pieces. Leaves: ids. Source: huggingface/tokenizers tokenizers/src/models; details as
in version 0.23. Next modules: `pipeline_processors.py` for the ids, `pipeline.py` for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gml.errors import TokenizerError, UnsupportedError
from gml.models.tokenizer.bpe import MergeTable
from gml.models.tokenizer.pipeline_parts import build, setting
from gml.models.tokenizer.spm import SPACE, splitter
from gml.models.tokenizer.unigram import UNKNOWN_PENALTY, Lattice

Part = Mapping[str, Any]
Cut = Callable[[str], list[str]]
MAX_ID = 1 << 26


class PieceModel(Protocol):
    """What a model does with one piece.

    ids: spelling to id. cut: where given, a function that cuts a long piece in places that no token spans, with the
    same ids: what SentencePiece's whole texts become words by.
    """

    ids: dict[str, int]
    cut: Cut | None

    def encode_word(self, word: str) -> list[int]: ...


def model(part: Any) -> PieceModel:
    """The model that the `model` object describes. Files from before 0.20 leave its type out: then its keys tell."""
    if isinstance(part, Mapping) and "type" not in part:
        part = {"type": _guess(part), **part}
    return build(part, "model", _MAKERS)


def _guess(part: Part) -> str:
    if "merges" in part:
        return "BPE"
    if isinstance(part.get("vocab"), Sequence):
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in part else "WordLevel"


def _vocabulary(part: Part) -> dict[str, int]:
    ids = setting(part, "vocab", dict)
    for token, number in ids.items():
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MAX_ID:
            raise TokenizerError(f"tokenizer.json: model: token {token[:80]!r} has the id {number!r:.40}")
    return ids


def _unknown_id(ids: dict[str, int], token: str | None, kind: str) -> int | None:
    if token is not None and token not in ids:
        raise TokenizerError(f"tokenizer.json: {kind}: the unknown token {token[:80]!r} is not in the vocabulary")
    return None if token is None else ids[token]


def _byte_ids(ids: dict[str, int]) -> list[int | None]:
    return [ids.get(f"<0x{byte:02X}>") for byte in range(256)]


def _spell(character: str, byte_ids: Sequence[int | None]) -> list[int] | None:
    """The byte tokens of some text, or None where one is missing."""
    tokens = [byte_ids[byte] for byte in character.encode("utf-8", "surrogateescape")]
    return None if None in tokens else tokens  # pyright: ignore[reportReturnType]


class Bpe:
    """BPE over characters; byte-level pre-tokenizers have made characters of bytes."""

    def __init__(self, part: Part):
        if setting(part, "dropout", float, None):
            raise UnsupportedError("tokenizer.json: BPE: dropout makes ids random; set it to null")
        self.ids = _vocabulary(part)
        self.prefix = setting(part, "continuing_subword_prefix", str, None) or ""
        self.suffix = setting(part, "end_of_word_suffix", str, None) or ""
        self.fuse_unk = setting(part, "fuse_unk", bool, False)
        self.ignore_merges = setting(part, "ignore_merges", bool, False)
        self.unk = _unknown_id(self.ids, setting(part, "unk_token", str, None), "BPE")
        self.byte_ids = _byte_ids(self.ids) if setting(part, "byte_fallback", bool, False) else None
        self.merges = [_pair(merge, n) for n, merge in enumerate(setting(part, "merges", list))]
        self.table = self._table()
        # Runs of unknown tokens are one where they are fused, so that only known characters may stand at a cut.
        whole = self.prefix or self.suffix or self.ignore_merges or SPACE not in self.ids
        self.cut: Cut | None = None if whole else splitter(list(self.ids), cut_newlines="\n" in self.ids)

    def _table(self) -> MergeTable:
        radix = max(self.ids.values(), default=0) + 2
        packed: dict[int, int] = {}
        for rank, (left, right) in enumerate(self.merges):
            joined = left + right.removeprefix(self.prefix) if self.prefix else left + right
            for token in (left, right, joined):
                if token not in self.ids:
                    raise TokenizerError(
                        f"tokenizer.json: BPE: merge {rank} ({left[:40]!r}, {right[:40]!r}) needs the token "
                        f"{token[:80]!r}, which the vocabulary lacks"
                    )
            # Of a merge that stands there twice the last counts.
            packed[self.ids[left] * radix + self.ids[right]] = rank * radix + self.ids[joined]
        return MergeTable(packed, radix)

    def encode_word(self, word: str) -> list[int]:
        """The ids of one piece; characters without any token are left out, as in tokenizers."""
        if self.ignore_merges and word in self.ids:
            return [self.ids[word]]
        return self.table.merge(self._symbols(word))

    def _symbols(self, word: str) -> list[int]:
        ids: list[int] = []
        unknown = False
        last = len(word) - 1
        for n, character in enumerate(word):
            if n and self.prefix:
                character = self.prefix + character
            if n == last and self.suffix:
                character += self.suffix
            token = self.ids.get(character)
            if token is None:
                spelled = _spell(character, self.byte_ids) if self.byte_ids else None
                if spelled is not None:
                    # An unknown token that waits is written after the bytes: so does tokenizers.
                    ids += spelled
                elif self.unk is not None:
                    if unknown and not self.fuse_unk:
                        ids.append(self.unk)
                    unknown = True
                continue
            if unknown:
                ids.append(self.unk)  # pyright: ignore[reportArgumentType]
                unknown = False
            ids.append(token)
        if unknown:
            ids.append(self.unk)  # pyright: ignore[reportArgumentType]
        return ids


def _pair(merge: Any, n: int) -> tuple[str, str]:
    """A merge as "left right" or ["left", "right"]."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise TokenizerError(f"tokenizer.json: BPE: merge {n} is {merge!r:.80}, expected two tokens")
    return parts[0], parts[1]


class WordPieceModel:
    """The longest token first; those inside a word have a prefix."""

    cut: Cut | None = None

    def __init__(self, part: Part):
        self.ids = _vocabulary(part)
        self.prefix = setting(part, "continuing_subword_prefix", str, "##")
        self.max_length = setting(part, "max_input_chars_per_word", int, 100)
        unk = _unknown_id(self.ids, setting(part, "unk_token", str, "[UNK]"), "WordPiece")
        assert unk is not None
        self.unk = unk
        self.longest = max(map(len, self.ids), default=1)

    def encode_word(self, word: str) -> list[int]:
        """The ids of one piece, or the unknown token."""
        n = len(word)
        if n > self.max_length:
            return [self.unk]
        ids, at = [], 0
        while at < n:
            prefix = self.prefix if at else ""
            end = min(n, at + self.longest)
            while end > at and prefix + word[at:end] not in self.ids:
                end -= 1
            if end == at:
                return [self.unk]
            ids.append(self.ids[prefix + word[at:end]])
            at = end
        return ids


class WordLevel:
    """Each piece is a token or the unknown token."""

    cut: Cut | None = None

    def __init__(self, part: Part):
        self.ids = _vocabulary(part)
        self.unk = self.ids.get(setting(part, "unk_token", str, "<unk>"))

    def encode_word(self, word: str) -> list[int]:
        """The id of one piece. Raises TokenizerError where there is not even an unknown token."""
        token = self.ids.get(word, self.unk)
        if token is None:
            raise TokenizerError(f"tokenizer.json: WordLevel: {word[:80]!r} is no token and there is no unknown token")
        return [token]


class UnigramModel:
    """The cut with the largest sum of scores."""

    def __init__(self, part: Part):
        vocabulary = setting(part, "vocab", list)
        self.ids: dict[str, int] = {}
        tokens: dict[str, tuple[int, float]] = {}
        for n, entry in enumerate(vocabulary):
            if not (isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[0], str)):
                raise TokenizerError(f"tokenizer.json: Unigram: entry {n} is {entry!r:.80}, expected [token, score]")
            token, score = entry
            if not isinstance(score, (int, float)) or isinstance(score, bool) or np.isnan(score):
                raise TokenizerError(f"tokenizer.json: Unigram: token {token[:80]!r} has the score {score!r:.40}")
            self.ids[token] = n
            tokens[token] = n, float(score)
        self.scores = [score for _, score in vocabulary]
        self.unk = setting(part, "unk_id", int, None)
        if self.unk is not None and not 0 <= self.unk < len(vocabulary):
            raise TokenizerError(f"tokenizer.json: Unigram: unk_id {self.unk} is outside {len(vocabulary)} tokens")
        self.byte_ids = _byte_ids(self.ids) if setting(part, "byte_fallback", bool, False) else None
        lowest = min(self.scores, default=0.0)
        cuttable = SPACE in self.ids
        self.cut: Cut | None = splitter(list(self.ids), cut_newlines="\n" in self.ids) if cuttable else None
        self.lattice = Lattice({token: found for token, found in tokens.items() if token}, -1, lowest - UNKNOWN_PENALTY)

    def encode_word(self, word: str) -> list[int]:
        """The ids of one piece."""
        ids: list[int] = []
        start, unknown = 0, ""
        for token, end in self.lattice.best(word):
            if token in (-1, self.unk):
                unknown += word[start:end]
            else:
                ids += self._unknown(unknown)
                ids.append(token)
                unknown = ""
            start = end
        return ids + self._unknown(unknown)

    def _unknown(self, text: str) -> list[int]:
        """The ids of a run of characters without tokens."""
        if not text:
            return []
        if text in self.ids:
            return [self.ids[text]]
        spelled = _spell(text, self.byte_ids) if self.byte_ids else None
        if spelled is not None:
            return spelled
        if self.unk is None:
            raise TokenizerError(f"tokenizer.json: Unigram: {text[:80]!r} has no token and unk_id names none")
        return [self.unk]


_MAKERS: dict[str, Callable[[Part], PieceModel]] = {
    "BPE": Bpe,
    "WordPiece": WordPieceModel,
    "WordLevel": WordLevel,
    "Unigram": UnigramModel,
}
