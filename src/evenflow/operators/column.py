"""What every aggregate offers: its running value for each row of the state, folded a block at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from evenflow.errors import OperatorError
from evenflow.model.slots import IntArray
from evenflow.operators.arrays import Array, take


@dataclass(frozen=True)
class Block:
    """Input rows as the columns see them.

    `rows[i]` is the state row of input row i, `first[i]` the position at which that state row comes first in the
    block; `slots[i]` is the slot of input row i. Of a block that is part of a larger one, `at` are the positions there.
    """

    rows: IntArray
    first: Array
    slots: IntArray
    at: IntArray | None = None

    def of(self, values: pa.Array) -> pa.Array:
        """Return the values of its rows, out of those of the larger block."""
        return values if self.at is None else take(values, self.at)

    @cached_property
    def starts(self) -> IntArray:
        """The positions at which a state row comes first, ascending."""
        return np.flatnonzero(self.first == np.arange(len(self.first)))

    @cached_property
    def touched(self) -> IntArray:
        """The state rows of the block, each once, in the order of `starts`."""
        return self.rows[self.starts]

    @cached_property
    def group(self) -> IntArray:
        """For each input row, the place of its state row in `touched`."""
        place = np.empty(len(self.rows), np.int64)
        place[self.starts] = np.arange(len(self.starts))
        group: IntArray = place[self.first]
        return group

    @cached_property
    def ends(self) -> IntArray:
        """The positions at which the state rows of `touched` come last."""
        ends = np.empty(len(self.touched), np.int64)
        ends[self.group] = np.arange(len(self.rows))  # numpy: of repeated indexes the last assignment stays
        return ends

    def slot_of(self, place: int) -> int:
        """Return the slot of a row in `touched`."""
        return int(self.slots[self.starts[place]])


class StateColumn(ABC):
    """What is held for each row of the state. `fields` are its columns in state tables."""

    fields: tuple[pa.Field, ...]

    @abstractmethod
    def reserve(self, capacity: int, used: int) -> None:
        """Make room for `capacity` rows, of which the first `used` hold values."""

    @abstractmethod
    def start(self, low: int, high: int) -> None:
        """Prepare the new rows from `low` to `high`."""

    @abstractmethod
    def read(self, rows: IntArray) -> list[pa.Array]:
        """Return the state of some rows, one array per field."""

    @abstractmethod
    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        """Overwrite the state of rows, each at most once."""

    @abstractmethod
    def keep(self, rows: IntArray) -> None:
        """Keep these rows only, renumbered from 0."""

    @abstractmethod
    def nbytes(self, used: int) -> int:
        """Return the memory that the first `used` rows take."""


class Column(StateColumn):
    """One aggregate. `result` is its column in the output."""

    result: pa.Field

    @abstractmethod
    def fold(self, block: Block, values: pa.Array) -> None:
        """Take in the values of a block; there are none for an aggregate without a column."""

    def results(self, state: list[pa.Array]) -> pa.Array:
        """Return the output values for a state that was read."""
        return state[0]


def overflow(label: str, kind: str, slot: int) -> OperatorError:
    """Return the error for a result that its type cannot hold."""
    return OperatorError(label, slot, f"the result does not fit a {kind}; cast the column to a wider type, as in Spark")
