"""State that is slow to move: stands for keys by the million, where there are some ten thousand, or a network."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operators import SLOT, Resident
from evenflow.reproduce.spark_runs.around import AroundOperator, AroundResident


@dataclass(frozen=True)
class SlowToMove(AroundOperator):
    """An operator whose lanes let go of, and take in, at most `keys_per_second`."""

    keys_per_second: float

    def around(self, resident: Resident) -> AroundResident:
        """Return the state of a lane, slow to move."""
        return _HeavyResident(resident, self.keys_per_second)


class _HeavyResident(AroundResident):
    """State that takes its time when slots leave and when they come."""

    def __init__(self, resident: Resident, keys_per_second: float) -> None:
        """Hold the state within."""
        super().__init__(resident)
        self._keys_per_second = keys_per_second

    def install(self, state: pa.Table) -> None:
        """Take in state, slowly."""
        time.sleep(state.num_rows / self._keys_per_second)
        self.resident.install(state)

    def drop(self, slots: Sequence[int]) -> None:
        """Let go of state, slowly."""
        leaving = int(self.resident.slot_rows()[list(slots)].sum()) if len(slots) else 0
        time.sleep(leaving / self._keys_per_second)
        self.resident.drop(slots)


@dataclass(frozen=True)
class SlowToArrive(AroundOperator):
    """An operator whose lanes take `seconds` for each slot that comes: one that leaves costs its old lane nothing."""

    seconds: float

    def around(self, resident: Resident) -> AroundResident:
        """Return the state of a lane, slow to come."""
        return _ArrivingResident(resident, self.seconds)


class _ArrivingResident(AroundResident):
    """State that takes its time when slots come."""

    def __init__(self, resident: Resident, seconds: float) -> None:
        """Hold the state within."""
        super().__init__(resident)
        self._seconds = seconds

    def install(self, state: pa.Table) -> None:
        """Take in slots, slowly; all are alike, however many keys they have."""
        time.sleep(self._seconds * pc.count_distinct(state[SLOT]).as_py())
        self.resident.install(state)
