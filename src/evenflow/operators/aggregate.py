"""Running aggregates per key, vectorised: what `.agg(...)` runs on a lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model import Contents, Due, Epoch, EpochTime, HeldAggregate
from evenflow.model.slots import IntArray
from evenflow.operators.arrays import constant, pieces, whole, widened
from evenflow.operators.base import GONE, HASH, LATEST, SLOT, Folded
from evenflow.operators.column import Block, Column
from evenflow.operators.functions import Agg
from evenflow.operators.keys import check_keys, is_direct, keys_for
from evenflow.operators.rules import column_for
from evenflow.operators.values import TooLongError

_Part = TypeVar("_Part")

_BEGUN = "begun"
_PIECE = 1 << 22  # rows read at a time, which bounds the temporary arrays


@dataclass(frozen=True)
class Aggregate:
    """Named aggregates, such as ``Aggregate({"total": sum("price"), "n": count()})``.

    `since`: the epoch from which on rows count for an aggregate, where that is not the first one.
    """

    aggregates: Mapping[str, Agg]
    since: Mapping[str, Epoch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is wrong whatever the input."""
        if not self.aggregates:
            raise InputError("agg() needs at least one aggregate, such as total=ef.sum('price')")
        seen: dict[str, str] = {}
        for name, agg in self.aggregates.items():
            if not isinstance(agg, Agg):
                raise InputError(f"agg(): {name} must be an aggregate such as ef.sum('price'), got {agg!r}")
            if name in (SLOT, HASH, GONE):
                raise InputError(f"agg(): the name {name!r} is reserved; choose another")
            if name.lower() in seen:
                raise InputError(
                    f"agg(): duplicate output name {name!r}; Spark cannot tell it from {seen[name.lower()]!r}"
                )
            seen[name.lower()] = name

    def __str__(self) -> str:
        """Look as the user wrote it."""
        return f"aggregate({', '.join(f'{name}={agg}' for name, agg in self.aggregates.items())})"

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        check_keys(schema, keys)
        return not is_direct(schema, keys)

    def columns(self) -> tuple[str, ...]:
        wanted = (agg.column for agg in self.aggregates.values() if agg.column is not None)
        return tuple(dict.fromkeys(wanted))

    def contents(self, schema: pa.Schema, keys: tuple[str, ...]) -> Contents:
        check_keys(schema, keys)
        kinds = {None: "", **{each.name: str(each.type) for each in schema}}
        held = (HeldAggregate(name, str(agg), kinds[agg.column]) for name, agg in self.aggregates.items())
        return Contents("aggregates", aggregates=tuple(held))

    def resumed(self, contents: Contents) -> Aggregate:
        return replace(self, since={held.name: held.since for held in contents.aggregates})

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        columns = self._columns(schema, keys)
        return pa.schema([*_key_fields(schema, keys), *(column.result for column in columns)])

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        head = [pa.field(SLOT, pa.int32())]
        if self.needs_hash(schema, keys):
            head.append(pa.field(HASH, pa.int64()))
        state = [each for column in self._columns(schema, keys) for each in column.fields]
        return pa.schema([*head, *_key_fields(schema, keys), *state, pa.field(GONE, pa.bool_())])

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return self.output_schema(schema, keys)

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> AggregateState:
        return AggregateState(self, schema, keys, slots)

    def _columns(self, schema: pa.Schema, keys: tuple[str, ...]) -> list[Column]:
        """Return an empty column per aggregate; refuse what does not fit the input."""
        check_keys(schema, keys)
        columns = []
        for name, agg in self.aggregates.items():
            if name.lower() in {key.lower() for key in keys}:
                raise InputError(f"agg(): the output {name!r} has the name of a key; choose another")
            columns.append(column_for(name, agg, schema))
            # Tells it from an aggregate of this name that was given up earlier, in files that still hold that one.
            begun = {_BEGUN: f"{self.since.get(name, 0)} {agg}"}
            columns[-1].fields = tuple(each.with_metadata(begun) for each in columns[-1].fields)
        names = [field.name for column in columns for field in column.fields]
        for name in names:
            if names.count(name) > 1 or name in keys:
                raise InputError(
                    f"agg(): {name!r} is needed for the state of a mean or first; rename the output or key"
                )
        return columns


