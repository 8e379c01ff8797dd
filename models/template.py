"""Chat templates in a sandbox.

Arrives: a Jinja template out of a model file, messages; leaves: the prompt's text. The environment is the one that
templates are written for (transformers' `render_jinja_template`): trimmed blocks, loop controls, `raise_exception`,
`strftime_now`, and a `tojson` that keeps characters as they are.

Such a template is a stranger's program. Jinja's immutable sandbox keeps it from the interpreter; what it does not do is
bound time and memory, so every loop turn, call and piece of text is counted here, and sizes are checked before they are
made. Next module: `models/chat.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from gml.errors import Error

MAX_SOURCE = 1 << 20
MAX_STEPS = 200_000
MAX_CHARACTERS = 1 << 26
MAX_WIDTH = 10_000
MAX_ITEMS = 100_000
# What one place in a list costs, in characters: its pointer.
ITEM_COST = 8

# Filters that make text of a size that no size of their input bounds, or that chat templates have no use for.
REMOVED_FILTERS = ("center", "pprint", "random", "urlize", "wordwrap", "xmlattr", "batch", "slice")
# Methods of str whose integer argument is a size.
SIZED_METHODS = ("center", "ljust", "rjust", "zfill", "expandtabs")


class ChatTemplateError(Error):
    """A chat template that cannot be read, that fails, or that refuses the messages."""


class _Budget:
    """What one rendering may still do."""

    def __init__(self) -> None:
        self.n_steps = MAX_STEPS
        self.n_characters = MAX_CHARACTERS

    def step(self) -> None:
        self.n_steps -= 1
        if self.n_steps < 0:
            raise ChatTemplateError(f"more than {MAX_STEPS} loop turns and calls; templates need a few hundred")

    def spend(self, n: int) -> None:
        self.n_characters -= n
        if self.n_characters < 0:
            raise ChatTemplateError(f"more than {MAX_CHARACTERS} characters of text; shorten the messages")


_budget: ContextVar[_Budget] = ContextVar("_budget")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with the work counted: operators and calls here, the rest by rewriting (`_Counting`)."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], finalize=_count_output)
        for name in REMOVED_FILTERS:
            self.filters.pop(name, None)
        self.filters |= {
            "tojson": _tojson,
            "_counted": _counted,
            "_concat": _concat,
            "_charged": _charged,
            "_bounded": _bounded,
            "list": lambda value: _bounded(list(_counted(value))),
            "join": _checked_join(self.filters["join"]),
            "replace": _checked_replace(self.filters["replace"]),
            "indent": _checked_indent(self.filters["indent"]),
            "format": _checked_format(self.filters["format"]),
        }
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now, "range": _range}
        self.globals.pop("lipsum", None)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Counting().visit(super()._parse(source, name, filename))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        budget = _budget.get()
        budget.step()
        sizes = [_cost(x) for x in (left, right)]
        if any(isinstance(x, int) and abs(x) >> 128 for x in (left, right)):
            raise ChatTemplateError("an integer of more than 128 bits")
        if operator == "**" and (not isinstance(right, int | float) or abs(right) > 64):
            raise ChatTemplateError(f"an exponent above 64: {_short(right)}")
        if operator == "*":
            budget.spend(sum(sizes) * max([0, *(x for x in (left, right) if isinstance(x, int))]))
        elif operator == "+":
            budget.spend(sum(sizes))
        if operator == "%" and isinstance(left, str):
            _check_percent(left)
        return _made(super().call_binop(context, operator, left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        _budget.get().step()
        # the sandbox wraps str.format
        method = getattr(__obj, "__wrapped__", __obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            _check_method(owner, getattr(method, "__name__", ""), [*args, *kwargs.values()])
        return _made(super().call(__context, __obj, *args, **kwargs))


def _cost(value: Any) -> int:
    return len(value) if isinstance(value, str) else ITEM_COST * len(value) if isinstance(value, list | tuple) else 0


def _made(value: Any) -> Any:
    return _bounded(value) if isinstance(value, list | tuple | dict) else value


class _Counting(NodeTransformer):
    """Loops, `~`, lists, filters, comparisons and slices call no hook of the environment: they get filters of ours."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_counted")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concat")

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_bounded")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_bounded")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_bounded") if node.ctx == "load" else node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
        self.generic_visit(node)
        if node.node is not None:
            node.node = _filtered(node.node, "_charged")
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filtered(node.expr, "_charged")
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "_charged")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _filtered(node.node, "_charged")
        return node


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _charged(value: Any) -> Any:
    """Pay for reading a value once."""
    if isinstance(value, str | bytes):
        _budget.get().spend(len(value))
    elif isinstance(value, list | tuple | dict | range):
        _budget.get().spend(ITEM_COST * len(value))
    return value


