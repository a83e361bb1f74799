"""Things by name: build one from a registry with options; what is unknown is answered with what is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

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
    try:
        return maker(**options)
    except TypeError as error:
        raise InputError(f"{kind} {name} cannot use {dict(options)}: {error}") from error
