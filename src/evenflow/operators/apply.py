"""The user's own state logic: one object per slot, one call per slot and epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError, OperatorError
from evenflow.model import Contents, Due, EpochTime
from evenflow.model.signatures import takes
from evenflow.model.slots import FloatArray, IntArray
from evenflow.operators.base import GONE, HASH, LATEST, SLOT, Folded
from evenflow.operators.clock import NeededTime
from evenflow.operators.frames import Frames, PlainFrames
from evenflow.operators.keys import check_keys
from evenflow.operators.output import conform
from evenflow.operators.readable import VIEW_SCHEMA, entries_of
from evenflow.operators.source import source_of
from evenflow.operators.stored_state import StateCodec, StoredState

if TYPE_CHECKING:
    import pandas as pd

Rows: TypeAlias = "pa.Table | pd.DataFrame"

_STATE_SCHEMA = pa.schema(
    [
        (SLOT, pa.int32()),
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
        your script. Classes that the operator's code refers to are found by name again, as they are in the program that
        runs then. The result must depend on the state and the rows only: after a crash the same rows may come again.
        """

    def upgrade(self, state: Any, version: int) -> Any:
        """Return a state that was stored by an older `version` of the operator in the shape of today."""
        raise NotImplementedError(f"a state of version {version}: define upgrade(state, version) to read it")


def check_operator(operator: Any) -> None:
    """Refuse what cannot be run, whatever the rows."""
    if not isinstance(operator, SlotOperator):
        made = " (the class itself: call it)" if isinstance(operator, type) else ""
        raise InputError(f"apply() takes an instance of a subclass of SlotOperator, got {operator!r}{made}")
    name = type(operator).__name__
    if operator.frame not in ("arrow", "pandas"):
        raise InputError(f"{name}.frame is 'arrow' or 'pandas', got {operator.frame!r}")
    declared: Any = operator.name
    if declared is not None and not (isinstance(declared, str) and declared):
        raise InputError(f"{name}.name is a text, or None for the class's, got {declared!r}")
    version: Any = operator.version
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"{name}.version is a number from 1 on, got {version!r}")
    if not takes(operator.process, 2):
        raise InputError(f"{name}.process must take the state and the rows: def process(self, state, rows)")
    if not takes(operator.init, 0):
        raise InputError(f"{name}.init must take nothing: def init(self)")
    if not takes(operator.upgrade, 2):
        raise InputError(f"{name}.upgrade must take a state and its version: def upgrade(self, state, version)")
    needed: Any = operator.columns_needed
    if needed is not None and not (
        isinstance(needed, tuple | list) and all(isinstance(column, str) for column in needed)
    ):
        raise InputError(
            f"{name}.columns_needed is a tuple of names such as ('price',), or None for all; got {needed!r}"
        )


class Apply:
    """Runs a `SlotOperator`."""

    def __init__(
        self, operator: SlotOperator, clock: Callable[[], float] | None = None, frames: Frames | None = None
    ) -> None:
        """Wrap the user's operator; `clock` measures what each slot costs, `frames` says how rows look to it."""
        check_operator(operator)
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
        for column in self.columns() or ():
            if schema.get_field_index(column) < 0:
                raise InputError(f"{self.name} needs the column {column!r}; the input has {', '.join(schema.names)}")
        declared = getattr(self.operator, "output", None)
        if not isinstance(declared, pa.Schema):
            raise InputError(
                f"{self.name}.output must be a pyarrow.Schema here, got {declared!r}; "
                "a Spark DDL string is understood only where a Spark session can read it, in ef.keyed(...).apply(...)"
            )
        return declared

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:  # noqa: ARG002 - the same for all
        return _STATE_SCHEMA

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:  # noqa: ARG002 - the same for all
        return VIEW_SCHEMA

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> SlotStates:
        return SlotStates(self, self.output_schema(schema, keys), keys, slots)


