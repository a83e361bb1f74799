"""State moves between processes while the query runs, and nobody can tell from the results."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import DataFrame

import evenflow as ef
from evenflow.control.journal import Decided, StateMoved
from evenflow.errors import InputError
from evenflow.policies import POLICIES
from evenflow.spark.route import Exchange
from tests.seeds import seed_of_run
from tests.spark.streams import (
    Bench,
    Expected,
    Row,
    Wanderlust,
    bids,
    counts_rise_by_one,
    one_bid_per_key,
    pids_of,
    read_published,
    state_of,
    totals,
    until,
)

pytestmark = pytest.mark.spark


def test_a_move_by_hand_brings_state_from_one_process_to_another(bench: Bench) -> None:
    tables = [one_bid_per_key(epoch) for epoch in range(3)]
    bench.feed(tables[0])
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=8, policy="static", strategy="sudden"))
    query.processAllAvailable()
    pids = pids_of(query)
    assert pids[0] != pids[1]
    held = {row["slot"]: row["lane"] for row in query.slots()}
    moved = [slot for slot, lane in held.items() if lane == 0]
    query.rebalance([(slot, 1) for slot in moved])
    bench.feed(*tables[1:])
    query.processAllAvailable()
    assert {row["slot"]: row["lane"] for row in query.slots()} == dict.fromkeys(held, 1)
    assert {(row["slot"], row["source"], row["target"]) for row in query.moves()} == {(slot, 0, 1) for slot in moved}
    told = query.journal().of(StateMoved)
    assert sorted(entry.move.slot for entry in told) == sorted(moved)
    assert all(entry.keys > 0 and entry.state_bytes > 0 and entry.seconds > 0 for entry in told)
    assert pids_of(query) == pids  # both live on; only the state went
    expected = Expected(tables)
    assert set(state_of(query)) == set(expected.state.values())
    query.stop()
    assert read_published(bench.out) == expected.published


def test_a_move_that_cannot_be_is_refused_and_the_query_goes_on(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0))
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=8, policy="static", strategy="sudden"))
    query.processAllAvailable()
    with pytest.raises(InputError, match="there is no lane 7"):
        query.rebalance([(0, 1), (1, 7)])
    with pytest.raises(InputError, match="there is no slot 99"):
        query.rebalance([(99, 1)])
    bench.feed(one_bid_per_key(1))
    query.processAllAvailable()
    assert query.moves() == []
    assert query.isActive


@pytest.mark.parametrize(
    ("exchange", "seed"), [(exchange, seed_of_run("EVENFLOW_MOVES")) for exchange in ("direct", "shuffle")]
)
def test_random_moves_of_random_rows(bench: Bench, exchange: Exchange, seed: int) -> None:
    rng = random.Random(seed)
    tables = [bids(rng, rng.randint(1, 60)) for _ in range(10)]
    bench.feed(*tables)
    stateful = totals(bench.stream()).balance(
        lanes=2, slots=16, policy=Wanderlust(seed), strategy="sudden", exchange=exchange, warm_up_windows=1
    )
    query = bench.run(stateful)
    expected = Expected(tables)
    assert set(state_of(query)) == set(expected.state.values())
    assert read_published(bench.out) == expected.published
    assert query.journal().of(StateMoved)


def test_moves_from_within_foreach_batch_and_counts_that_rise_by_one(bench: Bench) -> None:
    epochs = 6
    seen: list[Row] = []
    started: list[ef.Query] = []

    def publish(frame: DataFrame, epoch: int) -> None:
        seen.extend(tuple(row) for row in frame.collect())
        if started:
            started[0].rebalance([(slot, (slot + epoch) % 2) for slot in range(8)])

    bench.feed(one_bid_per_key(0))
    writer = bench.writer(totals(bench.stream()).balance(lanes=2, slots=8, policy="static", strategy="sudden"))
    query: ef.Query = bench.started(writer.foreachBatch(publish).start())
    started.append(query)
    for epoch in range(1, epochs):
        bench.feed(one_bid_per_key(epoch))
        query.processAllAvailable()
    counts_rise_by_one(seen, epochs)
    assert len(query.moves()) >= 8


def test_every_policy_closes_the_loop_on_real_lanes(bench: Bench) -> None:
    """Loads are measured, each policy in turn decides on them, slots move, and the results show nothing of it."""
    tables = [one_bid_per_key(0)]
    bench.feed(tables[0])
    query = bench.start(
        totals(bench.stream()).balance(
            lanes=2, slots=16, policy="static", strategy="sudden", settle_windows=0, warm_up_windows=1
        )
    )
    query.processAllAvailable()

    def asked(policy: str) -> bool:
        tables.append(one_bid_per_key(len(tables)))
        bench.feed(tables[-1])
        query.processAllAvailable()
        return any(entry.policy == policy for entry in query.journal().of(Decided))

    for name in POLICIES:
        query.set_policy(name)
        until(lambda: asked(name), f"{name} decides")  # noqa: B023 - called before the next one
    assert {entry.policy for entry in query.journal().of(Decided) if entry.moves} >= {"clb", "uhlb-fresh"}
    assert query.journal().of(StateMoved)
    expected = Expected(tables)
    assert set(state_of(query)) == set(expected.state.values())
    query.stop()
    published = read_published(bench.out)
    assert published == expected.published
    counts_rise_by_one(published.elements(), len(tables))
