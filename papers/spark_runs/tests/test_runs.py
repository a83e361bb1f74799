"""The parts of the runs on Spark that need no Spark: the stream, slow state, and what is read off a run."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from evenflow.operators import Aggregate, Resident
from evenflow.operators import functions as aggregates
from evenflow.workloads.bids import Auctions
from papers.engines import _spark_run as spark_run
from papers.spark_runs.around import AroundOperator
from papers.spark_runs.autoflow import _before_spike
from papers.spark_runs.reconfiguration import Migrated, Scaled
from papers.spark_runs.rules import SPARK_RULES
from papers.spark_runs.run import SparkRun, SparkScenario, limited
from papers.spark_runs.transfer import SlowToArrive, SlowToMove
from papers.spark_runs.workload import HotPhase, PhasedFeed

LANE_KEYS = [np.arange(0, 10), np.arange(10, 20), np.arange(20, 30)]


def feed(*phases: HotPhase) -> PhasedFeed:
    every = Auctions(LANE_KEYS[0], np.concatenate(LANE_KEYS[1:]))
    return PhasedFeed(Path("unused"), every, 0.0, 4_000, 7, 0.25, by_lane=LANE_KEYS, phases=phases)


def shares(bids: np.ndarray) -> list[float]:
    found: list[float] = (np.bincount(bids // 10, minlength=3) / bids.size).tolist()
    return found


class TestFeed:
    def test_hot_lanes_change_by_the_clock(self) -> None:
        made = feed(HotPhase(), HotPhase(1.0, (0,), 0.8), HotPhase(2.0, (1, 2), 0.9))
        assert shares(made.bids(0)) == pytest.approx([1 / 3] * 3, abs=0.05)
        assert shares(made.bids(4)) == pytest.approx([0.8, 0.1, 0.1], abs=0.05)
        assert shares(made.bids(8)) == pytest.approx([0.1, 0.45, 0.45], abs=0.05)

    def test_the_same_seed_gives_the_same_bids(self) -> None:
        assert feed(HotPhase()).bids(3).tolist() == feed(HotPhase()).bids(3).tolist()

    def test_rates_follow_the_phase(self) -> None:
        made = feed(HotPhase(rate=0.5), HotPhase(1.0, rate=2.0))
        assert [made.bids(number).size for number in (0, 4)] == [500, 2_000]


PLAIN = Aggregate({"total": aggregates.sum("price")})


def two_lanes(slow: AroundOperator) -> tuple[Resident, Resident]:
    """The states of two lanes, the first with two keys in slot 0 and one each in slots 1 and 2."""
    sent = pickle.loads(pickle.dumps(slow))  # noqa: S301 - as it goes to lanes
    schema = pa.schema([("auction", pa.int64()), ("price", pa.int64())])
    assert sent.contents(schema, ("auction",)) == PLAIN.contents(schema, ("auction",)), "it is the operator within"
    giver, taker = (sent.open(schema, ("auction",), 4) for _ in range(2))
    giver.fold(pa.table({"auction": [1, 2, 3, 4], "price": [5, 6, 7, 8]}, schema), np.array([0, 0, 1, 2]))
    return giver, taker


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long state takes to move, one entry for each time."""
    times: list[float] = []
    monkeypatch.setattr("papers.spark_runs.transfer.time.sleep", times.append)
    return times


class TestSlowState:
    def test_keys_take_their_time_to_leave_and_to_come(self, slept: list[float]) -> None:
        giver, taker = two_lanes(SlowToMove(PLAIN, 100.0))
        state = giver.snapshot([0])
        giver.drop([0])
        giver.drop([])
        taker.install(state)
        assert slept == [0.02, 0.0, 0.02], "two keys leave, two come, at 100 per second"
        assert giver.slot_rows().tolist() == [0, 1, 1, 0]
        assert taker.slot_rows().tolist() == [2, 0, 0, 0]

    def test_a_slot_leaves_at_once_and_takes_its_time_to_come(self, slept: list[float]) -> None:
        giver, taker = two_lanes(SlowToArrive(PLAIN, 2.0))
        state = giver.snapshot([0, 1])
        giver.drop([0, 1])
        assert slept == []
        taker.install(state)
        assert slept == [4.0], "two slots, whatever their keys"
        assert taker.slot_rows().tolist() == [2, 1, 0, 0]

    def test_results_say_so(self) -> None:
        assert "a slot takes 2 s to come" in limited(SparkScenario(4, 32, 100, 100, 5.0, arrival_s=2.0))


def run(latency: list[float]) -> SparkRun:
    """Return a run of an epoch a second on two lanes."""
    count = len(latency)
    at = np.arange(count, dtype=np.float64)
    high = np.array(latency)
    return SparkRun(
        SparkScenario(2, 4, 100, 100, float(count)),
        tuple(range(count)),
        at,
        np.full((count, 2), 50.0),
        np.tile([3.0, 1.0], (count, 1)),
        np.stack([at + 1, at + 0.5], axis=1),
        at,
        high,
        high,
        high,
        ({"epoch": 2, "slot": 0, "source": 0, "target": 1},),
        100 * count + 30,
    )


class TestRun:
    def test_what_is_read_off(self) -> None:
        found = run([1.0] * 10)
        assert found.throughput().tolist() == pytest.approx([50, 50], rel=0.1)
        assert found.imbalance.tolist() == [1.5] * 10
        assert found.lane_latency_s[3].tolist() == [1.0, 0.5]
        assert found.backlog_rows == 30
        assert found.move_times_s == [2.0]
        assert found.as_dict()["moves"] == 1

    def test_every_result_says_that_lanes_are_limited(self) -> None:
        assert "RATE LIMITED to 100 rows/s" in limited(run([1.0, 1.0]).scenario)

    def test_what_a_spike_adds_is_told_from_what_rows_take_anyway(self) -> None:
        calm = run([1.0] * 4)
        calm = replace(calm, scenario=replace(calm.scenario, phases=(HotPhase(), HotPhase(2.0, (0,), 0.5))))
        spiked = replace(calm, done_s=calm.done_s + np.array([0, 0, 1, 1])[:, None])
        told = _before_spike(spiked, calm)
        assert "before the spike rows take 0.75 s off and 0.75 s on" in told
        assert "the spike adds 0.50 s to the mean" in told

    def test_peak_and_time_to_stable(self) -> None:
        scaled = Scaled(1, 2, 4, 10, 1, 100, 100, start_s=3.0, seconds=10)
        found = Migrated("sudden", scaled, run([1, 1, 1, 1, 5, 4, 1, 1, 1, 1]))
        assert (found.peak_s, found.normal_s, found.steps) == (5, 1, 1)
        assert found.stable_after_s == pytest.approx(3.0)
        assert np.isnan(Migrated("sudden", scaled, run([1, 1, 1, 1, 5, 5])).stable_after_s)
        assert Migrated("sudden", scaled, run([1] * 6)).stable_after_s == 0


@pytest.mark.parametrize("id_", sorted(SPARK_RULES))
def test_each_rule_has_its_run(id_: str) -> None:
    assert callable(spark_run(id_))
