"""Two models without merges: the longest token first (rwkv), and the best cut by integer scores (plamo2).

Arrives: fragments of text between special tokens. Leaves: ids as packed int32. Source: BlinkDL/ChatRWKV
rwkv_tokenizer.py and pfnet's PLaMo 2; details as in llama.cpp (llm_tokenizer_rwkv, llm_tokenizer_plamo2). Next module:
`tokenizer.py`.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict

from gml.errors import TokenizerError
from gml.models.tokenizer.memo import INT32
from gml.models.tokenizer.text import readable
from gml.models.tokenizer.vocabulary import TokenType, Vocabulary, byte_of_token

_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)
_NAMED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


def unescape(token: str) -> bytes:
    r"""The bytes of a token spelled with \t, \n, \r, \x0a and a backslash before any other character."""

    def replace(match: re.Match[bytes]) -> bytes:
        if match.group(1) is not None:
            return bytes([int(match.group(1), 16)])
        return _NAMED.get(match.group(2), match.group(2))

    return _ESCAPE.sub(replace, token.encode("utf-8", "surrogateescape"))


class LongestMatch:
    """At each place the longest token that stands there (`tokenizer.ggml.model` = rwkv)."""

    def __init__(self, vocabulary: Vocabulary):
        self.unk = vocabulary.specials.get("unk")
        self.ids = {unescape(token): n for n, token in enumerate(vocabulary.tokens)}
        lengths: dict[bytes, set[int]] = defaultdict(set)
        for token in self.ids:
            lengths[token[:2]].add(len(token))
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}

    @property
    def missing_bytes(self) -> frozenset[int]:
        """Bytes that no token stands for; they are lost where there is no unknown token."""
        return frozenset(byte for byte in range(256) if bytes([byte]) not in self.ids)

    def encode(self, fragment: str, *, starts: bool) -> bytes:
        """The ids of a fragment (invalid UTF-8 as surrogate escapes) as packed int32. `starts` has no effect."""
        del starts
        data = fragment.encode("utf-8", "surrogateescape")
        ids = array(INT32)
        at = 0
        while at < len(data):
            for length in self._lengths.get(data[at : at + 2], ()):
                token = self.ids.get(data[at : at + length])
                if token is not None:
                    break
            else:
                length, token = 1, self.ids.get(data[at : at + 1], self.unk)
            if token is not None:
                ids.append(token)
            at += length
        return ids.tobytes()

    def piece(self, token: str, kind: TokenType) -> bytes:
        """The bytes that a token stands for in text."""
        del kind
        return unescape(token)


class ScoredCut:
    """The cut of a text with the largest sum of scores, in units of 1/10000 (`tokenizer.ggml.model` = plamo2).

    Found from the end of the text to its start; of equal sums the longest token wins. A character that no token spells
    costs 1000 and becomes byte tokens.
    """

    UNKNOWN = -10_000_000
    INVALID = -20_000_000

    def __init__(self, vocabulary: Vocabulary):
        if vocabulary.scores is None:
            raise TokenizerError("tokenizer.ggml.scores is missing: a vocabulary of type plamo2 needs them")
        self.byte_ids: list[int] = []
        for byte in range(256):
            token = vocabulary.ids.get(f"<0x{byte:02X}>")
            if token is None or vocabulary.types[token] != TokenType.BYTE:
                raise TokenizerError(f"tokenizer.ggml.tokens: a plamo2 vocabulary needs the byte token <0x{byte:02X}>")
            self.byte_ids.append(token)
        self.tokens: dict[str, tuple[int, int]] = {}
        lengths: dict[str, set[int]] = defaultdict(set)
        for n, (token, score, kind) in enumerate(
            zip(vocabulary.tokens, vocabulary.scores.tolist(), vocabulary.types.tolist(), strict=True)
        ):
            if kind != TokenType.BYTE and math.isfinite(score):
                units = math.floor(abs(score) * 1e4 + 0.5) * (1 if score >= 0 else -1)
                if units > self.INVALID:
                    self.tokens[token] = n, units
                    lengths[token[:1]].add(len(token))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    @property
    def missing_bytes(self) -> frozenset[int]:
        """None: every byte has a token."""
        return frozenset()

    def encode(self, fragment: str, *, starts: bool) -> bytes:
        """The ids of a fragment (invalid UTF-8 as surrogate escapes) as packed int32. `starts` has no effect."""
        del starts
        text = readable(fragment).removeprefix("\ufeff")
        n = len(text)
        costs, steps = [0] * (n + 1), [(0, -1)] * n
        for at in range(n - 1, -1, -1):
            best, step = None, (1, -1)
            for length in self._lengths.get(text[at], ()):
                found = self.tokens.get(text[at : at + length]) if at + length <= n else None
                if found is not None and (best is None or costs[at + length] - found[1] < best):
                    best, step = costs[at + length] - found[1], (length, found[0])
            if best is None or costs[at + 1] - self.UNKNOWN < best:
                best, step = costs[at + 1] - self.UNKNOWN, (1, -1)
            costs[at], steps[at] = best, step
        ids = array(INT32)
        at = 0
        while at < n:
            length, token = steps[at]
            if token < 0:
                ids.extend([self.byte_ids[byte] for byte in text[at].encode("utf-8", "surrogatepass")])
            else:
                ids.append(token)
            at += length
        return ids.tobytes()

    def piece(self, token: str, kind: TokenType) -> bytes:
        """The bytes that a token stands for in text."""
        return byte_of_token(token) if kind == TokenType.BYTE else token.encode("utf-8", "surrogateescape")
