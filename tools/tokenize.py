"""`gml tokenize`: the tokens of a text, by a model's vocabulary; files without tensors will do.

Arrives: a model and a text; leaves: ids and pieces on standard output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gml.errors import UsageError
from gml.tools.options import read_text

if TYPE_CHECKING:
    import numpy as np

    from gml.models.tokenizer import Tokenizer


@click.command("tokenize")
@click.argument("model")
@click.argument("text", required=False)
@click.option("--file", "path", metavar="FILE", help="Take the text from a file, as it is.")
@click.option("--ids", "only_ids", is_flag=True, help="Print the ids alone.")
@click.option("--special", is_flag=True, help="Text that spells a control token is that token.")
@click.option("--bos", "add_special", is_flag=True, help="Add BOS and EOS as the vocabulary says.")
@click.option("--pre", metavar="NAME", help="Override the file's tokenizer.ggml.pre.")
@click.option("--json", "as_json", is_flag=True, help='Print {"ids": [...], "pieces": [...]}.')
def command(
    model: str,
    text: str | None,
    path: str | None,
    only_ids: bool,
    special: bool,
    add_special: bool,
    pre: str | None,
    as_json: bool,
) -> None:
    """Show the tokens of TEXT (default: standard input, to the last byte).

    In JSON, a piece is a string, or a list of bytes where they are not UTF-8.
    """
    from gml.models.gguf import GGUFFile
    from gml.models.tokenizer import Tokenizer
    from gml.tools.models import model_path

    if path is not None and text is not None:
        raise UsageError("give TEXT or --file, not both")
    source = Path(path).read_bytes() if path is not None else read_text(text, "TEXT")
    with GGUFFile.open(model_path(model)) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata, pre=pre)
        ids = tokenizer.encode(source, add_special=add_special, parse_special=special)
        if as_json:
            click.echo(
                json.dumps({"ids": ids.tolist(), "pieces": [json_piece(tokenizer.piece(i)) for i in ids.tolist()]})
            )
        elif only_ids:
            click.echo(" ".join(map(str, ids.tolist())))
        else:
            click.echo(token_lines(tokenizer, ids), nl=False)


def json_piece(piece: bytes) -> str | list[int]:
    """A token's text, or its bytes where they are no text by themselves."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)


def token_lines(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """One line a token: id and quoted text; bytes that are not text by themselves as \\x.."""
    lines = [f"{id:8d}  {_quoted(tokenizer.piece(id))}\n" for id in ids.tolist()]
    return "".join(lines)


def _quoted(piece: bytes) -> str:
    text = json_piece(piece)
    return json.dumps(text, ensure_ascii=False) if isinstance(text, str) else repr(piece)[1:]
