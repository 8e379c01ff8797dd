"""Block formats as a page of documentation: what `docs/formats.md` is made of.

Arrives: the registered formats; leaves: Markdown. Where the fields of a block lie comes from the numpy dtype that
`decode` and `encode` work on, what their bits mean from the drawing in the format's module. `python -m
gml.quants.drawing` prints the page.
"""

from __future__ import annotations

import inspect
import sys

import numpy as np

from gml.quants.base import QuantType, all_types

_NAMES = {"f2": "f16", "f4": "f32", "u1": "u8", "i1": "i8", "u2": "u16", "i2": "i16", "u4": "u32"}


def draw_block(dtype: QuantType) -> str:
    """The fields of a block side by side, with the byte that each starts at and their types."""
    fields = dtype.numpy.fields
    assert fields is not None
    cells = []
    for name in dtype.numpy.names or ():
        kind, offset = fields[name][:2]
        n = int(np.prod(kind.shape, dtype=np.int64))
        what = _NAMES[kind.base.str[1:]]
        cells.append((str(offset), name, what if n == 1 and not kind.shape else f"{n} x {what}"))
    rows = ["", "", ""]
    for cell in cells:
        width = max(map(len, cell)) + 3
        rows[0] += cell[0].ljust(width)
        for i in (1, 2):
            rows[i] += f"| {cell[i]}".ljust(width)
    return "\n".join(["    " + rows[0] + str(dtype.type_size), *("    " + row + "|" for row in rows[1:])])


def describe(dtype: QuantType) -> str:
    """A section: the block, its bits, what is written and what it is good for."""
    doc = inspect.getdoc(sys.modules[type(dtype).__module__]) or ""
    summary, *parts = doc.split("\n\n")
    source = next(p for p in parts if "Source: " in p)
    source = source.partition("Next module:")[0].strip().replace("\n", " ")
    if type(dtype).encode_blocks is QuantType.encode_blocks:
        written = "Read only."
    elif dtype.needs_weights:
        written = "Written with importance weights only."
    else:
        written = "Written."
    body = [p for p in parts if "Source: " not in p]
    head = [f"## {dtype.name}", summary.partition(": ")[2], draw_block(dtype)]
    return "\n\n".join([*head, *body, source, written])


def page() -> str:
    """All formats, by their number in files."""
    head = """# Block formats

Made by `python -m gml.quants.drawing` from the declarations in `gml/quants/`; a test compares. A block is drawn first
with its fields, the byte that each starts at, and its size at the end; then come the bits of fields that hold several
numbers, the highest bit of a byte or word on the left. Numbers of several bytes have the lowest first. v[i] is the code
of the block's value i."""
    own = [t for t in all_types() if type(t).__module__.startswith("gml.quants.")]
    formats = [t for t in own if isinstance(t, QuantType)]
    rows = ["| format | type | values | bytes | bits per value |", "|---|---|---|---|---|"]
    for t in formats:
        bits = 8 * t.type_size / t.block_size
        rows.append(f"| [{t.name}](#{t.name.lower()}) | {t.ggml_id} | {t.block_size} | {t.type_size} | {bits:g} |")
    return "\n\n".join([head, "\n".join(rows), *[describe(t) for t in formats]]) + "\n"


if __name__ == "__main__":
    print(page(), end="")
