"""Pre-tokenizers: how text is cut into words before byte-pair merging, one row of a table for each family.

Arrives: text. Leaves: a list of words that make up the text; merges never cross them. A row names the values of
`tokenizer.ggml.pre` it serves, its expressions and its flags. Several expressions of one row work in turn: each is
searched in the pieces that the one before left, its matches become pieces of their own, and so does what lies between
them. Expressions are written with \\p{L} \\p{N} \\p{P} \\p{M} \\p{S}, \\s, \\S and $ (the end of a piece); the classes
are llama.cpp's (Unicode 15), not those of Python's or another regular expression engine. Next module: `bpe.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from gml.errors import UnsupportedError
from gml.models.tokenizer.text import ASCII_MEMBERS, CLASS_CHARACTERS, fold_classes, fold_white_space


@dataclass(frozen=True)
class PreTokenizer:
    """One row: a family of pre-tokenizers.

    `fused` is one expression that gives the same words as all `expressions` in turn and leaves nothing unmatched; rows
    have it for speed alone and tests hold it against the expressions. `ignore_merges`: a word that is a token as a
    whole is that token, whatever the merges say. `add_bos`: what holds where the file does not say.
    """

    name: str
    names: tuple[str, ...]
    expressions: tuple[str, ...]
    source: str
    fused: str | None = None
    ignore_merges: bool = False
    add_bos: bool = False

    @property
    def split(self) -> Callable[[str], list[str]]:
        """The function that cuts text into words."""
        return _splitter(self)


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_GPT2_FUSED = _GPT2 + r"|\s+"
# GPT-2's expression in the pieces between single digits: white space before a digit is at the end of its piece.
_DIGITS_GPT2_FUSED = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_LLAMA3_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _LLAMA3_TAIL
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _LLAMA3_TAIL

# The cased letters (Lu, Ll, Lt) of an older Unicode, as deepseek-llm's tokenizer.json lists them. Those whose canonical
# form is another character are escaped, so that no editor changes them.
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    "Ὗ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ"
    "Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)

_LLAMA_CPP = "llama.cpp src/llama-vocab.cpp (llm_tokenizer_bpe), "

TABLE = (
    PreTokenizer(
        name="gpt-2",
        names=(
            *("gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum"),
            *("modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"),
        ),
        expressions=(_GPT2,),
        fused=_GPT2_FUSED,
        source=_LLAMA_CPP + "GPT2; openai/gpt-2 encoder.py",
    ),
    PreTokenizer(
        name="llama-bpe",
        names=(
            *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
            "jina-v5-nano",
        ),
        expressions=(_LLAMA3,),
        fused=_LLAMA3,
        ignore_merges=True,
        add_bos=True,
        source=_LLAMA_CPP + "LLAMA3; tokenizer.json of Llama 3",
    ),
    PreTokenizer(
        # Llama 3's expression without its flags.
        name="dbrx",
        names=("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"),
        expressions=(_LLAMA3,),
        fused=_LLAMA3,
        source=_LLAMA_CPP + "DBRX, SMAUG, CHATGLM4",
    ),
    PreTokenizer(
        name="qwen2",
        names=(
            *("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open"),
            "grok-2",
        ),
        expressions=(_QWEN2,),
        fused=_QWEN2,
        source=_LLAMA_CPP + "QWEN2; tokenizer.json of Qwen2 (whose NFC normalizer llama.cpp leaves out)",
    ),
    PreTokenizer(
        name="smollm",
        names=(*("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),),
        expressions=(r"\p{N}", _GPT2),
        fused=_DIGITS_GPT2_FUSED,
        source=_LLAMA_CPP + "SMOLLM, STARCODER; tokenizer.json of SmolLM2 and StarCoder",
    ),
    PreTokenizer(
        name="falcon",
        names=("falcon",),
        expressions=(r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
        source=_LLAMA_CPP + "FALCON; tokenizer.json of Falcon",
    ),
    PreTokenizer(
        name="deepseek-llm",
        names=("deepseek-llm",),
        expressions=(
            r"[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            "[一-龥ࠀ-一가-퟿]+",
            r"\p{N}+",
        ),
        source=_LLAMA_CPP + "DEEPSEEK_LLM; tokenizer.json of DeepSeek LLM",
    ),
    PreTokenizer(
        # For files from before `tokenizer.ggml.pre` existed.
        name="default",
        names=("default",),
        expressions=(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
        source=_LLAMA_CPP + "default",
    ),
)

PRETOKENIZERS = {name: row for row in TABLE for name in row.names}


def find_pretokenizer(name: str) -> PreTokenizer:
    """The row for a value of `tokenizer.ggml.pre`. Raises UnsupportedError for a name that no row serves."""
    row = PRETOKENIZERS.get(name)
    if row is None:
        known = ", ".join(sorted(PRETOKENIZERS))
        raise UnsupportedError(
            f"tokenizer.ggml.pre: pre-tokenizer {name!r} is unknown; if the model cuts words as a known one does, "
            f"give that name as `pre` to override it; known: {known}"
        )
    return row


_ESCAPES = re.compile(r"\\p\{(\w+)\}|\\s|\\S|\\.|\[|\]|\$", re.DOTALL)
_WHITE_SPACE = r"\t-\r "


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
            members = CLASS_CHARACTERS[match.group(1)] + ASCII_MEMBERS[match.group(1)]
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
def _splitter(row: PreTokenizer) -> Callable[[str], list[str]]:
    return split_fused(row) if row.fused else split_chain(row)


def split_fused(row: PreTokenizer) -> Callable[[str], list[str]]:
    """Cuts text by the one expression that matches everywhere."""
    assert row.fused is not None
    find_words = re.compile(translate(row.fused)).findall

    def split(text: str) -> list[str]:
        if text.isascii():
            return find_words(text)
        return _cut(text, find_words(fold_classes(text)))

    return split


def split_chain(row: PreTokenizer) -> Callable[[str], list[str]]:
    """Cuts text by each expression in turn, as llama.cpp's unicode_regex_split does."""
    # An expression that names non-ASCII characters must see them; all others look at classes. With the one capturing
    # group, re.split gives what matched and what lies between in turn.
    steps = [
        (fold_classes if expression.isascii() else fold_white_space, re.compile(f"({translate(expression)})").split)
        for expression in row.expressions
    ]

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
