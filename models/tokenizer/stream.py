"""Text from ids that come one by one: holds back bytes of a character until it is whole.

Arrives: ids. Leaves: text, in all the same as `Tokenizer.decode` of all the ids, however they are grouped. Used by the
session that streams generated text.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gml.models.tokenizer.tokenizer import Tokenizer


class StreamDecoder:
    """Decodes a stream of ids; bytes that cannot become a character come out as U+FFFD as soon as that is certain.

    skip_special: control and unknown tokens give no text. continuation: the ids continue a text, so a space prefix at
    their start is a real space (what a model generates after a prompt).
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = False, continuation: bool = False):
        self._tokenizer = tokenizer
        self._skip = tokenizer.skipped_ids if skip_special else frozenset()
        self._may_strip = tokenizer.add_space_prefix and not continuation
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that becomes certain with one more id; may be empty. Raises TokenizerError for an unknown id."""
        piece = self._tokenizer.piece(token)
        if token in self._skip:
            return ""
        if self._may_strip:
            self._may_strip = False
            if piece.startswith(b" ") and not self._tokenizer.is_special(token):
                piece = piece[1:]
        return self._utf8.decode(piece)

    def push_all(self, tokens: Iterable[int]) -> str:
        """The text that becomes certain with some more ids."""
        return "".join([self.push(token) for token in tokens])

    def flush(self) -> str:
        """What was held back, as U+FFFD; the decoder is then at the start of no character."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text
