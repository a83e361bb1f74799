"""`query.state()` on Spark: one epoch's state, whatever lanes are at, and readable."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

import evenflow as ef
from tests.spark.streams import Bench, Expected, Row, Wanderlust, one_bid_per_key, rows_of, totals, until
from tests.spark.test_lag import closed

pytestmark = pytest.mark.spark

KEYS = 8
SLOW = 0  # the key whose slot waits


class Visits(ef.SlotOperator):
    """Counts the rows of each key; while a file is there, the slot of one key waits in its lane, and only there."""

    output = "auction long, n long"
    columns_needed = ("bidder",)

    def __init__(self, gate: Path) -> None:
        self.gate = str(gate)

    def init(self) -> dict[int, dict[str, Any]]:
        return {}

    def process(self, state: dict[int, dict[str, Any]], rows: Any) -> tuple[Any, None]:
        task = TaskContext.get()
        is_lane = task is not None and (task.getLocalProperty("spark.jobGroup.id") or "").startswith("evenflow-")
        while is_lane and SLOW in rows["auction"].to_pylist() and Path(self.gate).exists():
            threading.Event().wait(0.02)
        for row in rows.to_pylist():
            kept = state.setdefault(row["auction"], {"n": 0})
            kept["n"], kept["last"] = kept["n"] + 1, row["bidder"]
        return state, None


def test_slots_that_lag_behind_are_taken_to_the_epoch_of_the_others(bench: Bench) -> None:
    """One lane is held up, the other goes on: all that state() shows is of one epoch."""
    gate = bench.place / "closed"
    stateful = (
        ef.keyed(bench.stream(), "auction").apply(Visits(gate)).balance(lanes=2, slots=8, policy="static", max_lag=4)
    )
    query = bench.started(bench.writer(stateful, "noop").start())
    bench.feed(one_bid_per_key(0, KEYS))
    query.processAllAvailable()
    before = query.state()
    with closed(gate):
        bench.feed(*(one_bid_per_key(epoch, KEYS) for epoch in range(1, 4)))
        versions = query._shell.checkpoint.recover
        until(lambda: versions().slot_versions.max() == 3, "one lane is through")
        state = query.state()
        assert versions().slot_versions.min() == 0, "the other is not"
        query.stop()
    assert (before.epoch, state.epoch, query.state().epoch) == (0, 3, 3)
    for frame in (before, state, query.state()):  # of a running query, and of one that has ended
        found = {int(row["key"]): json.loads(row["value"]) for row in frame.collect()}
        assert found == {key: {"n": frame.epoch + 1, "last": f"b{frame.epoch}"} for key in range(KEYS)}


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
