"""`gml dump`: what a model becomes, stage by stage, from its graph to machine code.

Arrives: a model and the name of a stage; leaves: that stage as text, JSON or DOT. No weight is read for it.
"""

from __future__ import annotations

from pathlib import Path

import click

from gml.tools.options import open_session

STAGES = ("graph", "ops", "fused", "phases", "memory", "kernel", "llvm", "asm")


@click.command("dump")
@click.argument("model")
@click.option("--stage", type=click.Choice(STAGES), default="graph", show_default=True, help="What to show.")
@click.option("--only", metavar="NAME", help="One kernel (k12) or tensor, or a pattern: '*rope*', 'blk.0.*'.")
@click.option("--format", "kind", type=click.Choice(["text", "dot", "json"]), default="text", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write to a file [default: standard output].")
@click.option("--ctx", "n_ctx", type=int, metavar="N", help="Tokens of context, as in gml run.")
@click.option("--batch", "n_batch", type=int, default=512, show_default=True, metavar="N", help="Tokens per step.")
@click.option("--kv-type", default="F16", show_default=True, help="Type of the KV cache: F16, F32 or Q8_0.")
@click.option("--backend", metavar="NAME", help="Whose stages [cpu where it is installed].")
def command(
    model: str,
    stage: str,
    only: str | None,
    kind: str,
    output: str | None,
    n_ctx: int | None,
    n_batch: int,
    kv_type: str,
    backend: str | None,
) -> None:
    """Print a stage of what MODEL is compiled to.

    \b
    graph   the tensor ops of the model        memory  where results lie in the buffer
    ops     the same behind all passes         kernel  kernel IR
    fused   regions that became one kernel     llvm    LLVM IR
    phases  what runs side by side             asm     assembly for this machine
    """
    # the reference backend compiles nothing
    chosen = "reference" if stage == "graph" else backend
    session = open_session(model, n_ctx=n_ctx, n_batch=n_batch, threads=None, backend=chosen, kv_type=kv_type, pre=None)
    text = session.program.dump(stage, only, kind)
    if output is None:
        click.echo(text, nl=False)
    else:
        Path(output).write_text(text, encoding="utf-8")
