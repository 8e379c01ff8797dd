"""Pre-tokenizers of a tokenizer.json: normalised text to pieces, which the model spells one by one.

Arrives: a part's JSON object, then pieces. Leaves: more and smaller pieces, perhaps changed. Source:
huggingface/tokenizers tokenizers/src/pre_tokenizers; details as in version 0.23. Next module: `pipeline_models.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import regex

from gml.errors import TokenizerError, UnsupportedError
from gml.models.tokenizer.pipeline_parts import (
    WHITE_SPACE,
    Find,
    build,
    characters,
    compile_pattern,
    finder,
    is_space,
    members,
    one_of,
    setting,
    spans,
)
from gml.models.tokenizer.text import to_byte_alphabet

# A piece -> its pieces; `first`: the piece is the start of the text.
PreTokenizer = Callable[[str, bool], list[str]]
Part = Mapping[str, Any]
Marked = list[tuple[str, bool]]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def pretokenizer(part: Any, depth: int = 0) -> PreTokenizer:
    """The function that a part's object describes; None leaves the text in one piece."""
    if part is None:
        return lambda piece, _: [piece]
    return build(part, "pre_tokenizer", {**_MAKERS, "Sequence": partial(_sequence, depth=depth)})


def _sequence(part: Part, depth: int) -> PreTokenizer:
    steps = [pretokenizer(step, depth + 1) for step in members(part, "pretokenizers", "pre_tokenizer", depth)]

    def split(piece: str, first: bool) -> list[str]:
        pieces = [piece]
        for step in steps:
            pieces = [
                smaller for n, larger in enumerate(pieces) for smaller in step(larger, first and not n) if smaller
            ]
        return pieces

    return split


def mark(text: str, found: Iterable[tuple[int, int]], invert: bool = False) -> Marked:
    """The text cut into what matched and what lies between: (part, whether it matched)."""
    parts, end = [], 0
    for start, stop in found:
        if end != start:
            parts.append((text[end:start], invert))
        parts.append((text[start:stop], not invert))
        end = stop
    if end != len(text):
        parts.append((text[end:], invert))
    return parts


def _removed(parts: Marked) -> list[str]:
    return [text for text, matched in parts if not matched]


def _isolated(parts: Marked) -> list[str]:
    return [text for text, _ in parts]


def _contiguous(parts: Marked) -> list[str]:
    joined: list[list[Any]] = []
    for text, matched in parts:
        if joined and joined[-1][1] == matched:
            joined[-1][0] += text
        else:
            joined.append([text, matched])
    return [text for text, _ in joined]


def _merged_with_previous(parts: Marked) -> list[str]:
    merged: list[str] = []
    after_match = False
    for text, matched in parts:
        if matched and not after_match and merged:
            merged[-1] += text
        else:
            merged.append(text)
        after_match = matched
    return merged


def _merged_with_next(parts: Marked) -> list[str]:
    merged: list[str] = []
    before_match = False
    for text, matched in reversed(parts):
        if matched and not before_match and merged:
            merged[-1] = text + merged[-1]
        else:
            merged.append(text)
        before_match = matched
    return merged[::-1]


BEHAVIORS: dict[str, Callable[[Marked], list[str]]] = {
    "Removed": _removed,
    "Isolated": _isolated,
    "Contiguous": _contiguous,
    "MergedWithPrevious": _merged_with_previous,
    "MergedWithNext": _merged_with_next,
}


def splitter(find: Find, behave: Callable[[Marked], list[str]], invert: bool = False) -> PreTokenizer:
    """Cuts where a pattern matches; the behaviour says what becomes of the match."""
    return lambda piece, _: [part for part in behave(mark(piece, find(piece), invert)) if part]


def among(members: Callable[[str], bool]) -> Find:
    """Finds single characters."""
    return lambda text: ((n, n + 1) for n, character in enumerate(text) if members(character))


