from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from evenflow.sim.quantum import Fixed, Timeline
from papers.experiment import Check, Settings, Verdict
from papers.flux import EXPERIMENTS
from papers.flux.cluster import (
    BIG_PARTITION_BYTES,
    FULL_RATE,
    LOADED_SPEED,
    MACHINE_BYTES,
    PRESSED_BYTES,
    Setup,
    by_partition,
    evenly_spread,
    external,
    flat,
    load_run,
    memory_run,
    run,
    self_similar,
)
from papers.flux.example import E11
from papers.flux.pressure import E5, _stall_check, _why_static
from papers.flux.reaction import Balanced, balanced_checks
from papers.flux.readings import first_below, from_then_on, level, steady_from
from papers.flux.rounds import Rounds, round_model
from papers.flux.rules import HYBRID_FIRST
from papers.flux.thrashing import _crossing, flat_note
from papers.flux.transient import E1


def test_all_twelve_are_there_with_rules() -> None:
    assert [experiment.id for experiment in EXPERIMENTS] == [f"FX-E{number}" for number in range(1, 13)]
    assert all("match if" in str(experiment.rule) for experiment in EXPERIMENTS)


def test_the_worked_example_is_exact() -> None:
    assert E11.run(Settings()).verdict is Verdict.MATCH


def test_the_baseline_is_the_papers() -> None:
    assert pytest.approx(6.9e5, rel=0.002) == FULL_RATE


