"""Rules: what counts as match and as shape, in words and as a test, in one object.

The sentence that is printed and the verdict come from the same conditions. What a statement was judged on is kept with
the result, so that it can be judged again when a rule is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from papers.experiment import Check, Verdict

Condition: TypeAlias = tuple[str, Callable[..., bool | np.bool_]]
"""Words that go on from "match if", and the test of the same on the values of the statement."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A published statement. `match` and `shape` take the same values; where there is no `shape`, all else differs."""

    name: str
    match: Condition
    shape: Condition | None = None

    def __str__(self) -> str:
        """Say it as it stands in a rule."""
        shape = f"; shape if {self.shape[0]}" if self.shape is not None else ""
        return f"{self.name[0].upper()}{self.name[1:]}: match if {self.match[0]}{shape}."

    def verdict(self, *values: Any) -> Verdict:
        """Judge values, as they were measured or as they were kept."""
        read = [_read(value) for value in values]
        if self.match[1](*read):
            return Verdict.MATCH
        return Verdict.SHAPE if self.shape is not None and self.shape[1](*read) else Verdict.DIFFERS

    def check(self, values: Sequence[Any], published: str, ours: str, why: str, what: str | None = None) -> Check:
        """Judge `values`. `why` is given only where it is no match; `what` names one of several of the same kind."""
        kept = tuple(_plain(value) for value in values)
        verdict = self.verdict(*kept)
        why = "" if verdict is Verdict.MATCH else why
        return Check(what or self.name, published, ours, verdict, why, self.name, kept)


@dataclass(frozen=True, slots=True)
class Rule:
    """All statements of an experiment, and what their words mean. The worst one is the experiment's verdict."""

    statements: tuple[Statement, ...]
    about: str = ""

    def __str__(self) -> str:
        """Say the whole rule."""
        return " ".join([*([self.about] if self.about else []), *map(str, self.statements), "All else differs."])

    def named(self, name: str) -> Statement:
        """Return one statement."""
        return next(one for one in self.statements if one.name == name)

    def faults(self, checks: Iterable[Check]) -> list[str]:
        """Return what is wrong with the checks of a run: each statement is judged, by its own conditions, no other."""
        checks = list(checks)
        judged = {check.statement for check in checks}
        names = [one.name for one in self.statements]
        faults = [f"{name!r} is not judged" for name in names if name not in judged]
        faults += [f"{name!r} is in no rule" for name in sorted(judged - set(names))]
        faults += [
            f"{check.what!r} is {check.verdict.value!r} but its rule says {by_rule.value!r}"
            for check in checks
            if check.statement in names
            and (by_rule := self.named(check.statement).verdict(*check.values)) is not check.verdict
        ]
        return faults


def close(match: float, factor: float, words: str = "") -> tuple[Condition, Condition]:
    """Return what counts as close to a positive number: off by a share of it at most, or by a factor.

    The values are ours and the number.
    """
    near = f"within {_percent(factor - 1)}" if factor < 1.5 else f"within a factor of {factor:g}"
    return (
        (f"within {_percent(match)}{words}", lambda ours, number: abs(ours - number) <= match * number),
        (near, lambda ours, number: number / factor <= ours <= number * factor),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _plain(value: Any) -> Any:
    """Return a value as JSON can keep it: what is not finite in words."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _read(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_read(one) for one in value]
    return float(value) if value in ("inf", "-inf", "nan") else value
