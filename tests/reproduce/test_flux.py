from __future__ import annotations

import numpy as np
import pytest

from evenflow.reproduce.experiment import Settings, Verdict
from evenflow.reproduce.flux import EXPERIMENTS
from evenflow.reproduce.flux.cluster import (
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
from evenflow.reproduce.flux.example import E11
from evenflow.reproduce.flux.readings import first_below, from_then_on, level
from evenflow.reproduce.flux.rotation import E12
from evenflow.reproduce.flux.thrashing import _crossing
from evenflow.sim.quantum import Fixed


def test_all_twelve_are_there_with_rules() -> None:
    assert [experiment.id for experiment in EXPERIMENTS] == [f"FX-E{number}" for number in range(1, 13)]
    assert all("match" in experiment.rule.lower() for experiment in EXPERIMENTS)


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


def test_the_same_operator_runs_with_and_without_balancing() -> None:
    # FX-M17: what is balanced does not know of it; only the table differs in the end.
    setup = small(6.0)
    static, balanced = run(load_run(setup)), run(load_run(setup, speeds=external([0])), "flux-load")
    assert not (static.table.owners != load_run(setup).first_table.owners).any()
    assert (balanced.table.owners != static.table.owners).any()


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


def test_rules_are_written_before_the_run() -> None:
    assert E12.rule.startswith("Larger t_gap")