def _bounded(value: Any) -> Any:
    """Refuse nested lists that unfold to very many items: of `[x, x]` in a loop, each turn makes twice as many."""
    n_items, pending = 0, [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            item = [*item.keys(), *item.values()]
        if isinstance(item, list | tuple):
            n_items += len(item)
            if n_items > MAX_ITEMS:
                raise ChatTemplateError(f"a list of more than {MAX_ITEMS} items, nested ones included")
            pending.extend(x for x in item if isinstance(x, list | tuple | dict))
    _budget.get().spend(ITEM_COST * n_items)
    return value


def _check_method(text: str, name: str, args: list[Any]) -> None:
    """Pay for a call of a str method; refuse one that would make much text of little."""
    _charged(text)
    if name in SIZED_METHODS and any(isinstance(x, int) and x > MAX_WIDTH for x in args):
        raise ChatTemplateError(f"str.{name} to more than {MAX_WIDTH} characters")
    if name == "translate":
        raise ChatTemplateError("str.translate is not supported")
    if name in ("format", "format_map") and re.search(r"[:!{][^}]*\d{5,}|:[^}]*\{", text):
        raise ChatTemplateError(f"str.format to more than {MAX_WIDTH} characters, or to a computed width")
    if name == "replace" and len(args) > 1:
        _spend_replace(text, args[0], args[1])
    if name == "join" and args and isinstance(args[0], Sequence):
        _budget.get().spend(len(text) * len(args[0]) + sum(len(x) for x in args[0] if isinstance(x, str)))


def _check_percent(text: str) -> None:
    if re.search(r"%[^%a-zA-Z]*(\*|\d{5})", text):
        raise ChatTemplateError(f"formatting to more than {MAX_WIDTH} characters, or to a computed width")


def _spend_replace(text: str, old: Any, new: Any) -> None:
    if isinstance(old, str) and isinstance(new, str):
        n_found = text.count(old) if old else len(text) + 1
        _budget.get().spend(len(text) + n_found * len(new))


def _checked_join(join: Callable[..., str]) -> Callable[..., str]:
    @jinja2.pass_eval_context
    def checked(context: Any, value: Iterable[Any], d: str = "", attribute: Any = None) -> str:
        items = list(_counted(value))
        _budget.get().spend(len(d) * len(items) + sum(len(x) for x in items if isinstance(x, str)))
        return join(context, items, d, attribute)

    return checked


def _checked_replace(replace: Callable[..., str]) -> Callable[..., str]:
    @jinja2.pass_eval_context
    def checked(context: Any, s: Any, old: str, new: str, count: int | None = None) -> str:
        _spend_replace(str(s), old, new)
        return replace(context, s, old, new, count)

    return checked


def _checked_indent(indent: Callable[..., str]) -> Callable[..., str]:
    def checked(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        n_width = width if isinstance(width, int) else len(width)
        _budget.get().spend(len(s) + s.count("\n") * max(0, n_width))
        return indent(s, width, first, blank)

    return checked


def _checked_format(format: Callable[..., str]) -> Callable[..., str]:
    def checked(value: str, *args: Any, **kwargs: Any) -> str:
        _check_percent(str(value))
        return format(value, *args, **kwargs)

    return checked


def _count_output(value: Any) -> Any:
    text = value if isinstance(value, str) else str(value)
    if (budget := _budget.get(None)) is not None:  # constants are folded when the template is compiled
        budget.spend(len(text))
    return text


def _counted(items: Iterable[Any]) -> Iterator[Any]:
    budget = _budget.get()
    for item in items:
        budget.step()
        yield item


def _concat(items: list[Any]) -> str:
    texts = [str(item) for item in items]
    _budget.get().spend(sum(len(text) for text in texts))
    return "".join(texts)


def _range(*args: int) -> range:
    numbers = range(*args)
    if abs(args[0]) >> 62 or len(numbers) > MAX_STEPS:
        raise ChatTemplateError(f"a range of more than {MAX_STEPS} numbers")
    return numbers


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers makes it: Jinja's own filter would escape characters of HTML."""
    if indent is not None and (not isinstance(indent, int) or indent > 64):
        raise ChatTemplateError(f"tojson: an indent of at most 64, found {_short(indent)}")
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    _budget.get().spend(len(text))
    return text


def _raise_exception(message: Any) -> None:
    raise ChatTemplateError(f"the template refuses these messages: {_short(message)}")


def _strftime_now(format: str) -> str:
    if len(format) > 100:
        raise ChatTemplateError("strftime_now: a format of at most 100 characters")
    return datetime.now().strftime(format)


def _short(value: Any) -> str:
    return " ".join(str(value).split())[:300]


class ChatTemplate:
    """A compiled template: `ChatTemplate(source, bos_token="<s>").render(messages)`.

    Raises `ChatTemplateError`, one line that names the template's line, for a source that cannot be compiled.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_SOURCE:
            raise ChatTemplateError(f"the chat template has {len(source)} characters; at most {MAX_SOURCE} are read")
        self.tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._template = _guarded(lambda: _Sandbox().from_string(source))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt's text. `variables` reach the template as they are (`enable_thinking=False`, ...).

        Raises `ChatTemplateError` when the template fails, refuses the messages, or does more work than any template
        needs.
        """
        given = {
            **self.tokens,
            "messages": [dict(m) for m in messages],
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **variables,
        }
        reset = _budget.set(_Budget())
        try:
            return _guarded(lambda: self._template.render(given))
        finally:
            _budget.reset(reset)


def _guarded(work: Callable[[], Any]) -> Any:
    """Run a part of Jinja; whatever a template makes it raise becomes one line."""
    try:
        return work()
    except jinja2.TemplateSyntaxError as error:
        raise ChatTemplateError(f"chat template, line {error.lineno}: {_short(error.message)}") from error
    except RecursionError as error:
        raise ChatTemplateError("chat template: nested or recursing too deeply") from error
    except ChatTemplateError as error:
        raise ChatTemplateError(f"chat template{_line_of(error)}: {error}") from error
    # a template can make any operation of Python fail: sums of text and numbers, missing keys, deep syntax trees
    except Exception as error:
        what = _short(error) or type(error).__name__
        raise ChatTemplateError(f"chat template{_line_of(error)}: {what}") from error


def _line_of(error: BaseException) -> str:
    """ ", line N" of the template, from the traceback that Jinja has rewritten."""
    found, traceback = "", error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            found = f", line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found
