"""The user's own state logic: one object per slot, one call per slot and epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError, OperatorError
from evenflow.model import Contents, Due, EpochTime
from evenflow.model.signatures import takes
from evenflow.model.slots import FloatArray, IntArray
from evenflow.operators.base import GONE, HASH, LATEST, SLOT, Folded
from evenflow.operators.calling import calling
from evenflow.operators.clock import NeededTime
from evenflow.operators.declared import check_declared, check_inputs, declared_columns
from evenflow.operators.frames import Frames, PlainFrames
from evenflow.operators.keys import check_keys
from evenflow.operators.output import conform
from evenflow.operators.readable import VIEW_SCHEMA, entries_of
from evenflow.operators.slot_state import LiveState, RestingState, StateRow
from evenflow.operators.source import source_of
from evenflow.operators.stored_state import StateCodec, StoredState

if TYPE_CHECKING:
    import pandas as pd

Rows: TypeAlias = "pa.Table | pd.DataFrame"

_STATE_SCHEMA = pa.schema(
    [
        (SLOT, pa.int32()),
        ("place", pa.int64()),
        ("key", pa.large_binary()),
        ("state", pa.large_binary()),
        ("kind", pa.string()),
        ("version", pa.int32()),
        (GONE, pa.bool_()),
    ]
)


class SlotOperator(ABC):
    """Your own state logic; it knows nothing of lanes, moves or storage.

    `output` declares the rows that `process` returns. `columns_needed` names the value columns it wants besides the
    keys (None: all), `frame` says whether rows come as a pyarrow table or a pandas frame. On Spark they come as in
    `applyInArrow` and `applyInPandas`, and what is returned is read likewise: naive times are in the session's zone.

    A checkpoint knows the operator by its `name`, the class's unless you declare one: keep the old one when you rename
    the class. When the shape of the state changes, raise `version` and define `upgrade`.
    """

    output: pa.Schema | str
    columns_needed: tuple[str, ...] | None = None
    frame: Literal["arrow", "pandas"] = "arrow"
    name: str | None = None
    version: int = 1

    def init(self) -> Any:
        """Return the state of a slot that has had no rows yet."""
        return None

    @abstractmethod
    def process(self, state: Any, rows: Rows) -> tuple[Any, Rows | None]:
        """Take the slot's state and its rows of one epoch; return the new state and output rows, or None for none.

        State may be a pyarrow table or record batch, or anything that cloudpickle takes: also objects of classes of
        your script. Of a dictionary only entries that have changed are stored: best change it in place. Classes that
        the operator's code refers to are found by name again, as they are in the program that runs then. The result
        must depend on the state and the rows only: after a crash the same rows may come again.
        """

    def upgrade(self, state: Any, version: int) -> Any:
        """Return a state that was stored by an older `version` of the operator in the shape of today."""
        raise NotImplementedError(f"a state of version {version}: define upgrade(state, version) to read it")


def _check(operator: Any) -> None:
    """Refuse what cannot be run, whatever the rows."""
    if not isinstance(operator, SlotOperator):
        made = " (the class itself: call it)" if isinstance(operator, type) else ""
        raise InputError(
            f"apply() takes an instance of a subclass of SlotOperator or KeyOperator, got {operator!r}{made}"
        )
    name = type(operator).__name__
    if operator.frame not in ("arrow", "pandas"):
        raise InputError(f"{name}.frame is 'arrow' or 'pandas', got {operator.frame!r}")
    check_declared(operator)
    if not takes(operator.process, 2):
        raise InputError(f"{name}.process must take the state and the rows: def process(self, state, rows)")
    if not takes(operator.init, 0):
        raise InputError(f"{name}.init must take nothing: def init(self)")


class Apply:
    """Runs a `SlotOperator`."""

    def __init__(
        self, operator: SlotOperator, clock: Callable[[], float] | None = None, frames: Frames | None = None
    ) -> None:
        """Wrap the user's operator; `clock` measures what each slot costs, `frames` says how rows look to it."""
        _check(operator)
        self.operator = operator
        self.clock = clock or NeededTime()
        self.frames = frames

    def seeing(self, frames: Frames) -> Apply:
        """Return this operator with another view of its rows."""
        return Apply(self.operator, self.clock, frames)

    def __str__(self) -> str:
        """Name the user's operator."""
        return f"apply({self.name})"

    @property
    def name(self) -> str:
        """The name by which the user's operator is known."""
        return self.operator.name or type(self.operator).__qualname__

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        check_keys(schema, keys)
        return False

    def columns(self) -> tuple[str, ...] | None:
        needed = self.operator.columns_needed
        return None if needed is None else tuple(needed)

    def output_modes(self) -> tuple[str, ...]:
        return "update", "append"

    def uses_event_time(self) -> bool:
        return False  # it sees no time

    def in_mode(self, mode: str) -> Apply:
        if mode == "complete":
            raise InputError(
                f"writeStream: complete mode needs aggregates; {self.name} only knows the rows of each epoch: use "
                f"outputMode('update')"
            )
        return self

    def contents(self, schema: pa.Schema, keys: tuple[str, ...]) -> Contents:
        check_keys(schema, keys)
        user = type(self.operator)
        return Contents(
            self.name,
            version=self.operator.version,
            reads_older=user.upgrade is not SlotOperator.upgrade,
            source=source_of(user, SlotOperator),
            inputs=tuple((each.name, str(each.type)) for each in schema if each.name not in keys),
        )

    def resumed(self, contents: Contents) -> Apply:  # noqa: ARG002 - each state says which version it is
        return self

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        check_keys(schema, keys)
        check_inputs(self.operator, self.name, schema)
        return declared_columns(self.operator, self.name, "output")

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:  # noqa: ARG002 - the same for all
        return _STATE_SCHEMA

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:  # noqa: ARG002 - the same for all
        return VIEW_SCHEMA

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> SlotStates:
        return SlotStates(self, self.output_schema(schema, keys), keys, slots)