class AggregateState:
    """The keys of all slots of a lane and their aggregates: one table, however many slots.

    Operators that are made of aggregates and let keys go, such as windows, work with its row numbers: `absorb` input,
    `read` what has become of it, `remove` what is over. Numbers are good until the next `remove`, `install` or `drop`.
    """

    def __init__(self, operator: Aggregate, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty."""
        self._state_schema = operator.state_schema(schema, keys)
        self._output_schema = operator.output_schema(schema, keys)
        self._keys = keys_for(schema, keys, slots)
        self._columns = operator._columns(schema, keys)  # noqa: SLF001 - operator and state are one unit
        inputs = (agg.column for agg in operator.aggregates.values())
        self._inputs = [None if name is None else schema.field(name) for name in inputs]
        self._since = [operator.since.get(name, 0) for name in operator.aggregates]

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:
        changes, output = self.read(self.absorb(rows, slots, time))
        return Folded(changes, output, changes[SLOT].to_numpy())

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:  # noqa: ARG002 - it has no timers
        return None

    def due(self, slots: Sequence[int]) -> Due | None:  # noqa: ARG002 - it has no timers
        return None

    def absorb(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> IntArray:
        """Fold rows; return the state rows they belong to, each once, in slot order."""
        touched, at = [], 0
        for piece in pieces(rows):
            touched.append(self._absorb(piece, slots[at : at + piece.num_rows], time))
            at += piece.num_rows
        return touched[0] if len(touched) == 1 else self._each_once(np.concatenate(touched))

    def _absorb(self, rows: pa.Table, slots: IntArray, time: EpochTime) -> IntArray:
        """Fold rows of which each column fits one array; return the state rows they belong to, each once."""
        index, born = self._keys.index, self._keys.index.rows
        found = self._keys.find(rows, slots)
        self._start(born)
        block = Block(found, index.first_positions(found), slots)
        for column, given, since in zip(self._columns, self._inputs, self._since, strict=True):
            if since <= time.epoch:
                column.fold(block, None if given is None else whole(rows, given.name, given.type))
        return block.touched

    def _each_once(self, rows: IntArray) -> IntArray:
        """Return state rows in the order in which they come first."""
        first = self._keys.index.first_positions(rows)
        each: IntArray = rows[first == np.arange(len(rows))]
        return each

    def install(self, state: pa.Table) -> None:
        for piece in pieces(state):
            self._install(piece)
        self._compact()

    def _install(self, state: pa.Table) -> None:
        born = self._keys.index.rows
        rows = self._keys.load(state)
        self._start(born)
        chosen, leaving = self._last_of_each(rows), np.empty(0, np.int64)
        gone = whole(state, GONE, pa.bool_())
        if gone.true_count:
            each = np.arange(len(rows)) if chosen is None else chosen
            over = gone.to_numpy(zero_copy_only=False)[each]
            chosen, leaving = each[~over], rows[each[over]]
        for column in self._columns:
            arrays = _stored(state, column)
            if arrays is None:
                continue
            if chosen is None:
                column.write(rows, arrays)
            else:
                column.write(rows[chosen], [array.take(pa.array(chosen)) for array in arrays])
        self._keys.forget(leaving)

    def remove(self, rows: IntArray) -> pa.Table:
        """Remove the keys of some state rows, each once; return their tombstones, sorted by slot."""
        rows = rows[np.argsort(self._keys.index.slots(rows), kind="stable")]
        tombstones = pa.concat_tables(_in_parts(rows, self._tombstones))
        self._keys.forget(rows)
        self._compact()
        return tombstones

    def rows_of(self, slots: Sequence[int]) -> IntArray:
        """Return the state rows of some slots, sorted by slot."""
        return self._keys.index.rows_of_slots(np.asarray(slots, np.int64))

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        return self.read(self.rows_of(slots))[0]

    def drop(self, slots: Sequence[int]) -> None:
        self._keys.forget(self.rows_of(slots))
        self._compact()

    def output(self, slots: Sequence[int]) -> pa.Table:
        return self.read(self.rows_of(slots))[1]

    def view(self, slots: Sequence[int]) -> pa.Table:
        return self.output(slots)

    def slot_rows(self) -> IntArray:
        return self._keys.index.slot_rows.copy()

    def slot_bytes(self) -> IntArray:
        """Return the memory per slot: all of it, shared out by rows."""
        index = self._keys.index
        total = self._keys.nbytes
        for column in self._columns:
            total += column.nbytes(index.rows)
        return (index.slot_rows * (total / max(1, index.live))).astype(np.int64)

    def _start(self, born: int) -> None:
        """Let the columns grow along with the keys."""
        index = self._keys.index
        for column in self._columns:
            column.reserve(index.capacity, born)
            column.start(born, index.rows)

    def _compact(self) -> None:
        """Give memory back once more rows are dead than alive."""
        index = self._keys.index
        if index.live * 2 < index.rows:
            kept = self._keys.keep()
            for column in self._columns:
                column.keep(kept)

    def _last_of_each(self, rows: IntArray) -> IntArray | None:
        """Return the positions at which each row comes last; None if no row comes twice."""
        backwards = rows[::-1]
        first = self._keys.index.first_positions(backwards)
        kept = np.flatnonzero(first == np.arange(len(first)))
        return None if len(kept) == len(rows) else len(rows) - 1 - kept[::-1]

    def read(self, rows: IntArray) -> tuple[pa.Table, pa.Table]:
        """Return state and output of some rows."""
        state, output = zip(*_in_parts(rows, self._read), strict=True)
        return pa.concat_tables(state), pa.concat_tables(output)

    def _tombstones(self, rows: IntArray) -> pa.Table:
        head = {
            SLOT: pa.array(self._keys.index.slots(rows)),
            **self._keys.read(rows),
            GONE: constant(len(rows), value=True),
        }
        columns = (head.get(each.name, pa.nulls(len(rows), each.type)) for each in self._state_schema)
        return pa.table(list(columns), self._state_schema)

    def _read(self, rows: IntArray) -> tuple[pa.Table, pa.Table]:
        head = self._keys.read(rows)
        states = [column.read(rows) for column in self._columns]
        slots = pa.array(self._keys.index.slots(rows))
        held, present = (array for arrays in states for array in arrays), constant(len(rows), value=False)
        state = pa.table([slots, *head.values(), *held, present], self._state_schema)
        results = [column.results(arrays) for column, arrays in zip(self._columns, states, strict=True)]
        keys = [array for name, array in head.items() if name != HASH]
        return state, pa.table([*keys, *results], self._output_schema)


def _in_parts(rows: IntArray, read: Callable[[IntArray], _Part]) -> list[_Part]:
    """Read rows in as many parts as it takes for each column to fit one array; at least one."""

    def parts(some: IntArray) -> list[_Part]:
        try:
            return [read(some)]
        except TooLongError:
            half = len(some) // 2
            return [*parts(some[:half]), *parts(some[half:])]

    return [part for at in range(0, max(1, len(rows)), _PIECE) for part in parts(rows[at : at + _PIECE])]


def _stored(state: pa.Table, column: Column) -> list[pa.Array] | None:
    """Return what a state table holds of a column; None if it is from before the column began."""
    arrays = []
    for wanted in column.fields:
        at = state.schema.get_field_index(wanted.name)
        if at < 0 or state.schema.field(at).metadata != wanted.metadata:
            return None
        arrays.append(widened(whole(state, wanted.name, state.schema.field(at).type), wanted))
    return arrays


def _key_fields(schema: pa.Schema, keys: tuple[str, ...]) -> list[pa.Field]:
    return [pa.field(name, schema.field(name).type) for name in keys]
