"""Post-processors, truncation and padding of a tokenizer.json: ids of one or two texts to the ids of a sequence.

Arrives: the parts' JSON objects, then lists of ids. Leaves: lists of ids with special tokens, of bounded length.
Source: huggingface/tokenizers tokenizers/src/processors, utils/truncation.rs, utils/padding.rs; details as in version
0.23. Next module: `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gml.errors import TokenizerError, UnsupportedError
from gml.models.tokenizer.pipeline_parts import MAX_DEPTH, build, one_of, setting
from gml.records import dataclass

Part = Mapping[str, Any]
# Where a text's ids go.
FIRST, SECOND = "A", "B"


@dataclass(frozen=True)
class Template:
    """What to write around the ids: each item FIRST, SECOND or the ids of a special token."""

    single: tuple[str | tuple[int, ...], ...] = (FIRST,)
    pair: tuple[str | tuple[int, ...], ...] = (FIRST, SECOND)

    def apply(self, first: list[int], second: list[int] | None) -> list[int]:
        """The ids of a sequence."""
        ids: list[int] = []
        for item in self.single if second is None else self.pair:
            if item == FIRST:
                ids += first
            elif item == SECOND:
                ids += second or []
            else:
                ids += item  # pyright: ignore[reportOperatorIssue]
        return ids

    def n_added(self, is_pair: bool) -> int:
        """How many ids it adds."""
        return sum(len(item) for item in (self.pair if is_pair else self.single) if not isinstance(item, str))


def template(part: Any, depth: int = 0) -> Template:
    """The template that a part's object describes; None adds nothing."""
    if part is None:
        return Template()
    if isinstance(part, Mapping) and part.get("type") == "Sequence":
        if depth >= MAX_DEPTH:
            raise TokenizerError(f"tokenizer.json: sequences of post_processors are nested more than {MAX_DEPTH} deep")
        return _joined([template(step, depth + 1) for step in setting(part, "processors", list)])
    return build(part, "post_processor", _MAKERS)


def _joined(steps: list[Template]) -> Template:
    adding = [step for step in steps if step != Template()]
    if len(adding) > 1:
        raise UnsupportedError("tokenizer.json: a Sequence of several post_processors that add tokens is not known")
    return adding[0] if adding else Template()


def _from_template(part: Part) -> Template:
    specials = setting(part, "special_tokens", dict)

    def items(key: str) -> tuple[str | tuple[int, ...], ...]:
        return tuple(_item(item, specials) for item in setting(part, key, list))

    return Template(items("single"), items("pair"))


def _item(item: Any, specials: Mapping[str, Any]) -> str | tuple[int, ...]:
    if isinstance(item, Mapping) and len(item) == 1:
        (kind, body) = next(iter(item.items()))
        name = body.get("id") if isinstance(body, Mapping) else None
        if kind == "Sequence" and name in (FIRST, SECOND):
            return name
        ids = specials.get(name, {}).get("ids") if kind == "SpecialToken" and isinstance(name, str) else None
        if isinstance(ids, list) and all(isinstance(number, int) and 0 <= number < 1 << 31 for number in ids):
            return tuple(ids)
    raise TokenizerError(f"tokenizer.json: TemplateProcessing: {item!r:.120} names no sequence or special token")


def _special(part: Part, key: str) -> tuple[int]:
    token = setting(part, key, list)
    if len(token) != 2 or not isinstance(token[1], int) or isinstance(token[1], bool) or not 0 <= token[1] < 1 << 31:
        raise TokenizerError(f"tokenizer.json: {part.get('type')}: expected {key} as [token, id], found {token!r:.80}")
    return (token[1],)


def _bert(part: Part) -> Template:
    cls, sep = _special(part, "cls"), _special(part, "sep")
    return Template((cls, FIRST, sep), (cls, FIRST, sep, SECOND, sep))


def _roberta(part: Part) -> Template:
    cls, sep = _special(part, "cls"), _special(part, "sep")
    return Template((cls, FIRST, sep), (cls, FIRST, sep, sep, SECOND, sep))


