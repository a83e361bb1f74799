"""Running aggregates per key, vectorised: what `.agg(...)` runs on a lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model import Contents, Due, Epoch, EpochTime, HeldAggregate
from evenflow.model.slots import IntArray
from evenflow.operators.arrays import pieces, whole
from evenflow.operators.base import GONE, HASH, LATEST, SLOT, Folded
from evenflow.operators.column import Block, Column
from evenflow.operators.functions import Agg
from evenflow.operators.keyed_state import KeyedState, in_parts, key_fields, state_schema_of
from evenflow.operators.keys import check_keys, is_direct
from evenflow.operators.rules import column_for

_BEGUN = "begun"


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
        return tuple(dict.fromkeys(column for agg in self.aggregates.values() for column in agg.inputs))

    def output_modes(self) -> tuple[str, ...]:
        return "update", "complete"

    def uses_event_time(self) -> bool:
        return False  # results are running

    def in_mode(self, mode: str) -> Aggregate:
        if mode == "append":
            raise InputError(
                "writeStream: append mode is for rows that do not change any more, and running aggregates change with "
                "every row: use outputMode('update') for the rows that changed, or 'complete' for all"
            )
        return self

    def contents(self, schema: pa.Schema, keys: tuple[str, ...]) -> Contents:
        check_keys(schema, keys)
        held = []
        for name, agg in self.aggregates.items():
            kinds = (str(schema.field(column).type) for column in agg.columns)
            held.append(HeldAggregate(name, str(agg), ", ".join(kinds)))
        return Contents("aggregates", aggregates=tuple(held))

    def resumed(self, contents: Contents) -> Aggregate:
        return replace(self, since={held.name: held.since for held in contents.aggregates})

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        columns = self._columns(schema, keys)
        return pa.schema([*key_fields(schema, keys), *(column.result for column in columns)])

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        held = [each for column in self._columns(schema, keys) for each in column.fields]
        return state_schema_of(schema, keys, held)

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
                    f"agg(): {name!r} is needed for the state of another aggregate; rename the output or key"
                )
        return columns


class AggregateState(KeyedState):
    """The keys of all slots of a lane and their aggregates: one table, however many slots.

    Operators that are made of aggregates and let keys go, such as windows, work with its row numbers: `absorb` input,
    `read` what has become of it, `remove` what is over.
    """

    def __init__(self, operator: Aggregate, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty."""
        self._columns = operator._columns(schema, keys)  # noqa: SLF001 - operator and state are one unit
        super().__init__(schema, keys, slots, self._columns)
        self._output_schema = operator.output_schema(schema, keys)
        self._kinds = {name: schema.field(name).type for name in operator.columns()}
        self._aggregates = list(operator.aggregates.values())
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
        for column, agg, since in zip(self._columns, self._aggregates, self._since, strict=True):
            if since <= time.epoch:
                values = self._values(rows, agg.columns)
                counting = block if agg.condition is None else self._only(block, rows, agg.condition)
                column.fold(counting, None if values is None else counting.of(values))
        self._absorbed(block, rows, time)
        return block.touched

    def _absorbed(self, block: Block, rows: pa.Table, time: EpochTime) -> None:
        """Note what else is kept of rows that were folded: nothing here."""

    def _values(self, rows: pa.Table, names: tuple[str, ...]) -> pa.Array | None:
        """Return the values of an aggregate: of one over several columns as structs, of one over none None."""
        arrays = [whole(rows, name, self._kinds[name]) for name in names]
        if len(arrays) > 1:
            return pa.StructArray.from_arrays(arrays, [str(place) for place in range(len(arrays))])
        return arrays[0] if arrays else None

    def _only(self, block: Block, rows: pa.Table, condition: str) -> Block:
        """Return the part of a block for which a condition is true."""
        true = whole(rows, condition, pa.bool_()).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        at = np.flatnonzero(true)
        found = block.rows[at]
        return Block(found, self._keys.index.first_positions(found), block.slots[at], at)

    def output(self, slots: Sequence[int]) -> pa.Table:
        return self.read(self.rows_of(slots))[1]

    def view(self, slots: Sequence[int]) -> pa.Table:
        return self.output(slots)

    def read(self, rows: IntArray) -> tuple[pa.Table, pa.Table]:
        """Return state and output of some rows."""
        state, output = zip(*in_parts(rows, self._read), strict=True)
        return pa.concat_tables(state), pa.concat_tables(output)

    def _read(self, rows: IntArray) -> tuple[pa.Table, pa.Table]:
        state, held = self._state(rows)
        of_columns = held[: len(self._columns)]  # operators that are made of aggregates may hold more
        results = [column.results(arrays) for column, arrays in zip(self._columns, of_columns, strict=True)]
        keys = (state[name] for name in self._keys.kinds)
        return state, pa.table([*keys, *results], self._output_schema)
