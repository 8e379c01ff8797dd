"""Fields of a block in kernel IR: what `bits.py` does in numpy, for the formats' `unpack`.

Arrives: the address of a block; leaves: vectors of codes and scalars. Next module: a format, `q4_0.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gml.kernel_ir import I8, U8, U16, Builder, Node, Type


class Fields:
    """The fields of one block at an address, by the names of the format's numpy layout."""

    def __init__(self, b: Builder, layout: np.dtype, block: Node) -> None:
        self.b, self.block = b, block
        assert layout.fields is not None
        self.at = {name: int(field[1]) for name, field in layout.fields.items()}

    def bytes(self, name: str, start: int, n: int) -> Node:
        """n bytes of a field as u8 lanes."""
        return self.b.load(self.block, self.at[name] + start, U8.vec(n), constant=True)

    def signed(self, name: str, start: int, n: int) -> Node:
        """n bytes of a field as i8 lanes."""
        return self.b.load(self.block, self.at[name] + start, I8.vec(n), constant=True)

    def u8(self, name: str, index: int = 0) -> Node:
        """One byte."""
        return self.b.load(self.block, self.at[name] + index, U8, constant=True)

    def u16(self, name: str) -> Node:
        """A field of two bytes: the bits of an f16."""
        return self.b.load(self.block, self.at[name], U16, constant=True)

    def number(self, name: str, index: int, type: Type) -> Node:
        """One of a field's numbers of several bytes."""
        return self.b.load(self.block, self.at[name] + index * type.n_bytes, type, constant=True)

    def nibbles(self, name: str, start: int, n: int) -> tuple[Node, Node]:
        """The low and the high halves of n bytes."""
        packed = self.bytes(name, start, n)
        return packed & 15, packed >> 4

    def bit_string(self, name: str, start: int, n_bytes: int, weight: int) -> Node:
        """Bits in order, the lowest of each byte first: `weight` where the bit is set, else 0; 8 n lanes."""
        b = self.b
        lanes = 8 * n_bytes
        spread = b.shuffle(self.bytes(name, start, n_bytes), None, [i // 8 for i in range(lanes)])
        mask = b.const(tuple(1 << (i % 8) for i in range(lanes)), U8.vec(lanes))
        return b.select(b.cmp("ne", spread & mask, 0), b.const(weight, U8.vec(lanes)), 0)


def halves_of(b: Builder, codes: Sequence[Node]) -> list[Node]:
    """Groups of 16 lanes from vectors of 32."""
    return [b.slice(c, start, 16) for c in codes for start in (0, 16)]
