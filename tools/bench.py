"""`gml bench`: how fast a model runs here, and how fast beside another runtime.

Arrives: a model; leaves: prompt and generation speed as a Markdown table or JSON.
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from gml.tools.options import compiled_backend, model_name_check


@click.command("bench")
@click.argument("model")
@click.option("-p", "n_prompt", type=click.IntRange(0), default=512, show_default=True, help="Prompt tokens; 0: none.")
@click.option(
    "-n", "n_generate", type=click.IntRange(0), default=64, show_default=True, help="Generated tokens; 0: none."
)
@click.option("-d", "depth", type=click.IntRange(0), default=0, show_default=True, help="Tokens before each test.")
@click.option("-t", "--threads", type=int, metavar="N", help="Threads [one per core], at most one per processor.")
@click.option("-r", "repeats", type=click.IntRange(1), default=3, show_default=True, help="Runs of each test.")
@click.option("-o", "form", type=click.Choice(["md", "json"]), default="md", show_default=True)
@click.option("--batch", "n_batch", type=click.IntRange(1), default=512, show_default=True, help="Tokens per step.")
@click.option("--kv-type", default="F16", show_default=True, help="Type of the KV cache: F16, F32 or Q8_0.")
@click.option("--layout", type=click.Choice(["packed", "file"]), default="packed", show_default=True)
@click.option("--exact", is_flag=True, help="Float activations.")
@click.option("--vs", "peer", type=click.Choice(["llama.cpp", "ik"]), help="Run another runtime in turn with gml.")
@click.option("--peer-python", metavar="FILE", help="The interpreter that has the peer's package [this one].")
@click.option("--start", is_flag=True, help="Also the seconds from the start of `gml run` to its first token.")
@click.option("--phases", is_flag=True, help="Where the time goes: bytes, MACs, waiting per phase.")
@click.option("--peer-repack/--no-peer-repack", default=True, show_default=True, help="The peer's packed weights.")
def command(model: str, form: str, n_prompt: int, n_generate: int, depth: int, **options: Any) -> None:
    """Measure how fast MODEL evaluates a prompt and generates tokens.

    MODEL is a name, a path, or a shape with random weights, such as tinyllama-1.1b:Q4_0, which is written into the
    cache at first use (0.6 to 2.2 GB). With --vs the other runtime has the same threads, batch and cache type and runs
    in turn with gml; the ratio is gml's speed over its speed, the median of the pairs.
    """
    from gml.models.benchmark import Test

    tests = [Test(kind, n, depth) for kind, n in (("pp", n_prompt), ("tg", n_generate)) if n]
    head, rows, phases = _measure(model, tests, **options)
    if form == "json":
        import json

        found: dict[str, Any] = {"head": head, "rows": [row.as_dict() for row in rows]}
        if phases:
            found["phases"] = {name: [row.as_dict() for row in table] for name, table in phases.items()}
        click.echo(json.dumps(found))
    else:
        _print_table(head, rows)
        for name, table in phases.items():
            _print_phases(name, table)


def _measure(
    model: str,
    tests: list[Any],
    *,
    threads: int | None,
    repeats: int,
    n_batch: int,
    kv_type: str,
    layout: str,
    exact: bool,
    peer: str | None,
    peer_python: str | None,
    peer_repack: bool,
    phases: bool,
    start: bool,
) -> tuple[dict[str, Any], list[Any], dict[str, list[Any]]]:
    """The head, the rows, and the phases per test."""
    from gml.models import benchmark
    from gml.models.loader import Model
    from gml.models.peers import PeerProcess
    from gml.models.roofline import phase_rows
    from gml.models.session import Session

    path = _model_file(model)
    backend: Any = compiled_backend(threads, exact=exact, layout=layout)
    loaded, load_s = benchmark.timed(lambda: Model.load(path))
    n_ctx = max([8, *(t.depth + t.n for t in tests)])
    session, compile_s = benchmark.timed(
        lambda: Session(loaded, backend=backend, n_ctx=n_ctx, n_batch=n_batch, kv_type=kv_type)
    )
    _, first_token_s = benchmark.timed(lambda: session.evaluate([1, 2, 3, 4, 5]))
    program: Any = session.program
    n_threads = backend.n_threads
    head: dict[str, Any] = {
        "machine": _machine(),
        "target": backend.target.name,
        "model": loaded.name,
        "model_bytes": loaded.n_bytes,
        "step_bytes": loaded.n_step_bytes,
        "buffer_bytes": program.n_buffer_bytes,
        "n_ctx": n_ctx,
        "n_batch": session.n_batch,
        "kv_type": kv_type.upper(),
        "layout": layout,
        "threads": n_threads,
        "read_gb_s": round(benchmark.read_bandwidth(n_threads), 2),
        "load_s": round(load_s, 4),
        "compile_s": round(compile_s, 4),
        "first_token_s": round(first_token_s, 4),
    }
    if start:
        head["start_s"] = round(_start_seconds(path, n_threads, repeats), 4)
    of_phases = {t.name: phase_rows(session, t.kind, t.n, t.depth, repeats) for t in tests} if phases else {}
    if peer is None:
        return head, [benchmark.measure(session, test, repeats, n_threads) for test in tests], of_phases
    with PeerProcess(
        peer,
        path,
        threads=n_threads,
        n_ctx=n_ctx,
        n_batch=session.n_batch,
        kv_type=kv_type.upper(),
        repack=peer_repack,
        python=peer_python,
    ) as other:
        head |= {"peer": other.kind.name, "peer_version": other.version, "peer_load_s": round(other.load_s, 4)}
        rows = [benchmark.measure(session, test, repeats, n_threads, other) for test in tests]
        return head, rows, of_phases


def _start_seconds(path: Path, threads: int, repeats: int) -> float:
    """From the start of a process to the first token of a prompt of five, the median; the first run fills caches."""
    seconds = []
    command = "import sys; from gml.tools.cli import main; sys.exit(main())"
    arguments = ["run", str(path), "The capital of France is", "-n", "1", "--temp", "0", "--threads", str(threads)]
    for _ in range(1 + repeats):
        started = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-c", command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            process.stdout.read(1)
            seconds.append(time.perf_counter() - started)
            process.stdout.read()
    return statistics.median(seconds[1:])


def _model_file(model: str) -> Path:
    """The model's file; one of a shape is written when it is not there yet."""
    from gml.models.cache import cache_folder
    from gml.models.shapes import parse_shape, write_shape

    shape = parse_shape(model)
    if shape is None:
        return model_name_check(model)
    path = cache_folder() / "shapes" / ("-".join(shape) + ".gguf")
    if not path.exists():
        click.echo(f"writing {path}", err=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_shape(path, *shape)
    return path


def _machine() -> str:
    """The processor's name, where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _print_table(head: dict[str, Any], rows: list[Any]) -> None:
    click.echo(
        f"{head['model']}, {head['model_bytes'] / 1e6:.1f} MB, target {head['target']}, {head['threads']} threads"
    )
    click.echo(
        f"load {head['load_s']:.3f} s, compile {head['compile_s']:.3f} s, 5 tokens {head['first_token_s']:.3f} s, "
        f"plain reading {head['read_gb_s']:.1f} GB/s"
    )
    if "start_s" in head:
        click.echo(f"from the start of the process to the first token {head['start_s']:.3f} s")
    peer = head.get("peer")
    if peer:
        click.echo(f"in turn with {peer}, package version {head['peer_version']}")
    click.echo()
    click.echo("| test | tokens/s | min | max | GB/s |" + (f" {peer} tokens/s | ratio |" if peer else ""))
    click.echo("|---|---|---|---|---|" + ("---|---|" if peer else ""))
    for row in rows:
        gb_s = "" if row.gb_s is None else f"{row.gb_s:.1f}"
        of_peer = f" {row.peer_tok_s:.1f} | {row.ratio:.2f} |" if peer else ""
        click.echo(f"| {row.test} | {row.tok_s:.1f} | {row.tok_s_min:.1f} | {row.tok_s_max:.1f} | {gb_s} |{of_peer}")


def _print_phases(test: str, rows: list[Any]) -> None:
    whole = sum(row.seconds for row in rows)
    click.echo()
    click.echo(f"Phases of one step of {test}, {whole * 1e3:.2f} ms, {sum(row.count for row in rows)} barriers:")
    click.echo()
    click.echo("| ms | share | waiting | count | GB/s | GMAC/s | ops |")
    click.echo("|---|---|---|---|---|---|---|")
    for row in rows:
        s = max(row.seconds, 1e-12)
        click.echo(
            f"| {row.seconds * 1e3:.3f} | {row.seconds / whole:.1%} | {row.waited / s:.0%} | {row.count} "
            f"| {row.n_bytes / s / 1e9:.1f} | {row.n_macs / s / 1e9:.1f} | {row.ops} |"
        )
