"""What the queries of the harness keep, once as the operator does it and once in plain Python.

*Totals* are aggregates of which each would show a lost, repeated or swapped row in its own way; *tabs* are totals of
keys that are removed now and then. The *diary* is an
operator of a user's own that keeps all values of a key in a list, so that order and multiplicity can be read off;
*memos* are kept the same way, changed in place, by keys that are removed now and then.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.model.slots import BoolArray
from evenflow.operators import Agg, Aggregate, Apply, Operator, SlotOperator
from tests.operators.removing import Removing

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
SLOTS = 19  # more than are written out with one work, so that some are and some are not
Answer = tuple[Any, ...]  # the key, then what is kept of it


def slot_of(key: int | None) -> int:
    """Return the slot of a key of the source."""
    return 3 if key is None else key % SLOTS


class Calculation(ABC):
    """An operator, how to read its state, and what one more value does to what is kept of a key."""

    operator: ClassVar[Operator]

    @abstractmethod
    def add(self, before: Answer | None, key: int | None, value: int) -> Answer:
        """Return what is kept of a key after one more value."""

    def is_over(self, answer: Answer) -> bool:  # noqa: ARG002 - for most it never is
        """Tell whether a key of which this is kept at the end of an epoch goes."""
        return False

    def held(self, state: pa.Table) -> list[Answer]:
        """Return what is kept of all keys, from the committed state."""
        return answers_of(state)


class Totals(Calculation):
    """Aggregates; first and last show the order."""

    operator = Aggregate(
        {
            "total": Agg("sum", "value"),
            "n": Agg("count"),
            "low": Agg("min", "value"),
            "opened": Agg("first", "value"),
            "closed": Agg("last", "value"),
        }
    )

    def add(self, before: Answer | None, key: int | None, value: int) -> Answer:
        _, total, n, low, opened, _ = before or (key, 0, 0, value, value, value)
        return (key, total + value, n + 1, min(low, value), opened, value)


def closed_by_a_seventh(output: pa.Table) -> BoolArray:
    """Let a key go whose last value can be divided by 7."""
    over: BoolArray = output["closed"].to_numpy() % 7 == 0
    return over


class Tabs(Totals):
    """Totals of keys that go and come back."""

    operator = Removing(Totals.operator.aggregates, over=closed_by_a_seventh)

    def is_over(self, answer: Answer) -> bool:
        closed: int = answer[-1]
        return closed % 7 == 0


class KeepAll(SlotOperator):
    """Appends the values of each key to a list; puts out the lists of the keys that came."""

    output = pa.schema([("key", pa.int64()), ("values", pa.list_(pa.int64()))])

    def init(self) -> dict[int | None, tuple[int, ...]]:
        return {}

    def process(self, state: dict[int | None, tuple[int, ...]], rows: Any) -> tuple[Any, pa.Table]:
        state = dict(state)
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
            state[key] = (*state.get(key, ()), value)
        touched = list(dict.fromkeys(rows["key"].to_pylist()))
        return state, pa.table([touched, [list(state[key]) for key in touched]], schema=self.output)


class Diary(Calculation):
    """All values of a key, in order."""

    operator = Apply(KeepAll())

    def add(self, before: Answer | None, key: int | None, value: int) -> Answer:
        return (key, (*(before[1] if before else ()), value))

    def held(self, state: pa.Table) -> list[Answer]:
        rows = ((row["key"], json.loads(row["value"])) for row in state.to_pylist())
        return [(None if key is None else int(key), tuple(values)) for key, values in rows]


class Notes(SlotOperator):
    """Changes lists in place, in the order in which keys came first, and removes the keys of lists that are over."""

    output = KeepAll.output

    def init(self) -> Any:
        return defaultdict(list)

    def process(self, state: Any, rows: Any) -> tuple[Any, pa.Table]:
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
            state[key].append(value)
        came = list(dict.fromkeys(rows["key"].to_pylist()))
        for key in [key for key in came if state[key][-1] % 7 == 0]:
            del state[key]
            came.remove(key)
        assert all(one <= two for one, two in pairwise(values[0] for values in state.values())), "not as they came"
        return state, pa.table([came, [list(state[key]) for key in came]], schema=self.output)


class Memos(Diary):
    """All values of a key, in order, of keys that go and come back: a state that is stored entry by entry."""

    operator = Apply(Notes())

    def is_over(self, answer: Answer) -> bool:
        last: int = answer[1][-1]
        return last % 7 == 0


CALCULATIONS: dict[str, Callable[[], Calculation]] = {
    "totals": Totals,
    "tabs": Tabs,
    "diary": Diary,
    "memos": Memos,
}


def answers_of(table: pa.Table) -> list[Answer]:
    """Return rows as they can be compared."""
    return [
        tuple(tuple(cell) if isinstance(cell, list) else cell for cell in row.values()) for row in table.to_pylist()
    ]


def by_key(answers: Iterable[Answer]) -> list[Answer]:
    """Return answers in the order of their keys, null first."""
    return sorted(answers, key=lambda answer: (answer[0] is not None, answer[0] or 0))


@dataclass
class Oracle:
    """What a run without any failure would hold and publish."""

    calculation: Calculation
    state: dict[int | None, Answer] = field(default_factory=dict)
    epochs: dict[int, list[Answer]] = field(default_factory=dict)
    _held: dict[int, list[Answer]] = field(default_factory=dict)

    def add(self, epoch: int, rows: pa.Table) -> None:
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
            self.state[key] = self.calculation.add(self.state.get(key), key, value)
        touched = dict.fromkeys(rows["key"].to_pylist())
        for key in [key for key in touched if self.calculation.is_over(self.state[key])]:
            del self.state[key], touched[key]
        self.epochs[epoch] = by_key(self.state[key] for key in touched)
        self._held[epoch] = by_key(self.state.values())

    def at(self, epoch: int) -> list[Answer]:
        """Return what was held at the end of an epoch."""
        return self._held.get(epoch, [])
