"""Runs a `KeyOperator`: finds the keys of an epoch's rows, calls it once for all of them, keeps what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError, OperatorError
from evenflow.model import Contents, Due, EpochTime
from evenflow.model.signatures import takes
from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import fixed_dtype, is_variable, validity, values_of
from evenflow.operators.base import GONE, HASH, LATEST, SLOT, Folded
from evenflow.operators.calling import calling, key_text
from evenflow.operators.column import Block
from evenflow.operators.declared import check_declared, check_inputs, declared_columns
from evenflow.operators.held import HeldColumn, differing, without
from evenflow.operators.key_operator import KeyBatch, KeyChanges, KeyOperator
from evenflow.operators.key_timers import KeyTimers, now_of
from evenflow.operators.keyed_state import KeyedState, key_fields, state_schema_of
from evenflow.operators.keys import check_keys, is_direct
from evenflow.operators.returned import columns_of, marks_of, places_of
from evenflow.operators.slot_order import by_slot, parts_by_slot
from evenflow.operators.source import source_of
from evenflow.operators.under_way import under_way

_VERSION = b"version"  # in the metadata of state columns: that of the operator that wrote them
_POSITIONS = np.int64(0xFFFFFFFF)


class ApplyKeys:
    """The operator that runs a `KeyOperator`."""

    def __init__(self, operator: KeyOperator) -> None:
        """Wrap the user's operator."""
        _check(operator)
        self.operator = operator

    def __str__(self) -> str:
        """Name the user's operator."""
        return f"apply({self.name})"

    @property
    def name(self) -> str:
        """The name by which the user's operator is known."""
        return self.operator.name or type(self.operator).__qualname__

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        check_keys(schema, keys)
        return not is_direct(schema, keys)

    def columns(self) -> tuple[str, ...] | None:
        needed = self.operator.columns_needed
        return None if needed is None else tuple(needed)

    def output_modes(self) -> tuple[str, ...]:
        return "update", "append"

    def uses_event_time(self) -> bool:
        return False  # its timers fire by the epoch's own watermark

    def in_mode(self, mode: str) -> ApplyKeys:
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
            reads_older=user.upgrade is not KeyOperator.upgrade,
            source=source_of(user, KeyOperator),
            inputs=tuple((each.name, str(each.type)) for each in schema if each.name not in keys),
        )

    def resumed(self, contents: Contents) -> ApplyKeys:  # noqa: ARG002 - each state says which version it is
        return self

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        self.held(schema, keys)
        declared = self._free_of_keys("output", keys)
        return pa.schema([*key_fields(schema, keys), *declared])

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return state_schema_of(schema, keys, self.held(schema, keys))

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return pa.schema([*key_fields(schema, keys), *self.held(schema, keys)]).remove_metadata()

    def held(self, schema: pa.Schema, keys: tuple[str, ...]) -> list[pa.Field]:
        """Return what is held for each key; refuse what cannot be."""
        check_keys(schema, keys)
        check_inputs(self.operator, self.name, schema)
        declared = self._free_of_keys("state", keys)
        for each in declared:
            if fixed_dtype(each.type) is None and not is_variable(each.type):
                raise InputError(
                    f"{self.name}.state: {each.name!r} has type {each.type}; a column of the state holds numbers, "
                    "booleans, strings, binary, decimals, dates or timestamps: keep what is nested in a binary column"
                )
        for timer, clock in self.operator.timers.items():
            kind = declared.field(timer).type if timer in declared.names else None
            if kind is None or not pa.types.is_timestamp(kind) or kind.unit != "us":
                raise InputError(
                    f"{self.name}.timers: {timer!r} must be a timestamp column of the state, in microseconds; "
                    f"the state has {', '.join(f'{each.name} {each.type}' for each in declared)}"
                )
            if clock not in ("event", "processing"):
                raise InputError(f"{self.name}.timers: {timer!r} goes by 'event' or 'processing' time, got {clock!r}")
        version = {_VERSION: str(self.operator.version).encode()}
        return [pa.field(each.name, each.type, metadata=version) for each in declared]

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> KeyStates:
        return KeyStates(self, schema, keys, slots)

    def _free_of_keys(self, attribute: str, keys: tuple[str, ...]) -> pa.Schema:
        declared = declared_columns(self.operator, self.name, attribute)
        taken = {name.lower() for name in (*keys, SLOT, HASH, GONE)}
        for name in declared.names:
            if name.lower() in taken:
                raise InputError(
                    f"{self.name}.{attribute} has {name!r}, which is there already: the key is put in front by itself"
                )
        return declared


