"""What rules and checks have in common: orders, and ranges in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

MARGIN = 0.01  # of linear speed-up: what lies nearer together than that is chance


def ascending(values: Sequence[float]) -> bool:
    """Say whether each value is at most the next."""
    return all(low <= high for low, high in pairwise(values))


def median_range(values: Iterable[float], form: Callable[[float], str] = "{:.3g}".format) -> str:
    """Print the median of repetitions with its range, as ``median (low to high)``."""
    found = np.array(list(values), dtype=np.float64)
    if found.size == 1 or found.min() == found.max():
        return form(float(found[0]))
    return f"{form(float(np.median(found)))} ({form(float(found.min()))} to {form(float(found.max()))})"
