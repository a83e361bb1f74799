"""What a query tells about itself when epochs overlap: each row's latency, each epoch's own figures, who is behind."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from evenflow.lane.messages import Done, EpochLoad, SlotColumns
from evenflow.spark.latencies import Latencies
from evenflow.spark.progress import EpochTimes, Progress
from evenflow.state import Advance, EpochRecord, LaneCommit


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Run:
    """Two lanes with a slot each; the test says when they have done what."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.progress = Progress("id", "name", self.clock)
        self.lag = 0

    def accept(self, epoch: int, at_s: float, rows: int = 10, waited_s: float = 0.0, arrivals: object = ()) -> None:
        record = EpochRecord(epoch, epoch, 0, (0, 1), (0, 1), (), (), (), rows, at_s)
        ready_s = at_s + waited_s
        times = EpochTimes(
            began_s=at_s, ready_s=ready_s, routed_s=ready_s + 0.1, waited_s=ready_s + 0.1, accepted_s=ready_s + 0.2
        )
        times.arrivals = arrivals  # type: ignore[assignment]
        self.lag += 1
        self.progress.accepted(record, times)

    def done(self, lane: int, at_s: float, **rows: int) -> None:
        """Let a lane have done epochs: `e3=5` for 5 rows of epoch 3, at 0.1 s each."""
        self.clock.now = at_s
        epochs = {int(name[1:]): count for name, count in rows.items()}
        loads = tuple(
            EpochLoad(epoch, SlotColumns((lane,), (count,), (0.1 * count,), (64,)), count, 0.1 * count)
            for epoch, count in epochs.items()
        )
        commit = LaneCommit(lane, "a", max(epochs), (Advance(min(epochs) - 1, max(epochs), (lane,)),))
        self.progress.lane_done(Done(commit, loads, 0.0, 3, 64))

    def publish(self, epoch: int, at_s: float) -> None:
        self.clock.now = at_s
        self.progress.committed(epoch)
        self.lag -= 1
        self.progress.published(epoch, self.lag)


def test_a_row_s_latency_ends_with_its_own_lane_not_with_the_slowest() -> None:
    run = Run()
    run.accept(0, at_s=100.0)
    run.done(0, 101.0, e0=5)
    run.done(1, 109.0, e0=5)
    assert run.progress.latency() == {"p50_s": 1.0, "p95_s": 9.0, "p99_s": 9.0, "max_s": 9.0}


def test_latencies_of_epochs_that_overlap_are_told_apart() -> None:
    run = Run()
    run.accept(0, at_s=100.0)
    run.accept(1, at_s=101.0)
    run.done(0, 102.0, e0=5, e1=5)  # both in one go
    run.done(1, 110.0, e0=5)
    run.done(1, 111.5, e1=5)
    assert run.progress.latency(0, 0)["max_s"] == 10.0
    assert run.progress.latency(1, 1)["max_s"] == 10.5
    assert run.progress.latency(1, 1)["p50_s"] == 1.0
    assert run.progress.latency(2) == {}


def test_arrivals_count_where_they_are_known_each_with_its_share_of_the_rows() -> None:
    run = Run()
    run.accept(0, at_s=100.0, rows=100, arrivals=((90.0, 95.0), (99.0, 5.0)))
    run.done(0, 101.0, e0=100)
    assert run.progress.latency() == {"p50_s": 11.0, "p95_s": 11.0, "p99_s": 11.0, "max_s": 11.0}


def test_backpressure_is_visible() -> None:
    run = Run()
    run.accept(0, at_s=100.0)
    run.accept(1, at_s=101.0, waited_s=5.0)
    for lane in (0, 1):
        run.done(lane, 107.0, e0=5)
    run.publish(0, 107.5)
    assert run.progress.last is not None
    assert run.progress.last["lag"] == 1
    assert run.progress.last["durationMs"]["wait"] == 0
    for lane in (0, 1):
        run.done(lane, 108.0, e1=5)
    run.publish(1, 108.5)
    last = run.progress.last
    assert last["lag"] == 0
    assert last["durationMs"]["wait"] == pytest.approx(5000.0)
    assert last["durationMs"]["work"] == pytest.approx(108500 - 106200)


