from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evenflow.control import Balancer, BalancerOptions
from evenflow.control.journal import Decided
from evenflow.errors import InputError
from evenflow.migration.strategies import Sudden
from evenflow.policies.even import Even
from papers.autoflow import EXPERIMENTS
from papers.autoflow.changing import Arms, episodes, spike, wandering
from papers.autoflow.fixed import CASES, as_expected, backlog_slope, expected_slope, measured_trace
from papers.autoflow.scenario import Phase, Scenario, fixed_skew
from papers.autoflow.simulated import plant_of, simulate, stream_of
from papers.autoflow.sweeps import sweep
from papers.experiment import Settings, Verdict
from papers.messages.own_engine import engine_run

SMALL = 0.1


class TestScenario:
    @pytest.mark.parametrize(("case", "slope"), [("3/50", 200), ("3/80", 920), ("5/60", 200), ("5/80", 600)])
    def test_slopes_of_the_hot_backlog(self, case: str, slope: float) -> None:
        assert expected_slope(CASES[case].scenario) == pytest.approx(slope)

    def test_shares_of_slots(self) -> None:
        shares = fixed_skew("x", 3, 1, 0.5).slot_shares(Phase(0.0, (0,), 0.5))
        assert shares[:16].sum() == pytest.approx(0.5)
        assert shares.sum() == pytest.approx(1.0)
        assert np.ptp(shares[:16]) == 0

    def test_slots_of_a_reducer_are_exactly_alike_in_any_whole_window(self) -> None:
        scenario = CASES["3/80"].scenario.scaled(SMALL)
        stream = stream_of(scenario, 1)
        seconds = (stream.due - stream.due[0]) // 1_000_000
        counts = np.stack([np.bincount(stream.slot[seconds == at], minlength=48) for at in range(5)])
        assert np.ptp(counts[:, :16]) == 0

    @pytest.mark.parametrize(
        ("options", "text"),
        [({"phases": (Phase(1.0),)}, "begins at 0 s"), ({"window_s": 0.5}, "shorter than the control period")],
    )
    def test_what_cannot_be_run_is_refused(self, options: dict[str, Any], text: str) -> None:
        with pytest.raises(InputError, match=text):
            Scenario("x", **options)

    def test_phases_follow_one_another(self) -> None:
        stream = stream_of(spike(10.0, 1.0).scaled(SMALL), 1)
        during = (stream.due >= 20_500_000) & (stream.due < 29_500_000)
        assert np.mean(stream.slot[during] < 16) == pytest.approx(0.5, abs=0.01)
        assert np.mean(stream.slot[~during] < 16) == pytest.approx(1 / 3, abs=0.02)


