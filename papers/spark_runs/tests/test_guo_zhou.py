"""GZ-E3, E4 and E7 on Spark, the parts that need no Spark: the stream, what is read off a run, and the verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenflow.model import RoutingTable
from evenflow.model.slots import IntArray
from evenflow.workloads.bids import Auctions
from papers.experiment import Check
from papers.guo_zhou.histograms import Trace
from papers.spark_runs.guo_zhou import (
    FOUR,
    Elastic,
    Ramp,
    Traded,
    elastic_of,
    imbalance_checks,
    movement_checks,
    speed_up_checks,
    usual_delay_s,
)
from papers.spark_runs.run import SparkRun, SparkScenario
from papers.spark_runs.workload import HotPhase, PhasedFeed, SharedFeed

SLOTS = np.array([0, 0, 0, 1, 2, 2])  # of six keys


def feed(*phases: HotPhase) -> SharedFeed:
    keys = np.arange(SLOTS.size)
    plain = PhasedFeed(
        Path("unused"), Auctions(keys[:0], keys), 0.0, 4_000, 7, 0.5, by_lane=[keys], phases=phases or (HotPhase(),)
    )
    return SharedFeed.of(plain, SLOTS, lambda number: np.array([[0.6, 0.3, 0.1], [0.0, 0.5, 0.5]])[number % 2])


def verdicts(checks: tuple[Check, ...]) -> list[str]:
    return [check.verdict.value for check in checks]


def run_of(rows: list[list[float]], moves: tuple[tuple[int, int], ...] = (), lanes: tuple[int, ...] = ()) -> SparkRun:
    """Return a run with these rows per epoch and lane, one epoch a second; moves are (epoch, slot)."""
    count, at = len(rows), np.arange(len(rows), dtype=np.float64)
    served = np.array(rows, dtype=np.float64)
    return SparkRun(
        SparkScenario(served.shape[1], 4, 100, 100, float(count)),
        tuple(range(count)),
        at,
        served,
        np.ones_like(served),
        np.repeat(at[:, None] + 1, served.shape[1], axis=1),
        at + 0.5,
        at,
        at,
        at,
        tuple({"epoch": epoch, "slot": slot, "source": 0, "target": 1} for epoch, slot in moves),
        int(served.sum()),
        lane_counts=lanes,
        histograms=np.tile([10, 20, 30, 40], (count, 1)),
        rows_lost=0,
    )


def trace(variance: float, moved: float) -> Trace:
    """Return what the histogram level might say of two windows, one of them with a balancing."""
    lanes: IntArray = np.array([2, 2])
    table = RoutingTable.even(4, 2)
    return Trace(np.full(2, variance), np.full(2, 100.0), np.array([moved, 0.0]), lanes, table)


class TestStream:
    def test_slots_get_their_shares_by_the_file(self) -> None:
        made = feed()
        assert (np.bincount(SLOTS[made.bids(0)]) / 2_000).tolist() == pytest.approx([0.6, 0.3, 0.1], abs=0.04)
        assert (np.bincount(SLOTS[made.bids(1)]) / 2_000).tolist() == pytest.approx([0.0, 0.5, 0.5], abs=0.04)
        assert made.bids(1).tolist() == feed().bids(1).tolist(), "the same seed gives the same bids"

    def test_histograms_are_those_of_what_was_written(self) -> None:
        made = feed()
        made.rows_written = 4_000
        found = made.histograms()
        assert found.shape == (2, 3)
        assert found[1].tolist() == np.bincount(SLOTS[made.bids(1)], minlength=3).tolist()
        assert made.slot_keys().tolist() == [3, 1, 2]

    def test_when_rows_came(self) -> None:
        made = feed(HotPhase(), HotPhase(1.0, rate=2.0))
        made.rows_written = 12_000
        at = made.came_at_s(np.array([0.0, 1_000, 4_000, 8_000, 12_000]))
        assert at.tolist() == pytest.approx([0, 0.25, 1.0, 1.5, 2.0])


class TestTrade:
    def test_only_what_comes_after_the_history_counts(self) -> None:
        one = Traded(run_of([[9, 1], [8, 2], [5, 5], [7, 3]], ((1, 0), (2, 1), (2, 3))), 2, trace(1.0, 0.5))
        assert one.variance.tolist() == [0, 4]
        assert one.moved.tolist() == pytest.approx([0.6, 0.0])
        assert one.moved_when_balanced == pytest.approx(0.6)
        assert Traded(run_of([[9, 1]] * 4), 2, trace(1.0, 0.5)).moved_when_balanced == 0

    def test_orders_and_sizes(self) -> None:
        spreads = {"uhlb": 1.0, "pkg": 2.0, "elb": 3.0, "clb": 4.0}

        def traded(half: float, model: float) -> Traded:
            return Traded(run_of([[50 + half, 50 - half], [50 + 2 * half, 50 - 2 * half]]), 0, trace(model, 0.0))

        published = {name: traded(half, 2.5 * half**2) for name, half in spreads.items()}
        assert verdicts(imbalance_checks(published)) == ["match"] * 7
        other = {**published, "elb": traded(0.5, 1.0), "clb": traded(1.5, 100.0)}
        assert verdicts(imbalance_checks(other)) == ["differs"] * 2 + ["shape holds", "differs"] + [
            "shape holds",
            "match",
            "match",
        ]

    def test_movement(self) -> None:
        def traded(slots: tuple[int, ...], model: float) -> Traded:
            return Traded(run_of([[5, 5]] * 20, tuple((4, slot) for slot in slots)), 0, trace(1.0, model))

        found = {
            "elb": traded((0,), 0.1),
            "pkg": traded((1,), 0.2),
            "uhlb": traded((2,), 0.3),
            "clb": traded((2, 3), 0.7),
        }
        assert verdicts(movement_checks(found)) == ["match"] * 6
        found["uhlb"] = traded((0, 2, 3), 0.1)
        found["elb"] = traded((3,), 0.0)
        assert verdicts(movement_checks(found)) == ["differs", "shape holds", "match", "differs", "match", "differs"]


class TestSpeedUp:
    def test_stages_are_read_off_by_what_was_served_in_them(self) -> None:
        found = Ramp(run_of([[10, 0], [10, 0], [10, 10], [10, 8]]), 2, 2.0, lead_s=0.0)
        assert found.served_per_s.tolist() == pytest.approx([10, 19])
        assert found.mean_latency_s.tolist() == pytest.approx([0.5, 0.5])

    def test_a_delay_is_no_rate(self) -> None:
        """Rows that are served some time after they came are all served in time, however the epochs jitter."""
        run = run_of([[10], [10], [20], [20]])
        late = replace(run, done_s=run.done_s + 1.5, scenario=replace(run.scenario, file_s=1.0))
        assert usual_delay_s([late, late], 0.0, 2.0) == pytest.approx(1.5)
        for jitter in (-0.4, 0.0, 0.4):
            shaken = replace(late, done_s=late.done_s + jitter * np.array([[1], [-1], [1], [-1]]))
            assert Ramp(shaken, 2, 2.0, lead_s=0.0, delay_s=1.5).served_per_s.tolist() == pytest.approx([10, 20])

    def test_what_waits_is_served_in_the_next_stage(self) -> None:
        run = run_of([[10], [10], [20], [20], [10], [10]])
        waits = replace(run, done_s=run.done_s + np.array([0, 0, 0, 1, 1, 0])[:, None])
        assert Ramp(waits, 3, 2.0, lead_s=0.0).served_per_s.tolist() == pytest.approx([10, 10, 20])

    def test_lanes_are_those_at_the_end_of_each_stage(self) -> None:
        run = run_of([[1, 0]] * 6, lanes=(1, 1, 1, 2, 2, 1))
        assert elastic_of(run, (1, 2, 1), 2.0) == Elastic((1, 2, 1), (1, 2, 1), 0)

    def test_verdicts(self) -> None:
        linear = np.array([1.0, 2.0, 2.9])
        last = {"elb": 2.9, "pkg": 2.85, "uhlb": 2.82, "clb": 2.74}
        served = {name: np.array([1.0, 2.0, most]) for name, most in last.items()}
        right = Elastic((1, 2, 3, 1), (1, 2, 3, 1), 0)
        nothing = dict.fromkeys(FOUR, 0)
        assert verdicts(speed_up_checks(served, right, nothing)) == ["match"] * 5
        late = Elastic((1, 1, 3, 2), (1, 2, 3, 1), 0)
        assert verdicts(speed_up_checks(served, late, nothing))[4] == "shape holds"
        assert verdicts(speed_up_checks(served, right, {**nothing, "pkg": 1}))[4] == "differs"
        stuck = Elastic((2, 2, 2, 2), (1, 2, 3, 1), 0)
        assert verdicts(speed_up_checks(served, stuck, nothing))[4] == "differs"
        swapped = {"elb": linear * 0.7, "pkg": linear, "uhlb": linear, "clb": linear * 0.75}
        assert verdicts(speed_up_checks(swapped, right, nothing))[:4] == ["differs"] * 4

    def test_a_hair_is_no_difference(self) -> None:
        linear = np.array([1.0, 2.0, 3.0])
        served = {"elb": linear, "pkg": linear * 0.995, "uhlb": linear * 0.995, "clb": linear * 0.991}
        checks = speed_up_checks(served, Elastic((1, 2, 1), (1, 2, 1), 0), dict.fromkeys(FOUR, 0))
        assert verdicts(checks)[:4] == ["match", "match", "differs", "differs"]
        assert "ELB and PKG and UHLB did not beat it" in checks[3].why

    def test_clb_far_from_linear_is_said(self) -> None:
        linear = np.array([1.0, 2.0, 3.0])
        served = {"elb": linear, "pkg": linear * 0.9, "uhlb": linear * 0.9, "clb": np.ones(3)}
        checks = speed_up_checks(served, Elastic((1, 2, 1), (1, 2, 1), 0), dict.fromkeys(FOUR, 0))
        assert verdicts(checks) == ["match", "differs", "match", "match", "match"]
        assert checks[1].what.startswith("CLB is nearly linear")
