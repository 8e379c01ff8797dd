"""The command `gml`: finds the command by name, runs it, and turns what goes wrong into one line and an exit status.

Arrives: arguments; leaves: an exit status. 0 done, 1 failed, 2 used wrongly, 130 interrupted, 141 nobody reads the
output. Commands are modules of this package, imported when they are run: `gml --help` must be instant. Next:
`tools/run.py`.
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence

import click

#: name -> one line of help; the module `gml.tools.<name>` has the command as `command`
COMMANDS = {
    "pull": "Fetch a model by name.",
    "run": "Continue a prompt with a model.",
    "chat": "Talk with an instruction-tuned model.",
    "tokenize": "Show the tokens of a text.",
    "inspect": "Show a GGUF file: metadata, tensors, sizes.",
    "dump": "Print a model's graph.",
    "bench": "Measure how fast a model runs here.",
    "perplexity": "Measure how well a model predicts a text.",
}

FAILED, BAD_USE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141


class _Commands(click.Group):
    """A group that knows its commands' help lines without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"gml.tools.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; commands: {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"gml {version('gml')}")
        ctx.exit()


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
def cli() -> None:
    """Run language models from GGUF files, compiled for this machine.

    MODEL is a GGUF file or the name of a model that `gml pull` knows.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: that of the process); the exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    # graphs and vocabularies are many small objects that stay: looking through them again and again takes as long as
    # making them
    gc.set_threshold(100_000, 20, 20)
    # a character that the terminal cannot show is no reason to fail
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        # not `cli.main`, which has its own ideas of interrupts and closed pipes
        with cli.make_context("gml", args or ["--help"]) as context:
            cli.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        with contextlib.suppress(OSError):
            click.echo(err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # the interpreter flushes once more when it ends, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        return _report(error)


def _report(error: Exception) -> int:
    """Print one line for an error; its exit status."""
    from gml.errors import Error, UsageError

    status = BAD_USE if isinstance(error, UsageError | click.UsageError) else FAILED
    if isinstance(error, click.ClickException):
        text = error.format_message()
    elif isinstance(error, Error):
        text = str(error)
    elif isinstance(error, OSError):
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    elif isinstance(error, MemoryError):
        text = "out of memory; a smaller --ctx or a smaller model needs less"
    else:
        text = f"internal error, {type(error).__name__}: {error}; GML_DEBUG=1 shows where, please report it"
    with contextlib.suppress(OSError):
        if os.environ.get("GML_DEBUG", "0") not in ("", "0"):
            import traceback

            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        click.echo(f"gml: error: {' '.join(text.split())}", err=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
