"""`gml inspect`: what is in a GGUF file.

Arrives: a file; leaves: its metadata, tensors and sizes, as tables on a terminal, as plain columns elsewhere, or as
JSON.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gml.models.gguf import GGUFFile

Rows = list[tuple[str, ...]]
MAX_SHOWN = 60


@click.command("inspect")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help='Print {"version", "metadata", "tensors": [...]}, arrays whole.')
def command(file: str, as_json: bool) -> None:
    """Show FILE's metadata, tensors and sizes; the name of a pulled model will do."""
    from gml.models.gguf import GGUFFile
    from gml.tools.models import model_path

    with GGUFFile.open(model_path(file)) as gguf:
        if as_json:
            click.echo(json.dumps(as_object(gguf), allow_nan=False))
        else:
            show(gguf)


def as_object(gguf: GGUFFile) -> dict[str, Any]:
    """The object of `--json`. Bytes that are not UTF-8 are U+FFFD, numbers that JSON does not have are null."""
    return {
        "version": gguf.version,
        "metadata": {key: json_value(value) for key, value in gguf.metadata.items()},
        "tensors": [
            {"name": t.name, "type": t.type.name, "ne": list(t.ne), "offset": t.offset, "n_bytes": t.n_bytes}
            for t in gguf.tensors.values()
        ],
    }


def json_value(value: Any) -> Any:
    """A metadata value as JSON knows it."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool | int):
        return value
    items = value.tolist() if hasattr(value, "tolist") else value
    return [json_value(item) for item in items]


def show(gguf: GGUFFile) -> None:
    """Print everything for people."""
    metadata = [(key, str(gguf.types[key]), short(value)) for key, value in gguf.metadata.items()]
    tensors = [
        (t.name, t.type.name, " × ".join(map(str, t.ne)), str(t.offset), size_text(t.n_bytes))
        for t in gguf.tensors.values()
    ]
    by_type: Counter[str] = Counter()
    for t in gguf.tensors.values():
        by_type[t.type.name] += t.n_bytes
    n_elements = sum(math.prod(t.ne) for t in gguf.tensors.values())
    totals = [(name, size_text(n_bytes)) for name, n_bytes in by_type.most_common()]
    click.echo(
        f"{gguf.path}: GGUF version {gguf.version}, {len(metadata)} keys, {len(tensors)} tensors, "
        f"{n_elements:,} elements, {size_text(sum(by_type.values()))}"
    )
    print_table(("key", "type", "value"), metadata)
    print_table(("tensor", "type", "ne", "offset", "size"), tensors)
    print_table(("type", "size"), totals)


def short(value: Any) -> str:
    """A value on one line, long ones cut."""
    if isinstance(value, str):
        text = json.dumps(json_value(value), ensure_ascii=False)
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(value)} characters)"
    if isinstance(value, bool | int | float):
        return str(value)
    shown = ", ".join(short(item) for item in json_value(value[:4]))
    return f"{len(value)}: [{shown}{', …' if len(value) > 4 else ''}]"


def size_text(n_bytes: int) -> str:
    """Bytes in the unit that suits them."""
    size, unit = float(n_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{n_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def print_table(head: Sequence[str], rows: Rows) -> None:
    """A rich table on a terminal, columns of text elsewhere."""
    if not rows:
        return
    if sys.stdout.isatty():
        _print_rich(head, rows)
        return
    widths = [max(len(row[i]) for row in [tuple(head), *rows]) for i in range(len(head))]
    click.echo()
    for row in [tuple(head), *rows]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*head, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        # Text, since a file may hold what rich would take for markup
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    console.print()
    console.print(table)
