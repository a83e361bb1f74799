"""Random rows with ties, nulls and NaN, for operators that keep rows; and lanes that exchange slots between epochs."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.model import EpochTime
from evenflow.model.slots import slots_of_hashes
from evenflow.operators import HASH, SLOT, Operator
from evenflow.operators.key_hash import hashes_of
from evenflow.operators.slot_order import by_slot

SCHEMA = pa.schema(
    [("key", pa.int64()), ("price", pa.float64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))]
)
DDL = "key long, price double, name string, at timestamp"
SLOTS = 7
Row = tuple[Any, ...]


def random_rows(rng: random.Random, epochs: int = 8, most: int = 25) -> list[list[Row]]:
    """Return rows of which many are equal in some or in all columns; some epochs have none; times are never back."""
    found: list[list[Row]] = []
    now = 0
    for _ in range(epochs):
        rows: list[Row] = []
        for _ in range(0 if rng.random() < 0.15 else rng.randrange(1, most)):
            now += rng.choice([1, 2, 5, 60]) * 1_000_000
            price = rng.choice([None, float("nan"), -1.5, 0.0, 2.0, 2.0, 7.25])
            rows.append((rng.choice([None, *range(6)]), price, rng.choice([None, "", "ann", "bob"]), now))
        found.append(rows)
    return found


def table_of(rows: Iterable[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.table([pa.array(column, each.type) for column, each in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def plain(table: pa.Table) -> list[Row]:
    """Return rows as tuples that compare: times as microseconds, NaN as text."""
    columns = [
        [("NaN" if isinstance(value, float) and math.isnan(value) else value) for value in column.to_pylist()]
        for column in (
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns
        )
    ]
    return list(zip(*columns, strict=True))


def run_moving(
    operator: Operator, epochs: Iterable[pa.Table], keys: tuple[str, ...], rng: random.Random
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield what each epoch puts out, and all that is kept, by two lanes that exchange slots after each epoch.

    Slots move as snapshots, or as all changes so far, one after the other or at once.
    """
    lanes = [operator.open(SCHEMA, keys, SLOTS) for _ in range(2)]
    owner = [slot % 2 for slot in range(SLOTS)]
    changes: dict[int, list[pa.Table]] = {slot: [] for slot in range(SLOTS)}
    for epoch, rows in enumerate(epochs):
        hashes = hashes_of(rows, keys)
        slots = slots_of_hashes(hashes, SLOTS)
        table = rows.append_column(HASH, pa.array(hashes)) if operator.needs_hash(SCHEMA, keys) else rows
        table, slots = by_slot([(table, slots), (table.slice(0, 0), slots[:0])])
        put_out, kept = [], []
        for number, lane in enumerate(lanes):
            mine = [slot for slot in range(SLOTS) if owner[slot] == number]
            chosen = np.isin(slots, mine)
            if chosen.any():
                folded = lane.fold(table.filter(pa.array(chosen)), slots[chosen], EpochTime(epoch))
                put_out.append(folded.output)
                for slot in mine:
                    changes[slot].append(folded.changes.filter(pa.array(folded.changes[SLOT].to_numpy() == slot)))
            kept.append(lane.view(mine))
        yield pa.concat_tables(put_out or [operator.output_schema(SCHEMA, keys).empty_table()]), pa.concat_tables(kept)
        for slot in rng.sample(range(SLOTS), 3):
            source, target = lanes[owner[slot]], lanes[1 - owner[slot]]
            way = rng.choice(["snapshot", "changes", "joined"])
            states = [source.snapshot([slot])] if way == "snapshot" else changes[slot]
            for state in [pa.concat_tables(states)] if way == "joined" and states else states:
                target.install(state)
            source.drop([slot])
            owner[slot] = 1 - owner[slot]
