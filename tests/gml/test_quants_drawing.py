"""`docs/formats.md` is what the declarations of the formats give (`pytest --update-golden` writes it anew)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gml.quants import QuantType, all_types
from gml.quants.drawing import draw_block, page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
FORMATS = [t for t in all_types() if isinstance(t, QuantType)]


def test_the_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    found = page()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(found, encoding="utf-8", newline="\n")
    assert PAGE.read_text(encoding="utf-8") == found, "run pytest --update-golden if the change is meant"


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda t: t.name)
def test_drawn_fields_lie_where_they_are(dtype: QuantType) -> None:
    """A block whose bytes are numbered, read through the numpy dtype, has in a field the bytes that are drawn."""
    offsets, names, _ = (line.strip() for line in draw_block(dtype).splitlines())
    starts = [int(n) for n in offsets.split()]
    drawn = [n.strip() for n in names.strip("|").split("|")]
    assert starts[-1] == dtype.type_size and drawn == list(dtype.numpy.names or ())
    raw = (np.arange(dtype.type_size) % 256).astype(np.uint8)
    block = raw.view(dtype.numpy)
    ends = [*starts[1:], dtype.type_size]
    for name, start, end in zip(drawn, starts, ends, strict=False):
        np.testing.assert_array_equal(np.ascontiguousarray(block[name]).reshape(-1).view(np.uint8), raw[start:end])
    assert dtype.name in page()