def test_an_epoch_s_figures_are_its_own_also_when_lanes_are_further_on() -> None:
    run = Run()
    run.accept(0, at_s=100.0)
    run.accept(1, at_s=101.0)
    run.done(0, 102.0, e0=2)
    run.done(0, 103.0, e1=9)
    run.done(1, 104.0, e0=8)
    run.publish(0, 105.0)
    last = run.progress.last
    assert last is not None
    assert {row["lane"]: row["rows"] for row in last["lanes"]} == {0: 2, 1: 8}
    assert last["imbalance"]["maxOverMean"] == pytest.approx(1.6)
    assert {row["lane"]: row["epoch"] for row in run.progress.lane_rows()} == {0: 1, 1: 0}  # who is behind


def test_what_was_caught_up_elsewhere_belongs_to_its_epoch() -> None:
    run = Run()
    run.accept(0, at_s=100.0)
    run.done(0, 101.0, e0=4)
    run.done(1, 102.0, e0=3)
    run.done(1, 103.0, e0=3)  # a slot that came later
    run.publish(0, 104.0)
    assert run.progress.last is not None
    assert {row["lane"]: row["rows"] for row in run.progress.last["lanes"]} == {0: 4, 1: 6}


def test_rates_count_the_time_between_two_epochs_when_they_overlap() -> None:
    run = Run()
    for epoch in range(2):
        run.accept(epoch, at_s=100.0)
        for lane in (0, 1):
            run.done(lane, 101.0, **{f"e{epoch}": 5})
    run.publish(0, 102.0)
    run.publish(1, 104.0)
    assert [row["processedRowsPerSecond"] for row in run.progress.recent] == pytest.approx([5.0, 5.0])


def test_a_lane_that_is_gone_is_not_told_of() -> None:
    run = Run()
    run.accept(0, at_s=100.0)
    for lane in (0, 1):
        run.done(lane, 101.0, e0=5)
    run.progress.lanes_are([0])
    assert [row["lane"] for row in run.progress.lane_rows()] == [0]


def test_an_epoch_of_an_earlier_run_is_none_of_ours() -> None:
    run = Run()
    run.publish(7, 100.0)
    assert run.progress.last is None


def test_of_many_arrivals_some_are_kept_evenly_so_that_several_epochs_have_room() -> None:
    run, many = Run(), tuple((90.0 + at / 10_000, 1.0) for at in range(100_000))
    for epoch in range(3):
        run.accept(epoch, at_s=100.0, rows=100_000, arrivals=many)
        run.done(0, 101.0, **{f"e{epoch}": 50_000})
        run.done(1, 101.0, **{f"e{epoch}": 50_000})
        run.publish(epoch, 102.0)
    for epoch in range(3):
        assert run.progress.latency(epoch, epoch)["p50_s"] == pytest.approx(6.0, abs=0.1)
        assert run.progress.latency(epoch, epoch)["max_s"] == pytest.approx(11.0)


def test_of_many_epochs_the_newest_latencies_are_remembered() -> None:
    run = Run()
    run.progress._latencies = Latencies(200)
    for epoch in range(150):
        run.accept(epoch, at_s=100.0)
        run.done(0, 101.0 if epoch < 50 else 102.0, **{f"e{epoch}": 10})
        run.done(1, 101.0 if epoch < 50 else 102.0, **{f"e{epoch}": 10})
        run.publish(epoch, 103.0)
    assert run.progress.latency(0, 49) == {}
    assert run.progress.latency(50, 50)["max_s"] == 2.0
    assert run.progress.latency()["p50_s"] == 2.0
