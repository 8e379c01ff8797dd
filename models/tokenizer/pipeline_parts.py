"""What the parts of a tokenizer.json have in common: reading their settings, classes of characters, patterns.

Arrives: JSON objects. Leaves: checked settings; a missing or wrong one is a TokenizerError that names the part, a part
or setting that is not known an UnsupportedError. Regular expressions are Oniguruma's (Unicode 16); they run in package
`regex`, with the few classes that differ rewritten. Next modules: `pipeline_normalizers.py` and its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from typing import Any, TypeVar

import regex

from gml.errors import TokenizerError, UnsupportedError
from gml.models.tokenizer import unicode_rust

T = TypeVar("T")

# Unicode's White_Space; Python's own \s and str.isspace count U+001C to U+001F too.
WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_SPACES = frozenset("\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(point) for point in range(0x2000, 0x200B)
}


def is_space(character: str) -> bool:
    """Rust's char::is_whitespace."""
    return character in _SPACES


@cache
def characters(name: str) -> frozenset[str]:
    """The characters of a class of `unicode_rust.py`."""
    bounds = list(accumulate(int(word, 36) for word in getattr(unicode_rust, name).split()))
    return frozenset(chr(n) for start, stop in zip(bounds[::2], bounds[1::2], strict=True) for n in range(start, stop))


def setting(part: Mapping[str, Any], key: str, kind: type[T], default: Any = ...) -> T:
    """A setting of a part. Raises TokenizerError where it is missing (and has no default) or of another type."""
    where = f"tokenizer.json: {part.get('type', 'part')!s}"
    if key not in part and default is ...:
        raise TokenizerError(f"{where}: expected the setting {key!r}, found {', '.join(map(str, part))[:200]}")
    value = part.get(key, default)
    if value is default:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)  # pyright: ignore[reportReturnType]
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise TokenizerError(f"{where}: expected {key!r} to be of type {kind.__name__}, found {type(value).__name__}")
    return value


def one_of(part: Mapping[str, Any], key: str, choices: Mapping[str, T], default: str | None = None) -> T:
    """A setting that names one of some choices."""
    name = setting(part, key, str, ... if default is None else default)
    if name not in choices:
        raise UnsupportedError(
            f"tokenizer.json: {part.get('type', 'part')}: {key} {name!r} is not known; known: {', '.join(choices)}"
        )
    return choices[name]


def build(part: Any, kind: str, makers: Mapping[str, Callable[[Mapping[str, Any]], T]]) -> T:
    """Makes the part that a JSON object describes."""
    if not isinstance(part, Mapping):
        raise TokenizerError(f"tokenizer.json: expected a {kind} as an object, found {type(part).__name__}")
    return one_of(part, "type", makers)(part)


# How deep sequences of parts may be nested.
MAX_DEPTH = 16


def members(part: Mapping[str, Any], key: str, kind: str, depth: int) -> list[Any]:
    """The parts of a sequence, which may be sequences themselves up to a bound."""
    if depth >= MAX_DEPTH:
        raise TokenizerError(f"tokenizer.json: sequences of {kind}s are nested more than {MAX_DEPTH} deep")
    return setting(part, key, list)


_ONIGURUMA = re.compile(r"\\[sSwWhH]|\\.|\[\^?|\]", re.DOTALL)
# Oniguruma's words: of the numbers, those of Latin-1 and the decimal digits.
_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xb2\xb3\xb9\xbc-\xbe"


def translate(pattern: str) -> str:
    """An Oniguruma expression for package `regex`: white space, words and hexadecimal digits keep their meaning."""
    depth = 0

    def rewrite(match: re.Match[str]) -> str:
        nonlocal depth
        found = match.group()
        if found.startswith("["):
            depth += 1
        elif found == "]":
            depth = max(0, depth - 1)
        members = {r"\s": WHITE_SPACE, r"\w": _WORD, r"\h": "0-9a-fA-F"}.get(found.lower())
        if members is None:
            return found
        # A negated class inside a class, as \S in [^\S\n]: only the newer syntax of package regex can say it.
        return f"[^{members}]" if found[1].isupper() else members if depth else f"[{members}]"

    return _ONIGURUMA.sub(rewrite, pattern)


@cache
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """A regular expression of a tokenizer.json. Raises TokenizerError for one that cannot be read."""
    nested = "&&" in pattern or re.search(r"\[[^\]]*\\[SWH]", pattern) is not None
    try:
        return regex.compile(translate(pattern), regex.VERSION1 if nested else regex.VERSION0)
    except (regex.error, RecursionError, OverflowError) as error:
        raise TokenizerError(f"tokenizer.json: the expression {pattern[:80]!r} cannot be read: {error}") from None


Find = Callable[[str], Iterator[tuple[int, int]]]


def finder(part: Mapping[str, Any], key: str = "pattern") -> Find:
    """A pattern `{"String": ...}` or `{"Regex": ...}` as a function that finds its matches."""
    pattern = setting(part, key, dict)
    if set(pattern) == {"String"} and isinstance(pattern["String"], str):
        text = pattern["String"]
        return spans(regex.compile(regex.escape(text))) if text else lambda _: iter(())
    if set(pattern) == {"Regex"} and isinstance(pattern["Regex"], str):
        return spans(compile_pattern(pattern["Regex"]))
    raise UnsupportedError(
        f"tokenizer.json: {part.get('type')}: expected a pattern String or Regex, found {', '.join(map(str, pattern))}"
    )


def spans(pattern: regex.Pattern[str]) -> Find:
    """Finds (start, end) of a pattern's matches."""
    return lambda text: (match.span() for match in pattern.finditer(text))