_MAKERS: dict[str, Callable[[Part], Template]] = {
    "TemplateProcessing": _from_template,
    "BertProcessing": _bert,
    "RobertaProcessing": _roberta,
    "ByteLevel": lambda _: Template(),
}


@dataclass(frozen=True)
class Truncation:
    """Bounds the length of a sequence, special tokens included."""

    max_length: int
    from_left: bool = False
    strategy: str = "LongestFirst"

    @classmethod
    def from_json(cls, part: Any) -> Truncation | None:
        """The settings of `truncation`, or None."""
        if part is None:
            return None
        part = {"type": "truncation", **part} if isinstance(part, Mapping) else {}
        strategies = {name: name for name in ("LongestFirst", "OnlyFirst", "OnlySecond")}
        directions = {"Left": True, "Right": False}
        return cls(
            setting(part, "max_length", int),
            one_of(part, "direction", directions, "Right"),
            one_of(part, "strategy", strategies, "LongestFirst"),
        )

    def _cut(self, ids: list[int], n: int) -> list[int]:
        if n >= len(ids):
            return ids
        return ids[len(ids) - n :] if self.from_left else ids[:n]

    def apply(self, first: list[int], second: list[int] | None, n_added: int) -> tuple[list[int], list[int] | None]:
        """The two lists, shortened so that both and n_added special tokens fit."""
        room = max(0, self.max_length - n_added)
        if second is None:
            return (self._cut(first, room) if self.strategy != "OnlySecond" else first), None
        excess = len(first) + len(second) - room
        if excess <= 0:
            return first, second
        if self.strategy == "LongestFirst":
            n_first, n_second = _share(len(first), len(second), room)
            return self._cut(first, n_first), self._cut(second, n_second)
        name, target = ("first", first) if self.strategy == "OnlyFirst" else ("second", second)
        if len(target) <= excess:
            raise TokenizerError(f"truncation: the {name} text has {len(target)} tokens, but {excess} are too many")
        shorter = self._cut(target, len(target) - excess)
        return (shorter, second) if self.strategy == "OnlyFirst" else (first, shorter)


def _share(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """Lengths of two texts that fit together: the shorter stays whole if it fits into half the room."""
    swapped = n_first > n_second
    shorter, longer = (n_second, n_first) if swapped else (n_first, n_second)
    longer = shorter if shorter > room else max(shorter, room - shorter)
    if shorter + longer > room:
        shorter = room // 2
        longer = shorter + room % 2
    return (longer, shorter) if swapped else (shorter, longer)


@dataclass(frozen=True)
class Padding:
    """Makes sequences of one length. fixed: that length; None: the longest of the batch."""

    pad_id: int
    fixed: int | None = None
    from_left: bool = False
    multiple_of: int = 1

    @classmethod
    def from_json(cls, part: Any) -> Padding | None:
        """The settings of `padding`, or None."""
        if part is None:
            return None
        part = {"type": "padding", **part} if isinstance(part, Mapping) else {}
        strategy = part.get("strategy", "BatchLongest")
        fixed = strategy.get("Fixed") if isinstance(strategy, Mapping) else None
        if strategy != "BatchLongest" and not (isinstance(fixed, int) and 0 <= fixed < 1 << 31):
            raise UnsupportedError(f"tokenizer.json: padding: strategy {strategy!r:.60} is not known")
        multiple = setting(part, "pad_to_multiple_of", int, None) or 1
        directions = {"Left": True, "Right": False}
        from_left = one_of(part, "direction", directions, "Right")
        return cls(setting(part, "pad_id", int, 0), fixed, from_left, multiple)

    def apply(self, sequences: list[list[int]]) -> list[list[int]]:
        """The sequences, none shorter than the longest or the fixed length."""
        n = self.fixed if self.fixed is not None else max(map(len, sequences), default=0)
        n += -n % self.multiple_of
        padded = []
        for ids in sequences:
            padding = [self.pad_id] * (n - len(ids))
            padded.append(padding + ids if self.from_left else ids + padding)
        return padded
