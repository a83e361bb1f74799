"""The user's own state logic per key, columnar: one call for all keys that an epoch touches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model import EpochTime
from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

Clock: TypeAlias = Literal["event", "processing"]
Columns: TypeAlias = "Mapping[str, Any] | pa.Table | pa.RecordBatch | pd.DataFrame"


class KeyBatch:
    """Some keys with their state, their rows of an epoch, and the time.

    `keys` and `state` have a row per key; `is_new` says which keys had no state: theirs is null. `rows` are sorted by
    key, in input order within a key: those of key i are ``rows[offsets[i]:offsets[i + 1]]``. When timers have fired
    there are no rows, and `fired` says whose.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a value of many parts
        self,
        keys: pa.Table,
        state: pa.Table,
        is_new: BoolArray,
        rows: pa.Table,
        order: IntArray | None,
        offsets: IntArray,
        time: EpochTime,
        fired: Mapping[str, BoolArray] | None = None,
    ) -> None:
        """Hold what belongs together; `order` brings `rows` into the order of the keys, None if they are in it."""
        self.keys, self.state, self.is_new, self.offsets, self.time = keys, state, is_new, offsets, time
        self._given, self._order, self._fired = rows, order, dict(fired or {})

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.offsets) - 1

    @cached_property
    def rows(self) -> pa.Table:
        """The rows, sorted by key."""
        return self._given if self._order is None else self._given.take(pa.array(self._order))

    @property
    def starts(self) -> IntArray:
        """Where the rows of each key begin: what numpy's `reduceat` takes."""
        return self.offsets[:-1]

    @property
    def counts(self) -> IntArray:
        """How many rows each key has."""
        return np.diff(self.offsets)

    def column(self, name: str, null: Any = None) -> Array:
        """Return the values of the rows in one column, sorted by key, as numpy has them; `null` stands for nulls."""
        if name not in self._given.column_names:
            raise InputError(f"there is no column {name!r}; the rows have {', '.join(self._given.column_names)}")
        column = self._given[name]
        return _numpy(column if self._order is None else column.take(pa.array(self._order)), null)

    def held(self, name: str, new: Any = None) -> Array:
        """Return what is held for each key in one column of the state, to be changed at will; `new` stands for nulls.

        A key that is new holds nulls.
        """
        if name not in self.state.column_names:
            raise InputError(f"there is no {name!r} in the state; it has {', '.join(self.state.column_names)}")
        return np.array(_numpy(self.state[name], new))

    def fired(self, timer: str) -> BoolArray:
        """Tell which keys are here because this timer has fired."""
        return self._fired.get(timer, np.zeros(len(self), np.bool_))

    @property
    def watermark(self) -> np.datetime64 | None:
        """The event time up to which the input is complete; None as long as nothing is known of it."""
        return None if self.time.watermark_us is None else np.datetime64(self.time.watermark_us, "us")

    @property
    def processing_time(self) -> np.datetime64:
        """When the epoch was accepted: the same for all keys, and again in every replay."""
        return np.datetime64(self.time.processing_us, "us")

    def part(self, low: int, high: int) -> KeyBatch:
        """Return the keys from `low` to `high`, with all that is theirs."""
        first, last = self.offsets[[low, high]].tolist()
        return KeyBatch(
            self.keys.slice(low, high - low),
            self.state.slice(low, high - low),
            self.is_new[low:high],
            self.rows.slice(first, last - first),
            None,
            self.offsets[low : high + 1] - first,
            self.time,
            {name: fired[low:high] for name, fired in self._fired.items()},
        )


@dataclass(frozen=True)
class KeyChanges:
    """What became of the keys of a batch.

    `state` has the state columns, a row per key in the order of the batch; None: all stay as they are, and new keys
    get no state. `removed` says which keys are forgotten. `output` has the output columns without the keys, which are
    put in front: a row per key; or as many as there are in `output_keys`, which says to which key each belongs, by its
    place in the batch. Columns are a dictionary of arrays or lists, a table or a pandas frame.
    """

    state: Columns | None = None
    removed: Any = None
    output: Columns | None = None
    output_keys: Any = None


class KeyOperator(ABC):
    """Your own state logic per key, for many keys at a time; it knows nothing of slots, lanes, moves or storage.

    `state` declares what is held for each key, `output` the rows that are put out besides the key: as a Spark DDL text,
    a StructType or a pyarrow.Schema. `timers` names columns of the state that are timers: ``{"closes": "event"}``, by
    the watermark, or "processing", by the clock. When the time that a key holds there is reached, `fire` gets the key,
    and the timer is off.

    What becomes of a key must depend on its own state and rows and on the time only, not on which other keys are in the
    batch: those are whichever the lane holds.

    `columns_needed` names the value columns wanted besides the keys (None: all). A checkpoint knows the operator by its
    `name`, the class's unless you declare one. A column that is new in `state` is null for the keys of before, one that
    is gone is dropped; for any other change raise `version` and define `upgrade`.
    """

    state: pa.Schema | str
    output: pa.Schema | str
    timers: ClassVar[Mapping[str, Clock]] = {}
    columns_needed: tuple[str, ...] | None = None
    name: str | None = None
    version: int = 1

    @abstractmethod
    def process(self, batch: KeyBatch) -> KeyChanges | None:
        """Take the keys that an epoch touches, with state and rows; return what becomes of them."""

    def fire(self, batch: KeyBatch) -> KeyChanges | None:
        """Take the keys whose timers have fired; return what becomes of them."""
        raise NotImplementedError(f"{type(self).__name__} has timers: define fire(batch)")

    def upgrade(self, state: pa.Table, version: int) -> Columns:
        """Return keys' state that was stored by an older `version` of the operator in the columns of today."""
        raise NotImplementedError(f"a state of version {version}: define upgrade(state, version) to read it")


def _numpy(column: pa.ChunkedArray, null: Any) -> Array:
    """Return values as numpy has them: times in UTC, as `datetime64`."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit))
    if null is not None and column.null_count:
        column = column.fill_null(pa.scalar(null, column.type))
    values: Array = column.to_numpy()
    return values