def _split(part: Part) -> PreTokenizer:
    behave = one_of(part, "behavior", BEHAVIORS)
    return splitter(finder(part), behave, setting(part, "invert", bool, False))


def _byte_level(part: Part) -> PreTokenizer:
    prefix = setting(part, "add_prefix_space", bool, True)
    find = compile_pattern(GPT2).findall if setting(part, "use_regex", bool, True) else None

    def split(piece: str, _: bool) -> list[str]:
        if prefix and not piece.startswith(" "):
            piece = " " + piece
        words = find(piece) if find else [piece]
        return [to_byte_alphabet(word.encode("utf-8", "surrogateescape")) for word in words]

    return split


def _metaspace(part: Part) -> PreTokenizer:
    mark_of_space = setting(part, "replacement", str, "\u2581")
    if len(mark_of_space) != 1:
        raise TokenizerError("tokenizer.json: Metaspace: expected a replacement of one character")
    scheme = prepend_scheme(part)
    cut = setting(part, "split", bool, True)
    # Each mark begins a piece, runs of marks one each.
    find = regex.compile(f"{regex.escape(mark_of_space)}?[^{regex.escape(mark_of_space)}]+|.", regex.DOTALL).findall

    def split(piece: str, first: bool) -> list[str]:
        piece = piece.replace(" ", mark_of_space)
        if (scheme == "always" or (scheme == "first" and first)) and not piece.startswith(mark_of_space):
            piece = mark_of_space + piece
        return find(piece) if cut else [piece]

    return split


def prepend_scheme(part: Part) -> str:
    """Metaspace's `prepend_scheme`, or what the older `add_prefix_space` meant."""
    scheme = setting(part, "prepend_scheme", str, None)
    if scheme is None:
        return "always" if setting(part, "add_prefix_space", bool, True) else "never"
    if scheme not in ("always", "first", "never"):
        raise UnsupportedError(f"tokenizer.json: Metaspace: prepend_scheme {scheme!r} is not known")
    return scheme


def _bert(_: Part) -> PreTokenizer:
    words = splitter(among(is_space), _removed)
    marks = splitter(among(characters("PUNCTUATION").__contains__), _isolated)
    return lambda piece, first: [part for word in words(piece, first) for part in marks(word, first)]


def _punctuation(part: Part) -> PreTokenizer:
    behave = one_of(part, "behavior", BEHAVIORS, "Isolated")
    return splitter(among(characters("PUNCTUATION").__contains__), behave)


def _digits(part: Part) -> PreTokenizer:
    behave = _isolated if setting(part, "individual_digits", bool, False) else _contiguous
    return splitter(spans(regex.compile(r"\p{N}")), behave)


def _delimiter(part: Part) -> PreTokenizer:
    delimiter = setting(part, "delimiter", str)
    return splitter(among(delimiter.__eq__), _removed)


def _fixed_length(part: Part) -> PreTokenizer:
    length = setting(part, "length", int)
    if length < 1:
        raise TokenizerError(f"tokenizer.json: FixedLength: expected a length of at least 1, found {length}")
    return lambda piece, _: [piece[start : start + length] for start in range(0, len(piece), length)]


# Rust's \w: letters and what else is alphabetic, marks, decimal digits, connectors, joiners.
_RUST_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d"

_MAKERS: dict[str, Callable[[Part], PreTokenizer]] = {
    "Split": _split,
    "ByteLevel": _byte_level,
    "Metaspace": _metaspace,
    "BertPreTokenizer": _bert,
    "Whitespace": lambda _: splitter(
        spans(regex.compile(rf"[{_RUST_WORD}]+|[^{_RUST_WORD}{WHITE_SPACE}]+")), _removed, invert=True
    ),
    "WhitespaceSplit": lambda _: splitter(among(is_space), _removed),
    "Punctuation": _punctuation,
    "Digits": _digits,
    "CharDelimiterSplit": _delimiter,
    "FixedLength": _fixed_length,
}