class SlotStates:
    """The state objects of a lane's slots. What was installed stays bytes until the slot has rows."""

    def __init__(self, wrapper: Apply, output: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty."""
        self._wrapper, self._user, self._codec = wrapper, wrapper.operator, StateCodec(wrapper.operator)
        self._output, self._keys, self._slots = output, keys, slots
        self._frames = wrapper.frames or PlainFrames(output)
        self._objects: dict[int, Any] = {}
        self._bytes: dict[int, StoredState] = {}
        self._sizes = np.zeros(slots, np.int64)

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:  # noqa: ARG002 - all take part
        busy: FloatArray = np.zeros(self._slots)
        changes, outputs, objects = {}, [], {}
        visible = self._frames.shown(rows.drop_columns([name for name in (SLOT, HASH) if name in rows.column_names]))
        for slot, low, high in _runs(slots):
            started = self._wrapper.clock()
            objects[slot], output = self._process(slot, visible.slice(low, high - low))
            changes[slot] = self._store(slot, objects[slot])
            busy[slot] = self._wrapper.clock() - started
            outputs.append(output)
        self._objects |= objects
        self._bytes = {slot: state for slot, state in self._bytes.items() if slot not in objects}
        for slot, state in changes.items():
            self._sizes[slot] = len(state.data)
        output = pa.concat_tables(outputs) if outputs else self._output.empty_table()
        return Folded(_table(changes), output, busy)

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:  # noqa: ARG002 - it has no timers
        return None

    def due(self, slots: Sequence[int]) -> Due | None:  # noqa: ARG002 - it has no timers
        return None

    def install(self, state: pa.Table) -> None:
        columns = (state[name].to_pylist() for name in _STATE_SCHEMA.names)
        for slot, data, kind, version, gone in zip(*columns, strict=True):
            if gone:
                self.drop([slot])
                continue
            self._objects.pop(slot, None)
            self._bytes[slot] = StoredState(kind, data, version)
            self._sizes[slot] = len(data)

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        held = [slot for slot in sorted(set(slots)) if slot in self._objects or slot in self._bytes]
        return _table({slot: self._stored(slot) for slot in held})

    def drop(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._objects.pop(slot, None)
            self._bytes.pop(slot, None)
            self._sizes[slot] = 0

    def output(self, slots: Sequence[int]) -> pa.Table:  # noqa: ARG002 - there is none
        raise InputError(f"complete mode needs aggregates; {self._wrapper.name} only knows the rows of each epoch")

    def view(self, slots: Sequence[int]) -> pa.Table:
        rows: list[tuple[int, str | None, str]] = []
        for slot in sorted(set(slots) & {*self._objects, *self._bytes}):
            try:
                rows += ((slot, key, value) for key, value in entries_of(self._state(slot), self._keys))
            except Exception as error:
                raise OperatorError(self._wrapper.name, slot, f"{type(error).__name__}: {error}") from error
        return pa.table([list(column) for column in zip(*rows, strict=True)] or [[], [], []], VIEW_SCHEMA)

    def slot_rows(self) -> IntArray:
        """Return 1 for each slot that has a state."""
        rows = np.zeros(self._slots, np.int64)
        rows[[*self._objects, *self._bytes]] = 1
        return rows

    def slot_bytes(self) -> IntArray:
        """Return the size of each state when it was last stored."""
        return self._sizes.copy()

    def _process(self, slot: int, rows: pa.Table) -> tuple[Any, pa.Table]:
        """Call the user's code for one slot; whatever it raises names the slot."""
        try:
            state = self._state(slot)
            answer: Any = self._user.process(state, self._frames.frame(rows) if self._user.frame == "pandas" else rows)
        except Exception as error:
            raise OperatorError(self._wrapper.name, slot, f"{type(error).__name__}: {error}") from error
        if not isinstance(answer, tuple) or len(answer) != 2:  # noqa: PLR2004
            problem = f"process() must return (state, output rows or None), got {type(answer).__name__}"
            raise OperatorError(self._wrapper.name, slot, problem)
        state, output = answer
        try:
            return state, conform(output, self._output, self._frames)
        except InputError as error:
            raise OperatorError(self._wrapper.name, slot, str(error)) from error

    def _state(self, slot: int) -> Any:
        if slot in self._objects:
            return self._objects[slot]
        if slot not in self._bytes:
            return self._user.init()
        stored = self._bytes[slot]
        state = self._codec.load(stored)
        return state if stored.version == self._user.version else self._user.upgrade(state, stored.version)

    def _stored(self, slot: int) -> StoredState:
        return self._bytes[slot] if slot in self._bytes else self._store(slot, self._objects[slot])

    def _store(self, slot: int, state: Any) -> StoredState:
        try:
            return self._codec.store(state, self._user.version)
        except Exception as error:
            problem = f"the state, a {type(state).__name__}, cannot be pickled: {error}"
            raise OperatorError(self._wrapper.name, slot, problem) from error


def _runs(slots: IntArray) -> Iterator[tuple[int, int, int]]:
    """Yield (slot, from, to) for each run of rows with the same slot."""
    if not len(slots):
        return
    starts = np.flatnonzero(np.diff(slots, prepend=slots[0] - 1))
    for low, high in zip(starts.tolist(), [*starts[1:].tolist(), len(slots)], strict=True):
        yield int(slots[low]), low, high


def _table(states: dict[int, StoredState]) -> pa.Table:
    stored = states.values()
    written = ([getattr(state, name) for state in stored] for name in ("data", "kind", "version"))
    columns = [list(states), *written, [False] * len(stored)]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _STATE_SCHEMA, strict=True)], _STATE_SCHEMA)
