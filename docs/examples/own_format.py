"""A block format of one's own: 3 bits per value and a scale for 32 of them. See docs/extending.md."""

import numpy as np

import gml


class ThreeBits(gml.QuantType):
    """32 values of 3 bits, value = d * (code - 4); 14 bytes.

    d    f16
    ql   8 bytes     byte i holds the low two bits of v[i], v[i+8], v[i+16], v[i+24], v[i] lowest
    qh   4 bytes     bit i of the 32 (lowest of the first byte first) is the third bit of v[i]
    """

    # what codes look like: the kernels follow from this and `unpack`
    traits = gml.CodeTraits(bits=3, group=32, n_groups=1, zero=4)

    def unpack(self, b, block):
        f = gml.Fields(b, self.numpy, block)
        low = b.concat(*[(f.bytes("ql", 0, 8) >> (2 * j)) & 3 for j in range(4)])
        return gml.Codes([low | f.bit_string("qh", 0, 4, weight=4)], f.u16("d"))

    # the same in numpy: blocks [n] to values [n, 32] and back
    def decode_blocks(self, blocks, out):
        low = (blocks["ql"][:, None, :] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]) & 3
        high = np.unpackbits(blocks["qh"], axis=-1, bitorder="little")
        codes = low.reshape(-1, 32) | high << 2
        out[...] = blocks["d"].astype(np.float32)[:, None] * (codes.astype(np.float32) - 4)

    def encode_blocks(self, values, out, weights):
        largest = np.take_along_axis(values, np.abs(values).argmax(axis=1)[:, None], axis=1)
        out["d"] = largest[:, 0] / -4
        d = out["d"].astype(np.float32)[:, None]
        scaled = np.divide(values, d, out=np.zeros_like(values), where=d != 0)
        codes = np.clip(np.rint(scaled) + 4, 0, 7).astype(np.uint8)
        quarters = (codes & 3).reshape(-1, 4, 8) << np.arange(0, 8, 2, dtype=np.uint8)[:, None]
        out["ql"] = np.bitwise_or.reduce(quarters, axis=1)
        out["qh"] = np.packbits(codes >> 2, axis=-1, bitorder="little")


LAYOUT = [("d", "<f2"), ("ql", "u1", 8), ("qh", "u1", 4)]
Q3_32 = gml.register(ThreeBits("Q3_32", 1003, block_size=32, type_size=14, layout=LAYOUT))


if __name__ == "__main__":
    from gml.testing import check_format

    check_format(Q3_32)

    ctx, random = gml.Context(), np.random.default_rng(0)
    w = ctx.constant(random.normal(size=(64, 128)), type=Q3_32)
    x = ctx.input("x", gml.F32, [128, gml.Dim("n_tokens", max=8)])
    y = gml.silu(gml.mul_mat(w, x))
    batch = random.normal(size=(5, 128)).astype(np.float32)
    expected = gml.compile(y, "reference")(x=batch)
    for options in ({}, {"layout": "file"}, {"exact": True}):
        found = gml.compile(y, "cpu", **options)(x=batch)
        print(options, f"{np.abs(found - expected).max() / np.abs(expected).max():.0e}")
