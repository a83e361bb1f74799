"""The first n rows of each key in some order: what `.top(...)` runs on a lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model import Contents, Due, EpochTime
from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import pieces, take, whole
from evenflow.operators.base import LATEST, Folded
from evenflow.operators.chosen import ranks_of
from evenflow.operators.column import Block
from evenflow.operators.kept_rows import KeptRows, check_kept
from evenflow.operators.keyed_state import KeyedState, in_parts, state_schema_of
from evenflow.operators.keys import check_keys, is_direct

RANK = "rank"  # the column that says which of its key's rows a row is, from 1
_PLACE_BITS = 32


@dataclass(frozen=True)
class Top:
    """Keeps `most` rows of each key, with the columns `passes` in this order, and puts them out with their rank.

    `by`: (column, whether ascending), the first counts most. Rows that are equal in all of them go by the other columns
    in their order, ascending; so nothing depends on the order in which rows come. Nulls are the smallest, as in Spark.
    """

    passes: tuple[str, ...]
    most: int
    by: tuple[tuple[str, bool], ...]

    def __str__(self) -> str:
        """Look as contents of a checkpoint name it."""
        order = ", ".join(f"{name} {'ascending' if ascending else 'descending'}" for name, ascending in self.by)
        return f"top {self.most} by {order}"

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        check_keys(schema, keys)
        return not is_direct(schema, keys)

    def columns(self) -> tuple[str, ...]:
        return self.passes

    def output_modes(self) -> tuple[str, ...]:
        return "update", "complete"

    def uses_event_time(self) -> bool:
        return False

    def in_mode(self, mode: str) -> Top:
        if mode == "append":
            raise InputError(
                "writeStream: append mode is for rows that do not change any more, and better rows may still come: use "
                "outputMode('update') for the ranks that changed, or 'complete' for all"
            )
        return self

    def contents(self, schema: pa.Schema, keys: tuple[str, ...]) -> Contents:
        check_keys(schema, keys)
        return Contents(str(self), inputs=tuple((name, str(schema.field(name).type)) for name in self.kept(keys)))

    def resumed(self, contents: Contents) -> Top:  # noqa: ARG002 - there is nothing that began later
        return self

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        check_keys(schema, keys)
        kept = self.kept(keys)
        check_kept("top", schema, kept)
        for name, _ in self.by:
            if name not in kept:
                there = "is a key, and the same in all rows of the key" if name in keys else "is not there"
                raise InputError(f"top: {name!r} {there}: say by which of {', '.join(kept)} rows are to be ordered")
        if RANK in {name.lower() for name in self.passes}:
            raise InputError(f"top: {RANK!r} is the name of its own column: rename yours before keyed()")
        fields = [schema.field(name) for name in self.passes]
        return pa.schema([*fields, pa.field(RANK, pa.int32(), nullable=False)])

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return state_schema_of(schema, keys, KeptRows([schema.field(name) for name in self.kept(keys)]).fields)

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return self.output_schema(schema, keys)

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> TopState:
        return TopState(self, schema, keys, slots)

    def kept(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns that are kept of each row."""
        return tuple(name for name in self.passes if name not in keys)


