"""Normalizers of a tokenizer.json: text to text, before it is cut.

Arrives: a part's JSON object, then text. Leaves: changed text. Source: huggingface/tokenizers
tokenizers/src/normalizers; details as in version 0.23. Next module: `pipeline_pretokenizers.py`.
"""

from __future__ import annotations

import base64
import binascii
import unicodedata
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import regex

from gml.errors import TokenizerError
from gml.models.tokenizer.charsmap import CharsMap
from gml.models.tokenizer.pipeline_parts import WHITE_SPACE, build, characters, finder, members, setting
from gml.models.tokenizer.text import to_byte_alphabet
from gml.models.tokenizer.wordpiece import CHINESE

Normalizer = Callable[[str], str]
Part = Mapping[str, Any]

_STRIPPED = f"[{WHITE_SPACE}]+"


def normalizer(part: Any, depth: int = 0) -> Normalizer:
    """The function that a part's object describes; None gives text as it is."""
    if part is None:
        return str
    return build(part, "normalizer", {**_MAKERS, "Sequence": partial(_sequence, depth=depth)})


def _sequence(part: Part, depth: int) -> Normalizer:
    steps = [normalizer(step, depth + 1) for step in members(part, "normalizers", "normalizer", depth)]

    def apply(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return apply


def _form(form: Literal["NFC", "NFD", "NFKC", "NFKD"]) -> Callable[[Part], Normalizer]:
    return lambda _: lambda text: text if text.isascii() else normal_form(form, text)


# Characters with a normal form that is newer than tokenizers' tables, which leave them as they are.
_NEWER = regex.compile(
    "([\u32ff\ua7f2-\ua7f4\uab69\U00010781-\U000107ba\U00011938\U0001e030-\U0001e06d\U0001f16c\U0001fbf0-\U0001fbf9])"
)


def normal_form(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """A Unicode normal form, as tokenizers knows it."""
    if _NEWER.search(text) is None:
        return unicodedata.normalize(form, text)
    parts = _NEWER.split(text)
    parts[::2] = [unicodedata.normalize(form, part) for part in parts[::2]]
    return "".join(parts)


def lowercase(text: str) -> str:
    """Lower case character by character: no final sigma."""
    return text.lower() if text.isascii() else "".join(map(str.lower, text))


class _Table(dict[int, "str | None"]):
    """For str.translate, filled as characters are met."""

    def __init__(self, become: Callable[[str], str | None]):
        super().__init__()
        self._become = become

    def __missing__(self, code_point: int) -> str | None:
        self[code_point] = result = self._become(chr(code_point))
        return result


def _bert(part: Part) -> Normalizer:
    clean, chinese = setting(part, "clean_text", bool, True), setting(part, "handle_chinese_chars", bool, True)
    lower = setting(part, "lowercase", bool, True)
    strip = setting(part, "strip_accents", bool, None)
    strip_accents = lower if strip is None else strip
    spaces = regex.compile(f"[{WHITE_SPACE}]")
    removed = characters("OTHER") - set("\t\n\r") | {"\0", "\ufffd"}

    def become(character: str) -> str | None:
        if clean and character in removed:
            return None
        if clean and spaces.match(character):
            return " "
        if chinese and any(first <= ord(character) <= last for first, last in CHINESE):
            return f" {character} "
        return character

    table = _Table(become)
    marks = dict.fromkeys(map(ord, characters("NONSPACING"))) if strip_accents else {}

    def apply(text: str) -> str:
        text = text.translate(table)
        if strip_accents and not text.isascii():
            text = normal_form("NFD", text).translate(marks)
        return lowercase(text) if lower else text

    return apply


def _strip(part: Part) -> Normalizer:
    left, right = setting(part, "strip_left", bool), setting(part, "strip_right", bool)
    first, last = regex.compile(_STRIPPED).match, regex.compile(f"(?r){_STRIPPED}").match

    def apply(text: str) -> str:
        if left and (found := first(text)):
            text = text[found.end() :]
        if right and (found := last(text)):
            text = text[: found.start()]
        return text

    return apply


def _strip_accents(_: Part) -> Normalizer:
    marks = dict.fromkeys(map(ord, characters("MARKS")))
    return lambda text: text.translate(marks)


def _replace(part: Part) -> Normalizer:
    find, content = finder(part), setting(part, "content", str)
    pattern = part["pattern"]
    if pattern.get("String"):
        return lambda text: text.replace(pattern["String"], content)

    def apply(text: str) -> str:
        pieces, end = [], 0
        for start, stop in find(text):
            pieces += [text[end:start], content]
            end = stop
        return "".join([*pieces, text[end:]])

    return apply


def _prepend(part: Part) -> Normalizer:
    prefix = setting(part, "prepend", str)
    return lambda text: prefix + text if text else text


# SentencePiece's NMT rules: controls go, other blanks become spaces.
_NMT_REMOVED = (*range(0x1, 0x9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F)
_NMT_SPACES = (0x9, 0xA, 0xC, 0xD, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD)
_NMT = {**dict.fromkeys(_NMT_REMOVED), **dict.fromkeys(_NMT_SPACES, " ")}


def _precompiled(part: Part) -> Normalizer:
    try:
        data = base64.b64decode(setting(part, "precompiled_charsmap", str), validate=True)
    except (binascii.Error, ValueError):
        raise TokenizerError("tokenizer.json: Precompiled: precompiled_charsmap is no base64") from None
    return precompiled(CharsMap(data)) if data else str


def precompiled(charsmap: CharsMap) -> Normalizer:
    """tokenizers' reading of a character map: whole graphemes of up to 5 bytes, else characters; the shortest key wins.

    Its rest is dropped, where sentencepiece would go on after the longest key.
    """
    graphemes = regex.compile(r"\X").findall
    memo: dict[str, str] = {}

    def become(grapheme: str) -> str:
        if len(grapheme.encode("utf-8", "surrogatepass")) < 6:
            whole = charsmap.shortest(grapheme)
            if whole is not None:
                return whole
        parts = [(character, charsmap.shortest(character)) for character in grapheme]
        return "".join([character if replaced is None else replaced for character, replaced in parts])

    def apply(text: str) -> str:
        pieces = []
        for grapheme in graphemes(text):
            piece = memo.get(grapheme)
            if piece is None:
                if len(memo) >= 1 << 16:
                    memo.clear()
                piece = memo[grapheme] = become(grapheme)
            pieces.append(piece)
        return "".join(pieces)

    return apply


def _byte_level(_: Part) -> Normalizer:
    return lambda text: to_byte_alphabet(text.encode("utf-8", "surrogateescape"))


_MAKERS: dict[str, Callable[[Part], Normalizer]] = {
    "NFC": _form("NFC"),
    "NFD": _form("NFD"),
    "NFKC": _form("NFKC"),
    "NFKD": _form("NFKD"),
    "Lowercase": lambda _: lowercase,
    "BertNormalizer": _bert,
    "Strip": _strip,
    "StripAccents": _strip_accents,
    "Replace": _replace,
    "Prepend": _prepend,
    "Nmt": lambda _: lambda text: text.translate(_NMT),
    "Precompiled": _precompiled,
    "ByteLevel": _byte_level,
}
