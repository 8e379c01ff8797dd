"""The tokenizer of a tokenizer.json: text to ids and back, by the parts that the file puts together.

Arrives: a file's JSON, then text or ids. Leaves: ids (int32 arrays) or text. Encoding finds added tokens
(`pipeline_added.py`), normalises what lies between them (`pipeline_normalizers.py`), cuts it into pieces
(`pipeline_pretokenizers.py`), spells each piece (`pipeline_models.py`) and writes special tokens around
(`pipeline_processors.py`); decoding joins spellings (`pipeline_decoders.py`). Ids are those of package `tokenizers`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gml.errors import TokenizerError
from gml.models.tokenizer.memo import WordMemo
from gml.models.tokenizer.pipeline_added import AddedTokens
from gml.models.tokenizer.pipeline_decoders import byte_of, decoder, token_bytes
from gml.models.tokenizer.pipeline_models import model
from gml.models.tokenizer.pipeline_normalizers import normalizer
from gml.models.tokenizer.pipeline_pretokenizers import pretokenizer
from gml.models.tokenizer.pipeline_processors import Padding, Truncation, template
from gml.models.tokenizer.tokenizer import as_str

# How many ids without certain text are held back: no character has more bytes, but runs of invalid ones may be long.
MAX_WAITING = 64
# Longer pieces (in characters) are cut further where that changes no id.
LONG_WORD = 32


class Pipeline:
    """A tokenizer.json at work.

    Attributes: settings: the file's JSON; model; added: the added tokens; truncation, padding: of `encode`, settable.
    """

    def __init__(self, settings: Mapping[str, Any]):
        if not isinstance(settings, Mapping) or "model" not in settings:
            raise TokenizerError("tokenizer.json: expected an object with a model; take a complete file")
        self.settings = dict(settings)
        self.model = model(settings["model"])
        self.normalize = normalizer(settings.get("normalizer"))
        self._split = pretokenizer(settings.get("pre_tokenizer"))
        self.template = template(settings.get("post_processor"))
        self._decode = decoder(settings.get("decoder"))
        self.added = AddedTokens(settings.get("added_tokens"), self.model.ids, self.normalize)
        self.truncation = Truncation.from_json(settings.get("truncation"))
        self.padding = Padding.from_json(settings.get("padding"))
        self._spellings = {token: spelling for spelling, token in self.model.ids.items()} | self.added.spellings
        self._byte_level = _uses(self.settings, "ByteLevel")
        self._falls_back = _uses(self.settings, "ByteFallback")
        self._memo = WordMemo(self.model.encode_word)

    @classmethod
    def from_file(cls, path: str | Path) -> Pipeline:
        """Reads a tokenizer.json. Raises TokenizerError for a file that is none, UnsupportedError for unknown parts."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerError(f"{path}: expected JSON in UTF-8: {error}") from None
        return cls.from_json(text, str(path))

    @classmethod
    def from_json(cls, text: str, name: str = "tokenizer.json") -> Pipeline:
        """Reads the text of a tokenizer.json."""
        try:
            settings = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TokenizerError(f"{name}: expected JSON: {error}") from None
        return cls(settings)

    @property
    def n_vocab(self) -> int:
        """One more than the largest id."""
        return max(self._spellings, default=-1) + 1

    def token_id(self, spelling: str) -> int | None:
        """The id of a token by its spelling, added tokens first."""
        return self.added.ids.get(spelling, self.model.ids.get(spelling))

    def spelling(self, token: int) -> str | None:
        """The spelling of a token by its id, or None."""
        return self._spellings.get(token)

    def is_special(self, token: int) -> bool:
        """Whether `decode(skip_special=True)` leaves an id out."""
        return token in self.added.special

    def _ids(self, text: str | bytes, parse_special: bool) -> list[int]:
        packed: list[bytes] = []
        text = as_str(text)
        # Where the normalizer takes the first character away, tokenizers no longer sees the start of the text.
        first = bool(self.normalize(text[:1]))
        for fragment in self.added.partition(text, parse_special=parse_special):
            if isinstance(fragment, int):
                packed.append(np.int32(fragment).tobytes())
            else:
                packed.append(self._memo.encode(self._words(fragment, first)))
            first = False
        return np.frombuffer(b"".join(packed), np.int32).tolist()

    def _words(self, fragment: str, first: bool) -> list[str]:
        words = [piece for piece in self._split(fragment, first) if piece]
        cut = self.model.cut
        if cut is None or all(len(word) <= LONG_WORD for word in words):
            return words
        return [part for word in words for part in (cut(word) if len(word) > LONG_WORD else (word,))]

    def split(self, text: str) -> list[str]:
        """Normalised text's pieces, as the model sees them."""
        return [piece for piece in self._split(text, True) if piece]

    def to_json(self) -> str:
        """The text of a tokenizer.json."""
        return json.dumps(self.settings, ensure_ascii=False, indent=2)

    def _sequence(
        self, text: str | bytes, pair: str | bytes | None, add_special: bool, parse_special: bool
    ) -> list[int]:
        first = self._ids(text, parse_special)
        second = None if pair is None else self._ids(pair, parse_special)
        if self.truncation:
            n_added = self.template.n_added(second is not None) if add_special else 0
            first, second = self.truncation.apply(first, second, n_added)
        return self.template.apply(first, second) if add_special else first + (second or [])

    def encode(
        self,
        text: str | bytes,
        pair: str | bytes | None = None,
        *,
        add_special: bool = False,
        parse_special: bool = False,
    ) -> np.ndarray:
        """Ids of a text, or of two, an int32 array; truncated and padded as the file says.

        add_special: write the post-processor's special tokens. parse_special: text that spells a special token is that
        token; otherwise it is text (added tokens that are not special always count). The `encode` of tokenizers is
        add_special and parse_special. Bytes need not be valid UTF-8: where the model has tokens for bytes they are
        kept. Raises TokenizerError for a str with lone surrogates.
        """
        return np.array(self.encode_batch([text], pairs=[pair], **_flags(add_special, parse_special))[0], np.int32)

    def encode_batch(
        self,
        texts: Sequence[str | bytes],
        pairs: Sequence[str | bytes | None] | None = None,
        *,
        add_special: bool = False,
        parse_special: bool = False,
    ) -> list[np.ndarray]:
        """Ids of each text, of one length if the file says how to pad."""
        if pairs is None:
            pairs = [None] * len(texts)
        if len(pairs) != len(texts):
            raise TokenizerError(f"encode_batch: {len(texts)} texts, but {len(pairs)} second texts")
        sequences = [
            self._sequence(text, pair, add_special, parse_special) for text, pair in zip(texts, pairs, strict=True)
        ]
        if self.padding:
            sequences = self.padding.apply(sequences)
        return [np.array(ids, np.int32) for ids in sequences]

    def decode(self, ids: Iterable[int] | np.ndarray, *, skip_special: bool = False) -> str:
        """The text that ids stand for, as tokenizers gives it; ids of no token give nothing."""
        tokens = ids.reshape(-1).tolist() if isinstance(ids, np.ndarray) else list(ids)
        spellings = [self._spellings.get(token) for token in tokens if not (skip_special and self.is_special(token))]
        return "".join(self._decode([spelling for spelling in spellings if spelling is not None]))

    def piece(self, token: int) -> bytes:
        """The bytes of one token, perhaps part of a character. Raises TokenizerError for an unknown id."""
        spelling = self._spellings.get(token)
        if spelling is None:
            raise TokenizerError(f"token id {token} is outside the vocabulary of {self.n_vocab} tokens")
        byte = byte_of(spelling) if self._falls_back else None
        if byte is not None:
            return bytes([byte])
        if token in self.added.spellings:
            return spelling.encode("utf-8", "surrogatepass")
        if self._byte_level:
            return token_bytes(spelling)
        return spelling.replace("\u2581", " ").encode("utf-8", "surrogatepass")

    def stream(self, *, skip_special: bool = False) -> PipelineStream:
        """A decoder for ids that come one by one."""
        return PipelineStream(self, skip_special=skip_special)


