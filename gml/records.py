"""`dataclass` as in the standard library, for classes that are made when gml starts.

The standard decorator writes and compiles the text of up to six methods per class: 0.7 ms each on the machine where
this was measured, 60 ms for the 85 classes that a program with a language model imports, an eighth of the time from
its start to the first token. Here methods are closures over the fields. What comes out is a dataclass:
`dataclasses.fields`, `replace` and `is_dataclass` know it, `field(default_factory=...)`, `__post_init__`, `ClassVar`
and inheritance work, a frozen class hashes and refuses assignment. Not there: slots, order, keyword-only fields,
`InitVar`.

First module beside `errors.py`; imports nothing of gml.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """The decorator, with or without arguments.

        Raises `TypeError` for a field without a default behind one with a default.
        """

        def decorate(cls: type) -> type:
            _add_methods(cls, _take_fields(cls), frozen, eq)
            return cls

        return decorate if cls is None else decorate(cls)


__all__ = ["dataclass", "field", "fields"]


def _kind_of_field() -> Any:
    """The mark that `dataclasses.fields` looks for, taken from a class of the standard decorator."""
    from dataclasses import make_dataclass

    return make_dataclass("Sample", ["x"]).__dataclass_fields__["x"]._field_type  # type: ignore[attr-defined]


_FIELD = _kind_of_field()


def _take_fields(cls: type) -> dict[str, Field[Any]]:
    """The fields of a class and its bases; defaults stay as attributes of the class."""
    found: dict[str, Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        found |= getattr(base, "__dataclass_fields__", {})
    for name, annotation in inspect.get_annotations(cls).items():
        if "ClassVar" in str(annotation):
            continue
        default = cls.__dict__.get(name, MISSING)
        one = default if isinstance(default, Field) else field(default=default)
        if one.default is not MISSING:
            setattr(cls, name, one.default)
        elif isinstance(default, Field):
            delattr(cls, name)
        one.name, one.type = name, annotation
        one._field_type = _FIELD  # type: ignore[attr-defined]
        found[name] = one
    optional = ""
    for name, one in found.items():
        required = one.default is MISSING and one.default_factory is MISSING
        if required and optional:
            raise TypeError(f"{cls.__name__}: field {name!r} without a default follows {optional!r} with one")
        optional = optional or ("" if required else name)
    cls.__dataclass_fields__ = found  # type: ignore[attr-defined]
    return found


def _add_methods(cls: type, found: dict[str, Field[Any]], frozen: bool, eq: bool) -> None:
    names = tuple(found)
    defaults = {n: f.default for n, f in found.items() if f.default is not MISSING}
    factories = {n: f.default_factory for n, f in found.items() if f.default_factory is not MISSING}
    shown = tuple(n for n, f in found.items() if f.repr)
    compared = tuple(n for n, f in found.items() if f.compare)
    prepared = hasattr(cls, "__post_init__")

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        values = self.__dict__
        if len(args) > len(names):
            raise TypeError(f"{cls.__name__}() takes {len(names)} arguments, found {len(args)}")
        values.update(zip(names, args, strict=False))
        for name in names[len(args) :]:
            if name in given:
                values[name] = given.pop(name)
            elif name in defaults:
                values[name] = defaults[name]
            elif name in factories:
                values[name] = factories[name]()
            else:
                raise TypeError(f"{cls.__name__}() misses the argument {name!r}; it takes {', '.join(names)}")
        if given:
            raise TypeError(f"{cls.__name__}() got {', '.join(given)}, which is unknown or given twice")
        if prepared:
            self.__post_init__()

    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"

    def __eq__(self: Any, other: Any) -> Any:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in compared)

    def __hash__(self: Any) -> int:
        return hash(tuple([getattr(self, n) for n in compared]))

    methods: dict[str, Any] = {"__init__": __init__, "__repr__": __repr__, "__match_args__": names}
    if eq:
        methods["__eq__"] = __eq__
        # as in the standard library: what compares by value and can change has no hash
        methods["__hash__"] = cls.__dict__.get("__hash__") or (__hash__ if frozen else None)
    if frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
    for name, method in methods.items():
        if name == "__hash__" or name not in cls.__dict__:
            setattr(cls, name, method)


def _refuse(self: Any, name: str, *value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to or delete {name!r}: {type(self).__name__} is frozen")
