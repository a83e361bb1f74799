"""Whether code that a user brings can be called as evenflow will call it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Tell whether `function` can be called with so many arguments; of what does not say, it is believed."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True
