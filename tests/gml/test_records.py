"""`gml.records.dataclass` beside the standard one: the same class bodies behave alike."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from gml import records


class Plain:
    """Fields with and without defaults, something shared by the class, something made per instance."""

    a: int
    b: str = "x"
    shared: ClassVar[int] = 7
    hidden: int = records.field(default=1, repr=False)
    made: list[int] = records.field(default_factory=list)
    aside: int = records.field(default=0, compare=False)


def body(base: type) -> type:
    """A fresh class with the body of `base`."""
    fields = dict(vars(base))
    return type(base.__name__, (), {k: v for k, v in fields.items() if k not in ("__dict__", "__weakref__")})


def both(**options: Any) -> tuple[type, type]:
    """`Plain` by the standard decorator and by ours. Fields are shared objects, so each gets its own copy."""
    made = []
    for decorate in (dataclasses.dataclass, records.dataclass):
        cls = body(Plain)
        for name in ("hidden", "made", "aside"):
            old = vars(Plain)[name]
            kept = {"default": old.default} if old.default is not dataclasses.MISSING else {}
            if not kept:
                kept = {"default_factory": old.default_factory}
            setattr(cls, name, records.field(**kept, repr=old.repr, compare=old.compare))
        made.append(decorate(**options)(cls))
    return made[0], made[1]


@pytest.mark.parametrize("frozen", [False, True])
def test_equal_to_the_standard_decorator(frozen: bool) -> None:
    theirs, ours = both(frozen=frozen)
    for arguments in ({"a": 1}, {"a": 1, "b": "y"}, {"a": 2, "hidden": 3, "made": [4], "aside": 5}):
        x, y = theirs(**arguments), ours(**arguments)
        assert repr(x) == repr(y)
        assert vars(x) == vars(y)
        assert dataclasses.asdict(x) == dataclasses.asdict(y)
        assert dataclasses.replace(y, b="z").b == "z"
    assert [f.name for f in dataclasses.fields(theirs)] == [f.name for f in dataclasses.fields(ours)]
    assert ours(1) == ours(1, aside=9) and ours(1) != ours(2)
    assert ours(1) != theirs(1)
    assert ours.__match_args__ == theirs.__match_args__
    assert ours(1).made is not ours(1).made
    assert (ours.__hash__ is None) == (theirs.__hash__ is None) == (not frozen)


def test_frozen_refuses_and_hashes() -> None:
    @records.dataclass(frozen=True)
    class Point:
        x: int
        y: int = 0

    p = Point(1)
    for change in (lambda: setattr(p, "x", 2), lambda: delattr(p, "x"), lambda: setattr(p, "new", 2)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert {Point(1): "a"}[Point(1, 0)] == "a"
    with pytest.raises(TypeError, match="misses the argument 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown or given twice"):
        Point(1, x=2)  # type: ignore[misc]
    with pytest.raises(TypeError, match="takes 2 arguments, found 3"):
        Point(1, 2, 3)  # type: ignore[call-arg]


def test_inheritance_post_init_and_own_methods() -> None:
    @records.dataclass
    class Base:
        a: int

        def __post_init__(self) -> None:
            self.twice = 2 * self.a

    @records.dataclass(eq=False)
    class Derived(Base):
        b: int = 3

        def __repr__(self) -> str:
            return "mine"

    made = Derived(2)
    assert (made.a, made.b, made.twice, repr(made)) == (2, 3, 4, "mine")
    # without a comparison of its own it has that of its base, which does not look at b
    assert made == Derived(2, 4) and made != Derived(3)
    with pytest.raises(TypeError, match="'c' without a default follows 'b'"):

        @records.dataclass
        class Wrong(Derived):
            c: int


@records.dataclass(frozen=True)
class Saved:
    """At the top of a module, for pickle."""

    x: int
    y: tuple[int, ...] = ()


def test_pickle() -> None:
    assert pickle.loads(pickle.dumps(Saved(1, (2, 3)))) == Saved(1, (2, 3))
