"""Cutting text into words by the expressions of a pre-tokenizer.

Arrives: the expressions of a row of `pretokenizers.py`, then text. Leaves: a list of words that make up the text;
merges never cross them. Expressions run on text folded to classes (`text.py`), so that Python's own engine sees
llama.cpp's classes. Next module: `bpe.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import accumulate, pairwise

from gml.models.tokenizer.text import ASCII_MEMBERS, CLASS_CHARACTERS_OF, fold_classes, fold_han, fold_white_space

# Steps that are no expressions: runs of numbers, or of ASCII digits, in groups of three counted from their end. As an
# expression with a look-ahead they would be quadratic. The first also cuts where a run begins and ends.
NUMBERS_BY_THREE = "numbers by three"
DIGITS_BY_THREE = "digits by three"
# Pieces of white space without line ends, cut from the left into the largest powers of two up to 512.
SPACES_BY_POWERS = "spaces by powers of two"
POWERS = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)

_ESCAPES = re.compile(r"\\p\{(\w+)\}|\\s|\\S|\\.|\[|\]|\$", re.DOTALL)
_WHITE_SPACE = r"\t-\r "

Split = Callable[[str], list[str]]


def translate(expression: str) -> str:
    """An expression of the table as a Python one over folded text: classes become bracket sets of Latin-1 characters.

    Python's own \\s would count U+001C to U+001F, and its $ would match before a last newline.
    """
    inside = False

    def rewrite(match: re.Match[str]) -> str:
        nonlocal inside
        found = match.group()
        if found in "[]":
            inside = found == "["
            return found
        if found == "$":
            return "$" if inside else r"\Z"
        if found.startswith(r"\p"):
            members = CLASS_CHARACTERS_OF[match.group(1)] + ASCII_MEMBERS[match.group(1)]
        elif found == r"\s":
            members = _WHITE_SPACE
        elif found == r"\S":
            return f"[^{_WHITE_SPACE}]"
        else:
            return found
        return members if inside else f"[{members}]"

    python = _ESCAPES.sub(rewrite, expression)
    # White space at the end, tried at every position of a long run, would be quadratic: only a run's start can match.
    return python.replace(rf"[{_WHITE_SPACE}]+\Z", rf"(?<![{_WHITE_SPACE}])[{_WHITE_SPACE}]+\Z")


def _cut(text: str, pieces: list[str]) -> list[str]:
    """The text cut at the ends of pieces that make up a text of the same length."""
    ends = list(accumulate(map(len, pieces)))
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@cache
def splitter(expressions: tuple[str, ...], fused: str | None) -> Split:
    """The function that cuts text by these expressions in turn, or by the one that stands for them all."""
    return split_fused(fused) if fused else split_chain(expressions)


def fold_for(expression: str) -> Callable[[str], str]:
    """The form of text on which an expression runs: one that names non-ASCII characters must see them."""
    if not expression.isascii():
        return fold_white_space
    return fold_han if r"\p{Han" in expression else fold_classes


def split_fused(fused: str) -> Split:
    """Cuts text by one expression that matches everywhere."""
    find_words = re.compile(translate(fused)).findall
    fold = fold_for(fused)

    def split(text: str) -> list[str]:
        if text.isascii():
            return find_words(text)
        return _cut(text, find_words(fold(text)))

    return split


def split_chain(expressions: tuple[str, ...]) -> Split:
    """Cuts text by each expression in turn, as llama.cpp's unicode_regex_split does."""
    steps = [(fold_for(expression), _divider(expression)) for expression in expressions]

    def split(text: str) -> list[str]:
        if not text:
            return []
        pieces, folded_by = [text], None
        for fold, divide in steps:
            if fold is not folded_by:
                pieces, folded_by = _cut(fold(text), pieces), fold
            pieces = [part for piece in pieces for part in divide(piece) if part]
        return pieces if text.isascii() else _cut(text, pieces)

    return split


def _divider(expression: str) -> Split:
    """Cuts a folded piece into what an expression matches and what lies between; parts may be empty."""
    if expression == NUMBERS_BY_THREE:
        return _by_three(translate(r"\p{N}+"), isolate=True)
    if expression == SPACES_BY_POWERS:
        return _by_powers
    if expression == DIGITS_BY_THREE:
        return _by_three("[0-9]+", isolate=False)
    # With the one capturing group, re.split gives what matched and what lies between in turn.
    return re.compile(f"({translate(expression)})").split


def _by_three(run: str, *, isolate: bool) -> Split:
    find_runs = re.compile(run).finditer

    def divide(piece: str) -> list[str]:
        cuts = [0]
        for match in find_runs(piece):
            start, end = match.span()
            first = start + (end - start) % 3
            cuts += [start, *range(first, end, 3), end] if isolate else range(first, end, 3)
        cuts.append(len(piece))
        return [piece[start:end] for start, end in pairwise(cuts)]

    return divide


def _by_powers(piece: str) -> list[str]:
    if piece.strip(" \t\v\f"):
        return [piece]
    parts, at = [], 0
    for length in POWERS:
        while len(piece) - at >= length:
            parts.append(piece[at : at + length])
            at += length
    return parts
