"""WordPiece (`tokenizer.ggml.model` = bert): words to ids by the longest token that fits, again and again.

Arrives: fragments of text between special tokens. Leaves: ids as packed int32. Text is normalised first: white space
and punctuation part words, control characters go, and as the flags say letters lose their accents and capitals. In GGUF
files a word's first token begins with U+2581 and the others have no mark. Source: Schuster and Nakajima 2012,
google-research/bert tokenization.py; details as in llama.cpp (llm_tokenizer_wpm). Next module: `tokenizer.py`.
"""

from __future__ import annotations

from gml.errors import TokenizerError
from gml.models.tokenizer.memo import WordMemo
from gml.models.tokenizer.text import base_map, class_ranges, lowercase_map, readable
from gml.models.tokenizer.vocabulary import TokenType, Vocabulary

SPACE = "\u2581"

# Blocks of Chinese characters, each a word. The gap before U+2B920 is Rust tokenizers', which models are trained with.
CHINESE = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)),
    *((0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


class WordPiece:
    """The model part of a WordPiece tokenizer."""

    def __init__(self, vocabulary: Vocabulary, *, lowercase: bool, strip_accents: bool):
        unk = vocabulary.specials.get("unk")
        if unk is None:
            raise TokenizerError("tokenizer.ggml.unknown_token_id names no token: a bert vocabulary needs one")
        self.unk = unk
        self.lowercase, self.strip_accents = lowercase, strip_accents
        self.ids = vocabulary.ids
        self.max_length = max(map(len, vocabulary.tokens))
        self._normal = _Normaliser(lowercase=lowercase, strip_accents=strip_accents)
        self._memo = WordMemo(self.encode_word)

    @property
    def missing_bytes(self) -> frozenset[int]:
        """None: what cannot be spelled is the unknown token."""
        return frozenset()

    def encode_word(self, word: str) -> list[int]:
        """The ids of one word, or the unknown token where some part of it has none."""
        marked = SPACE + word
        ids: list[int] = []
        at, n = 0, len(marked)
        while at < n:
            end = min(n, at + self.max_length)
            while end > at and marked[at:end] not in self.ids:
                end -= 1
            if end == at:
                return [self.unk]
            ids.append(self.ids[marked[at:end]])
            at = end
        return ids

    def encode(self, fragment: str, *, starts: bool) -> bytes:
        """The ids of a fragment (invalid UTF-8 as surrogate escapes) as packed int32. `starts` has no effect."""
        del starts
        text = readable(fragment).translate(self._normal)
        return self._memo.encode([word for word in text.split(" ") if word])

    def piece(self, token: str, kind: TokenType) -> bytes:
        """The bytes that a token stands for in text."""
        if kind == TokenType.NORMAL:
            return token.replace(SPACE, " ").encode("utf-8", "surrogateescape")
        if kind in (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN):
            return token.encode("utf-8", "surrogateescape")
        return b""


def _members(name: str) -> list[range]:
    return [range(first, last + 1) for first, last in class_ranges(name)]


class _Normaliser(dict[int, "str | None"]):
    """code point -> what becomes of it, for str.translate: nothing, itself, or a word of its own between spaces."""

    def __init__(self, *, lowercase: bool, strip_accents: bool):
        super().__init__()
        self._lower = lowercase_map() if lowercase else {}
        self._bases = base_map() if strip_accents else {}
        self._accents = _members("M") if strip_accents else []
        self._spaces, self._controls = _members("whitespace"), _members("C")
        self._marks = _members("P")
        self._symbols = [symbols for symbols in _members("S") if symbols.start < 0x7F]
        self._chinese = [range(first, last + 1) for first, last in CHINESE]

    def __missing__(self, code_point: int) -> str | None:
        self[code_point] = result = self._become(self._bases.get(code_point, code_point))
        return result

    def _become(self, code_point: int) -> str | None:
        def among(ranges: list[range]) -> bool:
            return any(code_point in members for members in ranges)

        if among(self._spaces):
            return " "
        if code_point in (0, 0xFFFD) or among(self._controls) or among(self._accents):
            return None
        character = chr(self._lower.get(code_point, code_point))
        alone = among(self._marks) or among(self._symbols) or among(self._chinese)
        return f" {character} " if alone else character
