"""`gml tokenize`: the tokens of a text, by a model's vocabulary; files without tensors will do, and other tokenizers'.

Arrives: a model or tokenizer and a text; leaves: ids and pieces, or counts, on standard output.
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
    from gml.models.tokenizer.pipeline import Pipeline


@click.command("tokenize")
@click.argument("model")
@click.argument("text", required=False)
@click.option("--file", "path", metavar="FILE", help="Take the text from a file, as it is.")
@click.option("--ids", "only_ids", is_flag=True, help="Print the ids alone.")
@click.option("--special", is_flag=True, help="Text that spells a control token is that token.")
@click.option("--bos", "add_special", is_flag=True, help="Add BOS and EOS as the vocabulary says.")
@click.option("--pre", metavar="NAME", help="Override the file's tokenizer.ggml.pre.")
@click.option("--json", "as_json", is_flag=True, help='Print {"ids": [...], "pieces": [...]}, or counts.')
@click.option("--counts", is_flag=True, help="Print numbers of bytes, characters and tokens.")
@click.option("--compare", "others", metavar="OTHER", multiple=True, help="Print counts beside those of other models.")
def command(
    model: str,
    text: str | None,
    path: str | None,
    only_ids: bool,
    special: bool,
    add_special: bool,
    pre: str | None,
    as_json: bool,
    counts: bool,
    others: tuple[str, ...],
) -> None:
    """Show the tokens of TEXT (default: standard input, to the last byte).

    MODEL is a GGUF file or a name, or a tokenizer: tokenizer.json, a SentencePiece model, vocab.json beside merges.txt,
    or a folder of them. In JSON, a piece is a string, or a list of bytes where they are not UTF-8.
    """
    if path is not None and text is not None:
        raise UsageError("give TEXT or --file, not both")
    source = Path(path).read_bytes() if path is not None else read_text(text, "TEXT")
    tokenizer = open_tokenizer(model, pre)
    ids = tokenizer.encode(source, add_special=add_special, parse_special=special)
    if counts or others:
        found = {model: counted(source, ids)}
        for other in others:
            theirs = open_tokenizer(other, None).encode(source, add_special=add_special, parse_special=special)
            found[other] = counted(source, theirs)
        click.echo(json.dumps(found) if as_json else count_lines(found), nl=as_json)
    elif as_json:
        click.echo(json.dumps({"ids": ids.tolist(), "pieces": [json_piece(tokenizer.piece(i)) for i in ids.tolist()]}))
    elif only_ids:
        click.echo(" ".join(map(str, ids.tolist())))
    else:
        click.echo(token_lines(tokenizer, ids), nl=False)


def open_tokenizer(name: str, pre: str | None) -> Tokenizer | Pipeline:
    """The tokenizer of a model by name, or of a file or folder."""
    from gml.models import cache
    from gml.models.tokenizer.files import load
    from gml.tools.models import model_path

    return load(name if name not in cache.REGISTRY and Path(name).exists() else model_path(name), pre)


def counted(source: str | bytes, ids: np.ndarray) -> dict[str, float]:
    """Numbers of a text and its tokens."""
    data = source.encode("utf-8", "surrogateescape") if isinstance(source, str) else source
    n_characters = len(data.decode("utf-8", "replace"))
    ratio = round(len(data) / len(ids), 3) if len(ids) else 0.0
    return {"bytes": len(data), "characters": n_characters, "tokens": len(ids), "bytes_per_token": ratio}


def count_lines(found: dict[str, dict[str, float]]) -> str:
    """A table of counts, one line a model."""
    width = max(map(len, found))
    lines = [f"{'':{width}}  {'bytes':>9} {'characters':>10} {'tokens':>9} {'bytes/token':>11}\n"]
    for name, row in found.items():
        numbers = f"{row['bytes']:9} {row['characters']:10} {row['tokens']:9} {row['bytes_per_token']:11.3f}"
        lines.append(f"{name:{width}}  {numbers}\n")
    return "".join(lines)


def json_piece(piece: bytes) -> str | list[int]:
    """A token's text, or its bytes where they are no text by themselves."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)


def token_lines(tokenizer: Tokenizer | Pipeline, ids: np.ndarray) -> str:
    """One line a token: id and quoted text; bytes that are not text by themselves as \\x.."""
    lines = [f"{id:8d}  {_quoted(tokenizer.piece(id))}\n" for id in ids.tolist()]
    return "".join(lines)


def _quoted(piece: bytes) -> str:
    text = json_piece(piece)
    return json.dumps(text, ensure_ascii=False) if isinstance(text, str) else repr(piece)[1:]
