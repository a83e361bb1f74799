"""One call of the user's function per key and epoch, with a state object per key: Spark's `applyInPandasWithState`.

The rows of an epoch are sorted by key once and become one pandas frame, of which each call gets a slice. A state rests
as bytes until its key has rows. Only the rows of keys whose state was updated or removed are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model import Contents, Due, EpochTime
from evenflow.model.slots import FloatArray, IntArray
from evenflow.operators.base import GONE, HASH, LATEST, SLOT, Folded
from evenflow.operators.calling import calling, key_text
from evenflow.operators.clock import NeededTime
from evenflow.operators.frames import Frames
from evenflow.operators.key_groups import Key, groups_of, identities_of, plain_value
from evenflow.operators.keys import check_keys
from evenflow.operators.output import conform
from evenflow.operators.readable import VIEW_SCHEMA

if TYPE_CHECKING:
    import pandas as pd

_STATE = "__state"
_ROW_BYTES = 64  # what an entry takes beside its state


class StateObject(Protocol):
    """The state of one key during a call."""

    def after(self) -> bytes | None:
        """Return what to keep from now on; None if there is nothing to keep any more."""
        ...

    @property
    def is_changed(self) -> bool:
        """Whether the call has updated or removed it."""
        ...

    @property
    def given(self) -> Any:
        """What the user's function gets."""
        ...


class StateObjects(Protocol):
    """Makes state objects of stored bytes; where the engine has a class for them, it supplies these."""

    @property
    def schema(self) -> str:
        """The columns of a state, as text."""
        ...

    def of(self, stored: bytes | None, time: EpochTime) -> StateObject:
        """Return the state of a key; None: it has none."""
        ...

    def shown(self, stored: bytes) -> str:
        """Return a state as people read it."""
        ...

    def frames(self, answer: Any) -> Iterator[pd.DataFrame]:
        """Yield the frames of what the function has returned; refuse what are none."""
        ...


@dataclass(frozen=True)
class GroupStates:
    """Runs a function of (key, frames, state) for each key that has rows.

    `columns_shown` are those of its frames, in order; `frames` are set when the query starts.
    """

    function: Callable[[Key, Iterable[pd.DataFrame], Any], Any]
    output: pa.Schema
    states: StateObjects
    mode: str
    columns_shown: tuple[str, ...]
    frames: Frames | None = None

    def __str__(self) -> str:
        """Name the function."""
        return f"applyInPandasWithState({self.name})"

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)

    def seeing(self, frames: Frames) -> GroupStates:
        """Return this operator with another view of its rows."""
        return replace(self, frames=frames)

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        check_keys(schema, keys)
        return False

    def columns(self) -> tuple[str, ...] | None:
        return None

    def output_modes(self) -> tuple[str, ...]:
        return (self.mode,)

    def uses_event_time(self) -> bool:
        return False  # it has no timeouts

    def in_mode(self, mode: str) -> GroupStates:
        if mode != self.mode:
            raise InputError(
                f"writeStream: applyInPandasWithState in {self.mode} mode is not supported with outputMode({mode!r}): "
                f"both must be the same"
            )
        return self

    def contents(self, schema: pa.Schema, keys: tuple[str, ...]) -> Contents:
        check_keys(schema, keys)
        inputs = tuple((each.name, str(each.type)) for each in schema if each.name not in keys)
        return Contents(f"applyInPandasWithState with state {self.states.schema}", inputs=inputs)

    def resumed(self, contents: Contents) -> GroupStates:  # noqa: ARG002 - a state of other columns is refused before
        return self

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        check_keys(schema, keys)
        return self.output

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        key_fields = [(key, schema.field(key).type) for key in keys]
        return pa.schema([(SLOT, pa.int32()), *key_fields, (_STATE, pa.large_binary()), (GONE, pa.bool_())])

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:  # noqa: ARG002 - the same for all
        return VIEW_SCHEMA

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> KeyStates:
        if self.frames is None:
            raise InputError(f"{self} runs in a query only: its frames are made as the Spark session makes them")
        return KeyStates(self, self.frames, self.state_schema(schema, keys), keys, slots)