def _check(operator: Any) -> None:
    """Refuse what cannot be run, whatever the rows."""
    if not isinstance(operator, KeyOperator):
        raise InputError(f"expected an instance of a subclass of KeyOperator, got {operator!r}")
    name = type(operator).__name__
    check_declared(operator)
    if not takes(operator.process, 1):
        raise InputError(f"{name}.process must take a batch: def process(self, batch)")
    if not takes(operator.fire, 1):
        raise InputError(f"{name}.fire must take a batch: def fire(self, batch)")
    if operator.timers and type(operator).fire is KeyOperator.fire:
        raise InputError(f"{name} has timers, {', '.join(operator.timers)}: define fire(self, batch)")


class KeyStates(KeyedState):
    """The state of all keys of a lane, in columns."""

    def __init__(self, wrapper: ApplyKeys, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty."""
        self._columns = [HeldColumn(each) for each in wrapper.held(schema, keys)]
        super().__init__(schema, keys, slots, self._columns)
        self._user, self._name, self._names = wrapper.operator, wrapper.name, keys
        self._output_schema, self._view_schema = wrapper.output_schema(schema, keys), wrapper.view_schema(schema, keys)
        self._state_columns = declared_columns(wrapper.operator, wrapper.name, "state")
        self._output_columns = declared_columns(wrapper.operator, wrapper.name, "output")
        self._no_rows = schema.empty_table()
        self._timers = KeyTimers(wrapper.operator.timers, slots)
        self._timer_columns = {name: self._columns[self._state_columns.names.index(name)] for name in self._user.timers}

    # --- what the user's code does -------------------------------------------------------------------------------

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:
        return reduce(Folded.then, (self._fold(*part, time) for part in parts_by_slot(rows, slots)))

    def _fold(self, rows: pa.Table, slots: IntArray, time: EpochTime) -> Folded:
        born = self._keys.index.rows
        found = self._keys.find(rows, slots)
        self._start(born)
        block = Block(found, self._keys.index.first_positions(found), slots)
        touched, size = block.touched, len(block.touched)
        offsets = np.zeros(size + 1, np.int64)
        np.cumsum(np.bincount(block.group, minlength=size), out=offsets[1:])
        visible = rows.drop_columns([name for name in (SLOT, HASH) if name in rows.column_names])
        order = None if size == rows.num_rows else _order(block.group)
        batch = KeyBatch(*self._shown(touched), touched >= born, visible, order, offsets, time)
        return self._taken_in(touched, batch, self._called(self._user.process, batch), {})

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:
        reached = self._timers.reached(slots, time)
        if not reached:
            return None
        rows = self.rows_of(reached)
        fired = {name: self._has_fired(name, rows, time) for name in self._timer_columns}
        some = np.logical_or.reduce(list(fired.values()))
        folded = None
        if some.any():
            rows, fired = rows[some], {name: each[some] for name, each in fired.items()}
            order = self._firing_order(rows, fired)
            rows, fired = rows[order], {name: each[order] for name, each in fired.items()}
            none, offsets = np.zeros(len(rows), np.bool_), np.zeros(len(rows) + 1, np.int64)
            batch = KeyBatch(*self._shown(rows), none, self._no_rows, None, offsets, time, fired)
            folded = self._taken_in(rows, batch, self._called(self._user.fire, batch), fired)
        self._timers.forget(reached)
        left = self.rows_of(reached)
        for name, column in self._timer_columns.items():
            self._note(name, left, column.read(left)[0])
        return folded

    def due(self, slots: Sequence[int]) -> Due | None:
        return self._timers.due(slots)

    def _called(self, function: Callable[[KeyBatch], Any], batch: KeyBatch) -> KeyChanges:
        """Call the user's code; an error names the key, if one of them alone makes it."""
        try:
            with calling(self._name), under_way(self._name, key=lambda: self._whose(batch)):
                answer = function(batch)
        except OperatorError as error:
            if error.key is None and not isinstance(error.__cause__, MemoryError | SystemExit):
                self._blame(function, batch, error)
            raise
        if answer is not None and not isinstance(answer, KeyChanges):
            problem = f"{function.__name__}() must return KeyChanges or None, got {type(answer).__name__}"
            raise OperatorError(self._name, None, problem)
        return answer or KeyChanges()

    def _blame(self, function: Callable[[KeyBatch], Any], batch: KeyBatch, error: OperatorError) -> None:
        """Look for a key that makes the error by itself, half by half, and raise what it makes."""
        while len(batch) > 1:
            half = len(batch) // 2
            for part in (batch.part(0, half), batch.part(half, len(batch))):
                try:
                    with under_way(self._name, key=self._whose(part)):
                        function(part)
                except Exception as again:  # noqa: BLE001 - whatever the user's code raises
                    error.__cause__, batch = again, part
                    break
            else:
                return
        with calling(self._name, key=self._whose(batch)):
            raise error.__cause__ or error

    def _whose(self, batch: KeyBatch) -> str:
        """Return the key of a batch as messages show it, or the first of several."""
        key = key_text(self._names, tuple(batch.keys[name][0].as_py() for name in self._names))
        return key if len(batch) == 1 else f"{key} or one of {len(batch) - 1} others"

    def _taken_in(self, rows: IntArray, batch: KeyBatch, returned: KeyChanges, fired: dict[str, BoolArray]) -> Folded:
        """Keep what was returned for the keys of some rows, which are sorted by slot; return what has changed."""
        try:
            output, output_slots = self._put_out(rows, batch, returned)
            removed = marks_of(returned.removed, len(batch))
            before = [column.combine_chunks() for column in batch.state.columns]
            held = before
            if returned.state is not None:
                table = columns_of(returned.state, self._state_columns, "state", len(batch))
                held = [column.combine_chunks() for column in table.columns]
        except InputError as error:
            raise OperatorError(self._name, None, str(error)) from error
        changed = np.zeros(len(batch), np.bool_)
        if returned.state is None:
            removed = removed | batch.is_new
        else:
            changed |= batch.is_new
            for old, new in zip(before, held, strict=True):
                changed |= differing(old, new)
        for name, off in fired.items():
            at = self._state_columns.names.index(name)
            off = off & ~differing(before[at], held[at])  # noqa: PLW2901 - one that was set anew stays
            held[at] = without(held[at], off)
            changed |= off
        changed &= ~removed
        self._write(rows, changed, held)
        tables = [self.state(rows[changed])]
        gone, unborn = rows[removed & ~batch.is_new], rows[removed & batch.is_new]
        self._keys.forget(unborn)
        if len(gone):
            tables.append(self.remove(gone))
        elif len(unborn):
            self._compact()
        return Folded(by_slot([(table, table[SLOT].to_numpy()) for table in tables])[0], output, output_slots)

    def _write(self, rows: IntArray, changed: BoolArray, held: list[pa.Array]) -> None:
        every = bool(changed.all())
        chosen = rows if every else rows[changed]
        for column, array in zip(self._columns, held, strict=True):
            values = array if every else array.filter(pa.array(changed))
            column.write(chosen, [values])
        for name in self._timer_columns:
            at = self._state_columns.names.index(name)
            self._note(name, chosen, held[at] if every else held[at].filter(pa.array(changed)))

    def _put_out(self, rows: IntArray, batch: KeyBatch, returned: KeyChanges) -> tuple[pa.Table, IntArray]:
        if returned.output is None:
            return self._output_schema.empty_table(), np.empty(0, np.int64)
        slots = self._keys.index.slots(rows)
        if returned.output_keys is None:
            columns = columns_of(returned.output, self._output_columns, "output", len(batch))
            return pa.table([*batch.keys.columns, *columns.columns], self._output_schema), slots
        places = places_of(returned.output_keys, len(batch))
        columns = columns_of(returned.output, self._output_columns, "output", len(places))
        if (np.diff(places) < 0).any():
            order = np.argsort(places, kind="stable")
            places, columns = places[order], columns.take(pa.array(order))
        keys = batch.keys.take(pa.array(places))
        return pa.table([*keys.columns, *columns.columns], self._output_schema), slots[places]

    def _shown(self, rows: IntArray) -> tuple[pa.Table, pa.Table]:
        """Return keys and state of some rows."""
        state = self.state(rows)
        return state.select(list(self._names)), state.select(self._state_columns.names)

    # --- timers --------------------------------------------------------------------------------------------------

    def _has_fired(self, timer: str, rows: IntArray, time: EpochTime) -> BoolArray:
        now = now_of(self._user.timers[timer], time)
        if now is None:
            return np.zeros(len(rows), np.bool_)
        held = self._timer_columns[timer].read(rows)[0]
        valid = validity(held)
        fired: BoolArray = values_of(held) <= now
        return fired if valid is None else fired & valid

    def _firing_order(self, rows: IntArray, fired: dict[str, BoolArray]) -> IntArray:
        """Return the order in which keys fire: by slot, time and key, whatever the history of the rows."""
        never = np.iinfo(np.int64).max
        times = [
            np.where(off, values_of(self._timer_columns[name].read(rows)[0]), never) for name, off in fired.items()
        ]
        keys = [np.minimum.reduce(times), self._keys.index.slots(rows)]
        identities = self._keys.index.identities(rows)
        order = np.lexsort((identities, *keys))
        together = [each[order] for each in (identities, *keys)]
        if np.logical_and.reduce([each[1:] == each[:-1] for each in together]).any():  # one hash, several keys
            ranks = np.empty(len(rows), np.int64)
            by_key = pa.table(self._keys.read(rows)).select(list(self._names))
            ranks[pa.compute.sort_indices(by_key, [(name, "ascending") for name in self._names])] = np.arange(len(rows))
            order = np.lexsort((ranks, identities, *keys))
        return order

    def _note(self, timer: str, rows: IntArray, times: pa.Array) -> None:
        self._timers.note(timer, self._keys.index.slots(rows), values_of(times), validity(times))

    # --- what a lane keeps ---------------------------------------------------------------------------------------

    def install(self, state: pa.Table) -> None:
        table = self._as_today(state)
        super().install(table)
        if self._timer_columns and table.num_rows:
            present = table.filter(pa.compute.invert(table[GONE]))
            slots = present[SLOT].to_numpy()
            for name in set(self._timer_columns) & set(present.column_names):
                times = present[name].combine_chunks()
                self._timers.note(name, slots, values_of(times), validity(times))

    def _as_today(self, state: pa.Table) -> pa.Table:
        """Return state that an older version of the operator has written in the columns of today."""
        names = [name for name in state.column_names if name not in (SLOT, HASH, GONE, *self._names)]
        said = {(state.schema.field(name).metadata or {}).get(_VERSION, b"") for name in names} - {b""}
        version = int(said.pop()) if said else self._user.version
        if version == self._user.version:
            return state
        there = ~state[GONE].to_numpy()
        present = state.select([*self._names, *names]).filter(pa.array(there))
        present = present.replace_schema_metadata().cast(present.schema.remove_metadata())
        with calling(self._name):
            upgraded = self._user.upgrade(pa.table(present.columns, present.column_names), version)
        if isinstance(upgraded, pa.Table):
            upgraded = upgraded.drop_columns([name for name in self._names if name in upgraded.column_names])
        try:
            columns = columns_of(upgraded, self._state_columns, "upgrade()", present.num_rows)
        except InputError as error:
            raise OperatorError(self._name, None, str(error)) from error
        at = pa.array(np.cumsum(there) - 1, mask=~there)
        head = {name: state[name] for name in state.column_names if name not in names}
        return pa.table(
            [head[each.name] if each.name in head else columns[each.name].take(at) for each in self._state_schema],
            self._state_schema,
        )

    def drop(self, slots: Sequence[int]) -> None:
        super().drop(slots)
        self._timers.forget(slots)

    def output(self, slots: Sequence[int]) -> pa.Table:  # noqa: ARG002 - there is none
        raise InputError(f"complete mode needs aggregates; {self._name} only knows the rows of each epoch")

    def view(self, slots: Sequence[int]) -> pa.Table:
        keys, state = self._shown(self.rows_of(slots))
        return pa.table([*keys.columns, *state.columns], self._view_schema)


def _order(group: IntArray) -> IntArray:
    """Return the order that brings rows of one group together, stably; sorting plain integers is the fastest way."""
    packed = group << 32 | np.arange(len(group))
    packed.sort()
    order: IntArray = packed & _POSITIONS
    return order
