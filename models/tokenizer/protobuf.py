"""Fields of a protocol-buffer message, with bounds checks: the little that SentencePiece models need.

Arrives: bytes. Leaves: (field number, value) in order; integers and raw 32/64-bit words as int, everything else as a
view of the bytes. Source: the protocol buffers encoding guide. Next module: `sentencepiece.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gml.errors import TokenizerError


def fields(data: memoryview, what: str) -> Iterator[tuple[int, int | memoryview]]:
    """All fields of a message. Raises TokenizerError, naming `what` and the place, where it ends inside a field."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at, what)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at, what)
            yield number, value
            continue
        if kind == 2:
            n_bytes, at = _varint(data, at, what)
        elif kind in (1, 5):
            n_bytes = 8 if kind == 1 else 4
        else:
            raise TokenizerError(f"{what}: field {number} at byte {at} has the unknown wire type {kind}")
        if n_bytes > len(data) - at:
            raise TokenizerError(f"{what}: field {number} at byte {at} has {n_bytes} bytes, {len(data) - at} are left")
        body = data[at : at + n_bytes]
        at += n_bytes
        yield number, body if kind == 2 else int.from_bytes(body, "little")


def _varint(data: memoryview, at: int, what: str) -> tuple[int, int]:
    value = 0
    for n, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + n + 1
    raise TokenizerError(f"{what}: a number at byte {at} does not end")
