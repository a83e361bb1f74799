"""A query of two stages for the harness, and what it must come to, in plain Python.

The first keeps totals per key. What it puts out is keyed again, by how many rows the key has had: the second stage
keeps the newest value of each such row in a list, in the order in which they came. So any row that is lost, repeated or
comes in another order shows, and so does an order that depends on lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from evenflow.operators import Apply, SlotOperator, Stage
from tests.engine.calculations import SCHEMA, Answer, Diary, Oracle, Totals, by_key, slot_of

TOTALS = Stage(Totals.operator, SCHEMA, ("key",))


class Sequences(SlotOperator):
    """Appends the newest value of each row to the list of its count; puts out the lists that have grown."""

    output = pa.schema([("n", pa.int64()), ("values", pa.list_(pa.int64()))])

    def init(self) -> dict[int, tuple[int, ...]]:
        return {}

    def process(self, state: dict[int, tuple[int, ...]], rows: Any) -> tuple[Any, pa.Table]:
        state = dict(state)
        for n, value in zip(rows["n"].to_pylist(), rows["closed"].to_pylist(), strict=True):
            state[n] = (*state.get(n, ()), value)
        touched = list(dict.fromkeys(rows["n"].to_pylist()))
        return state, pa.table([touched, [list(state[n]) for n in touched]], schema=self.output)


class TwoStages(Diary):
    """Reads the state of the second stage."""

    operator = Apply(Sequences())


SEQUENCES = Stage(TwoStages.operator, pa.schema([("n", pa.int64()), ("closed", pa.int64())]), ("n",))


@dataclass
class TwoStageOracle(Oracle):
    """What a run without any failure would hold and publish; `first` is what its first stage would."""

    first: Oracle = field(default_factory=lambda: Oracle(Totals()))

    def add(self, epoch: int, rows: pa.Table) -> None:
        self.first.add(epoch, rows)
        came = list(dict.fromkeys(rows["key"].to_pylist()))
        # A unit puts out its keys in the order in which they came; units come in their own order.
        came.sort(key=slot_of)
        grown = set()
        for key in came:
            _, _, n, _, _, closed = self.first.state[key]
            _, values = self.state.get(n, (n, ()))
            self.state[n] = (n, (*values, closed))
            grown.add(n)
        self.epochs[epoch] = by_key(self.state[n] for n in grown)
        self._held[epoch] = by_key(self.state.values())

    def first_at(self, epoch: int) -> list[Answer]:
        """Return what the first stage held at the end of an epoch."""
        return self.first.at(epoch)
