"""Guo and Zhou's mechanisms as their experiments use them, at small sizes."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.model import LoadView, RoutingTable
from evenflow.policies import POLICIES, policy_named, proposal_of
from evenflow.reproduce.experiment import Settings, Verdict
from evenflow.reproduce.guo_zhou import EXPERIMENTS
from evenflow.reproduce.guo_zhou.change import OnChange, chi_square_excess
from evenflow.reproduce.guo_zhou.definitions import run_e9
from evenflow.reproduce.guo_zhou.frequency import one_change
from evenflow.reproduce.guo_zhou.histograms import policy_with_seed, run_policy, window_with
from evenflow.reproduce.guo_zhou.imbalance import trace as synthetic_trace
from evenflow.reproduce.guo_zhou.latency import elastic_ramp, ramp
from evenflow.reproduce.guo_zhou.streams import (
    HISTORY,
    SUBSTREAMS,
    Words,
    gaussian_shares,
    phased_rates,
    poisson_windows,
    zipf_shares,
)
from evenflow.reproduce.guo_zhou.trade import trace
from evenflow.reproduce.guo_zhou.tuple_runs import Stage, TupleRun
from evenflow.sim.tuples import PauseCost


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


@pytest.mark.parametrize("handover", ["pause-all", "moved-only"])
def test_a_pause_loses_nothing_keeps_order_and_shows_in_the_latency(handover: str) -> None:
    random = np.random.default_rng(3)
    rates = Words(25).rates(4, random)
    run = TupleRun(
        policy_with_seed("uhlb-fresh", 1),  # moves nearly everything, every window
        RoutingTable.even(SUBSTREAMS, 4),
        random,
        PauseCost(0.05, 1e-4),
        "pause-all" if handover == "pause-all" else "moved-only",
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
    whole, part = (ramp("elb", 1, 0.25, handover, most=4).latency_s.mean() for handover in ("pause-all", "moved-only"))
    assert part < whole


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
