"""`gml dump`: the graph that a model becomes.

Arrives: a model; leaves: its graph as text, DOT or JSON. No weight is read for it.
"""

from __future__ import annotations

from pathlib import Path

import click

from gml.tools.options import open_session


@click.command("dump")
@click.argument("model")
@click.option("--format", "kind", type=click.Choice(["text", "dot", "json"]), default="text", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write to a file [default: standard output].")
@click.option("--ctx", "n_ctx", type=int, metavar="N", help="Tokens of context, as in gml run.")
@click.option("--batch", "n_batch", type=int, default=512, show_default=True, metavar="N", help="Tokens per step.")
@click.option("--kv-type", default="F16", show_default=True, help="Type of the KV cache: F16 or F32.")
def command(model: str, kind: str, output: str | None, n_ctx: int | None, n_batch: int, kv_type: str) -> None:
    """Print the graph of MODEL."""
    # the reference backend compiles nothing
    session = open_session(
        model, n_ctx=n_ctx, n_batch=n_batch, threads=None, backend="reference", kv_type=kv_type, pre=None
    )
    graph = session.graph
    text = {"text": graph.text, "dot": graph.to_dot, "json": graph.to_json}[kind]().rstrip("\n") + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        Path(output).write_text(text, encoding="utf-8")
