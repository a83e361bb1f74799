from __future__ import annotations

import numpy as np
import pytest

from evenflow.control import BalancerOptions
from evenflow.errors import InputError
from evenflow.model import LoadView, MoveCost
from evenflow.policies import Proposal, policy_named
from evenflow.sim.quantum import Handover, Network, Scenario, Way, simulate, uniform, with_hotspot


def hot(way: Way = Way.AT_TIMESTAMP, duration_s: float = 10.0) -> Scenario:
    return Scenario(
        lanes=4,
        slots=32,
        arrivals=with_hotspot(32, 120_000, [0, 4, 8], 0.4),
        state_bytes=1e5,
        duration_s=duration_s,
        step_s=0.05,
        epoch_steps=10,
        mergeable=True,
        handover=Handover(way, 1e-9, 1e-9),
        network=Network(31.25e6, 62.5e6),
    )


@pytest.mark.parametrize("way", Way)
def test_even_relieves_the_hot_lane_whatever_the_way_to_hand_over(way: Way) -> None:
    static, even = simulate(hot(way), policy_named("static")), simulate(hot(way), policy_named("even"))
    assert static.moves.sum() == 0
    assert even.moves.sum() > 0
    assert even.moves.sum() == even.moves_settled.sum()
    assert even.backlog[-1].sum() < 0.1 * static.backlog[-1].sum()
    assert even.imbalance[-1] < 1.2 < static.imbalance[-1]


@pytest.mark.parametrize("way", Way)
def test_the_policy_is_told_whether_all_lanes_stop_for_a_move(way: Way) -> None:
    told = set()

    class Listener:
        def propose(self, view: LoadView) -> Proposal:
            told.add(view.move_cost.stops_all)
            return Proposal()

    simulate(hot(way, duration_s=2.0), Listener())
    assert told == {way is Way.PAUSE_ALL}
    told.clear()
    simulate(hot(way, duration_s=2.0), Listener(), options=BalancerOptions(move_cost=MoveCost(stops_all=True)))
    assert told == {True}, "by the caller too"


@pytest.mark.parametrize("load", [0.9, 0.95, 0.97, 1.1])
def test_even_comes_to_rest_however_full_the_lanes_are(load: float) -> None:
    """State is slow to move, so each move leaves something waiting: to even that out as well would never end."""
    scenario = Scenario(
        lanes=4,
        slots=64,
        arrivals=with_hotspot(64, load * 4000, [0, 4, 8, 12], 0.4),
        seconds_per_record=1e-3,
        state_bytes=2e5,
        duration_s=60,
        step_s=1 / 16,
        epoch_steps=8,
        poisson=False,
        handover=Handover(Way.AT_ONCE, 1e-8, 1e-8, 1e-3, 1e-3),
        network=Network(5e6, 1e7),
    )
    timeline = simulate(scenario, policy_named("even"))
    half = timeline.moves.size // 2
    assert timeline.moves.sum() > 0
    assert timeline.moves[half:].sum() == 0
    assert timeline.throughput[half:].mean() == pytest.approx(4000 * min(1.0, load), rel=0.01)


def test_the_same_seed_gives_the_same_timeline() -> None:
    one, other = (simulate(hot(duration_s=3), policy_named("even"), seed=3).as_dict() for _ in range(2))
    assert one == other
    assert simulate(hot(duration_s=3), policy_named("even"), seed=4).as_dict() != one


def test_a_lane_with_time_to_spare_serves_at_once() -> None:
    scenario = Scenario(4, 16, uniform(16, 1000.0), seconds_per_record=1e-4, duration_s=5, step_s=0.1)
    timeline = simulate(scenario, policy_named("static"))
    assert timeline.backlog.sum() == 0
    assert np.all(timeline.latency_max_s <= 1e-4 * (1 + 1e-9))
    assert timeline.throughput.mean() == pytest.approx(1000, rel=0.1)


def test_an_overloaded_lane_falls_behind_at_the_rate_that_is_too_much() -> None:
    scenario = Scenario(1, 4, uniform(4, 200.0), seconds_per_record=0.01, duration_s=10, step_s=0.1, poisson=False)
    timeline = simulate(scenario, policy_named("static"))
    assert timeline.throughput == pytest.approx(np.full(10, 100.0))
    assert timeline.backlog[-1].sum() == pytest.approx(1000.0)
    # What is served at the end of 10 s came at 5 s.
    assert timeline.latency_max_s[-1] == pytest.approx(5.0, abs=0.2)


@pytest.mark.parametrize("cost", [0.0, [0.0, 1e-3, 1e-3, 1e-3]])
def test_records_that_cost_nothing_are_refused(cost: float | list[float]) -> None:
    with pytest.raises(InputError, match="seconds_per_record must be above 0, got 0"):
        Scenario(2, 4, uniform(4, 100.0), seconds_per_record=cost)


@pytest.mark.parametrize("change", [{"duration_s": np.inf}, {"step_s": 1e-320}, {"epoch_steps": 10**12}])
def test_a_run_that_would_never_end_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InputError, match="would never end"):
        Scenario(2, 4, uniform(4, 100.0), **change)  # type: ignore[arg-type]


def test_forward_and_merge_is_refused_unless_the_operator_is_mergeable() -> None:
    with pytest.raises(InputError, match="mergeable"):
        Scenario(2, 4, uniform(4, 1.0), handover=Handover(Way.FORWARD_MERGE))
