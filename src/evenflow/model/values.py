"""Equality and hashing for frozen dataclasses that hold numpy arrays."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np


def _comparable(value: Any) -> Any:
    """Return a hashable stand-in that is equal exactly when `value` is."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    return value


class ArrayValue:
    """Mixin: two values are equal when all their fields are, arrays compared by content."""

    __slots__ = ()

    def _content(self) -> tuple[Any, ...]:
        return tuple(_comparable(getattr(self, part.name)) for part in fields(self))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        """Compare type and content."""
        if type(other) is not type(self):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        """Hash what `__eq__` compares."""
        return hash(self._content())
