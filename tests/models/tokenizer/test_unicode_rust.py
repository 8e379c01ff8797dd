"""The classes of package `tokenizers`. `python tests/models/tokenizer/test_unicode_rust.py` writes them anew."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers")

HEADER = '''"""Code point classes of Rust's tokenizers, of several old versions of Unicode. Generated, do not edit.

Written by `python tests/models/tokenizer/test_unicode_rust.py` from what package tokenizers 0.23.3 does with each code
point; the same file, run as a test, checks it. Each class is a list of base-36 numbers, in turn the gap before a range
and its length. OTHER: BertNormalizer's control characters; NONSPACING and MARKS: what it and StripAccents take away;
PUNCTUATION: where Punctuation and BertPreTokenizer cut.
"""

'''


def base36(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return digits[number] if number < 36 else base36(number // 36) + digits[number % 36]


def measured() -> dict[str, list[int]]:
    """class -> its code points, as the package treats them."""
    points = [point for point in range(1, 0x110000) if not 0xD800 <= point < 0xE000]

    def removed_by(normalizer) -> list[int]:
        return [point for point in points if normalizer.normalize_str("a" + chr(point) + "a") == "aa"]

    bert = tokenizers.normalizers.BertNormalizer
    off = {"handle_chinese_chars": False, "lowercase": False}
    cut = tokenizers.pre_tokenizers.Punctuation("removed").pre_tokenize_str("\0".join(map(chr, points)))
    kept = set().union(*(set(piece) for piece, _ in cut))
    return {
        "OTHER": [*removed_by(bert(clean_text=True, strip_accents=False, **off))],
        "NONSPACING": removed_by(bert(clean_text=False, strip_accents=True, **off)),
        "MARKS": removed_by(tokenizers.normalizers.StripAccents()),
        "PUNCTUATION": [point for point in points if chr(point) not in kept],
    }


def render(classes: dict[str, list[int]]) -> str:
    """The text of unicode_rust.py."""
    parts = [HEADER]
    for name, points in classes.items():
        ranges: list[list[int]] = []
        for point in points:
            if ranges and ranges[-1][1] == point:
                ranges[-1][1] += 1
            else:
                ranges.append([point, point + 1])
        words, end = [], 0
        for first, stop in ranges:
            words += [base36(first - end), base36(stop - first)]
            end = stop
        parts.append(f'{name} = """\n' + "\n".join(textwrap.wrap(" ".join(words), 116)) + '\n"""\n')
    return "\n".join([parts[0].rstrip("\n") + "\n", *parts[1:]])


def test_classes_are_those_of_the_package():
    from gml.models.tokenizer import unicode_rust

    module = Path(unicode_rust.__file__)
    assert module.read_text(encoding="utf-8") == render(measured())


if __name__ == "__main__":
    import gml.models.tokenizer

    module = Path(gml.models.tokenizer.__file__).with_name("unicode_rust.py")
    module.write_text(render(measured()), encoding="utf-8")
