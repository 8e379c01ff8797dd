"""Text as the tokenizers see it: lenient UTF-8, the byte alphabet of byte-level BPE, and code points folded to classes.

Arrives: str or bytes of any kind. Leaves: strings whose code points stand for Unicode classes, on which the expressions
of `pretokenizers.py` run. Data: `unicode_classes.py`. Next module: `pretokenizers.py`.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache

import numpy as np

from gml.models.tokenizer.unicode_classes import CLASSES
from gml.models.tokenizer.unicode_maps import BASES, LOWERCASE

# One Latin-1 character for each class of non-ASCII code points (ASCII stands for itself). Any choice works as long as
# it is outside ASCII; white space becomes the vertical tab, so that one ASCII set says "white space" for all text.
CLASS_CHARACTERS = {"N": "\xd1", "L": "\xd2", "P": "\xd3", "M": "\xd4", "S": "\xd5"}
# What expressions may name besides: letters but a-z and letters but A-Z (llama.cpp's reading of Lu and Ll: it knows no
# case outside ASCII), and Chinese characters, which only `fold_han` tells from other letters.
_HAN_LETTER, _HAN_OTHER = "\xd6", "\xd7"
CLASS_CHARACTERS_OF = {
    **CLASS_CHARACTERS,
    "Lu": "\xd2",
    "Ll": "\xd2",
    "HanL": _HAN_LETTER,
    "Han": _HAN_LETTER + _HAN_OTHER,
}
OTHER_CHARACTER = "\xd0"
WHITE_SPACE_CHARACTER = "\x0b"

# The ASCII members of the classes, as the inside of a bracket set. \p{S} has no "~": llama.cpp's table lacks it
# (unicode.cpp, k_ucat_map), and its ids are the truth for a GGUF file.
ASCII_MEMBERS = {
    "N": "0-9",
    "L": "A-Za-z",
    "P": r"!-#%-*,-/:-;?-@\[-\]_\{\}",
    "M": "",
    "S": r"\$\+<->\^`\|",
    "Lu": "A-Z",
    "Ll": "a-z",
    "HanL": "",
    "Han": "",
}

# llama.cpp's unicode_cpt_is_han: whole blocks, unassigned code points included.
HAN = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)),
    *((0x2B820, 0x2CEAF), (0x2CEB0, 0x2EBEF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


def class_ranges(name: str) -> np.ndarray:
    """The code point ranges of a class (`L N P M S C` or `whitespace`), shape (n, 2), first and last code point."""
    numbers = np.array([int(word, 36) for word in CLASSES[name].split()], dtype=np.int64)
    bounds = np.cumsum(numbers).reshape(-1, 2)
    return np.stack([bounds[:, 0], bounds[:, 1] - 1], axis=1)


@lru_cache(maxsize=1)
def lowercase_map() -> dict[int, int]:
    """code point -> its lower case, for those that have another."""
    numbers = np.array([int(word, 36) for word in LOWERCASE.split()], dtype=np.int64).reshape(-1, 2)
    sources = np.cumsum(numbers[:, 0])
    return dict(zip(sources.tolist(), (sources + numbers[:, 1]).tolist(), strict=True))


@lru_cache(maxsize=1)
def base_map() -> dict[int, int]:
    """code point -> the first of its canonical decomposition, for those that have one."""
    bases, at = {}, 0
    words = [int(word, 36) for word in BASES.split()]
    for gap, length, base in zip(words[::3], words[1::3], words[2::3], strict=True):
        at += gap + length
        bases.update(dict.fromkeys(range(at - length, at), base))
    return bases


@lru_cache(maxsize=1)
def _class_table() -> np.ndarray:
    """uint8[0x110000]: the Latin-1 code that stands for each code point in folded text."""
    table = np.full(0x110000, ord(OTHER_CHARACTER), dtype=np.uint8)
    for name, character in CLASS_CHARACTERS.items():
        for first, last in class_ranges(name):
            table[first : last + 1] = ord(character)
    for first, last in class_ranges("whitespace"):
        table[first : last + 1] = ord(WHITE_SPACE_CHARACTER)
    table[:128] = np.arange(128)
    return table


def fold_classes(text: str) -> str:
    """The text with every non-ASCII code point replaced by the character of its class; of the same length.

    llama.cpp calls this the collapsed text. `"é 中²!"` becomes `"Ò ÒÑ!"`.
    """
    if text.isascii():
        return text
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return _class_table()[code_points].tobytes().decode("latin-1")


@lru_cache(maxsize=1)
def _han_table() -> np.ndarray:
    """The table of `_class_table` with Chinese characters apart."""
    table = _class_table().copy()
    for first, last in HAN:
        block = table[first : last + 1]
        block[:] = np.where(block == ord(CLASS_CHARACTERS["L"]), ord(_HAN_LETTER), ord(_HAN_OTHER))
    return table


def fold_han(text: str) -> str:
    """The text folded as by `fold_classes`, with Chinese characters in classes of their own."""
    if text.isascii():
        return text
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return _han_table()[code_points].tobytes().decode("latin-1")


@lru_cache(maxsize=1)
def _wide_white_space() -> re.Pattern[str]:
    members = "".join(f"{chr(first)}-{chr(last)}" for first, last in class_ranges("whitespace") if first > 127)
    return re.compile(f"[{members}]")


def fold_white_space(text: str) -> str:
    """The text with non-ASCII white space replaced by vertical tabs; of the same length.

    Expressions that name non-ASCII characters run on this form, as in llama.cpp: it makes U+3000 white space even where
    an expression lists it as punctuation.
    """
    return text if text.isascii() else _wide_white_space().sub(WHITE_SPACE_CHARACTER, text)


def _replace_bad_byte(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: what llama.cpp's decoder makes of the bytes at `error.start` that strict UTF-8 refuses.

    Overlong forms and surrogates pass as their code point; anything else is one U+FFFD for one byte. Code points above
    U+10FFFF make llama.cpp abort; here their bytes are bad bytes.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start = error.object, error.start
    lead = data[start]
    n_bytes = 2 if 0xC0 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF8 else 1
    tail = data[start + 1 : start + n_bytes]
    if n_bytes == 1 or len(tail) < n_bytes - 1 or any(byte & 0xC0 != 0x80 for byte in tail):
        return "\ufffd", start + 1
    code_point = lead & (0x7F >> n_bytes)
    for byte in tail:
        code_point = code_point << 6 | byte & 0x3F
    if code_point > 0x10FFFF:
        return "\ufffd", start + 1
    return chr(code_point), start + n_bytes


codecs.register_error("gml-lenient", _replace_bad_byte)


def decode_lenient(data: bytes) -> str:
    """Bytes to text as llama.cpp reads them for byte-level BPE: never fails, may hold lone surrogates."""
    return data.decode("utf-8", "gml-lenient")


def readable(fragment: str) -> str:
    """Text with surrogate escapes for bad bytes as llama.cpp reads those bytes; valid text as it is."""
    if fragment.isascii():
        return fragment
    data = fragment.encode("utf-8", "surrogateescape")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return decode_lenient(data)


def _byte_alphabet() -> str:
    """GPT-2's 256 printable characters, one for each byte (openai/gpt-2 encoder.py, bytes_to_unicode)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters = {byte: chr(byte) for byte in printable}
    hidden = [byte for byte in range(256) if byte not in characters]
    characters.update({byte: chr(256 + n) for n, byte in enumerate(hidden)})
    return "".join(characters[byte] for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()
BYTE_OF_CHARACTER = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}
_LATIN1_TO_ALPHABET = dict(enumerate(BYTE_ALPHABET))


def to_byte_alphabet(data: bytes) -> str:
    """Bytes as characters of GPT-2's alphabet, the spelling of tokens in byte-level vocabularies."""
    return data.decode("latin-1").translate(_LATIN1_TO_ALPHABET)


def from_byte_alphabet(token: str) -> bytes:
    """The bytes that a byte-level token stands for; characters outside the alphabet give their UTF-8."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in token])
    except KeyError:
        parts = (BYTE_OF_CHARACTER.get(character, character) for character in token)
        return b"".join(
            bytes([part]) if isinstance(part, int) else part.encode("utf-8", "surrogateescape") for part in parts
        )


# llama.cpp's "clean-up" of decoded text (llama_vocab::impl::detokenize), in this order.
_CLEANINGS = (
    (re.compile(rb" (?=[?!.,])"), b""),
    (re.compile(rb" ' "), b"'"),
    (re.compile(rb" (?='(?:[sm]|re|ve))"), b""),
)


def clean_up(text: bytes) -> bytes:
    """Decoded text without the spaces that some vocabularies put before punctuation and contractions. Loses spaces."""
    for pattern, replacement in _CLEANINGS:
        text = pattern.sub(replacement, text)
    return text
