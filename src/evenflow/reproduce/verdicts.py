"""From numbers to a verdict: the rules that experiments have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from evenflow.reproduce.experiment import Check, Verdict


def within(ours: float, published: float, match: float, factor: float) -> Verdict:
    """Return how close `ours` is to a positive number: off by the share `match` at most, or by `factor` times."""
    if abs(ours - published) <= match * published:
        return Verdict.MATCH
    near = published / factor <= ours <= published * factor
    return Verdict.SHAPE if near else Verdict.DIFFERS


def holds(statement: bool, weaker: bool = False) -> Verdict:  # noqa: FBT001, FBT002 - the two levels of a statement
    """Return MATCH where the statement holds, SHAPE where only the weaker one does, else DIFFERS."""
    return Verdict.MATCH if statement else Verdict.SHAPE if weaker else Verdict.DIFFERS


def checked(what: str, published: str, ours: str, verdict: Verdict, why: str) -> Check:
    """Return the check; `why` is given only where it is no match."""
    return Check(what, published, ours, verdict, "" if verdict is Verdict.MATCH else why)


def ascending(values: Sequence[float]) -> bool:
    """Say whether each value is at most the next."""
    return all(low <= high for low, high in pairwise(values))


def median_range(values: Iterable[float], form: Callable[[float], str] = "{:.3g}".format) -> str:
    """Print the median of repetitions with its range, as ``median (low to high)``."""
    found = np.array(list(values), dtype=np.float64)
    if found.size == 1 or found.min() == found.max():
        return form(float(found[0]))
    return f"{form(float(np.median(found)))} ({form(float(found.min()))} to {form(float(found.max()))})"
