"""Calls the user's code: whatever it does, what comes of it is an error that says where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evenflow.errors import OperatorError
from evenflow.operators.under_way import KeyText, in_epoch, text_of, under_way


@contextmanager
def calling(operator: str, slot: int | None = None, key: KeyText = None) -> Iterator[None]:
    """Turn what the user's code raises into an OperatorError; his own traceback is attached as its cause.

    `sys.exit` in it must not end the lane, which would only be started again: it ends the query.
    """
    try:
        with under_way(operator, slot, key):
            yield
    except OperatorError:
        raise
    except SystemExit as error:
        raise OperatorError(operator, slot, f"it called sys.exit({error.code!r})", text_of(key)) from error
    except MemoryError as error:
        said = f": {error}" if str(error) else ""
        raise OperatorError(operator, slot, f"MemoryError{said}: its memory ran out", text_of(key)) from error
    except Exception as error:
        raise OperatorError(operator, slot, f"{type(error).__name__}: {error}", text_of(key)) from error


@contextmanager
def at_epoch(epoch: int, stage: str | None = None) -> Iterator[None]:
    """Let what goes wrong in an operator say in which epoch, and in which of several stages."""
    try:
        with in_epoch(epoch):
            yield
    except OperatorError as error:
        error.epoch, error.stage = epoch, stage
        raise


def key_text(names: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """Return a key as messages show it."""
    return ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=True))
