"""Q8_1: as Q8_0, with the sum of the block beside it; value = d * code. 36 bytes.

    d    f16
    s    f16                d * (v[0] + v[1] + ... + v[31]), for dot products with offsets; not needed to decode
    qs   32 signed bytes    v[0], v[1], ... v[31]

ggml keeps activations in it while it computes; it is not meant for files. Source: ggml `block_q8_1`.
Next module: `q2_k.py`.
"""

from __future__ import annotations

import numpy as np

from gml.kernel_ir import Builder, Node
from gml.quants.base import QuantType, register
from gml.quants.bits import halves
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields


class Q8_1(QuantType):
    """See the module's drawing."""

    traits = CodeTraits(bits=8, group=32, n_groups=1, signed=True)

    def unpack(self, b: Builder, block: Node) -> Codes:
        f = Fields(b, self.numpy, block)
        return Codes([f.signed("qs", 0, 32)], f.u16("d"))

    def decode_blocks(self, blocks: np.ndarray, out: np.ndarray) -> None:
        np.multiply(blocks["qs"], halves(blocks["d"]), out=out)


register(Q8_1("Q8_1", 9, 32, 36, [("d", "<f2"), ("s", "<f2"), ("qs", "i1", 32)]))
