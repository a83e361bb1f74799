"""Running aggregates per key, vectorised: what `.agg(...)` runs on a lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model.slots import IntArray
from evenflow.operators.arrays import whole
from evenflow.operators.base import HASH, SLOT, Folded
from evenflow.operators.column import Block, Column
from evenflow.operators.functions import Agg
from evenflow.operators.keys import check_keys, is_direct, keys_for
from evenflow.operators.rules import column_for

_PIECE = 1 << 22  # rows read at a time: a column of strings in one Arrow array ends at 2 GB


@dataclass(frozen=True)
class Aggregate:
    """Named aggregates, such as ``Aggregate({"total": sum("price"), "n": count()})``."""

    aggregates: Mapping[str, Agg]

    def __post_init__(self) -> None:
        """Refuse what is wrong whatever the input."""
        if not self.aggregates:
            raise InputError("agg() needs at least one aggregate, such as total=ef.sum('price')")
        seen: dict[str, str] = {}
        for name, agg in self.aggregates.items():
            if not isinstance(agg, Agg):
                raise InputError(f"agg(): {name} must be an aggregate such as ef.sum('price'), got {agg!r}")
            if name in (SLOT, HASH):
                raise InputError(f"agg(): the name {name!r} is reserved; choose another")
            if name.lower() in seen:
                raise InputError(
                    f"agg(): duplicate output name {name!r}; Spark cannot tell it from {seen[name.lower()]!r}"
                )
            seen[name.lower()] = name

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        check_keys(schema, keys)
        return not is_direct(schema, keys)

    def columns(self) -> tuple[str, ...]:
        wanted = (agg.column for agg in self.aggregates.values() if agg.column is not None)
        return tuple(dict.fromkeys(wanted))

    def fingerprint(self) -> str:
        return f"aggregate({', '.join(f'{name}={agg}' for name, agg in self.aggregates.items())})"

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        columns = self._columns(schema, keys)
        return pa.schema([*_key_fields(schema, keys), *(column.result for column in columns)])

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        head = [pa.field(SLOT, pa.int32())]
        if self.needs_hash(schema, keys):
            head.append(pa.field(HASH, pa.int64()))
        state = [field for column in self._columns(schema, keys) for field in column.fields]
        return pa.schema([*head, *_key_fields(schema, keys), *state])

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> AggregateState:
        return AggregateState(self, schema, keys, slots)

    def _columns(self, schema: pa.Schema, keys: tuple[str, ...]) -> list[Column]:
        """Return an empty column per aggregate; refuse what does not fit the input."""
        check_keys(schema, keys)
        columns = []
        for name, agg in self.aggregates.items():
            if name in keys:
                raise InputError(f"agg(): the output {name!r} has the name of a key; choose another")
            columns.append(column_for(name, agg, schema))
        names = [field.name for column in columns for field in column.fields]
        for name in names:
            if names.count(name) > 1 or name in keys:
                raise InputError(f"agg(): {name!r} is needed for the state of a mean; rename the output or key")
        return columns


class AggregateState:
    """The keys of all slots of a lane and their aggregates: one table, however many slots."""

    def __init__(self, operator: Aggregate, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty."""
        self._state_schema = operator.state_schema(schema, keys)
        self._output_schema = operator.output_schema(schema, keys)
        self._keys = keys_for(schema, keys, slots)
        self._columns = operator._columns(schema, keys)  # noqa: SLF001 - operator and state are one unit
        inputs = (agg.column for agg in operator.aggregates.values())
        self._inputs = [None if name is None else schema.field(name) for name in inputs]

    def fold(self, rows: pa.Table, slots: IntArray) -> Folded:
        index, born = self._keys.index, self._keys.index.rows
        found = self._keys.find(rows, slots)
        self._start(born)
        block = Block(found, index.first_positions(found), born, slots)
        for column, field in zip(self._columns, self._inputs, strict=True):
            column.fold(block, None if field is None else whole(rows, field.name, field.type))
        return Folded(*self._read(block.touched))

    def install(self, state: pa.Table) -> None:
        born = self._keys.index.rows
        rows = self._keys.load(state)
        self._start(born)
        chosen = self._last_of_each(rows)
        for column in self._columns:
            arrays = [whole(state, field.name, field.type) for field in column.fields]
            if chosen is None:
                column.write(rows, arrays)
            else:
                column.write(rows[chosen], [array.take(pa.array(chosen)) for array in arrays])

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        return self._read(self._keys.index.rows_of_slots(np.asarray(slots, np.int64)))[0]

    def drop(self, slots: Sequence[int]) -> None:
        index = self._keys.index
        self._keys.forget(index.rows_of_slots(np.asarray(slots, np.int64)))
        if index.live * 2 < index.rows:
            kept = self._keys.keep()
            for column in self._columns:
                column.keep(kept)

    def output(self, slots: Sequence[int]) -> pa.Table:
        return self._read(self._keys.index.rows_of_slots(np.asarray(slots, np.int64)))[1]

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

    def _last_of_each(self, rows: IntArray) -> IntArray | None:
        """Return the positions at which each row comes last; None if no row comes twice."""
        backwards = rows[::-1]
        first = self._keys.index.first_positions(backwards)
        kept = np.flatnonzero(first == np.arange(len(first)))
        return None if len(kept) == len(rows) else len(rows) - 1 - kept[::-1]

    def _read(self, rows: IntArray) -> tuple[pa.Table, pa.Table]:
        """Return state and output of some rows."""
        pieces = [self._read_piece(rows[at : at + _PIECE]) for at in range(0, max(1, len(rows)), _PIECE)]
        state, output = zip(*pieces, strict=True)
        return pa.concat_tables(state), pa.concat_tables(output)

    def _read_piece(self, rows: IntArray) -> tuple[pa.Table, pa.Table]:
        head = self._keys.read(rows)
        states = [column.read(rows) for column in self._columns]
        slots = pa.array(self._keys.index.slots(rows))
        state = pa.table([slots, *head.values(), *(array for arrays in states for array in arrays)], self._state_schema)
        results = [column.results(arrays) for column, arrays in zip(self._columns, states, strict=True)]
        keys = [array for name, array in head.items() if name != HASH]
        return state, pa.table([*keys, *results], self._output_schema)


def _key_fields(schema: pa.Schema, keys: tuple[str, ...]) -> list[pa.Field]:
    return [pa.field(name, schema.field(name).type) for name in keys]
