"""Lanes come and go while the query runs, as Spark tasks: no restart, nothing lost."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.control.journal import LanesWanted, StateMoved
from evenflow.errors import InputError
from evenflow.policies import policy_named
from evenflow.spark.stream import StatefulStream
from tests.spark.drivers import check_results, log_of, process
from tests.spark.streams import (
    Bench,
    Expected,
    counts_rise_by_one,
    one_bid_per_key,
    pids_of,
    read_published,
    state_of,
    totals,
    until,
)

pytestmark = pytest.mark.spark


@dataclass
class Load:
    """A query under load: every look at it brings one more epoch."""

    bench: Bench
    stateful: StatefulStream
    tables: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.query: ef.Query = self.bench.start(self.stateful)

    def go_on(self) -> None:
        self.tables.append(one_bid_per_key(len(self.tables)))
        self.bench.feed(self.tables[-1])
        self.query.processAllAvailable()

    def lanes_are(self, count: int) -> bool:
        """Whether there are so many, each with slots."""
        self.go_on()
        table = self.query._shell.balancer.table
        return len(table.lanes) == len(set(table.owners.tolist())) == count

    def nothing_is_lost(self) -> None:
        expected = Expected(self.tables)
        assert set(state_of(self.query)) == set(expected.state.values())
        published = read_published(self.bench.out)
        assert published == expected.published
        counts_rise_by_one(published.elements(), len(self.tables))


def test_from_two_lanes_to_three_to_one_under_load(bench: Bench) -> None:
    load = Load(bench, totals(bench.stream()).balance(lanes=2, slots=16, policy="static", strategy="sudden"))
    assert load.lanes_are(2)
    before = pids_of(load.query)
    with pytest.raises(InputError, match=r"2 more lanes need 2 task slots, 1 are free: .* or ask for 3 lanes"):
        load.query.resize(4)
    with pytest.raises(InputError, match="from 1 to 16 lanes"):
        load.query.resize(0)
    load.query.resize(3)
    until(lambda: load.lanes_are(3), "a third lane has slots")
    now = pids_of(load.query)
    assert {lane: now[lane] for lane in before} == before  # the others live on
    assert len(set(now.values())) == 3
    owned = [int((load.query._shell.balancer.table.owners == lane).sum()) for lane in range(3)]
    assert max(owned) - min(owned) <= 2
    load.query.resize(1)
    until(lambda: load.lanes_are(1), "two lanes are gone")
    assert pids_of(load.query) == {0: before[0]}
    load.query.resize(2)  # the number of a lane that has gone is used again
    until(lambda: load.lanes_are(2), "there is a second lane again")
    reasons = [
        "resize to 3 lanes: lane 2 takes its share",
        "resize to 1 lane: lane 1 leaves",
        "resize to 1 lane: lane 2 leaves",
        "resize to 2 lanes: lane 1 takes its share",
    ]
    assert sorted({move["reason"] for move in load.query.moves()}) == sorted(reasons)
    assert {entry.move.reason for entry in load.query.journal().of(StateMoved)} == set(reasons)
    load.nothing_is_lost()
    load.query.stop()
    bench.no_jobs_are_left()


def test_elb_s_own_wish_for_lanes(bench: Bench) -> None:
    """40 rows per epoch and 10 to 16 per lane: more than two lanes, and no more than there may be."""
    policy = policy_named("elb", lower=10.0, upper=16.0, max_lanes=3)
    stateful = totals(bench.stream()).balance(
        lanes=2, slots=16, policy=policy, min_lanes=1, max_lanes=3, settle_windows=0, warm_up_windows=1
    )
    load = Load(bench, stateful)
    until(lambda: load.lanes_are(3), "elb gets its lane")
    assert 3 in {entry.lanes for entry in load.query.journal().of(LanesWanted)}
    assert len(set(pids_of(load.query).values())) == 3
    load.nothing_is_lost()


@pytest.mark.timeout(400)
def test_from_two_lanes_to_six_to_three_under_load(tmp_path: Path) -> None:
    """In a session of its own, with task slots for six."""
    with process(tmp_path / "log", sys.executable, "-m", "tests.spark.driver_elastic", str(tmp_path)) as driver:
        assert driver.wait(300) == 0, log_of(tmp_path)
    seen = [int(line) for line in (tmp_path / "lanes").read_text().splitlines()]
    assert seen[0] == 2
    assert max(seen) == 6
    assert seen[-1] == 3
    check_results(tmp_path, [one_bid_per_key(epoch) for epoch in range(len(seen))])
