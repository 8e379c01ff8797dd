"""`gml run`: continue a prompt.

Arrives: a model and a prompt; leaves: text on standard output as it is made, timings on standard error. The prompt is
taken as it is, without a chat template, also for instruction-tuned models: `gml chat` is for those.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from gml.tools.options import SAMPLING, SESSION, STOP, open_session, read_text, sampler_params, with_options

if TYPE_CHECKING:
    from gml.models.generate import Generation, Result


@click.command("run")
@click.argument("model")
@click.argument("prompt", required=False)
@click.option("-n", "max_tokens", type=int, default=128, show_default=True, metavar="N", help="Tokens; -1: no limit.")
@with_options(*SAMPLING, STOP, *SESSION)
@click.option("--special", is_flag=True, help="Text of the prompt that spells a control token is that token.")
@click.option("--shift", is_flag=True, help="When the context is full, forget half of it and go on.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def command(
    model: str,
    prompt: str | None,
    max_tokens: int,
    stop: tuple[str, ...],
    n_ctx: int | None,
    n_batch: int,
    threads: int | None,
    backend: str | None,
    kv_type: str,
    pre: str | None,
    special: bool,
    shift: bool,
    as_json: bool,
    **sampling: Any,
) -> None:
    """Continue PROMPT (default: standard input, without its last line end) with MODEL.

    MODEL is a GGUF file or a name that `gml pull` knows; it is fetched when it is used for the first time.
    """
    from gml.models.generate import Generation, StopStrings
    from gml.models.sampling import Sampler

    # what is wrong with options is said before a model is opened
    params = sampler_params(**sampling)
    StopStrings(stop)
    text = read_text(prompt, "PROMPT")
    if isinstance(text, bytes):
        text = text.removesuffix(b"\n").removesuffix(b"\r")
    started = time.perf_counter()
    session = open_session(
        model, n_ctx=n_ctx, n_batch=n_batch, threads=threads, backend=backend, kv_type=kv_type, pre=pre
    )
    tokenizer = session.model.tokenizer
    load_s = time.perf_counter() - started
    generation = Generation(
        session,
        tokenizer,
        tokenizer.encode(text, add_special=True, parse_special=special),
        Sampler(params, eog_ids=tokenizer.eog_ids),
        max_tokens=max_tokens,
        stop=stop,
        shift=shift,
    )
    if as_json:
        print_json(generation.finish(), load_s)
    else:
        print_stream(generation)
    print_timings(generation.result, load_s)


def print_stream(generation: Generation) -> None:
    """Text as it comes, and a line end."""
    for piece in generation:
        if piece.text:
            click.echo(piece.text, nl=False)
    click.echo()


def print_json(result: Result, load_s: float) -> None:
    """The object of `--json`."""
    import json

    timings = {"load_s": round(load_s, 6), **result.timings.as_dict()}
    click.echo(
        json.dumps(
            {
                "prompt_ids": result.prompt_ids,
                "ids": result.ids,
                "text": result.text,
                "stop_reason": result.stop_reason,
                "timings": timings,
            }
        )
    )


def print_timings(result: Result, load_s: float | None = None) -> None:
    """One line on standard error."""
    t = result.timings.as_dict()
    parts = [] if load_s is None else [f"load {load_s:.2f} s"]
    reused = f" ({t['n_reused']} reused)" if t["n_reused"] else ""
    parts.append(f"prompt {t['n_prompt']} tokens{reused} in {t['prompt_s']:.2f} s, {t['prompt_tokens_per_s']:.1f}/s")
    parts.append(
        f"generation {t['n_generated']} tokens in {t['generation_s']:.2f} s, {t['generation_tokens_per_s']:.1f}/s"
    )
    click.echo(f"[{'; '.join(parts)}; {result.stop_reason}]", err=True)
