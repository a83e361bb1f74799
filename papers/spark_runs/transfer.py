"""State that is slow to move: stands for keys by the million, where there are some ten thousand, or a network."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operators import SLOT
from papers.spark_runs.around import AroundOperator, AroundResident


class _HeavyResident(AroundResident["SlowToMove"]):
    """State that takes its time when slots leave and when they come."""

    def install(self, state: pa.Table) -> None:
        """Take in state, slowly."""
        time.sleep(state.num_rows / self.around.keys_per_second)
        self.resident.install(state)

    def drop(self, slots: Sequence[int]) -> None:
        """Let go of state, slowly."""
        leaving = int(self.resident.slot_rows()[list(slots)].sum()) if len(slots) else 0
        time.sleep(leaving / self.around.keys_per_second)
        self.resident.drop(slots)


@dataclass(frozen=True)
class SlowToMove(AroundOperator):
    """An operator whose lanes let go of, and take in, at most `keys_per_second`."""

    held_as = _HeavyResident

    keys_per_second: float


class _ArrivingResident(AroundResident["SlowToArrive"]):
    """State that takes its time when slots come."""

    def install(self, state: pa.Table) -> None:
        """Take in slots, slowly; all are alike, however many keys they have."""
        time.sleep(self.around.seconds * pc.count_distinct(state[SLOT]).as_py())
        self.resident.install(state)


@dataclass(frozen=True)
class SlowToArrive(AroundOperator):
    """An operator whose lanes take `seconds` for each slot that comes: one that leaves costs its old lane nothing."""

    held_as = _ArrivingResident

    seconds: float
