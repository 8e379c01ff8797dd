"""Options and arguments that several commands share, and what they are made into.

Arrives: a command's options; leaves: sampler parameters, an open session. Next: the commands themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gml.errors import UsageError

if TYPE_CHECKING:
    from gml.models.sampling import SamplerParams
    from gml.models.session import Session

Command = TypeVar("Command", bound=Callable[..., Any])

SAMPLING = (
    click.option("--temp", "temperature", type=float, default=0.8, show_default=True, help="0: the most probable."),
    click.option("--top-k", type=int, default=40, show_default=True, help="Keep the k most probable tokens; 0: all."),
    click.option("--top-p", type=float, default=0.95, show_default=True, help="Keep this much probability; 1: all."),
    click.option(
        "--min-p", type=float, default=0.05, show_default=True, help="Keep tokens this probable, of the best."
    ),
    click.option(
        "--typical", "typical_p", type=float, default=1.0, show_default=True, help="Typical sampling; 1: off."
    ),
    click.option("--repeat-penalty", type=float, default=1.0, show_default=True, help="Above 1: repeat less."),
    click.option(
        "--repeat-last-n", type=int, default=64, show_default=True, help="Tokens that penalties see; -1: all."
    ),
    click.option("--frequency-penalty", type=float, default=0.0, show_default=True),
    click.option("--presence-penalty", type=float, default=0.0, show_default=True),
    click.option("--logit-bias", multiple=True, metavar="ID=BIAS", help="Add to a token's logit; -inf bans it."),
    click.option("--ignore-eos", is_flag=True, help="Never end by an end-of-generation token."),
    click.option("--seed", type=int, help="Makes sampling repeatable."),
)
SESSION = (
    click.option("--ctx", "n_ctx", type=int, metavar="N", help="Tokens of context [the model's, at most 4096]."),
    click.option("--batch", "n_batch", type=int, default=512, show_default=True, metavar="N", help="Tokens per step."),
    click.option("--threads", type=int, metavar="N", help="Threads [one per core], at most one per processor."),
    click.option("--backend", metavar="NAME", help="What runs the graph [cpu where it is installed]."),
    click.option("--kv-type", default="F16", show_default=True, help="Type of the KV cache: F16, F32 or Q8_0."),
    click.option("--pre", metavar="NAME", help="Override the file's tokenizer.ggml.pre."),
)
STOP = click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be given several times.")


def with_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Apply option decorators in the order in which help shows them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def sampler_params(logit_bias: Sequence[str], **options: Any) -> SamplerParams:
    """Parameters from the options of `SAMPLING`."""
    from gml.models.sampling import SamplerParams

    biases: dict[int, float] = {}
    for text in logit_bias:
        id, _, bias = text.partition("=")
        try:
            biases[int(id)] = float(bias)
        except ValueError:
            raise UsageError(f"--logit-bias: expected ID=BIAS, such as 12=-1.5, found {text!r}") from None
    return SamplerParams(logit_bias=biases, **options)


def open_session(
    model: str,
    *,
    n_ctx: int | None,
    n_batch: int,
    threads: int | None,
    backend: str | None,
    kv_type: str,
    pre: str | None,
) -> Session:
    """A session from the model argument and the options of `SESSION`; the model is pulled when its name is known."""
    import gml
    from gml.models.loader import Model
    from gml.models.session import Session
    from gml.tools.models import model_path

    if threads is not None:
        if not 1 <= threads <= 1024:
            raise UsageError(f"--threads must be from 1 to 1024, found {threads}")
        gml.knobs.set(threads=threads)
    check_backend(backend)
    loaded = Model.load(model_path(model), pre=pre)
    return Session(loaded, backend=backend, n_ctx=n_ctx, n_batch=n_batch, kv_type=kv_type)


def compiled_backend(threads: int | None, *, exact: bool, layout: str) -> Any:
    """The compiled backend with these options. Raises `UsageError` for a number of threads that cannot be."""
    import gml

    return gml.get_backend("cpu", threads=threads, exact=exact, layout=layout)


def model_name_check(model: str) -> Any:
    """The path of the model argument, pulled when its name is known."""
    from gml.tools.models import model_path

    return model_path(model)


def check_backend(name: str | None) -> None:
    """Raises `UsageError` for a backend that is not installed, before a model is loaded for it."""
    import gml

    if name is not None and name not in gml.backend_names():
        raise UsageError(f"--backend: no backend {name!r}; installed: {', '.join(gml.backend_names())}")


def read_text(argument: str | None, what: str) -> str | bytes:
    """The argument, or all of standard input (bytes) when it is missing or `-`."""
    if argument is not None and argument != "-":
        return argument
    if sys.stdin is None or (argument is None and sys.stdin.isatty()):
        raise UsageError(f"no {what}: give it as an argument, or pipe it in")
    return sys.stdin.buffer.read()