class TopState(KeyedState):
    """The first rows of each key, in their order."""

    def __init__(self, operator: Top, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty."""
        fields = [schema.field(name) for name in operator.kept(keys)]
        self._rows, self._kinds = KeptRows(fields), {each.name: each.type for each in fields}
        super().__init__(schema, keys, slots, (self._rows,))
        self._output_schema, self._most = operator.output_schema(schema, keys), operator.most
        names = list(self._kinds)
        said = [(names.index(name), ascending) for name, ascending in operator.by]
        rest = [(place, True) for place in range(len(names)) if place not in dict(said)]
        self._order = [*said, *rest]

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:  # noqa: ARG002 - it needs none
        changed, at = [], 0
        for piece in pieces(rows):
            changed.append(self._fold(piece, slots[at : at + piece.num_rows]))
            at += piece.num_rows
        keys, places = (np.concatenate(each) for each in zip(*changed, strict=True))
        touched = self._each_once(keys)
        if len(changed) > 1:  # a later piece may have changed the same rank again
            order = np.empty(self._keys.index.rows, np.int64)
            order[touched] = np.arange(len(touched))
            codes = np.unique(order[keys] << _PLACE_BITS | places)
            keys, places = touched[codes >> _PLACE_BITS], codes & ((1 << _PLACE_BITS) - 1)
        return Folded(self.state(touched), self._output(keys, places), self._keys.index.slots(keys))

    def _fold(self, rows: pa.Table, slots: IntArray) -> tuple[IntArray, IntArray]:
        """Take in rows; return the ranks that have another row now: state row and place, key by key."""
        index, born = self._keys.index, self._keys.index.rows
        found = self._keys.find(rows, slots)
        self._start(born)
        block = Block(found, index.first_positions(found), slots)
        values = [whole(rows, name, kind) for name, kind in self._kinds.items()]
        may_be = np.flatnonzero(self._among_first(block.group, values))
        lists, before = self._rows.lists, self._rows.lists.sizes(block.touched)
        groups, entries = lists.with_new(block.touched, block.group[may_be], [take(each, may_be) for each in values])
        came = _places(groups)  # rows that were there come first, in their order
        order = np.lexsort((*reversed([self._ranks(entries[place], up) for place, up in self._order]), groups))
        places = _places(groups)  # of a sorted key; the groups are the same
        kept = places < self._most
        order, groups, places = order[kept], groups[kept], places[kept]
        changed = (came[order] != places) | (came[order] >= before[groups])
        touched = np.bincount(groups[changed], minlength=len(block.touched)) > 0
        written = touched[groups]
        sizes = np.bincount(groups, minlength=len(block.touched))[touched]
        lists.put(
            block.touched[touched],
            sizes,
            [take(each, order[written]).cast(kind) for each, kind in zip(entries, self._kinds.values(), strict=True)],
        )
        return block.touched[groups[changed]], places[changed]

    def _among_first(self, group: IntArray, values: Sequence[pa.Array]) -> BoolArray:
        """Tell which new rows may be among the first of their key, by the column that counts most: few are."""
        place, ascending = self._order[0]
        ranks = self._ranks(values[place], ascending)
        order = np.lexsort((ranks, group))
        sorted_groups = group[order]
        starts = np.flatnonzero(np.r_[True, sorted_groups[1:] != sorted_groups[:-1]])
        sizes = np.diff(np.r_[starts, len(group)])
        last = order[starts + np.minimum(sizes, self._most) - 1]
        worst = np.empty(len(starts), np.int64)
        worst[group[last]] = ranks[last]
        may_be: BoolArray = ranks <= worst[group]
        return may_be

    @staticmethod
    def _ranks(values: pa.Array, ascending: bool) -> IntArray:  # noqa: FBT001 - as Spark says it
        ranks = ranks_of(values)
        return ranks if ascending else -ranks

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:  # noqa: ARG002 - it has no timers
        return None

    def due(self, slots: Sequence[int]) -> Due | None:  # noqa: ARG002 - it has no timers
        return None

    def output(self, slots: Sequence[int]) -> pa.Table:
        rows = self.rows_of(slots)
        sizes = self._rows.lists.sizes(rows)
        return self._output(
            np.repeat(rows, sizes), np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        )

    def view(self, slots: Sequence[int]) -> pa.Table:
        return self.output(slots)

    def _output(self, rows: IntArray, places: IntArray) -> pa.Table:
        """Return rows that are kept: that at a place of the key of a state row, each."""
        numbers = np.arange(len(rows))
        return pa.concat_tables(in_parts(numbers, lambda some: self._part(rows[some], places[some])))

    def _part(self, rows: IntArray, places: IntArray) -> pa.Table:
        values = self._rows.lists.at(rows, places)
        columns = {**self._keys.read(rows), **dict(zip(self._kinds, values, strict=True))}
        columns[RANK] = pa.array((places + 1).astype(np.int32))
        return pa.table([columns[each.name] for each in self._output_schema], self._output_schema)


def _places(groups: IntArray) -> IntArray:
    """Return the how manieth of its group each entry is, from 0; the groups are ascending."""
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]]) if len(groups) else np.empty(0, np.int64)
    sizes = np.diff(np.r_[starts, len(groups)])
    places: IntArray = np.arange(len(groups)) - np.repeat(starts, sizes)
    return places
