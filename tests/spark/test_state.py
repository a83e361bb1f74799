"""`query.state()` on Spark: one epoch's state, whatever lanes are at, and readable."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from tests.spark.streams import SCHEMA, Bench, Expected, Row, Wanderlust, one_bid_per_key, rows_of, totals, until

pytestmark = pytest.mark.spark

KEYS = 8


class Visits(ef.SlotOperator):
    """Counts the rows of each key."""

    output = "auction long, n long"
    columns_needed = ("bidder",)

    def init(self) -> dict[int, dict[str, Any]]:
        return {}

    def process(self, state: dict[int, dict[str, Any]], rows: Any) -> tuple[Any, None]:
        for row in rows.to_pylist():
            kept = state.setdefault(row["auction"], {"n": 0})
            kept["n"], kept["last"] = kept["n"] + 1, row["bidder"]
        return state, None


def bids_of(key: int, epoch: int, rows: int) -> pa.Table:
    columns = [[key] * rows, [f"b{epoch}"] * rows, [epoch] * rows, [0.5] * rows]
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def test_slots_that_lag_behind_are_taken_to_the_epoch_of_the_others(bench: Bench) -> None:
    """One lane takes half a minute for an epoch, the other goes on: all that state() shows is of one epoch."""
    stateful = ef.keyed(bench.stream(), "auction").apply(Visits()).balance(lanes=2, slots=8, policy="static", max_lag=4)
    writer = bench.writer(stateful, "noop").option("evenflow.rowsPerSecond", "1")
    bench.feed(one_bid_per_key(0, KEYS))
    query = bench.started(writer.start())
    query.processAllAvailable()
    checkpoint, table = query._engine.checkpoint, query._engine.controller.table
    before = query.state()
    assert before.epoch == 0
    slot_of = {int(row["key"]): row["slot"] for row in before.collect()}
    slow, quick = next(
        (one, other)
        for one in slot_of
        for other in slot_of
        if table.owners[slot_of[one]] != table.owners[slot_of[other]]
    )
    for epoch in range(1, 4):
        bench.feed(pa.concat_tables([bids_of(slow, epoch, 30), bids_of(quick, epoch, 1)]))
    until(lambda: checkpoint.slot_versions[slot_of[quick]] == 3, "the quick lane is through")
    state = query.state()
    assert checkpoint.slot_versions[slot_of[slow]] < 2, "the slow lane is not"
    assert state.epoch == 3
    found = {int(row["key"]): json.loads(row["value"]) for row in state.collect()}
    assert found == {key: {"n": 1, "last": "b0"} for key in range(KEYS)} | {
        slow: {"n": 91, "last": "b3"},
        quick: {"n": 4, "last": "b3"},
    }
    query.stop()
    assert query.state().epoch == 3, "also when it has ended"
    assert sorted(map(tuple, query.state().collect())) == sorted(map(tuple, state.collect()))
    assert {json.loads(row["value"])["n"] for row in before.collect()} == {1}


def at(tables: list[pa.Table], epoch: int) -> Counter[Row]:
    return Counter(Expected(tables[: epoch + 1]).state.values())


def test_a_running_query_whose_slots_move_shows_one_epoch_at_a_time(bench: Bench) -> None:
    tables = [one_bid_per_key(epoch) for epoch in range(12)]
    stateful = totals(bench.stream()).balance(
        lanes=3, slots=16, policy=Wanderlust(), strategy="sudden", settle_windows=0, warm_up_windows=1, max_lag=4
    )
    query = bench.start(stateful)  # the session has four task slots: one is left for routing and for reading
    shown = []
    for table in tables:
        bench.feed(table)
        shown.append(query.state())
    query.processAllAvailable()
    last = query.state()
    assert last.epoch == len(tables) - 1
    assert query.moves()
    for frame in [*shown, last]:  # long after the files they were read from are gone
        assert rows_of(frame.toArrow()) == at(tables, frame.epoch), f"epoch {frame.epoch}"
    assert len({frame.epoch for frame in shown}) > 1
