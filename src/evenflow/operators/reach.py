"""What an operator can reach by name: classes and functions that no module can be asked for in a lane.

A class of the user's script, or one made in a function, cannot be imported in a lane: its module is not there, or does
not have it. The operator itself has come there with all that its code refers to. What it reaches is stored by name and
found through the operator again: so state that was stored before a restart comes back as the classes of the program as
it is now.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any, TypeAlias

from evenflow.errors import InputError

Named: TypeAlias = "type | FunctionType"
_Name: TypeAlias = tuple[str, str]  # module and qualified name


class Reach:
    """The classes and functions that an operator reaches and that cannot be imported."""

    def __init__(self, operator: object) -> None:
        """Follow what the operator's code refers to; of two things with one name, neither can be named."""
        self._who = type(operator).__qualname__
        self._things: dict[_Name, Named | None] = {}
        for thing in _reached(operator):
            name = _name_of(thing)
            self._things[name] = thing if self._things.get(name, thing) is thing else None
        self._names = {id(thing): name for name, thing in self._things.items() if thing is not None}

    def name_of(self, thing: Named) -> _Name | None:
        """Return how to find a thing again; None if that cannot be promised."""
        return self._names.get(id(thing))

    def named(self, module: str, qualname: str) -> Named:
        """Return what has this name now."""
        thing = self._things.get((module, qualname))
        if thing is None:
            raise InputError(
                f"the state holds {qualname} of {module}, and {self._who} refers to nothing of that name any more: "
                f"keep it in the program and use it in a method of {self._who}, such as upgrade()"
            )
        return thing


def _name_of(thing: Named) -> _Name:
    return str(thing.__module__), thing.__qualname__


def _is_importable(thing: Named) -> bool:
    """Tell whether another process finds a thing by its name; what is `__main__` differs from process to process."""
    module, qualname = _name_of(thing)
    found: Any = sys.modules.get(module)
    if module == "__main__" or found is None:
        return False
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is thing


def _reached(operator: object) -> Iterator[Named]:
    """Yield what cannot be imported of all that an operator refers to, directly or through what it refers to."""
    waiting: list[Any] = [type(operator), *vars(operator).values()]
    seen: set[int] = set()
    while waiting:
        thing = waiting.pop()
        if not isinstance(thing, type | FunctionType) or id(thing) in seen:
            continue
        seen.add(id(thing))
        importable = _is_importable(thing)
        if not importable:
            yield thing
        if thing is type(operator) or not importable:
            waiting += _referred_by_class(thing) if isinstance(thing, type) else _referred_by_function(thing)


def _referred_by_class(kind: type) -> Iterator[Any]:
    yield from kind.__bases__
    for member in vars(kind).values():
        if isinstance(member, staticmethod | classmethod):
            yield member.__func__
        elif isinstance(member, property):
            yield from (member.fget, member.fset, member.fdel)
        elif isinstance(member, functools.cached_property):
            yield member.func
        else:
            yield member


def _referred_by_function(function: FunctionType) -> Iterator[Any]:
    yield from function.__globals__.values()
    yield getattr(function, "__wrapped__", None)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
