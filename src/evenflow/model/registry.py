"""Things by name: build one from a registry with options; what is unknown is answered with what is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

import msgspec
import numpy as np

from evenflow.errors import InputError, UnknownNameError

Thing = TypeVar("Thing")


def build_named(kind: str, name: str, known: Mapping[str, Callable[..., Thing]], options: Mapping[str, Any]) -> Thing:
    """Return the `kind` called `name`, a dataclass whose fields are its options."""
    if name not in known:
        raise UnknownNameError(kind, name, known)
    maker = known[name]
    accepted = [field.name for field in fields(maker)]  # type: ignore[arg-type]
    for option in options:
        if option not in accepted:
            raise UnknownNameError(f"option of {kind} {name}", option, accepted or ["(it has none)"])
    return maker(**fitted_options(f"{kind} {name}", maker, options))


def fitted_options(who: str, maker: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` in the types of the fields of `maker`, a dataclass; what is of another type is an error."""
    expected = get_type_hints(maker)
    return {name: fitted(who, name, value, expected[name]) for name, value in options.items()}


def fitted(who: str, name: str, value: Any, expected: Any) -> Any:
    """Return a value in the type `expected`; what is of another type is an error."""
    plain = value.item() if isinstance(value, np.generic) else value
    whole = [int(plain)] if isinstance(plain, float) and plain.is_integer() else []  # 1e6 is a whole number, too
    for given in (plain, *whole):
        with suppress(msgspec.ValidationError):
            return msgspec.convert(given, expected)
    wanted = expected.__name__ if isinstance(expected, type) else expected
    raise InputError(f"{who} cannot use {name} = {plain!r}: it expects {wanted}")