def test_8020_is_self_similar_and_the_flat_reading_is_not() -> None:
    shares, even = self_similar(), flat()
    assert shares.sum() == pytest.approx(1) == even.sum()
    assert shares[0] == pytest.approx(0.26, abs=0.005)
    for part in (shares, even):
        assert part[: part.size // 5].sum() == pytest.approx(0.8, abs=0.001)
    assert shares[: shares.size // 25].sum() == pytest.approx(0.64, abs=0.001)
    spread = by_partition(shares, 2048, np.random.default_rng(1)).rates(0.0)
    assert spread.sum() == pytest.approx(1)


def test_memory_is_exhausted_at_exactly_16_of_32_machines() -> None:
    pressed, free = PRESSED_BYTES // BIG_PARTITION_BYTES, MACHINE_BYTES // BIG_PARTITION_BYTES
    needed = 32 * 128
    assert 15 * pressed + 17 * free >= needed > 16 * pressed + 16 * free
    assert needed - (16 * pressed + 16 * free) == 16  # one partition on disk for each pressed machine


def small(duration_s: float = 12.0) -> Setup:
    return Setup(machines=4, partitions=16, duration_s=duration_s, step_s=0.02, skew_buffer=64)


def test_one_slow_machine_holds_up_the_stage_and_balancing_cures_it() -> None:
    setup = small()
    scenario = load_run(setup, speeds=external([0], 1.0))
    static = run(scenario)
    balanced = run(scenario, "flux-load", delta_min_s=0.1)
    assert level(static, 4) == pytest.approx(LOADED_SPEED * setup.full_rate, rel=0.05)
    assert level(balanced, 4) > 0.75 * setup.full_rate
    assert first_below(static, 0.9 * setup.full_rate, 1.0) < 4
    assert from_then_on(static, 0.9 * setup.full_rate) == float("inf")


def test_a_machine_without_memory_stalls_until_all_is_written() -> None:
    setup = Setup(machines=2, partitions=128, duration_s=16, step_s=0.025, skew_buffer=16)
    timeline = run(memory_run(setup, Fixed(MACHINE_BYTES, (0,), PRESSED_BYTES, 1.0)))
    stalled = timeline.throughput < 0.02 * setup.full_rate
    assert 11 <= stalled.sum() <= 14  # 43 partitions of 6 MB at 20 MB/s
    assert timeline.spilled[-1] in (42, 43, 44)


def test_a_crossing_is_where_all_that_follow_are_above() -> None:
    assert _crossing([1.0, 2.0, 3.0], [0.5, 2.0, 3.0], 1.0) == 2.0
    assert _crossing([1.0, 2.0, 3.0], [2.0, 0.5, 3.0], 1.0) == 3.0
    assert _crossing([1.0, 2.0], [2.0, 0.5], 1.0) == float("inf")


def test_machines_are_chosen_at_equal_distances() -> None:
    assert evenly_spread(8, 32, 3) == (3, 7, 11, 15, 19, 23, 27, 31)
    assert evenly_spread(0, 32) == ()


class TestRoundModel:
    """The pair rule with the paper's thresholds on 32 machines with 64 partitions each, worked out apart from it."""

    @pytest.mark.parametrize(("slow", "moves", "rate"), [(1, 31, 5.75e5), (8, 216, 5.13e5), (24, 296, 3.65e5)])
    def test_moves_and_rates(self, slow: int, moves: int, rate: float) -> None:
        found = round_model(64, evenly_spread(slow, 32), 32)
        assert found.moves == moves
        assert found.rate * FULL_RATE == pytest.approx(rate, rel=0.002)

    def test_what_has_left_the_slow_machine(self) -> None:
        assert round_model(64, [0], 32).left == 31

    def test_all_alike_moves_nothing(self) -> None:
        assert round_model(8, [], 4) == Rounds(1.0, 0, 0)
        slow = round_model(8, [0, 1, 2, 3], 4)
        assert slow.rate == pytest.approx(LOADED_SPEED)
        assert (slow.left, slow.moves) == (0, 0)


@cache
def plain(rows: int) -> Timeline:
    return run(load_run(Setup(machines=1, partitions=1, duration_s=rows, step_s=0.1, skew_buffer=64)))


def timeline_of(throughput: list[float]) -> Timeline:
    """Return a run of as many rows of one second, with these throughputs."""
    return replace(plain(len(throughput)), served=np.array(throughput)[:, None])


class TestSteady:
    def test_it_is_from_when_on_the_rate_stays_near_its_end(self) -> None:
        assert steady_from(timeline_of([2, 5, 9, 10, 10, 10, 10, 10]), 3.0) == 3.0
        assert steady_from(timeline_of([10] * 8), 3.0) == 0.0

    def test_what_strays_in_the_seconds_it_is_compared_with_is_not_steady(self) -> None:
        assert steady_from(timeline_of([10, 10, 10, 10, 10, 10, 8, 10]), 3.0) == float("inf")
        assert steady_from(timeline_of([10, 10, 10, 10, 10, 8, 10, 10]), 2.0) == 6.0

    def test_two_that_are_not_both_steady_are_no_match(self) -> None:
        never = float("inf")
        assert HYBRID_FIRST.verdict(55.0, 63.0) is Verdict.MATCH
        assert HYBRID_FIRST.verdict(175.0, never) is Verdict.SHAPE
        assert HYBRID_FIRST.verdict(70.0, 63.0) is Verdict.SHAPE
        assert HYBRID_FIRST.verdict(80.0, 63.0) is Verdict.DIFFERS
        assert HYBRID_FIRST.verdict(never, never) is Verdict.DIFFERS


class TestStall:
    def stall(self, static: int, moved: int) -> Check:
        """Return the check of two runs that resume after 14 s, stalled for so many of them."""
        without, repartitioning = (
            timeline_of([1.0] * (14 - zero) + [0.0] * zero + [0.4] * 6) for zero in (static, moved)
        )
        return _stall_check(without, repartitioning, full=1.0, resumes_s=14.0)

    def test_both_runs_must_be_stalled(self) -> None:
        assert self.stall(10, 8).verdict is Verdict.MATCH
        assert self.stall(10, 7).verdict is Verdict.SHAPE
        assert self.stall(10, 3).verdict is Verdict.DIFFERS
        assert self.stall(10, 7).ours == "10 s below 10 % of full static, 7 s with repartitioning"

    def test_seconds_after_static_has_resumed_do_not_count(self) -> None:
        static = timeline_of([1.0] * 4 + [0.0] * 10 + [0.4] * 6)
        moved = timeline_of([1.0] * 7 + [0.0] * 7 + [0.4] * 4 + [0.0] * 2)
        assert _stall_check(static, moved, full=1.0, resumes_s=14.0).verdict is Verdict.SHAPE

    def test_the_rule_says_what_counts_as_resumed(self) -> None:
        assert "12 % of full" in str(E5.rule)


class TestBalanced:
    def test_rate_and_partitions_are_those_of_the_same_runs(self) -> None:
        drawn = [Balanced(0.972, 37, 130), Balanced(0.974, 40, 148), Balanced(0.971, 37, 120)]
        rate, partitions, certain = balanced_checks(drawn, Balanced(0.834, 31, 61), 0.43)
        assert rate.verdict is Verdict.MATCH
        assert partitions.verdict is Verdict.SHAPE, "31 without chance are not what these runs did"
        assert partitions.ours == "37 (37 to 40) left it, 130 (120 to 148) moves in all"
        assert certain.verdict is Verdict.SHAPE, "31 left, but as many others moved"
        assert certain.ours == "31 left it, 61 moves in all, 83.4% of full"

    def test_as_published(self) -> None:
        checks = balanced_checks([Balanced(0.84, 32, 32)], Balanced(0.834, 31, 31), 0.43)
        assert {check.verdict for check in checks} == {Verdict.MATCH}
        assert "31, 31 moves in all, 83.4%" in checks[2].published

    def test_the_worse_of_rate_and_partitions_counts_without_chance(self) -> None:
        *_, certain = balanced_checks([Balanced(0.84, 32, 32)], Balanced(0.42, 31, 31), 0.43)
        assert certain.verdict is Verdict.DIFFERS


def test_the_reason_is_of_the_part_that_fails() -> None:
    low = _why_static(0.23, 0.018, 43.0, 44 / 4096)
    assert "1.1% of the tuples" in low
    assert "0.23 s in the mean" in low
    assert "cycle differs" not in low
    far = _why_static(3.0, 0.018, 90.0, 0.01)
    assert "cycle differs" in far
    assert "of the tuples" not in far


def test_the_flat_reading_is_told() -> None:
    note = flat_note([0.01, 1.0], 620_000, [660_000, 640_000])
    assert "static 620,000 tuples/s" in note
    assert "106% of that with a delta_min of 10 ms and 103% of that with a delta_min of 1000 ms" in note


def test_the_seed_that_was_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("papers.flux.transient._rate", lambda *_, **__: 0.5)
    assert E1.run(Settings(seed=7)).seeds == (7,)
