"""The tokenizer of a GGUF file: text to ids and back.

Arrives: the file's metadata, then text or ids. Leaves: ids (int32 arrays) or text. `from_metadata` reads the vocabulary
(`vocabulary.py`), picks the model by `tokenizer.ggml.model` (`bpe.py`, `spm.py`) and for byte-level BPE the
pre-tokenizer by `tokenizer.ggml.pre` (`pretokenizers.py`). Encoding first finds special tokens (`special.py`), then
gives the text between them to the model. Ids are those of llama.cpp. Next module: `models/session.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gml.errors import TokenizerError, UnsupportedError
from gml.models.tokenizer.from_gguf import MODELS
from gml.models.tokenizer.memo import PieceMemo
from gml.models.tokenizer.offsets import locate
from gml.models.tokenizer.special import SpecialMatcher
from gml.models.tokenizer.stream import StreamDecoder
from gml.models.tokenizer.text import clean_up
from gml.models.tokenizer.vocabulary import PREFIX, TokenType, Vocabulary

if TYPE_CHECKING:
    from gml.models.tokenizer.pipeline_processors import Padding, Truncation

_SURROGATES = re.compile("[\ud800-\udfff]")


class Model(Protocol):
    """What a tokenizer model does with the text between special tokens."""

    @property
    def missing_bytes(self) -> frozenset[int]: ...

    def encode(self, fragment: str, *, starts: bool) -> bytes: ...

    def piece(self, token: str, kind: TokenType) -> bytes: ...


class Tokenizer:
    """A vocabulary with its model and flags. Make one with `from_metadata`.

    Attributes: vocabulary; model; add_bos, add_eos: what `encode(add_special=True)` adds; end: the special token that
    add_eos adds (eos, or sep for BERT); add_space_prefix: the model puts a space before text that starts or follows a
    special token, and decoding drops it at the start; clean_up: what `decode(clean=True)` cleans. cut_user_defined: no
    model sees user-defined tokens; otherwise it finds them itself.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        model: Model,
        *,
        add_bos: bool,
        add_eos: bool,
        end: str = "eos",
        add_space_prefix: bool = False,
        clean_up: bool = False,
        cut_user_defined: bool = True,
    ):
        for added, name in ((add_bos, "bos"), (add_eos, end)):
            if added and name not in vocabulary.specials:
                raise TokenizerError(
                    f"tokenizer.ggml.add_{name}_token is true, but tokenizer.ggml.{name}_token_id names no token of "
                    "the vocabulary; set one of the two"
                )
        self.end = end
        self.clean_up = clean_up
        self.vocabulary = vocabulary
        self.model = model
        self.add_bos = add_bos
        self.add_eos = add_eos
        self.add_space_prefix = add_space_prefix
        special = vocabulary.special_ids(parse_special=True)
        always = vocabulary.special_ids(parse_special=False)
        self._matchers = {
            False: SpecialMatcher(vocabulary, always if cut_user_defined else []),
            True: SpecialMatcher(vocabulary, special if cut_user_defined else list(set(special) - set(always))),
        }
        self._special = frozenset(special)
        self.skipped_ids = frozenset(
            token for token in special if vocabulary.types[token] in (TokenType.CONTROL, TokenType.UNKNOWN)
        )
        self._pieces = PieceMemo(self._make_piece)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], pre: str | None = None) -> Tokenizer:
        """The tokenizer that a GGUF file's metadata describes.

        `pre` overrides `tokenizer.ggml.pre`. Raises TokenizerError for a vocabulary that is missing or broken,
        UnsupportedError for a model or pre-tokenizer that is not known.
        """
        name = metadata.get(PREFIX + "model")
        if not isinstance(name, str):
            raise TokenizerError("tokenizer.ggml.model is missing or no string: the file does not say how it tokenizes")
        build = MODELS.get(name)
        if build is None:
            raise UnsupportedError(f"tokenizer.ggml.model: {name!r} is not supported; supported: {', '.join(MODELS)}")
        return cls(**build(metadata, pre))

    @property
    def n_vocab(self) -> int:
        """The number of tokens; ids are below it."""
        return self.vocabulary.n_vocab

    @property
    def bos_id(self) -> int | None:
        """The id that begins a text, if there is one."""
        return self.vocabulary.specials.get("bos")

    @property
    def eos_id(self) -> int | None:
        """The id that ends a text, if there is one."""
        return self.vocabulary.specials.get("eos")

    @property
    def eot_id(self) -> int | None:
        """The id that ends a turn of a chat, if there is one."""
        return self.vocabulary.specials.get("eot")

    @property
    def eog_ids(self) -> frozenset[int]:
        """All ids at which generation ends."""
        return self.vocabulary.eog

    @property
    def token_types(self) -> np.ndarray:
        """int32[n_vocab] of TokenType, amended as the vocabulary's docstring says."""
        return self.vocabulary.types

    @property
    def missing_bytes(self) -> frozenset[int]:
        """Bytes that the vocabulary cannot spell: encoding leaves them out, with a warning."""
        return self.model.missing_bytes

    def token_id(self, spelling: str) -> int | None:
        """The id of a token by its spelling in the vocabulary (`<|im_end|>`, `Ġthe`, `▁the`)."""
        return self.vocabulary.ids.get(spelling)

    def is_special(self, token: int) -> bool:
        """Whether an id is a control, unknown or user-defined token."""
        return token in self._special

    def encode(
        self, text: str | bytes, *, add_special: bool = False, parse_special: bool = False, errors: str = "strict"
    ) -> np.ndarray:
        """Ids of a text, an int32 array.

        add_special: begin with BOS and end with EOS as far as add_bos and add_eos say. parse_special: text that spells
        a control token is that token; otherwise it is text (user-defined tokens always count). Bytes need not be
        valid UTF-8: byte-level BPE reads a bad byte as U+FFFD, SentencePiece keeps it as a byte token. errors: a str
        with lone surrogates is refused with a TokenizerError ("strict"), or they become U+FFFD ("replace").
        """
        fragments = self._matchers[parse_special].partition(as_str(text, errors))
        parts: list[bytes] = []
        starts = True
        for fragment in fragments:
            if isinstance(fragment, int):
                parts.append(np.int32(fragment).tobytes())
                starts = True
            else:
                parts.append(self.model.encode(fragment, starts=starts))
                starts = False
        specials = self.vocabulary.specials
        if add_special and self.add_bos:
            parts.insert(0, np.int32(specials["bos"]).tobytes())
        if add_special and self.add_eos:
            parts.append(np.int32(specials[self.end]).tobytes())
        return np.frombuffer(bytearray(b"".join(parts)), dtype=np.int32)

    def encode_batch(
        self,
        texts: Iterable[str | bytes],
        *,
        add_special: bool = False,
        parse_special: bool = False,
        truncation: Truncation | None = None,
        padding: Padding | None = None,
    ) -> list[np.ndarray]:
        """Ids of each text; options as in `encode`, and those of `pipeline_processors.py` for the lengths."""
        bos = [self.vocabulary.specials["bos"]] if add_special and self.add_bos else []
        end = [self.vocabulary.specials[self.end]] if add_special and self.add_eos else []
        sequences = []
        for text in texts:
            ids = self.encode(text, parse_special=parse_special).tolist()
            if truncation:
                ids, _ = truncation.apply(ids, None, len(bos) + len(end))
            sequences.append(bos + ids + end)
        if padding:
            sequences = padding.apply(sequences)
        return [np.array(ids, np.int32) for ids in sequences]

    def encode_with_offsets(
        self, text: str | bytes, *, add_special: bool = False, parse_special: bool = False, unit: str = "bytes"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids of a text, and for each where it stands: int32 of shape [n, 2], start and end.

        unit: "bytes" of the text's UTF-8 or "characters"; a token that is part of a character has the whole
        character's span. Tokens that the text does not spell have no width. Raises UnsupportedError for models that
        change text before they spell it (bert, t5), TokenizerError for bytes that are not UTF-8 in byte-level BPE.
        """
        readable = as_str(text)
        ids, spans = locate(self, readable, self._matchers[parse_special].partition(readable), unit)
        if add_special and self.add_bos:
            ids.insert(0, self.vocabulary.specials["bos"])
            spans.insert(0, [0, 0])
        if add_special and self.add_eos:
            end = spans[-1][1] if spans else 0
            ids.append(self.vocabulary.specials[self.end])
            spans.append([end, end])
        return np.array(ids, np.int32), np.array(spans, np.int32).reshape(-1, 2)

    def _make_piece(self, token: int) -> bytes:
        if isinstance(token, bool) or not isinstance(token, (int, np.integer)):
            raise TokenizerError(f"expected a token id, found {type(token).__name__}")
        if not 0 <= token < self.n_vocab:
            raise TokenizerError(f"token id {token} is outside the vocabulary of {self.n_vocab} tokens")
        return self.model.piece(self.vocabulary.tokens[token], TokenType(int(self.vocabulary.types[token])))

    def piece(self, token: int) -> bytes:
        """The bytes of one token, perhaps part of a character. Raises TokenizerError for an unknown id."""
        return self._pieces[token]

    def decode_bytes(
        self,
        ids: Iterable[int] | np.ndarray,
        *,
        skip_special: bool = False,
        continuation: bool = False,
        clean: bool = False,
    ) -> bytes:
        """The bytes that ids stand for, without the space prefix of SentencePiece vocabularies.

        skip_special: control and unknown tokens give nothing. continuation: the ids continue a text, so that nothing
        is dropped at their start. clean: where the flag `clean_up` is set, drop the spaces before punctuation and
        contractions, as llama.cpp does; not for text that is to be encoded again.
        """
        tokens = ids.reshape(-1).tolist() if isinstance(ids, np.ndarray) else list(ids)
        joined = b"".join(map(self._pieces.__getitem__, tokens))
        if skip_special:
            tokens = [token for token in tokens if token not in self.skipped_ids]
            joined = b"".join(map(self._pieces.__getitem__, tokens))
        prefixed = self.add_space_prefix and not continuation and tokens and tokens[0] not in self._special
        if prefixed and self._pieces[tokens[0]].startswith(b" "):
            joined = joined[1:]
        return clean_up(joined) if clean and self.clean_up else joined

    def decode(
        self,
        ids: Iterable[int] | np.ndarray,
        *,
        skip_special: bool = False,
        continuation: bool = False,
        clean: bool = False,
    ) -> str:
        """The text that ids stand for; bytes that are not UTF-8 become U+FFFD. Options as in `decode_bytes`."""
        data = self.decode_bytes(ids, skip_special=skip_special, continuation=continuation, clean=clean)
        return data.decode("utf-8", "replace")

    def stream(self, *, skip_special: bool = False, continuation: bool = False) -> StreamDecoder:
        """A decoder for ids that come one by one."""
        return StreamDecoder(self, skip_special=skip_special, continuation=continuation)


def as_str(text: str | bytes, errors: str = "strict") -> str:
    """Text or bytes as str, with surrogate escapes for bytes that are not UTF-8.

    errors: what to do with lone surrogates of a str: "strict" refuses them, "replace" makes them U+FFFD.
    """
    if isinstance(text, str):
        if text.isascii():
            return text
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            if errors == "replace":
                return _SURROGATES.sub("\ufffd", text)
            raise TokenizerError(
                f"the text has the lone surrogate U+{ord(text[error.start]):04X} at character {error.start}; "
                "give bytes, or errors='replace'"
            ) from None
        return text
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text).decode("utf-8", "surrogateescape")
    raise TokenizerError(f"expected text as str or bytes, found {type(text).__name__}")
