"""`gml perplexity`: how well a model predicts a text, and how far it is from float32 arithmetic or a saved run.

Arrives: a model and a text; leaves: running values per chunk on standard error, the result on standard output.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from gml.errors import UsageError
from gml.tools.options import compiled_backend, model_name_check


@click.command("perplexity")
@click.argument("model")
@click.argument("file")
@click.option("--ctx", "n_ctx", type=int, default=512, show_default=True, help="Tokens of a chunk.")
@click.option("--chunks", "n_chunks", type=click.IntRange(1), help="Chunks to score [all].")
@click.option("--kl", "with_kl", is_flag=True, help="Also the divergence from the reference backend (float32, slow).")
@click.option("--base", metavar="FILE", help="Also the divergence from logits saved with --save-base.")
@click.option("--save-base", metavar="FILE", help="Save the logits (4 bytes each) to compare with later.")
@click.option("--backend", default="cpu", show_default=True, metavar="NAME")
@click.option("--exact", is_flag=True, help="Float activations.")
@click.option("--layout", type=click.Choice(["packed", "file"]), default="packed", show_default=True)
@click.option("-t", "--threads", type=int, metavar="N", help="Worker threads [one per core].")
@click.option("--kv-type", default="F16", show_default=True, help="Type of the KV cache: F16, F32 or Q8_0.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    model: str,
    file: str,
    n_ctx: int,
    n_chunks: int | None,
    with_kl: bool,
    base: str | None,
    save_base: str | None,
    backend: str,
    exact: bool,
    layout: str,
    threads: int | None,
    kv_type: str,
    as_json: bool,
) -> None:
    """Score the second half of each chunk of FILE with MODEL, as llama.cpp does."""
    from gml.models.evaluate import chunks_of, saved_logits, saving, score
    from gml.models.loader import Model
    from gml.models.session import Session

    if with_kl and base:
        raise UsageError("--kl and --base exclude each other: there is one run to compare with")
    text = _read(file)
    loaded = Model.load(model_name_check(model))
    chosen: Any = backend if backend != "cpu" else compiled_backend(threads, exact=exact, layout=layout)
    session = Session(loaded, backend=chosen, n_ctx=n_ctx, kv_type=kv_type)
    tokenizer = loaded.tokenizer
    chunks = chunks_of(tokenizer.encode(text), n_ctx, n_chunks, tokenizer.bos_id if tokenizer.add_bos else None)
    other: Iterator[Any] | None = None
    if with_kl:
        reference = Session(loaded, backend="reference", n_ctx=n_ctx, kv_type="F32")
        other = reference_logits(reference, chunks)
    elif base:
        other = saved_logits(base, chunks, session.n_vocab)
    result: dict[str, Any] = {}
    with saving(save_base) as save:
        for i, totals in enumerate(score(session, chunks, other, save), 1):
            result = totals.result()
            click.echo(f"[{i}/{len(chunks)}] {_line(result)}", err=True)
    if as_json:
        import json

        click.echo(json.dumps(result))
    else:
        click.echo(_line(result))


def reference_logits(session: Any, chunks: list[Any]) -> Iterator[Any]:
    """The reference's logits, chunk by chunk."""
    from gml.models.evaluate import chunk_logits

    for chunk in chunks:
        yield chunk_logits(session, chunk)


def _line(result: dict[str, Any]) -> str:
    line = f"ppl {result['ppl']:.4f} +/- {result['ppl_error']:.4f}"
    if "kl_mean" in result:
        line += (
            f", KL mean {result['kl_mean']:.3g}, max {result['kl_max']:.3g}, same top {100 * result['same_top']:.2f} %"
        )
    return line


def _read(file: str) -> str | bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror or error}") from None
