"""State that is slow to move: stands for keys by the million, where there are some ten thousand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from evenflow.operators import Operator, Resident


@dataclass(frozen=True)
class SlowToMove:
    """An operator whose lanes let go of, and take in, at most `keys_per_second`; else it is the operator within."""

    operator: Operator
    keys_per_second: float

    def __getattr__(self, name: str) -> Any:
        """Be the operator within."""
        if name.startswith("__") or name in ("operator", "keys_per_second"):
            raise AttributeError(name)
        return getattr(self.operator, name)

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> Resident:
        """Return the state of a lane, slow to move."""
        resident: Any = _SlowResident(self.operator.open(schema, keys, slots), self.keys_per_second)
        opened: Resident = resident
        return opened


class _SlowResident:
    """State that takes its time when slots leave and when they come."""

    def __init__(self, resident: Resident, keys_per_second: float) -> None:
        """Hold the state within."""
        self._resident, self._keys_per_second = resident, keys_per_second

    def __getattr__(self, name: str) -> Any:
        """Be the state within."""
        return getattr(self._resident, name)

    def install(self, state: pa.Table) -> None:
        """Take in state, slowly."""
        time.sleep(state.num_rows / self._keys_per_second)
        self._resident.install(state)

    def drop(self, slots: Sequence[int]) -> None:
        """Let go of state, slowly."""
        leaving = int(self._resident.slot_rows()[list(slots)].sum()) if len(slots) else 0
        time.sleep(leaving / self._keys_per_second)
        self._resident.drop(slots)
