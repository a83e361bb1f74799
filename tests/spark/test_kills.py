"""kill -9 of the driver and of lanes, at every point: what is held and published is what it would be without."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.control.journal import LanesChanged, StateMoved
from evenflow.errors import EvenflowError
from evenflow.lane.faults import POINTS
from tests.spark.streams import (
    Bench,
    Expected,
    Wanderlust,
    bids,
    counts_rise_by_one,
    one_bid_per_key,
    pids_of,
    read_published,
    rows_of,
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
    "driver.after-accept@*:2",
    "driver.before-commit@*:3",
    "driver.after-commit@*:4",
    "driver.during-publish@*:5",
    "driver.during-move@*:*",
)


def marks(faults: tuple[str, ...]) -> set[str]:
    """Return the names of the marks that fired faults leave."""
    return {fault.replace(":", "_").replace("*", "any") for fault in faults}


def test_there_is_a_death_for_every_point() -> None:
    assert {fault.partition("@")[0] for fault in LANE_DEATHS + DRIVER_DEATHS} == set(POINTS)


@pytest.mark.parametrize("exchange", ["direct", "shuffle"])
def test_lanes_die_at_every_point_and_the_query_goes_on(
    bench: Bench, kill_lanes: Callable[..., Path], exchange: ef.spark.route.Exchange
) -> None:
    done = kill_lanes(*LANE_DEATHS)
    tables = [one_bid_per_key(epoch) for epoch in range(9)]
    bench.feed(*tables)
    query = bench.run(
        totals(bench.stream()).balance(
            lanes=2, slots=16, policy=Wanderlust(), strategy="sudden", exchange=exchange, warm_up_windows=1
        )
    )
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
        for lane in victims:
            until(lambda lane=lane: pids_of(query).get(lane, before[lane]) != before[lane], "the lane comes back")  # type: ignore[misc]
    query.stop()
    expected = Expected(tables)
    assert set(state_of(query)) == set(expected.state.values())
    assert read_published(bench.out) == expected.published


def test_a_lane_that_dies_of_its_epoch_every_time_ends_the_query(
    bench: Bench, kill_lanes: Callable[..., Path]
) -> None:
    done = kill_lanes("lane.folded@1:0")
    bench.feed(one_bid_per_key(0))
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=8))

    def ended() -> bool:
        (done / "lane.folded@1_0").unlink(missing_ok=True)  # so that it dies again
        return not query.isActive

    until(ended, "the query gives up")
    with pytest.raises(EvenflowError, match="lane 1 was lost 8 times in one epoch"):
        query.awaitTermination()
    bench.no_jobs_are_left()


# --- the driver --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def driver(place: Path, lanes: int, *faults: str, exchange: str = "direct") -> Iterator[subprocess.Popen[bytes]]:
    """Run the driver in a session of its own; at the end, all it has started is ended as well."""
    done = place / "deaths"
    done.mkdir(exist_ok=True)
    log = (place / "log").open("ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.driver_under_fault", str(place), str(lanes), exchange],
        cwd=Path(__file__).parents[2],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "EVENFLOW_FAULTS": ",".join(faults),
            "EVENFLOW_FAULTS_DONE": str(done),
        },
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the JVM is in the driver's group
        process.wait()
        log.close()


def run_until_done(place: Path, lanes: list[int], *faults: str) -> int:
    """Start the driver again and again until it ends by itself; return how often it was killed."""
    kills = 0
    while True:
        with driver(place, lanes[kills], *faults) as process:
            code = process.wait(120)
        if code == 0:
            return kills
        assert code == -signal.SIGKILL, (place / "log").read_text()[-3000:]
        kills += 1


@pytest.mark.timeout(400)
def test_the_driver_dies_at_every_point_and_a_restart_goes_on(tmp_path: Path) -> None:
    """Lanes die as well, and some starts are with another number of lanes."""
    rng = random.Random(7)
    tables = [bids(rng, 40) for _ in range(9)]
    for number, table in enumerate(tables):
        write_input(tmp_path / "in", number, table)
    faults = (*DRIVER_DEATHS, "lane.folded@0:2", "lane.changes-written@1:5")
    kills = run_until_done(tmp_path, [2, 2, 1, 2, 1, 2, 2], *faults)
    assert kills == len(DRIVER_DEATHS)
    assert {path.name for path in (tmp_path / "deaths").iterdir()} >= marks(DRIVER_DEATHS)
    check(tmp_path, tables)


def check(place: Path, tables: list[pa.Table]) -> None:
    expected = Expected(tables)
    assert read_published(place / "out") == expected.published
    assert set(rows_of(pq.read_table(place / "state.parquet"))) == set(expected.state.values())
