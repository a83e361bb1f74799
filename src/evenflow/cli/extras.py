"""Libraries that users may have left out: one sentence says what needs them and how to install them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from evenflow.errors import InputError

_PLOT = ("matplotlib", "PIL")


@contextmanager
def plots(what: str) -> Iterator[None]:
    """Import what draws in here: without it, say that `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _PLOT:
            raise
        raise InputError(f"{what} needs {error.name}, which is not installed: pip install 'evenflow[plot]'") from error
