"""kill -9 of the driver and of lanes, at every point: what is held and published is what it would be without."""

from __future__ import annotations

import functools
import os
import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.control.journal import LanesChanged, StateMoved
from evenflow.engine import Handover
from evenflow.errors import EvenflowError
from evenflow.lane.faults import POINTS
from tests.seeds import seed_of_run
from tests.spark.drivers import check_results, epochs_of_files, marks, run_until_done
from tests.spark.kill_matrix import Disturbed, all_kills, kill_drivers, kill_lanes, of_drivers, of_lanes, selection
from tests.spark.killing import KINDS, Kill, Kind
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

SEED = seed_of_run("EVENFLOW_KILLS")  # of the selection; all: kill_matrix

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
COPYING_DEATHS = ("lane.preparing@1",)
RESIZE_DEATHS = (
    "lane.adopting@2",  # the new lane, when it gets its first slots
    "lane.releasing@0:*",
    "lane.released@1:*",
    "lane.folded@2:*",
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
    deaths = LANE_DEATHS + COPYING_DEATHS + RESIZE_DEATHS + DRIVER_DEATHS
    assert {fault.partition("@")[0] for fault in deaths} == set(POINTS)


def all_is_as_if_nobody_had_died(bench: Bench, query: ef.Query, tables: list[pa.Table]) -> None:
    """Compare with a run without failures; each key's count rose by one with every epoch and was published once."""
    expected = Expected(tables)
    published = read_published(bench.out)
    assert published == expected.published
    counts_rise_by_one(published.elements(), len(tables))
    assert set(state_of(query)) == set(expected.state.values())


@pytest.mark.parametrize(
    ("handover", "copied"),
    [("at once", False), ("at the timestamp", True)],
    ids=["at once", "at the timestamp and copied ahead"],
)
def test_lanes_die_at_every_point_and_the_query_goes_on(
    bench: Bench, kill_lanes: Callable[..., Path], handover: Handover, copied: bool
) -> None:
    """All four kinds of move, each at each of its phases: see below."""
    deaths = LANE_DEATHS + (COPYING_DEATHS if copied else ())
    done = kill_lanes(*deaths)
    tables = [one_bid_per_key(epoch) for epoch in range(9)]
    stateful = totals(bench.stream()).balance(
        lanes=2,
        slots=16,
        policy="static",
        strategy="sudden",
        handover=handover,
        copy_ahead_bytes=1 if copied else None,
        settle_windows=0,
    )
    query = bench.start(stateful)
    for epoch, table in enumerate(tables):
        query.rebalance([(slot, (slot + epoch) % 2) for slot in range(16)])
        bench.feed(table)
        query.processAllAvailable()
    assert {path.name for path in done.iterdir()} == marks(deaths)
    assert len([entry for entry in query.journal().of(LanesChanged) if entry.lost]) >= len(deaths)
    assert query.journal().of(StateMoved)
    all_is_as_if_nobody_had_died(bench, query, tables)


def test_the_matrix_of_kills_is_complete() -> None:
    """4 kinds of move, each phase of each, source, target and driver; and a selection has each phase of each kind."""
    phases = [(kind, phase) for kind in KINDS for phase in kind.phases]
    assert len(phases) == 2 * (7 + 9)
    every = {(kill.kind, kill.phase, kill.victim) for kill in all_kills()}
    assert every == {(*phase, victim) for phase in phases for victim in ("source", "target", "driver")}
    assert len({kill.mark for kill in all_kills()}) == len(all_kills())
    for seed in range(5):
        chosen = selection(seed)
        assert {(kill.kind, kill.phase) for kill in of_lanes(chosen)} == set(phases)
        assert {kill.kind for kill in of_drivers(chosen)} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind}, EVENFLOW_KILLS={SEED}")
def test_lanes_die_in_every_phase_of_every_kind_of_move(bench: Bench, kind: Kind) -> None:
    """A selection, another one each time; all of them: python -m tests.spark.kill_matrix."""
    kill_lanes(bench, [kill for kill in of_lanes(selection(SEED)) if kill.kind == kind])


def test_a_kill_that_does_not_happen_is_noticed(bench: Bench) -> None:
    """Nothing is copied in this kind of move: nobody can die of it."""
    life = Disturbed(bench, KINDS[0])
    with pytest.raises(AssertionError, match="copied: the target dies: did not happen, only"):
        life.disturb(Kill(KINDS[0], "copied", "target"))


def test_lanes_die_while_lanes_come_and_go(bench: Bench, kill_lanes: Callable[..., Path]) -> None:
    done = kill_lanes(*RESIZE_DEATHS)
    tables: list[pa.Table] = []
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=16, policy="static", strategy="sudden"))

    def lanes_are(count: int) -> bool:
        """Feed one more epoch, since slots move with epochs, and look."""
        tables.append(one_bid_per_key(len(tables)))
        bench.feed(tables[-1])
        query.processAllAvailable()
        table = query._shell.balancer.table
        return len(table.lanes) == len(set(table.owners.tolist())) == count

    assert lanes_are(2)
    query.resize(3)
    until(lambda: lanes_are(3), "the new lane has slots")
    query.resize(1)
    until(lambda: lanes_are(1), "two lanes are gone")
    assert {path.name for path in done.iterdir()} == marks(RESIZE_DEATHS)
    all_is_as_if_nobody_had_died(bench, query, tables)


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


def test_a_file_that_spark_has_noted_down_without_its_epoch_comes_with_the_next_one(bench: Bench) -> None:
    """As when the driver dies between the two notes. The checks below must know what is in an epoch, not assume it."""
    tables = [bids(random.Random(seed), 40) for seed in range(4)]
    stateful = totals(bench.stream()).balance(lanes=2, slots=8)
    bench.feed(tables[0])
    bench.run(stateful)
    bench.feed(*tables[1:])
    notes = bench.place / "checkpoint" / "spark" / "sources" / "0"
    note = (notes / "0").read_text()
    (notes / "1").write_text(note.replace("00000.parquet", "00001.parquet").replace('"batchId":0', '"batchId":1'))
    query = bench.run(stateful)
    assert [sorted(files) for files in epochs_of_files(bench.place)] == [[0], [1, 2], [3]]
    pq.write_table(query.state().toArrow(), bench.place / "state.parquet")
    check_results(bench.place, tables)


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


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [SEED], ids="EVENFLOW_KILLS={}".format)
def test_the_driver_dies_in_every_kind_of_move(tmp_path: Path, seed: int) -> None:
    """A selection, another one each time, in two chains of restarts."""
    kills = of_drivers(selection(seed))
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(kill_drivers, tmp_path / f"{half}", kills[half::2]) for half in range(2)]
    for run in runs:
        run.result()
