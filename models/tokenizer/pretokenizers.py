"""Pre-tokenizers: how text is cut into words before byte-pair merging, one row of a table for each family.

Arrives: a value of `tokenizer.ggml.pre`. Leaves: its row. A row names the values it serves, its expressions and its
flags. Several expressions of one row work in turn: each is searched in the pieces that the one before left, its matches
become pieces of their own, and so does what lies between them. Expressions are written with \\p{L} \\p{N} \\p{P}
\\p{M} \\p{S}, \\p{Lu} and \\p{Ll} (letters but a-z and but A-Z), \\p{Han}, \\s, \\S and $ (the end of a piece); the
classes are llama.cpp's (Unicode 15), not those of Python's or another regular expression engine. Source of the rows:
llama.cpp src/llama-vocab.cpp (llm_tokenizer_bpe, llama_vocab::impl::load); where it spells a class in a roundabout way
or reads two classes as one, the row says the same in fewer words. Next module: `splitting.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from gml.errors import UnsupportedError
from gml.models.tokenizer.splitting import DIGITS_BY_THREE, NUMBERS_BY_THREE, SPACES_BY_POWERS, splitter
from gml.records import dataclass


@dataclass(frozen=True)
class PreTokenizer:
    """One row: a family of pre-tokenizers.

    names: values of `tokenizer.ggml.pre`. expressions: in turn, see above. fused: one expression that gives the same
    words as all `expressions` in turn and leaves nothing unmatched; rows have it for speed alone and tests hold it
    against the expressions. ignore_merges: a word that is a token as a whole is that token, whatever the merges say.
    byte_level: words are spelled with GPT-2's byte alphabet; otherwise with characters, and bytes as `<0x0A>`.
    escape_spaces: spaces become U+2581. whole_newlines: a run of newlines that is a token is that token. drop_spaces:
    white space parts words and is left out. add_bos, add_sep: what holds where the file does not say. force_bos: BOS is
    added even where the file says no. clean_up: decoding for people drops spaces before punctuation.
    """

    name: str
    names: tuple[str, ...]
    expressions: tuple[str, ...]
    fused: str | None = None
    ignore_merges: bool = False
    byte_level: bool = True
    escape_spaces: bool = False
    whole_newlines: bool = False
    drop_spaces: bool = False
    add_bos: bool = False
    force_bos: bool = False
    add_sep: bool = False
    clean_up: bool = True

    @property
    def split(self) -> Callable[[str], list[str]]:
        """The function that cuts text into words."""
        return splitter(self.expressions, self.fused)


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_GPT2_FUSED = _GPT2 + r"|\s+"
# GPT-2's expression in the pieces between single digits: white space before a digit is at the end of its piece.
_DIGITS_GPT2_FUSED = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_LLAMA3 = _CONTRACTIONS + rf"|{_WORD}|\p{{N}}{{1,3}}|" + _TAIL
_QWEN2 = _CONTRACTIONS + rf"|{_WORD}|\p{{N}}|" + _TAIL
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _SPACES
# Words that begin in capitals and go on in small letters, with a contraction at their end.
_CASED = r"[^\r\n\p{L}\p{N}]?\p{Lu}*\p{Ll}+%s|[^\r\n\p{L}\p{N}]?\p{Lu}+\p{Ll}*%s|"
_CASED_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
_TEKKEN = _CASED % ("", "") + r"\p{N}|" + _CASED_TAIL
_GPT4O = _CASED % (_CONTRACTIONS + "?", _CONTRACTIONS + "?") + r"\p{N}{1,3}|" + _CASED_TAIL
_GRANITE = _GPT4O.replace(r"\p{Lu}", r"[\p{Lu}\p{M}]").replace(r"\p{Ll}", r"[\p{Ll}\p{M}]")
# The same where llama.cpp reads all classes of letters as one.
_UNCASED = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{_CONTRACTIONS}?|"
_DEEPSEEK3 = r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + _SPACES
_SPARK = r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
_CHINESE_JAPANESE = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|" + _CHINESE_JAPANESE
)
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
    "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_KIMI = rf"\p{{Han}}+|{_WORD}{_CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}\p{{HanL}}]+[\r\n]*" + _SPACES
_BAILING = (
    rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = _CONTRACTIONS + rf"|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+" + _SPACES
_EXAONE_MOE = (
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
    + r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_UFAKZEKA = rf"{_WORD}|\p{{N}}|" + _TAIL
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_NEWLINES = r"[^\n]+|\n+"

# The cased letters (Lu, Ll, Lt) of an older Unicode, as deepseek-llm's tokenizer.json lists them. Those whose canonical
# form is another character are escaped, so that no editor changes them.
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    "Ὗ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ"
    "Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)


TABLE = (
    PreTokenizer(
        # openai/gpt-2 encoder.py
        name="gpt-2",
        names=(
            *("gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum"),
            *("modern-bert", "mpt", "olmo", "jais", "exaone4"),
        ),
        expressions=(_GPT2,),
        fused=_GPT2_FUSED,
    ),
    PreTokenizer(
        name="trillion",
        names=("trillion", "granite-docling"),
        expressions=(_GPT2,),
        fused=_GPT2_FUSED,
        clean_up=False,
    ),
    PreTokenizer(
        name="roberta-bpe",
        names=("roberta-bpe", "jina-v1-en", "jina-v2-code"),
        expressions=(_GPT2,),
        fused=_GPT2_FUSED,
        add_sep=True,
    ),
    PreTokenizer(
        # tokenizer.json of Llama 3
        name="llama-bpe",
        names=(
            *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
            "jina-v5-nano",
        ),
        expressions=(_LLAMA3,),
        fused=_LLAMA3,
        ignore_merges=True,
        add_bos=True,
    ),
    PreTokenizer(
        # Llama 3's expression without its flags.
        name="dbrx",
        names=("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"),
        expressions=(_LLAMA3,),
        fused=_LLAMA3,
    ),
    PreTokenizer(
        name="minicpm5",
        names=("minicpm5",),
        expressions=(r"\p{N}{1,3}", _CONTRACTIONS + rf"|{_WORD}|\p{{N}}+|" + _TAIL),
        ignore_merges=True,
    ),
    PreTokenizer(
        # Llama 3's expression, with white space in pieces of 512, 256, ... characters.
        name="jais-2",
        names=("jais-2",),
        expressions=(_LLAMA3, SPACES_BY_POWERS),
    ),
    PreTokenizer(
        # tokenizer.json of Qwen2, whose NFC normalizer llama.cpp leaves out
        name="qwen2",
        names=("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2"),
        expressions=(_QWEN2,),
        fused=_QWEN2,
        clean_up=False,
    ),
    PreTokenizer(name="stablelm2", names=("stablelm2", "megrez"), expressions=(_QWEN2,), fused=_QWEN2),
    PreTokenizer(name="qwen35", names=("qwen35",), expressions=(_QWEN35,), fused=_QWEN35, clean_up=False),
    PreTokenizer(name="laguna", names=("laguna",), expressions=(_NEWLINES, _QWEN2), clean_up=False),
    PreTokenizer(name="ufakzeka", names=("ufakzeka",), expressions=(_UFAKZEKA,), fused=_UFAKZEKA, clean_up=False),
    PreTokenizer(name="seed-coder", names=("seed-coder",), expressions=(_SEED,), fused=_SEED, clean_up=False),
    PreTokenizer(
        name="bailingmoe",
        names=("bailingmoe", "bailingmoe2", "llada-moe"),
        expressions=(_BAILING,),
        fused=_BAILING,
        clean_up=False,
    ),
    PreTokenizer(name="exaone-moe", names=("exaone-moe",), expressions=(_EXAONE_MOE,), fused=_EXAONE_MOE),
    PreTokenizer(
        # tokenizer.json of StarCoder
        name="starcoder",
        names=("starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"),
        expressions=(r"\p{N}", _GPT2),
        fused=_DIGITS_GPT2_FUSED,
    ),
    PreTokenizer(
        # tokenizer.json of SmolLM2
        name="smollm",
        names=("smollm", "command-r"),
        expressions=(r"\p{N}", _GPT2),
        fused=_DIGITS_GPT2_FUSED,
        clean_up=False,
    ),
    PreTokenizer(
        # tokenizer.json of Falcon
        name="falcon",
        names=("falcon",),
        expressions=(r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    ),
    PreTokenizer(
        # tokenizer.json of DeepSeek LLM
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
        clean_up=False,
    ),
    PreTokenizer(
        name="deepseek-coder",
        names=("deepseek-coder",),
        expressions=(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"),
        clean_up=False,
    ),
    PreTokenizer(
        name="deepseek-v3",
        names=("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"),
        expressions=(r"\p{N}{1,3}", _CHINESE_JAPANESE, _DEEPSEEK3),
        clean_up=False,
    ),
    PreTokenizer(
        name="spark2_5",
        names=("spark2_5",),
        expressions=(r"\p{N}{1,3}", _CHINESE_JAPANESE, _SPARK, r"\p{N}"),
        clean_up=False,
    ),
    PreTokenizer(
        name="youtu",
        names=("youtu",),
        expressions=(_YOUTU_SCRIPTS, _UNCASED + r"\p{N}|" + _CASED_TAIL),
        ignore_merges=True,
        clean_up=False,
    ),
    PreTokenizer(
        name="afmoe",
        names=("afmoe",),
        expressions=(NUMBERS_BY_THREE, _AFMOE_SCRIPTS, _DEEPSEEK3),
        clean_up=False,
    ),
    PreTokenizer(name="bloom", names=("bloom", "gpt3-finnish"), expressions=(_BLOOM,)),
    PreTokenizer(name="poro-chat", names=("poro-chat",), expressions=(_BLOOM,), clean_up=False),
    PreTokenizer(name="viking", names=("viking",), expressions=(_BLOOM, r"\p{N}"), clean_up=False),
    PreTokenizer(
        name="tekken",
        names=("tekken",),
        expressions=(_TEKKEN,),
        fused=_TEKKEN,
        ignore_merges=True,
        add_bos=True,
        clean_up=False,
    ),
    PreTokenizer(
        # tiktoken's o200k_base
        name="gpt-4o",
        names=("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"),
        expressions=(_GPT4O,),
        fused=_GPT4O,
        clean_up=False,
    ),
    PreTokenizer(
        name="granite-embed-multi-97m",
        names=("granite-embed-multi-97m",),
        expressions=(_GRANITE,),
        fused=_GRANITE,
        ignore_merges=True,
        clean_up=False,
    ),
    PreTokenizer(
        name="tiny_aya",
        names=("tiny_aya", "cohere2moe"),
        expressions=(NUMBERS_BY_THREE, _UNCASED + r"\p{N}{1,3}|" + _CASED_TAIL),
        clean_up=False,
    ),
    PreTokenizer(name="kimi-k2", names=("kimi-k2",), expressions=(_KIMI,), fused=_KIMI, clean_up=False),
    PreTokenizer(
        # Numbers by three digits, and what lies between them as one word.
        name="superbpe",
        names=("superbpe",),
        expressions=(r"\p{N}+", DIGITS_BY_THREE),
        clean_up=False,
    ),
    PreTokenizer(
        name="chameleon",
        names=("chameleon",),
        expressions=(
            *("<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]"),
            _GPT2,
        ),
        add_bos=True,
        clean_up=False,
    ),
    PreTokenizer(
        # Merges over characters of a whole line, spaces as in SentencePiece.
        name="gemma4",
        names=("gemma4", "granite-embed-multi-311m"),
        expressions=(_NEWLINES,),
        fused=_NEWLINES,
        byte_level=False,
        escape_spaces=True,
        whole_newlines=True,
        force_bos=True,
    ),
    PreTokenizer(
        name="sarvam-moe",
        names=("sarvam-moe",),
        expressions=(_NEWLINES,),
        fused=_NEWLINES,
        byte_level=False,
        escape_spaces=True,
        clean_up=False,
    ),
    PreTokenizer(name="whitespace", names=("whitespace",), expressions=(r"\S+",), byte_level=False, drop_spaces=True),
    PreTokenizer(
        # For files from before `tokenizer.ggml.pre` existed.
        name="default",
        names=("default",),
        expressions=(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
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


# CRC-32 of all lines of `tokenizer.ggml.merges`, joined by newlines: vocabularies that are known without the key.
SIGNATURES = {
    0x49F9CBC7: "gpt-2",
    0x04D9413B: "llama-bpe",
    0xABFD3200: "qwen2",
    0x1C8206ED: "deepseek-llm",
    0x075EFC82: "falcon",
    0xF1DCFAFD: "starcoder",
    0xBBEE10EF: "smollm",
}


def recognise(merges: Sequence[str]) -> PreTokenizer:
    """The row of a vocabulary whose file lacks `tokenizer.ggml.pre`, by its merges.

    Raises UnsupportedError for one that is not known: to guess would give other ids without a word.
    """
    name = SIGNATURES.get(zlib.crc32("\n".join(merges).encode("utf-8", "surrogateescape")))
    if name is None:
        raise UnsupportedError(
            "tokenizer.ggml.pre is missing and the merges are of no known vocabulary; convert the model anew or give "
            "`pre` ('default' is what llama.cpp takes here, with a warning)"
        )
    return PRETOKENIZERS[name]
