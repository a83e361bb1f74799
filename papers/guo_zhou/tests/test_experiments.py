"""Guo and Zhou's mechanisms as their experiments use them, at small sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from evenflow.model import LoadView, RoutingTable
from evenflow.policies import POLICIES, policy_named, proposal_of
from papers.experiment import Check, Settings, Verdict
from papers.guo_zhou import EXPERIMENTS, imbalance, latency, speed_up
from papers.guo_zhou.change import OnChange, chi_square_excess
from papers.guo_zhou.definitions import run_e9
from papers.guo_zhou.frequency import one_change
from papers.guo_zhou.histograms import policy_with_seed, run_policy, window_with
from papers.guo_zhou.imbalance import trace as synthetic_trace
from papers.guo_zhou.latency import FOUR, MAX_LANES, fluctuation, fluctuation_check, latency_checks, ramp
from papers.guo_zhou.speed_up import Elastic, elastic_check, elastic_ramp, speed_up_checks
from papers.guo_zhou.streams import (
    HISTORY,
    SUBSTREAMS,
    Words,
    gaussian_shares,
    phased_rates,
    poisson_windows,
    zipf_shares,
)
from papers.guo_zhou.trade import deviation_check, mean_check, movement_order_check, trace, why_out_of_order
from papers.guo_zhou.tuple_runs import Handover, Stage, TupleRun
from papers.guo_zhou.tuples import PauseCost

LANES = range(1, MAX_LANES + 1)


def test_the_ids_are_those_of_the_paper() -> None:
    assert [experiment.id for experiment in EXPERIMENTS] == [f"GZ-E{number}" for number in range(1, 10)]


def test_streams_have_the_papers_rates() -> None:
    random = np.random.default_rng(1)
    for shares in (gaussian_shares(), zipf_shares()):
        rows = poisson_windows(shares, 5, 600_000, random)
        assert rows.shape == (5, SUBSTREAMS)
        assert rows.sum(axis=1) == pytest.approx(600_000, rel=0.01)
    words = Words().windows(5, 6033, random)
    assert words.sum(axis=1) == pytest.approx(6033, rel=0.1)
    assert Words(25).rates(3, random).max() < Words().rates(3, random).max()
    assert phased_rates(4, 16, random).sum(axis=1) == pytest.approx(1)


def test_the_definitions_are_exact() -> None:
    outcome = run_e9(Settings(quick=True, seed=3))
    assert outcome.verdict is Verdict.MATCH


def test_a_window_is_measured_under_the_table_decided_before_it() -> None:
    rows = 10 * np.array([[9, 1, 1, 1], [9, 1, 1, 1], [1, 1, 1, 9]])
    found = run_policy(policy_named("elb"), rows, RoutingTable(np.array([0, 0, 0, 1]), (0, 1)), 1)
    assert found.table.owners.tolist() != [0, 0, 0, 1]
    after_first = found.variance[0]
    assert after_first < np.var([110, 10])
    assert found.served.tolist() == [120, 120]
    assert found.moved[0] > 0


def test_clb_as_printed_is_worse_than_static_and_moments_mend_it() -> None:
    mean = {name: trace(name, 1, 30).variance.mean() for name in ("clb", "clb-moment", "static", "elb")}
    assert mean["clb-moment"] < mean["static"] < mean["clb"]
    assert mean["elb"] < mean["static"]


def test_zipf_fluctuates_more_than_gaussian() -> None:
    assert (
        synthetic_trace("clb", "S2", 10, 1, 40).variance.std() > synthetic_trace("clb", "S1", 10, 1, 40).variance.std()
    )


def test_movement_per_window_falls_with_the_period() -> None:
    rows = Words().windows(HISTORY + 24, 6033, np.random.default_rng(2))
    moved = [
        run_policy(policy_named("clb-moment", period=period), rows, RoutingTable.even(SUBSTREAMS, 10), HISTORY).moved
        for period in (1, 4, 12)
    ]
    shares = [float(values.mean()) for values in moved]
    assert shares == sorted(shares, reverse=True)
    assert [int(np.count_nonzero(values)) for values in moved] == [24, 6, 2]


def test_both_objectives_are_reported_for_every_policy() -> None:
    for name in POLICIES:
        found = trace(name, 1, 3)
        assert found.variance.shape == found.moved.shape == (3,)
        assert np.isfinite(found.variance).all()
        assert ((found.moved >= 0) & (found.moved <= 1)).all()


def test_elb_follows_the_load_up_and_down_and_loses_nothing() -> None:
    found = elastic_ramp(seed=4)
    assert found.lanes.tolist() == np.ceil(found.needed).astype(int).tolist()
    top = int(found.lanes.argmax())
    assert found.lanes[0] == 1
    assert found.lanes[top] >= 12
    assert found.lanes[-1] <= 2
    assert found.lost == 0


@pytest.mark.parametrize("handover", ["pause all", "pause moved"])
def test_a_pause_loses_nothing_keeps_order_and_shows_in_the_latency(handover: Handover) -> None:
    random = np.random.default_rng(3)
    rates = Words(25).rates(4, random)
    run = TupleRun(
        policy_with_seed("uhlb-fresh", 1),  # moves nearly everything, every window
        RoutingTable.even(SUBSTREAMS, 4),
        random,
        PauseCost(0.05, 1e-4),
        handover,
        free_at=np.zeros(4),
    )
    result = run.stage(Stage(4, rates, 2000.0, 0.5))
    still = TupleRun(
        policy_named("static"), RoutingTable.even(SUBSTREAMS, 4), random, PauseCost(0.05, 1e-4), free_at=np.zeros(4)
    )
    calm = still.stage(Stage(4, rates, 2000.0, 0.5))
    assert result.in_order
    assert result.latency_s.size == result.done_s.size == pytest.approx(4000, rel=0.1)
    assert result.moved_share[1:].min() > 0.5
    assert calm.moved_share.max() == 0
    assert result.latency_s.max() > 2 * calm.latency_s.max()


def test_pausing_only_what_moves_is_kinder() -> None:
    whole = ramp("elb", 1, 0.25, "pause all", most=4)
    part = ramp("elb", 1, 0.25, "pause moved", most=4)
    assert part.latency_s.mean() < whole.latency_s.mean()


def seeds_of(middle: float) -> np.ndarray:
    """Return speed-ups of three seeds over all lanes, `middle` times linear in the middle one."""
    return np.array(
        [[share * lanes if lanes > 1 else 1.0 for lanes in LANES] for share in (middle - 0.02, middle, middle + 0.02)]
    )


class TestSpeedUp:
    flat: ClassVar = {name: np.ones((3, MAX_LANES)) for name in ("elb", "pkg", "uhlb")}

    def verdicts(self, **middle: float) -> list[str]:
        served = {name.replace("_", "-"): seeds_of(share) for name, share in middle.items()}
        return [check.verdict.value for check in speed_up_checks(served, self.flat)]

    def test_clb_is_held_to_the_linear_speed_up_that_the_paper_states(self) -> None:
        rest = {"elb": 0.99, "pkg": 0.9, "uhlb": 0.85, "clb_moment": 0.98}
        assert self.verdicts(**rest, clb=0.08) == ["match", "differs", "match", "match"]
        assert self.verdicts(**rest, clb=0.83) == ["match", "shape holds", "match", "match"]
        assert self.verdicts(**rest, clb=0.96) == ["match", "match", "match", "shape holds"]

    def test_a_hair_is_no_difference(self) -> None:
        assert self.verdicts(elb=0.99, pkg=0.989, uhlb=0.985, clb=0.984, clb_moment=1.0)[2:] == ["differs"] * 2
        assert self.verdicts(elb=0.99, pkg=0.989, uhlb=0.96, clb=0.95, clb_moment=1.0)[2] == "shape holds"

    def test_the_range_over_the_seeds_is_shown(self) -> None:
        served = {name: seeds_of(0.9) for name in (*FOUR, "clb-moment")}
        checks = speed_up_checks(served, self.flat)
        assert checks[0].ours == "at most 10.0% (8.0% to 12.0%) off"
        assert checks[3].ours.startswith("clb 13.5 (13.2 to 13.8)")
        assert checks[3].why == "ELB and PKG and UHLB did not beat it"

    def test_lanes_by_the_rule(self) -> None:
        right = Elastic(np.array([1, 2, 1]), np.array([0.8, 1.6, 0.7]), 0.0)
        assert elastic_check([right]).verdict is Verdict.MATCH
        assert elastic_check([right, replace(right, lost=1.0)]).verdict is Verdict.DIFFERS
        assert elastic_check([right, replace(right, lanes=np.array([1, 1, 1]))]).verdict is Verdict.DIFFERS


class TestTable2:
    below = (400.0, 1.0, 1.0, 2.0)  # maximum, mean, median, 95th percentile
    above = (900.0, 2.0, 2.0, 4.0)

    def checks(self, **rows: tuple[float, float, float, float]) -> tuple[Check, ...]:
        rows = {"clb_moment": self.below, "even": self.below, "pkg": self.above, "uhlb": self.above, **rows}
        return latency_checks({name.replace("_", "-"): [row] * 3 for name, row in rows.items()})

    def test_every_column_is_compared(self) -> None:
        found = self.checks(clb=self.below, elb=self.below)
        assert [check.verdict for check in found] == [Verdict.MATCH] * 5
        assert [check.published.split(", ")[1] for check in found[:4]] == [
            "elb 1109.51",
            "elb 0.73",
            "elb 0.33",
            "elb 0.68",
        ]
        worse = self.checks(clb=self.below, elb=(400.0, 1.0, 1.0, 5.0))
        assert [check.verdict for check in worse[:4]] == [Verdict.MATCH] * 3 + [Verdict.DIFFERS]

    def test_the_reason_is_that_of_what_came_out(self) -> None:
        only_elb = self.checks(clb=(9e3, 9.0, 9.0, 9.0), elb=self.below)[1]
        assert only_elb.verdict is Verdict.SHAPE
        assert "ELB holds, CLB does not" in only_elb.why
        assert "does hold" in only_elb.why
        neither = self.checks(clb=(9e3, 9.0, 9.0, 9.0), elb=(9e3, 9.0, 9.0, 9.0), clb_moment=(9e3, 9.0, 9.0, 9.0))[1]
        assert neither.verdict is Verdict.DIFFERS
        assert "ELB holds" not in neither.why
        assert "does not hold either" in neither.why
        assert "ELB does not hold" in neither.why


def test_fluctuation_is_that_of_each_run_with_its_range() -> None:
    assert fluctuation(np.array([[9.0, 1.0, 1.0], [9.0, 1.0, np.e**2]])).tolist() == pytest.approx([0, 1])
    spread = {name: np.array([0.1, 0.2, 0.3]) for name in (*FOUR, "clb-moment", "even")}
    wild = {name: np.array([0.4, 0.5, 0.9]) for name in ("pkg", "uhlb")}
    assert fluctuation_check({**spread, **wild}).verdict is Verdict.MATCH
    assert "pkg 0.50 (0.40 to 0.90)" in fluctuation_check({**spread, **wild}).ours
    only_elb = fluctuation_check({**spread, **wild, "clb": np.array([1.0, 2.0, 3.0])})
    assert only_elb.verdict is Verdict.SHAPE
    assert "ELB holds" in only_elb.why
    neither = fluctuation_check(spread)
    assert neither.verdict is Verdict.DIFFERS
    assert "ELB holds" not in neither.why


@pytest.mark.parametrize("id_", ["GZ-E5", "GZ-E6", "GZ-E7"])
def test_ramps_say_their_seeds_and_show_the_range_over_them(id_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (latency, speed_up):
        monkeypatch.setattr(module, "MAX_LANES", 3)
    monkeypatch.setattr(latency, "_STAGE_WINDOWS", 3)
    monkeypatch.setattr(latency, "_window_s", lambda _: 0.05)
    run = next(one.run for one in EXPERIMENTS if one.id == id_)
    outcome = run(Settings(quick=True, seed=4, repeats=2))
    assert outcome.seeds == (4, 5)
    assert " to " in outcome.checks[0].ours
    assert outcome.picture is not None
    for series in outcome.picture.panels[0].series:
        assert series.low is not None
        assert series.high is not None
        assert all(low <= y <= high for low, y, high in zip(series.low, series.y, series.high, strict=True))


class TestOrders:
    def test_movement(self) -> None:
        three = {"elb": 10.0, "pkg": 20.0, "uhlb": 30.0}
        assert movement_order_check(1.0, three).verdict is Verdict.MATCH
        assert "ELB <= PKG <= UHLB holds" in movement_order_check(11.0, three).why
        assert movement_order_check(11.0, three).verdict is Verdict.SHAPE
        other = movement_order_check(1.0, {**three, "elb": 25.0})
        assert other.verdict is Verdict.DIFFERS
        assert "does not hold" in other.why

    def test_imbalance_says_what_is_out_of_order(self) -> None:
        assert "ELB with" in why_out_of_order({"uhlb": 2, "pkg": 3, "elb": 1, "clb": 4})
        last = why_out_of_order({"uhlb": 1, "pkg": 2, "elb": 4, "clb": 3})
        assert "ELB with" not in last
        assert "CLB does not come last" in last

    def test_mean_and_deviation_of_the_imbalance_are_each_judged(self) -> None:
        mean, deviation = [6.1e4] * 3, [6.1e4] * 3
        assert mean_check("clb", mean).verdict is Verdict.MATCH
        found = deviation_check("clb", deviation, mean)
        assert found.verdict is Verdict.DIFFERS
        assert "8% published and 100% here" in found.why


def test_the_paper_says_nothing_of_policies_that_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imbalance, "WINDOWS", 8)
    outcome = imbalance.run_e2(Settings(quick=True))
    assert not [check for check in outcome.checks if check.what.startswith(("even", "clb-moment"))]
    assert "even, n = 10" in outcome.data["mean"]
    assert outcome.seeds == (1,)


def test_one_change_leads_to_one_balancing_soon_after_it() -> None:
    rows = one_change(5)
    table = RoutingTable.even(SUBSTREAMS, 10)
    found = run_policy(OnChange(policy_named("elb")), rows, table, HISTORY)
    eager = run_policy(policy_named("elb"), rows, table, HISTORY)
    assert np.flatnonzero(found.moved).tolist() == [0, 61]  # the start, and the first window that can know
    assert found.moved.sum() < eager.moved.sum() / 2
    assert found.variance.mean() < 2.5 * eager.variance.mean()


def test_a_change_is_one_of_shares_not_of_volume() -> None:
    random = np.random.default_rng(7)
    one, double = (random.poisson(volume * zipf_shares()) for volume in (6000, 12_000))
    other = random.poisson(6000 * zipf_shares()[::-1])
    assert chi_square_excess(one, double) < 4
    assert chi_square_excess(one, other) > 100
    assert chi_square_excess(one, np.zeros_like(one)) == 0
    policy = OnChange(policy_named("elb"))
    table = RoutingTable.even(SUBSTREAMS, 10)
    first = proposal_of(policy, LoadView((window_with(one, table),), table))
    again = proposal_of(policy, LoadView((window_with(double, table),), table, memory=first.memory))
    assert first.moves
    assert again.moves == ()
    assert "has not changed" in again.note
