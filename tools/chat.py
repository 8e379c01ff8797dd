"""`gml chat`: talk with a model through its own chat template.

Arrives: a model, lines on standard input; leaves: replies on standard output as they are made. On a terminal it
prompts, and an interrupt ends the reply, at the prompt the program; otherwise every line of the input is one message.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gml.errors import ContextFullError
from gml.tools.options import SAMPLING, SESSION, STOP, open_session, sampler_params, with_options
from gml.tools.run import print_timings

if TYPE_CHECKING:
    from gml.models.chat import Chat
    from gml.models.sampling import Sampler

HELP = "/clear forgets the conversation, /exit ends it, Ctrl-C ends a reply"


@click.command("chat")
@click.argument("model")
@click.option("-n", "max_tokens", type=int, default=-1, metavar="N", help="Tokens per reply [no limit].")
@click.option("--system", metavar="TEXT", help="The system message.")
@click.option("--template", metavar="FILE", help="A Jinja chat template instead of the model's.")
@with_options(*SAMPLING, STOP, *SESSION)
@click.option("--no-shift", is_flag=True, help="Fail when the context is full, forget nothing.")
def command(
    model: str,
    max_tokens: int,
    system: str | None,
    template: str | None,
    stop: tuple[str, ...],
    n_ctx: int | None,
    n_batch: int,
    threads: int | None,
    backend: str | None,
    kv_type: str,
    pre: str | None,
    no_shift: bool,
    **sampling: Any,
) -> None:
    """Talk with MODEL. Every line is a message; /clear forgets the conversation, /exit ends it."""
    from gml.models.chat import Chat
    from gml.models.generate import StopStrings
    from gml.models.sampling import Sampler

    params = sampler_params(**sampling)
    StopStrings(stop)
    source = None if template is None else Path(template).read_text(encoding="utf-8")
    session = open_session(
        model, n_ctx=n_ctx, n_batch=n_batch, threads=threads, backend=backend, kv_type=kv_type, pre=pre
    )
    tokenizer = session.model.tokenizer
    chat = Chat(session, tokenizer, source or session.model.chat_template, system=system, shift=not no_shift)
    talk(chat, Sampler(params, eog_ids=tokenizer.eog_ids), max_tokens, stop)


def talk(chat: Chat, sampler: Sampler, max_tokens: int, stop: tuple[str, ...]) -> None:
    """Read messages, print replies, until the input ends."""
    interactive = sys.stdin.isatty()
    if interactive:
        click.echo(HELP, err=True)
    while (line := read_line(interactive)) is not None:
        message = line.strip()
        if message == "/exit":
            return
        if message == "/clear":
            chat.clear()
        elif message.startswith("/") and interactive and " " not in message:
            click.echo(f"no command {message}; {HELP}", err=True)
        elif message:
            reply(chat, sampler, message, max_tokens, stop, interactive)


def read_line(interactive: bool) -> str | None:
    """One line without its end, None when there are no more."""
    if interactive:
        try:
            return input("> ")
        except EOFError:
            click.echo(err=True)
            return None
    line = sys.stdin.buffer.readline()
    return line.decode("utf-8", "replace").rstrip("\r\n") if line else None


def reply(
    chat: Chat, sampler: Sampler, message: str, max_tokens: int, stop: tuple[str, ...], interactive: bool
) -> None:
    """Print the model's answer to one message."""
    try:
        for piece in chat.reply(message, sampler, max_tokens=max_tokens, stop=stop):
            if piece.text:
                click.echo(piece.text, nl=False)
    except KeyboardInterrupt:
        if not interactive:
            raise
    except ContextFullError as error:
        if not interactive:
            raise
        click.echo(f"gml: error: {error}", err=True)
        return
    click.echo()
    if chat.result is not None:
        print_timings(chat.result)