class SlotStates:
    """The state objects of a lane's slots. What was installed rests as bytes until the slot has rows."""

    def __init__(self, wrapper: Apply, output: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty."""
        self._wrapper, self._user, self._codec = wrapper, wrapper.operator, StateCodec(wrapper.operator)
        self._output, self._keys, self._slots = output, keys, slots
        self._frames = wrapper.frames or PlainFrames(output)
        self._live: dict[int, LiveState] = {}
        self._resting: dict[int, RestingState] = {}

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:  # noqa: ARG002 - all take part
        busy: FloatArray = np.zeros(self._slots)
        changes, outputs, sizes = _StateTable(), [], np.zeros(self._slots, np.int64)
        visible = self._frames.shown(rows.drop_columns([name for name in (SLOT, HASH) if name in rows.column_names]))
        for slot, low, high in _runs(slots):
            started = self._wrapper.clock()
            changed, output = self._process(slot, visible.slice(low, high - low))
            busy[slot] = self._wrapper.clock() - started
            changes.add(slot, changed)
            outputs.append(output)
            sizes[slot] = output.num_rows
        output = pa.concat_tables(outputs) if outputs else self._output.empty_table()
        return Folded(changes.table(), output, np.repeat(np.arange(self._slots), sizes), busy)

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:  # noqa: ARG002 - it has no timers
        return None

    def due(self, slots: Sequence[int]) -> Due | None:  # noqa: ARG002 - it has no timers
        return None

    def install(self, state: pa.Table) -> None:
        columns = (state[name].to_pylist() for name in _STATE_SCHEMA.names)
        for slot, place, key, data, kind, version, gone in zip(*columns, strict=True):
            stored = None if gone else StoredState(kind, data, version)
            self._at_rest(slot).put(StateRow(place, key, stored))

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        table = _StateTable()
        for slot in sorted(set(slots)):
            if slot in self._live:
                table.add(slot, self._stored(slot, self._live[slot].rows))
            elif slot in self._resting:
                table.add(slot, self._stored(slot, partial(self._resting[slot].rows, self._codec)))
        return table.table()

    def drop(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._live.pop(slot, None)
            self._resting.pop(slot, None)

    def output(self, slots: Sequence[int]) -> pa.Table:  # noqa: ARG002 - there is none
        raise InputError(f"complete mode needs aggregates; {self._wrapper.name} only knows the rows of each epoch")

    def view(self, slots: Sequence[int]) -> pa.Table:
        rows: list[tuple[int, str | None, str]] = []
        for slot in sorted(set(slots) & {*self._live, *self._resting}):
            try:
                rows += ((slot, key, value) for key, value in entries_of(self._in_use(slot).value, self._keys))
            except Exception as error:
                raise OperatorError(self._wrapper.name, slot, f"{type(error).__name__}: {error}") from error
        return pa.table([list(column) for column in zip(*rows, strict=True)] or [[], [], []], VIEW_SCHEMA)

    def slot_rows(self) -> IntArray:
        """Return the number of entries of each dictionary, 1 for each state that is none."""
        rows = np.zeros(self._slots, np.int64)
        for slot, state in self._held():
            rows[slot] = len(state)
        return rows

    def slot_bytes(self) -> IntArray:
        """Return about the size of each state when it is stored."""
        sizes = np.zeros(self._slots, np.int64)
        for slot, state in self._held():
            sizes[slot] = state.size
        return sizes

    def _held(self) -> Iterator[tuple[int, LiveState | RestingState]]:
        yield from self._live.items()
        yield from self._resting.items()

    def _process(self, slot: int, rows: pa.Table) -> tuple[list[StateRow], pa.Table]:
        """Call the user's code for one slot; whatever it raises names the slot. Return what has changed, and output."""
        with calling(self._wrapper.name, slot):
            live = self._in_use(slot)
            shown = self._frames.frame(rows) if self._user.frame == "pandas" else rows
            answer: Any = self._user.process(live.value, shown)
        if not isinstance(answer, tuple) or len(answer) != 2:  # noqa: PLR2004
            problem = f"process() must return (state, output rows or None), got {type(answer).__name__}"
            raise OperatorError(self._wrapper.name, slot, problem)
        state, output = answer
        try:
            conformed = conform(output, self._output, self._frames)
        except InputError as error:
            raise OperatorError(self._wrapper.name, slot, str(error)) from error
        return self._stored(slot, lambda: live.update(state)), conformed

    def _in_use(self, slot: int) -> LiveState:
        """Return the state of a slot; from now on it is in use."""
        if slot not in self._live:
            resting = self._resting.pop(slot, None)
            version = self._user.version
            self._live[slot] = (
                LiveState(self._codec, version, self._user.init())
                if resting is None
                else LiveState.woken(self._codec, version, resting, self._user.upgrade)
            )
        return self._live[slot]

    def _at_rest(self, slot: int) -> RestingState:
        """Return the rows of a slot; it is not in use any more."""
        if slot not in self._resting:
            self._resting[slot] = resting = RestingState()
            live = self._live.pop(slot, None)
            for row in () if live is None else self._stored(slot, live.rows):
                resting.put(row)
        return self._resting[slot]

    def _stored(self, slot: int, store: Callable[[], list[StateRow]]) -> list[StateRow]:
        try:
            return store()
        except Exception as error:
            kind = type(self._live[slot].value).__name__ if slot in self._live else "object"
            problem = f"the state, a {kind}, cannot be pickled: {error}"
            raise OperatorError(self._wrapper.name, slot, problem) from error


class _StateTable:
    """State rows on their way into a table."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(self, slot: int, rows: Iterable[StateRow]) -> None:
        for place, key, stored in rows:
            if stored is None:
                self._rows.append((slot, place, None, None, None, None, True))
            else:
                self._rows.append((slot, place, key, stored.data, stored.kind, stored.version, False))

    def table(self) -> pa.Table:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(_STATE_SCHEMA)
        arrays = [pa.array(column, each.type) for column, each in zip(columns, _STATE_SCHEMA, strict=True)]
        return pa.table(arrays, _STATE_SCHEMA)


def _runs(slots: IntArray) -> Iterator[tuple[int, int, int]]:
    """Yield (slot, from, to) for each run of rows with the same slot."""
    if not len(slots):
        return
    starts = np.flatnonzero(np.diff(slots, prepend=slots[0] - 1))
    for low, high in zip(starts.tolist(), [*starts[1:].tolist(), len(slots)], strict=True):
        yield int(slots[low]), low, high
