"""`gml bench`: how fast a model runs here.

Arrives: a model; leaves: prompt and generation speed as a Markdown table or JSON.
"""

from __future__ import annotations

import platform
from typing import Any

import click

from gml.tools.options import compiled_backend, model_name_check


@click.command("bench")
@click.argument("model")
@click.option("-p", "n_prompt", type=click.IntRange(0), default=512, show_default=True, help="Prompt tokens; 0: none.")
@click.option(
    "-n", "n_generate", type=click.IntRange(0), default=64, show_default=True, help="Generated tokens; 0: none."
)
@click.option("-t", "--threads", type=int, metavar="N", help="Worker threads [one per core].")
@click.option("-r", "repeats", type=click.IntRange(1), default=3, show_default=True, help="Runs of each test.")
@click.option("-o", "form", type=click.Choice(["md", "json"]), default="md", show_default=True)
@click.option("--kv-type", default="F16", show_default=True, help="Type of the KV cache: F16, F32 or Q8_0.")
@click.option("--layout", type=click.Choice(["packed", "file"]), default="packed", show_default=True)
@click.option("--exact", is_flag=True, help="Float activations.")
def command(
    model: str,
    n_prompt: int,
    n_generate: int,
    threads: int | None,
    repeats: int,
    form: str,
    kv_type: str,
    layout: str,
    exact: bool,
) -> None:
    """Measure how fast MODEL evaluates a prompt and generates tokens."""
    from gml.models import benchmark
    from gml.models.loader import Model
    from gml.models.session import Session

    path = model_name_check(model)
    backend: Any = compiled_backend(threads, exact=exact, layout=layout)
    loaded, load_s = benchmark.timed(lambda: Model.load(path))
    n_ctx = max(n_prompt, n_generate, 8)
    session, compile_s = benchmark.timed(lambda: Session(loaded, backend=backend, n_ctx=n_ctx, kv_type=kv_type))
    _, first_token_s = benchmark.timed(lambda: session.evaluate([1, 2, 3, 4, 5]))
    n_threads = backend.n_threads
    rows = []
    if n_prompt:
        rows.append(benchmark.bench_prompt(session, n_prompt, repeats, n_threads))
    if n_generate:
        rows.append(benchmark.bench_generation(session, n_generate, repeats, n_threads))
    head = {
        "machine": platform.processor() or platform.machine(),
        "target": backend.target.name,
        "model": loaded.name,
        "model_bytes": loaded.n_bytes,
        "threads": n_threads,
        "read_gb_s": round(benchmark.read_bandwidth(n_threads), 2),
        "load_s": round(load_s, 4),
        "compile_s": round(compile_s, 4),
        "first_token_s": round(first_token_s, 4),
    }
    if form == "json":
        import json

        click.echo(json.dumps({**head, "rows": [row.as_dict() for row in rows]}))
    else:
        _print_table(head, rows)


def _print_table(head: dict[str, Any], rows: list[Any]) -> None:
    click.echo(
        f"{head['model']}, {head['model_bytes'] / 1e6:.1f} MB, target {head['target']}, {head['threads']} threads"
    )
    click.echo(
        f"load {head['load_s']:.3f} s, compile {head['compile_s']:.3f} s, 5 tokens {head['first_token_s']:.3f} s, "
        f"plain reading {head['read_gb_s']:.1f} GB/s"
    )
    click.echo()
    click.echo("| test | tokens/s | min | max | GB/s |")
    click.echo("|---|---|---|---|---|")
    for row in rows:
        gb_s = "" if row.gb_s is None else f"{row.gb_s:.1f}"
        click.echo(f"| {row.test} | {row.tok_s:.1f} | {row.tok_s_min:.1f} | {row.tok_s_max:.1f} | {gb_s} |")