def _flags(add_special: bool, parse_special: bool) -> dict[str, bool]:
    return {"add_special": add_special, "parse_special": parse_special}


def _uses(settings: Mapping[str, Any], kind: str) -> bool:
    return f'"type": "{kind}"' in json.dumps(settings.get("decoder"))


class PipelineStream:
    """Text from ids that come one by one: in all the same as `Pipeline.decode` of all of them.

    What a decoder makes of a token may depend on its neighbours and on whether it is the first. So the ids whose text
    was given last are decoded together with those that came since, and what is new is the difference. Text that ends in
    U+FFFD may be the beginning of a character and is held back; so is a run of byte tokens, all of which become U+FFFD
    if one of them does.
    """

    def __init__(self, pipeline: Pipeline, *, skip_special: bool = False):
        self._pipeline = pipeline
        self._skip = skip_special
        self._given: list[int] = []
        self._waiting: list[int] = []
        self._falls_back = _uses(pipeline.settings, "ByteFallback")

    def _new(self) -> str:
        before = self._pipeline.decode(self._given)
        return self._pipeline.decode(self._given + self._waiting)[len(before) :]

    def push(self, token: int) -> str:
        """The text that becomes certain with one more id; may be empty."""
        spelling = self._pipeline.spelling(token)
        if spelling is None or (self._skip and self._pipeline.is_special(token)):
            return ""
        self._waiting.append(token)
        if self._falls_back and byte_of(spelling) is not None and len(self._waiting) <= MAX_WAITING:
            return ""
        text = self._new()
        if not text or (text.endswith("\ufffd") and len(self._waiting) <= MAX_WAITING):
            return ""
        self._given, self._waiting = self._waiting, []
        return text

    def flush(self) -> str:
        """What was held back; the stream is then at its start."""
        text = self._new() if self._waiting else ""
        self._given, self._waiting = [], []
        return text
