"""kill -9 of the driver and of lanes, at every point: what is held and published is what it would be without."""

from __future__ import annotations

import functools
import os
import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import evenflow as ef
from evenflow.control.journal import LanesChanged, StateMoved
from evenflow.errors import EvenflowError
from evenflow.lane.faults import POINTS
from tests.spark.drivers import check_results, marks, run_until_done
from tests.spark.streams import (
    Bench,
    Expected,
    bids,
    counts_rise_by_one,
    one_bid_per_key,
    pids_of,
    read_published,
    state_of,
    totals,
    until,
    write_input,
)

pytestmark = pytest.mark.spark

LANE_DEATHS = (
    "lane.adopting@1",
    "lane.before-fold@0:1",
    "lane.folded@1:2",
    "lane.changes-written@0:3",
    "lane.done-sent@1:4",
    "lane.done-sent@0:5",
    "lane.releasing@*:*",
    "lane.released@*:*",
    "lane.before-fold@1:7",  # with the one below: both lanes in one epoch
    "lane.changes-written@0:7",
)
DRIVER_DEATHS = (
    "driver.before-accept@*:1",
    "driver.after-accept@*:1",
    "driver.before-commit@*:*",
    "driver.after-commit@*:*",
    "driver.during-publish@*:3",
    "driver.during-move@*:*",
)


def test_there_is_a_death_for_every_point() -> None:
    assert {fault.partition("@")[0] for fault in LANE_DEATHS + DRIVER_DEATHS} == set(POINTS)


def test_lanes_die_at_every_point_and_the_query_goes_on(bench: Bench, kill_lanes: Callable[..., Path]) -> None:
    done = kill_lanes(*LANE_DEATHS)
    tables = [one_bid_per_key(epoch) for epoch in range(9)]
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=16, policy="static", strategy="sudden"))
    for epoch, table in enumerate(tables):
        query.rebalance([(slot, (slot + epoch) % 2) for slot in range(16)])
        bench.feed(table)
        query.processAllAvailable()
    assert {path.name for path in done.iterdir()} == marks(LANE_DEATHS)
    assert len([entry for entry in query.journal().of(LanesChanged) if entry.lost]) >= len(LANE_DEATHS)
    assert query.journal().of(StateMoved)
    expected = Expected(tables)
    published = read_published(bench.out)
    assert published == expected.published
    counts_rise_by_one(published.elements(), len(tables))
    assert set(state_of(query)) == set(expected.state.values())


def test_lanes_killed_between_epochs_come_back_with_their_state(bench: Bench) -> None:
    tables = [one_bid_per_key(epoch) for epoch in range(4)]
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=8, policy="static", strategy="sudden"))
    for epoch, victims in enumerate([(), (0,), (1,), (0, 1)]):
        before = pids_of(query)
        for lane in victims:
            os.kill(before[lane], signal.SIGKILL)
        query.rebalance([(slot, (slot + epoch) % 2) for slot in range(8)])
        bench.feed(tables[epoch])
        query.processAllAvailable()
        came_back = functools.partial(_all_differ, query, {lane: before[lane] for lane in victims})
        until(came_back, "the lanes come back")
    query.stop()
    expected = Expected(tables)
    assert set(state_of(query)) == set(expected.state.values())
    assert read_published(bench.out) == expected.published


def _all_differ(query: ef.Query, before: dict[int, int]) -> bool:
    now = pids_of(query)
    return all(now.get(lane, pid) != pid for lane, pid in before.items())


def test_a_lane_that_dies_of_its_epoch_every_time_ends_the_query(bench: Bench, kill_lanes: Callable[..., Path]) -> None:
    done = kill_lanes("lane.folded@1:0")
    bench.feed(one_bid_per_key(0))
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=8))

    def ended() -> bool:
        (done / "lane.folded@1_0").unlink(missing_ok=True)  # so that it dies again
        return not query.isActive

    until(ended, "the query gives up")
    with pytest.raises(EvenflowError, match="lane 1 was lost 5 times in one epoch"):
        query.awaitTermination()
    bench.no_jobs_are_left()


# --- the driver --------------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
def test_the_driver_dies_at_every_point_and_a_restart_goes_on(tmp_path: Path) -> None:
    """Lanes die as well, and some starts are with another number of lanes. Two queries, to save time."""
    rng = random.Random(7)
    tables = [bids(rng, 40) for _ in range(6)]
    halves = {tmp_path / "a": DRIVER_DEATHS[::2], tmp_path / "b": DRIVER_DEATHS[1::2]}
    for place in halves:
        for number, table in enumerate(tables):
            write_input(place / "in", number, table)
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(run_until_done, place, [2, 1, 2, 2], *deaths, "lane.folded@0:2", "lane.changes-written@1:3")
            for place, deaths in halves.items()
        ]
    assert [run.result() for run in runs] == [3, 3]
    for place, deaths in halves.items():
        assert {path.name for path in (place / "deaths").iterdir()} >= marks(deaths)
        check_results(place, tables)
