"""Two aggregates in a row on Spark: what the first puts out is keyed again, by another column."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import evenflow as ef
from evenflow.operators import Agg, Aggregate, Stage
from evenflow.spark.stream import StatefulStream
from tests.spark.streams import SCHEMA, Bench, pids_of, rows_of, state_of, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

SLOTS = 8


def purchases(seed: int) -> pa.Table:
    """Return bids whose prices are positive: totals only grow, so the highest one so far is the highest of all."""
    rng = random.Random(seed)
    rows = [(rng.randrange(30), rng.choice([None, "ann", "bob", "cæsar"]), rng.randint(1, 99), 0.5) for _ in range(80)]
    return pa.table(
        [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def two_steps(bench: Bench) -> StatefulStream:
    """Totals per auction and bidder; then the highest total and the largest count of each bidder."""
    first = ef.keyed(bench.stream(), "auction", "bidder").agg(total=ef.sum("price"), n=ef.count())
    rows = first.stages[0].output_schema
    wanted = pa.schema([rows.field(name) for name in ("bidder", "total", "n")])
    then = Stage(Aggregate({"highest": Agg("max", "total"), "most": Agg("max", "n")}), wanted, ("bidder",))
    balanced = first.balance(lanes=2, slots=SLOTS, policy="static", strategy="sudden")
    return replace(balanced, later=(then,))


def test_two_stages_come_to_what_spark_comes_to_through_moves_and_a_death(bench: Bench) -> None:
    tables = [purchases(epoch) for epoch in range(6)]
    bench.feed(*tables[:2])
    query = bench.start(two_steps(bench))
    query.processAllAvailable()
    assert query._shell.balancer.table.slots == 2 * SLOTS
    owners = query._shell.balancer.table.owners.tolist()
    assert set(owners[:SLOTS]) == set(owners[SLOTS:]) == {0, 1}, "each stage is spread over the lanes"
    moved = [*range(0, SLOTS, 2), *range(SLOTS, 2 * SLOTS, 2)]
    query.rebalance([(unit, 1 - owners[unit]) for unit in moved])
    bench.feed(*tables[2:4])
    query.processAllAvailable()
    assert {(row["stage"], row["slot"]) for row in query.moves()} == {divmod(unit, SLOTS) for unit in moved}
    assert {row["unit"] for row in query.moves()} == set(moved)
    slots = query.slots()
    assert {row["stage"] for row in slots} == {0, 1}
    assert all(row["unit"] == row["stage"] * SLOTS + row["slot"] for row in slots)
    assert [sum(lane["slots_by_stage"][stage] for lane in query.lanes()) for stage in (0, 1)] == [SLOTS, SLOTS]
    before = pids_of(query)
    os.kill(before[0], signal.SIGKILL)
    bench.feed(*tables[4:])
    query.processAllAvailable()
    until(lambda: pids_of(query).get(0, before[0]) != before[0], "another process serves the lane")
    per_auction = (
        bench.spark.read.schema("auction long, bidder string, price long, ratio double")
        .parquet(str(bench.place / "in"))
        .groupBy("auction", "bidder")
        .agg(F.sum("price").alias("total"), F.count("*").alias("n"))
    )
    expected = per_auction.groupBy("bidder").agg(F.max("total").alias("highest"), F.max("n").alias("most"))
    assert state_of(query) == rows_of(expected.toArrow())
    assert rows_of(query.state(stage=0).toArrow()) == rows_of(per_auction.toArrow())
