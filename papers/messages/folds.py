"""What a lane does with the records of a key, how two partial states merge, and the batch oracle of the result."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from papers.messages.stream import RecordStream

KeyState: TypeAlias = dict[int, Any]
"""The state of each key."""


@dataclass(frozen=True, slots=True)
class Fold:
    """`step(state, value)` from `initial`; `merge` joins partial states and is None where order matters.

    `oracle` computes the state of all keys in one batch, by another way than record by record.
    """

    name: str
    step: Callable[[Any, Any], Any]
    initial: Any
    merge: Callable[[Any, Any], Any] | None
    oracle: Callable[[RecordStream], KeyState]


def fold_of(name: str, step: Callable[[Any, Any], Any], initial: Any, merge: Any = None) -> Fold:
    """Return a fold of the user's own; its oracle sorts the batch by key and folds each group."""

    def oracle(stream: RecordStream) -> KeyState:
        return {key: reduce(step, values, initial) for key, values in _groups(stream)}

    return Fold(name, step, initial, merge, oracle)


def _groups(stream: RecordStream) -> list[tuple[int, list[int]]]:
    """Return the values of each key that occurs, in the order of the stream."""
    order = np.argsort(stream.key, kind="stable")
    keys, starts = np.unique(stream.key[order], return_index=True)
    parts = np.split(stream.value[order], starts[1:])
    return [(int(key), part.tolist()) for key, part in zip(keys, parts, strict=True)]


def _sums(stream: RecordStream) -> KeyState:
    totals = np.zeros(stream.slot_of_key.size, np.int64)
    np.add.at(totals, stream.key, stream.value)
    return {int(key): int(totals[key]) for key in np.unique(stream.key)}


def _lasts(stream: RecordStream) -> KeyState:
    backwards = stream.key[::-1]
    keys, at = np.unique(backwards, return_index=True)
    return {int(key): int(stream.value[::-1][place]) for key, place in zip(keys, at, strict=True)}


def _appended(state: tuple[int, ...], value: int) -> tuple[int, ...]:
    return (*state, value)


def _newest(_: Any, value: int) -> int:
    return value


SUM = Fold("sum", operator.add, 0, operator.add, _sums)
"""AutoFlow's query: state[id] += price."""
LAST = Fold("last", _newest, None, None, _lasts)
"""The last value: wrong at once if order or state is lost."""
HISTORY = Fold("history", _appended, (), None, lambda stream: {k: tuple(v) for k, v in _groups(stream)})
"""All values in order."""
