"""Where in a text each token stands.

Arrives: a text and a `Tokenizer`. Leaves: ids, and for each the span of bytes or characters that it spells. Only on
request: encoding itself keeps no positions, they are found again by laying the tokens' spellings on the text. Used by
`Tokenizer.encode_with_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gml.errors import TokenizerError, UnsupportedError
from gml.models.tokenizer.bpe import ByteLevelBpe
from gml.models.tokenizer.character_bpe import CharacterBpe
from gml.models.tokenizer.longest import LongestMatch, ScoredCut
from gml.models.tokenizer.spm import SPACE, SentencePieceBpe
from gml.models.tokenizer.text import readable
from gml.models.tokenizer.vocabulary import TokenType

if TYPE_CHECKING:
    from gml.models.tokenizer.tokenizer import Tokenizer

UNITS = ("bytes", "characters")


def locate(tokenizer: Tokenizer, text: str, fragments: list[str | int], unit: str) -> tuple[list[int], list[list[int]]]:
    """ids and [start, end) of each in `text`, which the fragments were cut from.

    A token that is part of a character has that character's span in characters. A space that the model puts before the
    text has no width. Raises UnsupportedError for models that normalise text away.
    """
    if unit not in UNITS:
        raise TokenizerError(f"offsets: expected a unit of {' or '.join(UNITS)}, found {unit!r}")
    if not isinstance(tokenizer.model, (ByteLevelBpe, CharacterBpe, SentencePieceBpe, LongestMatch, ScoredCut)):
        raise UnsupportedError(f"offsets: a {type(tokenizer.model).__name__} changes text before it spells it")
    ids: list[int] = []
    spans: list[list[int]] = []
    at = 0
    starts = True
    for fragment in fragments:
        spelling = tokenizer.vocabulary.tokens[fragment] if isinstance(fragment, int) else fragment
        # White space that a special token swallowed lies between.
        at = text.index(spelling, at)
        base = at if unit == "characters" else len(text[:at].encode("utf-8", "surrogateescape"))
        if isinstance(fragment, int):
            width = len(spelling if unit == "characters" else spelling.encode("utf-8", "surrogateescape"))
            ids.append(fragment)
            spans.append([base, base + width])
        else:
            found = np.frombuffer(tokenizer.model.encode(fragment, starts=starts), np.int32).tolist()
            ids += found
            inside = _inside(tokenizer, fragment, found, unit, prefixed=starts and tokenizer.add_space_prefix)
            spans += [[base + start, base + end] for start, end in inside]
        starts = isinstance(fragment, int)
        at += len(spelling)
    return ids, spans


def _spelling(tokenizer: Tokenizer, token: int, escaped: bool) -> bytes:
    """The bytes of a token as the model saw them, spaces still as U+2581 where it writes them so."""
    if escaped and tokenizer.vocabulary.types[token] == TokenType.NORMAL:
        return tokenizer.vocabulary.tokens[token].encode("utf-8", "surrogateescape")
    return tokenizer.piece(token)


def _inside(tokenizer: Tokenizer, fragment: str, ids: list[int], unit: str, *, prefixed: bool) -> list[list[int]]:
    model = tokenizer.model
    escaped = isinstance(model, SentencePieceBpe) or (isinstance(model, CharacterBpe) and model.row.escape_spaces)
    text = fragment if isinstance(model, (SentencePieceBpe, LongestMatch)) else readable(fragment)
    if text != fragment:
        raise TokenizerError("offsets: the text is not UTF-8, and its bad bytes become U+FFFD; decode it before")
    seen = text.replace(" ", SPACE) if escaped else text
    data = seen.encode("utf-8", "surrogateescape")
    prefix = len(SPACE.encode("utf-8")) if prefixed else 0
    data = SPACE.encode("utf-8")[:prefix] + data
    bounds: list[tuple[int, int]] = []
    end = 0
    for token in ids:
        spelling = _spelling(tokenizer, token, escaped)
        # Bytes without a token were left out: skip them.
        start = end if data.startswith(spelling, end) else data.find(spelling, end)
        if start < 0:
            raise TokenizerError(f"offsets: token {token} ({spelling!r}) does not stand in the text after byte {end}")
        end = start + len(spelling)
        bounds.append((start, end))
    return _to_units(text, seen, np.array(bounds, np.int64).reshape(-1, 2) - prefix, unit)


def _widths(text: str) -> np.ndarray:
    """The number of UTF-8 bytes of each character; a surrogate escape is one byte."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    widths = 1 + (points > 0x7F).astype(np.int64) + (points > 0x7FF) + (points > 0xFFFF)
    widths[(points >= 0xDC80) & (points <= 0xDCFF)] = 1
    return widths


def _to_units(text: str, seen: str, bounds: np.ndarray, unit: str) -> list[list[int]]:
    """Byte positions in the text as the model saw it to bytes or characters of the text as it is."""
    bounds = np.maximum(bounds, 0)
    seen_at = np.concatenate([[0], np.cumsum(_widths(seen))])
    text_at = np.concatenate([[0], np.cumsum(_widths(text))])
    starts = np.searchsorted(seen_at, bounds[:, 0], side="right") - 1
    ends = np.searchsorted(seen_at, bounds[:, 1], side="left")
    if unit == "characters":
        return np.stack([starts, ends], axis=1).tolist()
    last = np.searchsorted(seen_at, bounds[:, 1], side="right") - 1
    first_bytes = text_at[starts] + bounds[:, 0] - seen_at[starts]
    last_bytes = text_at[last] + bounds[:, 1] - seen_at[last]
    return np.stack([first_bytes, last_bytes], axis=1).tolist()
