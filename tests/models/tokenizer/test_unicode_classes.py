"""The class data is llama.cpp's. `python tests/models/tokenizer/test_unicode_classes.py JSON` writes it anew."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import numpy as np

from gml.models.tokenizer import text as text_module

HEADER = '''"""Code point classes of Unicode 15 as llama.cpp uses them. Generated, do not edit.

Written by `python tests/models/tokenizer/test_unicode_classes.py unicode_llama.json` from the class tables of
llama.cpp b11434 (unicode-data.cpp); the same file, run as a test, checks it. Exact classes matter: a newer Unicode has
more letters, and then other ids. Each class is a list of base-36 numbers, in turn the gap before a range and its
length; `text.py` reads it.
"""

CLASSES = {
'''
NAMES = ("L", "N", "P", "M", "S", "C", "whitespace")

MAPS_HEADER = '''"""Lower case and canonical base characters of Unicode 15, as llama.cpp's. Generated, do not edit.

Written and checked by the same file as `unicode_classes.py`, from unicode-data.cpp (unicode_map_lowercase,
unicode_ranges_nfd). LOWERCASE: base-36 numbers, in turn the gap since the last code point and what to add to this one.
BASES: in turn the gap before a range, its length, and the character that its code points decompose to first.
"""

'''


def base36(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return digits[number] if number < 36 else base36(number // 36) + digits[number % 36]


def render(classes: dict[str, list[list[int]]]) -> str:
    """The text of unicode_classes.py."""
    parts = [HEADER]
    for name in NAMES:
        end, words = 0, []
        for first, last in classes[name]:
            words += [base36(first - end), base36(last + 1 - first)]
            end = last + 1
        lines = textwrap.wrap(" ".join(words), 116)
        parts.append(f'    "{name}": """\n' + "\n".join(lines) + '\n""",\n')
    return "".join(parts) + "}\n"


def signed36(number: int) -> str:
    return "-" + base36(-number) if number < 0 else base36(number)


def render_maps(truth: dict[str, list[list[int]]]) -> str:
    """The text of unicode_maps.py."""
    parts, words, end = [MAPS_HEADER], [], 0
    for source, target in truth["lowercase_pairs"]:
        words += [base36(source - end), signed36(target - source)]
        end = source
    parts.append('LOWERCASE = """\n' + "\n".join(textwrap.wrap(" ".join(words), 116)) + '\n"""\n\n')
    words, end = [], 0
    for first, last, base in truth["nfd_first_last_to"]:
        words += [base36(first - end), base36(last + 1 - first), base36(base)]
        end = last + 1
    parts.append('BASES = """\n' + "\n".join(textwrap.wrap(" ".join(words), 116)) + '\n"""\n')
    return "".join(parts)


def test_maps_are_llama_cpp_s(vectors):
    truth = json.loads((vectors / "tokenizer" / "unicode_llama.json").read_text(encoding="utf-8"))
    module = Path(text_module.__file__).with_name("unicode_maps.py")
    assert module.read_text(encoding="utf-8") == render_maps(truth)
    lower, bases = dict(truth["lowercase_pairs"]), {}
    for first, last, base in truth["nfd_first_last_to"]:
        bases.update(dict.fromkeys(range(first, last + 1), base))
    assert text_module.lowercase_map() == lower
    assert text_module.base_map() == bases


def test_classes_are_llama_cpp_s(vectors):
    truth = json.loads((vectors / "tokenizer" / "unicode_llama.json").read_text(encoding="utf-8"))
    for name in NAMES:
        assert text_module.class_ranges(name).tolist() == truth[name], name
    module = Path(text_module.__file__).with_name("unicode_classes.py")
    assert module.read_text(encoding="utf-8") == render(truth)


def test_folding_agrees_with_the_ranges_at_every_code_point(vectors):
    truth = json.loads((vectors / "tokenizer" / "unicode_llama.json").read_text(encoding="utf-8"))
    expected = np.full(0x110000, ord(text_module.OTHER_CHARACTER))
    for name, character in text_module.CLASS_CHARACTERS.items():
        for first, last in truth[name]:
            expected[first : last + 1] = ord(character)
    for first, last in truth["whitespace"]:
        expected[first : last + 1] = 0x0B
    expected[:128] = np.arange(128)
    everything = "".join(map(chr, range(0x110000)))
    folded = text_module.fold_classes(everything)
    assert np.array_equal(np.frombuffer(folded.encode("latin-1"), np.uint8), expected)


if __name__ == "__main__":
    classes = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(text_module.__file__).with_name("unicode_classes.py").write_text(render(classes), encoding="utf-8")
    Path(text_module.__file__).with_name("unicode_maps.py").write_text(render_maps(classes), encoding="utf-8")