class KeyStates:
    """The states of a lane's keys, by slot."""

    def __init__(
        self, operator: GroupStates, frames: Frames, schema: pa.Schema, keys: tuple[str, ...], slots: int
    ) -> None:
        """Start empty."""
        self._operator, self._frames, self._schema, self._keys, self._slots = operator, frames, schema, keys, slots
        self._held: dict[int, dict[Key, bytes]] = {}
        self._bytes = np.zeros(slots, np.int64)
        self._clock = NeededTime()

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:
        busy: FloatArray = np.zeros(self._slots)
        changes: list[tuple[int, Key, bytes | None]] = []
        outputs: list[pd.DataFrame] = []
        output_slots: list[int] = []
        order, starts, identities = groups_of(rows, self._keys, slots)
        shown = rows.drop_columns([name for name in (SLOT, HASH) if name in rows.column_names]).take(order)
        whole = self._frames.frame(self._frames.shown(shown))
        values, sorted_slots = whole[list(self._operator.columns_shown)], slots[order]
        key_columns = [whole[key].array for key in self._keys]
        ends = [*starts[1:], len(order)]
        for identity, low, high in zip(identities, starts, ends, strict=True):
            slot = int(sorted_slots[low])
            began = self._clock()
            key = tuple(_key_value(column[low]) for column in key_columns)
            held = self._held.get(slot, {}).get(identity)
            with calling(self._operator.name, slot, key_text(self._keys, identity)):
                state = self._operator.states.of(held, time)
                answer = self._operator.function(key, iter((_as_alone(values.iloc[low:high]),)), state.given)
                for frame in self._operator.states.frames(answer):
                    if len(frame):
                        outputs.append(frame)
                        output_slots += [slot] * len(frame)
                if state.is_changed:
                    stored = state.after()
                    self._put(slot, identity, stored)
                    changes.append((slot, identity, stored))
            busy[slot] += self._clock() - began
        return Folded(self._table(changes), self._conformed(outputs), np.array(output_slots, np.int64), busy)

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:  # noqa: ARG002 - there are no timeouts
        return None

    def due(self, slots: Sequence[int]) -> Due | None:  # noqa: ARG002 - there are no timeouts
        return None

    def install(self, state: pa.Table) -> None:
        slots, stored, gone = (state[name].to_pylist() for name in (SLOT, _STATE, GONE))
        for slot, identity, data, is_gone in zip(slots, identities_of(state, self._keys), stored, gone, strict=True):
            self._put(slot, identity, None if is_gone else data)

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        held = ((slot, self._held.get(slot, {})) for slot in sorted(set(slots)))
        return self._table([(slot, identity, stored) for slot, keys in held for identity, stored in keys.items()])

    def drop(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._held.pop(slot, None)
            self._bytes[slot] = 0

    def output(self, slots: Sequence[int]) -> pa.Table:  # noqa: ARG002 - there is none
        raise InputError(f"complete mode needs aggregates; {self._operator} only knows the rows of each epoch")

    def view(self, slots: Sequence[int]) -> pa.Table:
        rows = [
            (slot, ", ".join(map(str, identity)), self._operator.states.shown(stored))
            for slot in sorted(set(slots))
            for identity, stored in self._held.get(slot, {}).items()
        ]
        return pa.table([list(column) for column in zip(*rows, strict=True)] or [[], [], []], VIEW_SCHEMA)

    def slot_rows(self) -> IntArray:
        rows = np.zeros(self._slots, np.int64)
        for slot, held in self._held.items():
            rows[slot] = len(held)
        return rows

    def slot_bytes(self) -> IntArray:
        return self._bytes + _ROW_BYTES * self.slot_rows()

    def _put(self, slot: int, identity: Key, stored: bytes | None) -> None:
        held = self._held.setdefault(slot, {})
        self._bytes[slot] -= len(held.pop(identity, b""))
        if stored is not None:
            held[identity] = stored
            self._bytes[slot] += len(stored)

    def _table(self, rows: Sequence[tuple[int, Key, bytes | None]]) -> pa.Table:
        """Return state rows, sorted by slot, as they are."""
        slots = [slot for slot, _, _ in rows]
        keys = [[plain_value(identity[at]) for _, identity, _ in rows] for at in range(len(self._keys))]
        stored = [data for _, _, data in rows]
        columns = [slots, *keys, stored, [data is None for data in stored]]
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)], self._schema
        )

    def _conformed(self, outputs: list[pd.DataFrame]) -> pa.Table:
        """Return all frames as one table: one conversion for those with the same columns, as nearly all are."""
        import pandas as pd  # who returns frames has it

        tables, at = [], 0
        while at < len(outputs):
            first = at
            while at < len(outputs) and outputs[at].columns.equals(outputs[first].columns):
                at += 1
            together = pd.concat(outputs[first:at], ignore_index=True)
            tables.append(conform(together, self._operator.output, self._frames))
        return pa.concat_tables(tables) if tables else self._operator.output.empty_table()


def _key_value(value: Any) -> Any:
    """Return a key as Spark hands it over: a null among numbers is NaN there, as nothing else is in its group."""
    return np.float64("nan") if type(value).__name__ == "NAType" else value


def _as_alone(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a key as if no others had been converted with them: numbered from 0, integers as they are.

    Spark converts key by key: a column of integers has nulls, and so floats, only where this key has some.
    """
    frame = frame.reset_index(drop=True)
    for name, kind in frame.dtypes.items():
        if type(kind).__module__.startswith("pandas.core.arrays.integer"):
            has_nulls = bool(frame[name].isna().any())
            frame[name] = frame[name].astype("float64" if has_nulls else kind.numpy_dtype)
    return frame