class TestFixedSkew:
    def test_e1_without_balancing_the_backlog_grows_as_computed(self) -> None:
        run = simulate(replace(CASES["3/50"].scenario, duration_s=30).scaled(SMALL).off(), 1)
        assert backlog_slope(run, 0) == pytest.approx(expected_slope(run.scenario), rel=0.05)
        assert abs(backlog_slope(run, 1)) < 1
        assert run.migrations_s == []

    def test_e2_with_balancing_the_shares_are_those_of_the_table(self) -> None:
        case = CASES["3/50"]
        run = simulate(replace(case.scenario, duration_s=40).scaled(0.2), 1)
        trace = measured_trace(run)
        assert len(trace) == case.windows + 1
        for at, expected in ((0, case.trace[0]), (1, case.trace[1]), (-1, case.trace[2])):
            assert as_expected(trace[at], expected, case.hot)

    def test_a_trace_that_is_not_expected_is_seen(self) -> None:
        assert not as_expected(np.array([40.0, 35.0, 25.0]), (37.5, 37.5, 25), 1)
        assert as_expected(np.array([37.5, 25.0, 37.5]), (37.5, 37.5, 25), 1)

    def test_samples_are_taken_as_the_paper_says(self) -> None:
        run = simulate(replace(CASES["3/50"].scenario, duration_s=10).off(), 1)
        served = int((run.result.served_by == 0).sum())
        assert len(run.latency_samples(0)[0]) == -(-served // 100)
        times, rates = run.throughput_samples(0)
        assert len(times) == (served - 1) // 1000
        assert rates == pytest.approx(1000, rel=0.01)


def test_open_parameters_are_swept_one_at_a_time() -> None:
    found = sweep(replace(CASES["3/50"].scenario, duration_s=24, capacity=200), 1)
    assert {name: list(values) for name, values in found.items()} == {
        "slots_per_reducer": ["4", "16", "64"],
        "control_period_s": ["0.25", "1", "4"],
        "factor": ["0.1", "0.2", "0.3", "0.5"],
    }
    assert found["factor"]["0.5"]["migrations"] <= found["factor"]["0.1"]["migrations"]


class TestWindows:
    def test_m10_a_shorter_window_reacts_sooner(self) -> None:
        first = []
        for window in (1.0, 2.0, 5.0):
            scenario = replace(spike(20.0, window), duration_s=45).scaled(SMALL)
            first.append(simulate(scenario, 1).migrations_s[0])
        assert first[0] < first[1] < first[2]

    def test_m10_a_longer_one_is_steadier_on_noise(self) -> None:
        """An even load, every record drawn by itself: each move is useless."""
        moved = []
        for window in (1.0, 8.0):
            noisy = replace(fixed_skew("noise", 3, 0, 0.0, 60), window_s=window, arrivals="random")
            run = simulate(noisy.scaled(SMALL), 1)
            moved.append(sum(len(entry.moves) for entry in run.journal.of(Decided)))
        assert moved[0] > 3 * moved[1]

    def test_e10_the_short_spike_is_cured_less_than_the_long_one(self) -> None:
        gains = []
        for length, window in ((20.0, 2.0), (10.0, 1.0)):
            scenario = replace(spike(length, window), duration_s=60).scaled(SMALL)
            records = stream_of(scenario, 1)
            off, on = (simulate(arm, 1, stream=records) for arm in (scenario.off(), scenario))
            gains.append(1 - on.area / off.area)
        assert 0 < gains[1] < gains[0]

    def test_f3_moving_at_once_helps_on_a_shorter_spike_still(self) -> None:
        """A spike of 5 s: the backlog goes along with its slots instead of being served before they may go."""
        phases = (Phase(0.0), Phase(20.0, (0,), 0.8), Phase(25.0))
        scenario = replace(spike(5.0, 1.0), phases=phases, duration_s=40).scaled(SMALL)
        records = stream_of(scenario, 1)
        off, theirs = (simulate(arm, 1, stream=records) for arm in (scenario.off(), scenario))
        balancer = Balancer(scenario.table, Even(), Sudden(), BalancerOptions(window_epochs=5))
        plant = replace(plant_of(scenario, 1), period=100_000)
        ours = engine_run(records, plant, balancer, at_once=True).run()
        assert float(ours.latency_s.mean()) * scenario.duration_s < 0.5 * theirs.area < off.area


def test_e12_some_hotspots_are_relieved_and_some_are_not() -> None:
    scenario = wandering(0.8, (0, 1, 2), 30.0, 1.0).scaled(SMALL)
    records = stream_of(scenario, 1)
    off, on = (simulate(arm, 1, stream=records) for arm in (scenario.off(), scenario))
    ratios = [small / large for large, small in episodes(Arms(off, on, on))]
    assert min(ratios) < 0.5 < max(ratios)


@pytest.mark.parametrize("id_", ["AF-E13", "AF-E14", "AF-E15"])
def test_quick_runs_come_out_as_recorded(id_: str) -> None:
    experiment = next(found for found in EXPERIMENTS if found.id == id_)
    outcome = experiment.run(Settings(quick=True))
    assert outcome.verdict is Verdict.MATCH
    assert outcome.seeds == (1,)


@pytest.mark.parametrize("id_", ["AF-E1", "AF-E9"])
def test_a_run_over_seeds_says_which(id_: str) -> None:
    experiment = next(found for found in EXPERIMENTS if found.id == id_)
    assert experiment.run(Settings(quick=True, seed=4, repeats=2)).seeds == (4, 5)


def test_there_are_15_and_each_has_a_rule() -> None:
    assert [experiment.id for experiment in EXPERIMENTS] == [f"AF-E{at}" for at in range(1, 16)]
    assert all("match if" in str(experiment.rule) for experiment in EXPERIMENTS)
