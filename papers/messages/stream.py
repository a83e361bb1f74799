"""The records of a run, as columns: when each is due, where it comes in, its key, slot and value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenflow.errors import InputError
from evenflow.model.slots import IntArray, frozen_array

_COLUMNS = ("due", "source", "mapper", "key", "value")


@dataclass(frozen=True, eq=False, slots=True)
class RecordStream:
    """One entry per record in each column, in the order of `due` (microseconds).

    A record goes from its `source` to its `mapper` to the lane of its slot; `slot_of_key` maps keys to slots.
    """

    due: IntArray
    source: IntArray
    mapper: IntArray
    key: IntArray
    value: IntArray
    slot_of_key: IntArray
    slots: int

    def __post_init__(self) -> None:
        """Freeze the columns; refuse what no run could replay."""
        for name in (*_COLUMNS, "slot_of_key"):
            object.__setattr__(self, name, frozen_array(getattr(self, name), np.int64))
        for name in _COLUMNS:
            column = getattr(self, name)
            if column.shape != self.due.shape:
                raise InputError(
                    f"a stream's columns are of one length: {name} has {column.shape}, due {self.due.shape}"
                )
            if column.size and name != "value" and column.min() < 0:
                raise InputError(f"a stream's {name} must not be negative, got {column.min()}")
        if (np.diff(self.due) < 0).any():
            raise InputError("a stream's records must stand in the order in which they are due")
        if self.key.size and self.key.max() >= self.slot_of_key.size:
            raise InputError(f"key {self.key.max()} has no slot; slot_of_key knows {self.slot_of_key.size} keys")
        if self.slot_of_key.size and not 0 <= self.slot_of_key.min() <= self.slot_of_key.max() < self.slots:
            raise InputError(f"slots are 0 to {self.slots - 1}, slot_of_key names {self.slot_of_key.max()}")

    def __len__(self) -> int:
        """Return the number of records."""
        return int(self.due.size)

    @property
    def slot(self) -> IntArray:
        """The slot of each record."""
        return self.slot_of_key[self.key]

    @property
    def sources(self) -> int:
        """How many sources there are."""
        return int(self.source.max()) + 1 if len(self) else 1

    @property
    def mappers(self) -> int:
        """How many mappers there are."""
        return int(self.mapper.max()) + 1 if len(self) else 1

    def threads(self) -> tuple[IntArray, IntArray]:
        """Return for each record the thread it belongs to and its place in it.

        Records of one key that take one path (source and mapper) are a thread: channels keep their order. Between
        two paths no order is defined, whatever the protocol.
        """
        path = (self.source * self.mappers + self.mapper) * max(1, self.slot_of_key.size) + self.key
        _, thread = np.unique(path, return_inverse=True)
        order = np.argsort(thread, kind="stable")
        sizes = np.bincount(thread) if thread.size else np.zeros(0, np.int64)
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        place = np.empty(thread.size, np.int64)
        place[order] = np.arange(thread.size) - starts
        return thread.astype(np.int64), place


def systematic_draw(shares: npt.ArrayLike, count: int, rng: np.random.Generator) -> IntArray:
    """Draw `count` numbers by `shares` so that each comes up as often as its share says, up to one, in random order."""
    limits = np.cumsum(np.asarray(shares, dtype=np.float64))
    points = (np.arange(count) + rng.random()) / max(count, 1) * limits[-1]
    drawn = np.minimum(np.searchsorted(limits, points, side="right"), limits.size - 1)
    return rng.permutation(drawn)


def random_draw(shares: npt.ArrayLike, count: int, rng: np.random.Generator) -> IntArray:
    """Draw `count` numbers by `shares`, each on its own."""
    weights = np.asarray(shares, dtype=np.float64)
    return rng.choice(weights.size, count, p=weights / weights.sum())
