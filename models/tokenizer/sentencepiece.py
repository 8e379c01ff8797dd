"""The tokenizer of a SentencePiece model file (`tokenizer.model`): BPE, Unigram, words or characters.

Arrives: the file's bytes, a protocol-buffer message. Leaves: a `Tokenizer` whose ids are those of package
`sentencepiece`. Text is normalised by the file's character map; spaces are merged, one is put before the text, and they
become U+2581; user-defined tokens are found first and merge with nothing. Source: google/sentencepiece
sentencepiece_model.proto, normalizer.cc, bpe_model.cc, unigram_model.cc. Next module: `tokenizer.py`.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gml.errors import TokenizerError, UnsupportedError
from gml.models.tokenizer.charsmap import CharsMap
from gml.models.tokenizer.memo import INT32
from gml.models.tokenizer.protobuf import fields
from gml.models.tokenizer.spm import SPACE, SentencePieceBpe, splitter
from gml.models.tokenizer.tokenizer import Tokenizer
from gml.models.tokenizer.unigram import UNKNOWN_PENALTY, Lattice
from gml.models.tokenizer.vocabulary import TokenType, Vocabulary, byte_of_token
from gml.records import dataclass, field

UNIGRAM, BPE, WORD, CHAR = 1, 2, 3, 4
MAX_TOKENS = 1 << 24


@dataclass
class SentencePieceFile:
    """What a model file says. types: of TokenType; ids: of the special tokens, -1 for none."""

    tokens: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    model_type: int = UNIGRAM
    byte_fallback: bool = False
    whitespace_as_suffix: bool = False
    ids: dict[str, int] = field(default_factory=lambda: {"unk": 0, "bos": 1, "eos": 2, "pad": -1})
    unk_surface: str = " \u2047 "
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True

    @classmethod
    def read(cls, data: bytes, name: str = "tokenizer.model") -> SentencePieceFile:
        """Reads a model file. Raises TokenizerError where it is none or ends early."""
        file = cls()
        for number, value in fields(memoryview(data), name):
            if number in (1, 2, 3) and not isinstance(value, memoryview):
                raise TokenizerError(f"{name}: field {number} is a number, expected a message")
            if number == 1:
                file._read_piece(value, f"{name}: piece {len(file.tokens)}")  # pyright: ignore[reportArgumentType]
            elif number == 2:
                file._read_trainer(value, f"{name}: trainer_spec")  # pyright: ignore[reportArgumentType]
            elif number == 3:
                file._read_normalizer(value, f"{name}: normalizer_spec")  # pyright: ignore[reportArgumentType]
        if not file.tokens:
            raise TokenizerError(f"{name}: expected a SentencePiece model, found no pieces")
        if not any(kind == TokenType.UNKNOWN for kind in file.types):
            raise TokenizerError(f"{name}: no piece has the type of the unknown token")
        return file

    def _read_piece(self, data: memoryview, what: str) -> None:
        token, score, kind = "", 0.0, int(TokenType.NORMAL)
        for number, value in fields(data, what):
            if number == 1:
                token = _text(value, what)
            elif number == 2 and isinstance(value, int):
                score = struct.unpack("<f", (value & 0xFFFFFFFF).to_bytes(4, "little"))[0]
            elif number == 3 and isinstance(value, int):
                kind = value
        if not token or score != score or not 1 <= kind <= 6 or len(self.tokens) >= MAX_TOKENS:
            raise TokenizerError(f"{what}: token {token[:80]!r} of type {kind} with the score {score}")
        self.tokens.append(token)
        self.scores.append(score)
        self.types.append(kind)

    def _read_trainer(self, data: memoryview, what: str) -> None:
        names = {40: "unk", 41: "bos", 42: "eos", 43: "pad"}
        for number, value in fields(data, what):
            if number == 44:
                self.unk_surface = _text(value, what)
            if not isinstance(value, int):
                continue
            if number == 3:
                self.model_type = value
            elif number == 24:
                self.whitespace_as_suffix = bool(value)
            elif number == 35:
                self.byte_fallback = bool(value)
            elif number in names:
                self.ids[names[number]] = value - (1 << 64) if value >> 63 else value

    def _read_normalizer(self, data: memoryview, what: str) -> None:
        flags = {3: "add_dummy_prefix", 4: "remove_extra_whitespaces", 5: "escape_whitespaces"}
        for number, value in fields(data, what):
            if number == 2 and isinstance(value, memoryview):
                self.charsmap = bytes(value)
            elif number in flags:
                setattr(self, flags[number], bool(value))

    def vocabulary(self) -> Vocabulary:
        """The tokens, with the special ids that the file names."""
        metadata = {
            "tokenizer.ggml.tokens": self.tokens,
            "tokenizer.ggml.token_type": self.types,
            "tokenizer.ggml.scores": self.scores,
        }
        found = Vocabulary.from_metadata(metadata, {})
        # What llama.cpp amends by the tokens' texts is not this file's word.
        found.types = np.array(self.types, np.int32)
        found.specials.update({name: token for name, token in self.ids.items() if 0 <= token < len(self.tokens)})
        found.specials["unk"] = self.types.index(TokenType.UNKNOWN)
        return found

    def of_type(self, *kinds: TokenType) -> list[int]:
        """The ids of the tokens of some types."""
        return [token for token, kind in enumerate(self.types) if kind in kinds]


def _text(value: int | memoryview, what: str) -> str:
    if isinstance(value, int):
        raise TokenizerError(f"{what}: expected a text, found a number")
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        raise TokenizerError(f"{what}: a text is not UTF-8") from None


class SentencePieceModel:
    """The model part: normalises a text, cuts user-defined tokens out, spells the rest."""

    def __init__(self, file: SentencePieceFile, vocabulary: Vocabulary):
        self.file = file
        self.unk = vocabulary.specials["unk"]
        self._ids = vocabulary.ids
        self._charsmap = CharsMap(file.charsmap) if file.charsmap else None
        byte_ids = [vocabulary.ids.get(f"<0x{byte:02X}>") for byte in range(256)]
        if file.byte_fallback and None in byte_ids:
            raise TokenizerError("tokenizer.model: byte_fallback is set, but not every byte has a token")
        self.byte_ids = byte_ids if file.byte_fallback else None
        user_defined = sorted((file.tokens[n] for n in file.of_type(TokenType.USER_DEFINED)), key=len, reverse=True)
        self._cut = re.compile("(" + "|".join(map(re.escape, user_defined)) + ")").split if user_defined else None
        usable = file.of_type(TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
        self._usable = {file.tokens[token]: token for token in usable}
        spell = {UNIGRAM: self._unigram, BPE: self._bpe, WORD: self._words, CHAR: self._characters}.get(file.model_type)
        if spell is None:
            raise UnsupportedError(f"tokenizer.model: model type {file.model_type} is not known")
        self._spell = spell(vocabulary)

    @property
    def missing_bytes(self) -> frozenset[int]:
        """None: what cannot be spelled is the unknown token."""
        return frozenset()

    def normalize(self, text: str) -> str:
        """The text as the tokens spell it; bytes that are not UTF-8 become U+FFFD."""
        parts = self._cut(text) if self._cut else [text]
        for n in range(0, len(parts), 2):
            part = self._charsmap.normalize(parts[n]) if self._charsmap else parts[n]
            parts[n] = part if part.isascii() else re.sub("[\udc80-\udcff]", "\ufffd", part)
        # A text of nothing but characters that the map takes away is not empty: it is a dummy prefix or suffix.
        something = bool(text) if not self.file.remove_extra_whitespaces else self._takes_away(text)
        text = "".join(parts)
        space = SPACE if self.file.escape_whitespaces else " "
        if self.file.remove_extra_whitespaces:
            text = re.sub(" {2,}", " ", text.lstrip(" "))
        if not text and not something:
            return ""
        if self.file.add_dummy_prefix and not self.file.whitespace_as_suffix:
            text = " " + text
        text = text.replace(" ", space)
        if self.file.remove_extra_whitespaces:
            while text.endswith(space):
                text = text[: -len(space)]
        return text + space if self.file.add_dummy_prefix and self.file.whitespace_as_suffix else text

    def _takes_away(self, text: str) -> bool:
        """Whether the character map takes any character away."""
        return self._charsmap is not None and any(not replacement for *_, replacement in self._charsmap.spans(text))

    def encode(self, fragment: str, *, starts: bool) -> bytes:
        """The ids of a fragment (invalid UTF-8 as surrogate escapes) as packed int32. `starts` has no effect."""
        del starts
        ids = array(INT32)
        unknown = False
        for symbol, token in self._spell(self.normalize(fragment)):
            if token == self.unk and self.byte_ids:
                ids.extend([self.byte_ids[byte] or 0 for byte in symbol.encode("utf-8")])
            elif not (unknown and token == self.unk):
                ids.append(token)
            unknown = token == self.unk
        return ids.tobytes()

    def _id(self, symbol: str) -> int:
        return self._ids.get(symbol, self.unk)

    def _parts(self, text: str) -> list[str]:
        """User-defined tokens (at odd places) and the text between."""
        return self._cut(text) if self._cut else [text]

    def _bpe(self, vocabulary: Vocabulary) -> Callable[[str], list[tuple[str, int]]]:
        if self.file.of_type(TokenType.UNUSED):
            raise UnsupportedError("tokenizer.model: unused pieces of a BPE model are not known")
        merger = SentencePieceBpe(vocabulary, add_space_prefix=False)
        merger.ranks = {token: rank for token, rank in merger.ranks.items() if token in self._usable}
        divide = splitter(list(self._usable))
        memo: dict[str, list[tuple[str, int]]] = {}

        def word(text: str) -> list[tuple[str, int]]:
            found = memo.get(text)
            if found is None:
                if len(memo) >= 1 << 16:
                    memo.clear()
                found = memo[text] = [(symbol, self._id(symbol)) for symbol in merger.merge(text)]
            return found

        def spell(text: str) -> list[tuple[str, int]]:
            symbols: list[tuple[str, int]] = []
            for n, part in enumerate(self._parts(text)):
                if n % 2:
                    symbols.append((part, self._id(part)))
                else:
                    symbols += [symbol for piece in divide(part) for symbol in word(piece)]
            return symbols

        return spell

    def _unigram(self, vocabulary: Vocabulary) -> Callable[[str], list[tuple[str, int]]]:
        del vocabulary
        file = self.file
        normal = [file.scores[token] for token in file.of_type(TokenType.NORMAL)]
        # sentencepiece begins its search for the maximum with the smallest positive number.
        highest = max([0.0, *normal])
        tokens = {}
        for token in file.of_type(TokenType.NORMAL, TokenType.USER_DEFINED):
            score = file.scores[token]
            if file.types[token] == TokenType.USER_DEFINED:
                # High enough that it is always chosen.
                score = len(file.tokens[token].encode("utf-8")) * highest - 0.1
            tokens[file.tokens[token]] = token, score
        lattice = Lattice(tokens, self.unk, min(normal, default=0.0) - UNKNOWN_PENALTY)
        divide = splitter(list(tokens))
        memo: dict[str, list[tuple[str, int]]] = {}

        def word(text: str) -> list[tuple[str, int]]:
            found = memo.get(text)
            if found is None:
                if len(memo) >= 1 << 16:
                    memo.clear()
                found, start = [], 0
                for token, end in lattice.best(text):
                    found.append((text[start:end], token))
                    start = end
                memo[text] = found
            return found

        return lambda text: [symbol for piece in divide(text) for symbol in word(piece)]

    def _words(self, vocabulary: Vocabulary) -> Callable[[str], list[tuple[str, int]]]:
        del vocabulary
        pattern = (
            f"[^{SPACE}]*{SPACE}|[^{SPACE}]+" if self.file.whitespace_as_suffix else f"{SPACE}?[^{SPACE}]+|{SPACE}"
        )
        find = re.compile(pattern).findall
        return lambda text: [(word, self._id(word)) for word in find(text)]

    def _characters(self, vocabulary: Vocabulary) -> Callable[[str], list[tuple[str, int]]]:
        del vocabulary

        def spell(text: str) -> list[tuple[str, int]]:
            parts = self._parts(text)
            symbols = [[part] if n % 2 else list(part) for n, part in enumerate(parts)]
            return [(symbol, self._id(symbol)) for part in symbols for symbol in part]

        return spell

    def piece(self, token: str, kind: TokenType) -> bytes:
        """The bytes that a token stands for in text."""
        if kind == TokenType.BYTE:
            return byte_of_token(token)
        if kind == TokenType.UNKNOWN:
            return self.file.unk_surface.encode("utf-8")
        return (token if kind == TokenType.CONTROL else token.replace(SPACE, " ")).encode("utf-8")


def load_sentencepiece(path: str | Path) -> Tokenizer:
    """The tokenizer of a SentencePiece model file.

    `encode(add_special=True)` adds BOS, as the models that come with such files expect. Raises TokenizerError for a
    file that is none, UnsupportedError for a model type that is not known.
    """
    return from_file(SentencePieceFile.read(Path(path).read_bytes(), str(path)))


def from_file(file: SentencePieceFile) -> Tokenizer:
    """The tokenizer of a file that has been read."""
    vocabulary = file.vocabulary()
    return Tokenizer(
        vocabulary,
        SentencePieceModel(file, vocabulary),
        add_bos="bos" in vocabulary.specials,
        add_eos=False,
        add_space_prefix=file.add_dummy_prefix and not file.whitespace_as_suffix,
        cut_user_defined=False,
    )
