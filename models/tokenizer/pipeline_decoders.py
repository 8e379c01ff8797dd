"""Decoders of a tokenizer.json: spellings of tokens to text.

Arrives: a part's JSON object, then a list of spellings. Leaves: a list of texts, to be joined. Source:
huggingface/tokenizers tokenizers/src/decoders; details as in version 0.23. Next module: `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import Any

from gml.errors import TokenizerError
from gml.models.tokenizer.pipeline_normalizers import normalizer
from gml.models.tokenizer.pipeline_parts import build, members, setting
from gml.models.tokenizer.pipeline_pretokenizers import prepend_scheme
from gml.models.tokenizer.text import BYTE_OF_CHARACTER

Decoder = Callable[[list[str]], list[str]]
Part = Mapping[str, Any]

# English spaces that WordPiece's clean-up takes away, in this order.
_CLEANINGS = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m")),
    *((" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)


def decoder(part: Any, depth: int = 0) -> Decoder:
    """The function that a part's object describes; None puts spaces between the tokens."""
    if part is None:
        return lambda tokens: [" ".join(tokens)]
    return build(part, "decoder", {**_MAKERS, "Sequence": partial(_sequence, depth=depth)})


def _sequence(part: Part, depth: int) -> Decoder:
    steps = [decoder(step, depth + 1) for step in members(part, "decoders", "decoder", depth)]

    def decode(tokens: list[str]) -> list[str]:
        for step in steps:
            tokens = step(tokens)
        return tokens

    return decode


def token_bytes(token: str) -> bytes:
    """The bytes of a byte-level token; one with other characters stands for itself."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in token])
    except KeyError:
        return token.encode("utf-8", "surrogatepass")


def _byte_level(_: Part) -> Decoder:
    return lambda tokens: [b"".join(map(token_bytes, tokens)).decode("utf-8", "replace")]


def clean_english(text: str) -> str:
    """Text without the spaces before punctuation and contractions."""
    for found, replacement in _CLEANINGS:
        text = text.replace(found, replacement)
    return text


def _wordpiece(part: Part) -> Decoder:
    prefix, cleanup = setting(part, "prefix", str, "##"), setting(part, "cleanup", bool, True)

    def decode(tokens: list[str]) -> list[str]:
        texts = []
        for n, token in enumerate(tokens):
            if n:
                token = token[len(prefix) :] if token.startswith(prefix) else " " + token
            texts.append(clean_english(token) if cleanup else token)
        return texts

    return decode


def _metaspace(part: Part) -> Decoder:
    mark, scheme = setting(part, "replacement", str, "\u2581"), prepend_scheme(part)

    def decode(tokens: list[str]) -> list[str]:
        first = "" if scheme != "never" else " "
        return [token.replace(mark, " " if n else first) for n, token in enumerate(tokens)]

    return decode


def _bpe(part: Part) -> Decoder:
    suffix = setting(part, "suffix", str, "</w>")

    def decode(tokens: list[str]) -> list[str]:
        last = len(tokens) - 1
        return [token.replace(suffix, "" if n == last else " ") if suffix else token for n, token in enumerate(tokens)]

    return decode


def _ctc(part: Part) -> Decoder:
    pad, delimiter = setting(part, "pad_token", str, "<pad>"), setting(part, "word_delimiter_token", str, "|")
    cleanup = setting(part, "cleanup", bool, True)

    def decode(tokens: list[str]) -> list[str]:
        texts = []
        for token, _ in groupby(tokens):
            text = token.replace(pad, "") if pad else token
            if cleanup:
                text = clean_english(text).replace(delimiter, " ") if delimiter else clean_english(text)
            texts.append(text)
        return [text for text in texts if text]

    return decode


def _replace(part: Part) -> Decoder:
    replace = normalizer({**part, "type": "Replace"})
    return lambda tokens: [replace(token) for token in tokens]


def _strip(part: Part) -> Decoder:
    content = setting(part, "content", str)
    start, stop = setting(part, "start", int), setting(part, "stop", int)
    if len(content) != 1 or start < 0 or stop < 0:
        raise TokenizerError("tokenizer.json: Strip: expected a content of one character and counts of at least 0")

    def strip(token: str) -> str:
        bare = len(token) - len(token.lstrip(content))
        token = token[min(start, bare) :]
        bare = len(token) - len(token.rstrip(content))
        return token[: len(token) - min(stop, bare)]

    return lambda tokens: [strip(token) for token in tokens]


def byte_of(token: str) -> int | None:
    """The byte of a token spelled `<0x0A>`, or None."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None


def _byte_fallback(_: Part) -> Decoder:
    def decode(tokens: list[str]) -> list[str]:
        texts: list[str] = []
        for is_byte, run in groupby(tokens, lambda token: byte_of(token) is not None):
            if not is_byte:
                texts += run
                continue
            data = bytes([byte for byte in map(byte_of, run) if byte is not None])
            try:
                texts.append(data.decode("utf-8"))
            except UnicodeDecodeError:
                texts += ["\ufffd"] * len(data)
        return texts

    return decode


_MAKERS: dict[str, Callable[[Part], Decoder]] = {
    "ByteLevel": _byte_level,
    "WordPiece": _wordpiece,
    "Metaspace": _metaspace,
    "BPEDecoder": _bpe,
    "CTC": _ctc,
    "Replace": _replace,
    "Fuse": lambda _: lambda tokens: ["".join(tokens)],
    "Strip": _strip,
    "ByteFallback": _byte_fallback,
}
