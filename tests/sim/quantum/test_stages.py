"""Several stages in one dataflow (FX-F3): each balanced on its own; nothing is lost, and all come to rest."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from evenflow.control import Balancer
from evenflow.errors import InputError
from evenflow.migration import strategy_named
from evenflow.model.slots import FloatArray
from evenflow.policies import policy_named
from evenflow.sim.quantum import (
    Cluster,
    ConservationError,
    During,
    Flow,
    Handover,
    Network,
    Scenario,
    Stage,
    Steady,
    Timeline,
    Way,
    simulate,
    simulate_stages,
    uniform,
    with_hotspot,
)

LANES, SLOTS = 4, 64
FIRST_HOT, SECOND_HOT = [0, 4, 8, 12], [1, 5, 9]  # all of them on lane 0, and on lane 1


def linked() -> FloatArray:
    """Most records of a slot go to one slot of the next stage: what happens there is felt in one place here."""
    mixing = np.full((SLOTS, SLOTS), 0.3 / SLOTS)
    mixing[np.arange(SLOTS), (7 * np.arange(SLOTS) + 3) % SLOTS] += 0.7
    return mixing


def skewed(per_s: float, capacity: float, hot: list[int], duration_s: float = 30.0) -> Scenario:
    """Four lanes that serve `capacity` records/s together; 40 % of what comes is for slots of one of them."""
    return Scenario(
        lanes=LANES,
        slots=SLOTS,
        arrivals=with_hotspot(SLOTS, per_s, hot, 0.4),
        seconds_per_record=LANES / capacity,
        state_bytes=2e5,
        duration_s=duration_s,
        step_s=1 / 16,  # a rate times a step, over a step, is the rate again to the last bit
        epoch_steps=8,
        poisson=False,
        handover=Handover(Way.AT_ONCE, 1e-8, 1e-8, 1e-3, 1e-3),
        network=Network(5e6, 1e7),
    )


def two(
    per_s: float, capacities: tuple[float, float], policies: tuple[str, str], mixing: FloatArray | None = None
) -> tuple[Timeline, ...]:
    first, second = (policy_named(name) for name in policies)
    return simulate_stages(
        [
            Stage(skewed(per_s, capacities[0], FIRST_HOT), first),
            Stage(skewed(per_s, capacities[1], SECOND_HOT), second, mixing=mixing),
        ]
    )


def ends_at(timeline: Timeline) -> float:
    """Records per second in the last 10 s."""
    return float(timeline.throughput[-20:].mean())


def passed_on(rates: FloatArray, capacity: float) -> FloatArray:
    """By hand: what is served of each slot when nothing moves; a lane with too much cuts its slots in proportion."""
    lane = np.arange(SLOTS) % LANES
    load = np.bincount(lane, weights=rates)
    return rates * np.minimum(1.0, capacity / LANES / load)[lane]


def passed_on_twice(
    per_s: float, capacities: tuple[float, float], mixing: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """By hand: what both stages serve of each slot when nothing moves."""
    once = passed_on(with_hotspot(SLOTS, per_s, FIRST_HOT, 0.4).rates(0.0), capacities[0])
    shares = with_hotspot(SLOTS, 1.0, SECOND_HOT, 0.4).rates(0.0)
    return once, passed_on(once.sum() * shares if mixing is None else once @ mixing, capacities[1])


PAIRS = [("even", "flux-load"), ("even", "even"), ("flux-load", "even"), ("flux-load", "flux-load")]


@pytest.mark.parametrize("mixing", [None, linked()], ids=["keys apart", "keys linked"])
@pytest.mark.parametrize("policies", PAIRS)
def test_two_policies_come_to_rest_on_a_steady_load_and_all_is_served(
    policies: tuple[str, str], mixing: FloatArray | None
) -> None:
    stages = two(4000, (5000, 5000), policies, mixing)  # four fifths of what lanes can do, if it is spread
    for timeline in stages:
        assert timeline.imbalance[0] > 1.3
        assert 0 < timeline.moves.sum() == timeline.moves_settled.sum()
        assert timeline.last_move_s is not None
        assert timeline.last_move_s <= 20  # of 30 s: in the last 20 windows nothing moves
        assert np.count_nonzero(timeline.moves) <= 20
        assert timeline.imbalance[-1] < 1.2
    assert ends_at(stages[-1]) == pytest.approx(4000, rel=1e-3)


@pytest.mark.parametrize("capacities", [(5000.0, 6500.0), (6500.0, 5000.0)], ids=["first", "second"])
@pytest.mark.parametrize("policies", PAIRS)
def test_the_whole_is_as_fast_as_the_more_loaded_stage(
    policies: tuple[str, str], capacities: tuple[float, float]
) -> None:
    first, second = two(6000, capacities, policies)
    at = int(np.argmin(capacities))
    # Flux leaves lanes within 1.2 of each other; what the slowest leaves unused is lost to the whole.
    least = 0.97 if policies[at] == "even" else 1 / 1.2
    assert least * 5000 <= ends_at(second) <= 5000 * 1.001
    assert ends_at(first) >= ends_at(second) * 0.999
    assert ends_at(second) > 1.15 * passed_on_twice(6000, capacities)[1].sum()


@pytest.mark.parametrize("mixing", [None, linked()], ids=["keys apart", "keys linked"])
def test_without_balancing_the_rates_are_those_computed_by_hand(mixing: FloatArray | None) -> None:
    first, second = two(4000, (5000, 3600), ("static", "static"), mixing)
    once, twice = passed_on_twice(4000, (5000, 3600), mixing)
    assert ends_at(first) == pytest.approx(once.sum())
    assert ends_at(second) == pytest.approx(twice.sum(), rel=1e-3)
    assert twice.sum() < once.sum() < 4000
    assert second.arrived.sum() == pytest.approx(first.served.sum(), rel=1e-12)


def test_the_first_stage_runs_as_it_would_alone() -> None:
    scenario = replace(skewed(4000, 5000, FIRST_HOT, 10), poisson=True)
    later = Stage(skewed(4000, 5000, SECOND_HOT, 10), policy_named("even"))
    first, _ = simulate_stages([Stage(scenario, policy_named("even")), later], seed=3)
    assert first.as_dict() == simulate(scenario, policy_named("even"), seed=3).as_dict()


@dataclass(frozen=True)
class Recorded:
    """What came in each step."""

    by_step: FloatArray
    step_s: float

    def rates(self, at_s: float) -> FloatArray:
        rates: FloatArray = self.by_step[round(at_s / self.step_s)] / self.step_s
        return rates


@pytest.mark.parametrize("policy", ["static", "even", "flux-load"])
def test_a_later_stage_runs_as_if_what_was_served_before_it_came_from_a_recording(policy: str) -> None:
    one, other = skewed(4000, 5000, FIRST_HOT, 10), skewed(4000, 5000, SECOND_HOT, 10)
    _, second = simulate_stages([Stage(one, policy_named("even")), Stage(other, policy_named(policy), mixing=linked())])
    cluster = Cluster(
        one, Balancer(one.first_table, policy_named("even"), strategy_named("paced")), np.random.default_rng(1)
    )
    served = np.zeros((one.steps + 1, SLOTS))
    for at in range(one.steps):
        cluster.step()
        served[at + 1] = cluster.counts.served
    recorded = Recorded(np.array([row @ linked() for row in np.diff(served, axis=0)]), other.step_s)
    alone = simulate(replace(other, arrivals=recorded), policy_named(policy))
    assert second.arrived == pytest.approx(alone.arrived)
    assert second.moves.tolist() == alone.moves.tolist()
    assert second.served == pytest.approx(alone.served, abs=1e-6)
    assert second.backlog == pytest.approx(alone.backlog, abs=1e-6)


def test_nothing_is_lost_between_stages_that_drop_and_make_records() -> None:
    scenario = skewed(4000, 5000, FIRST_HOT, 10)
    halves, doubles = np.full((SLOTS, 16), 0.5 / 16), np.full((16, SLOTS), 2.0 / SLOTS)
    middle = replace(scenario, slots=16, arrivals=uniform(16, 1.0), queue_records=20.0)
    even = policy_named("even")
    one, two, three = simulate_stages(
        [Stage(scenario, even), Stage(middle, even, mixing=halves), Stage(scenario, even, mixing=doubles)]
    )
    assert two.arrived.sum() + two.refused.sum() == pytest.approx(0.5 * one.served.sum(), rel=1e-9)
    assert three.arrived.sum() == pytest.approx(2.0 * two.served.sum(), rel=1e-9)


@dataclass(frozen=True, eq=False)
class Leaky(Stage):
    """A stage to which one record in a thousand never comes."""

    def by_own_key(self, served: FloatArray, at_s: float) -> FloatArray:
        return super().by_own_key(served, at_s) * (0.999 if at_s > 1 else 1.0)


def test_a_record_lost_between_stages_is_found_out() -> None:
    scenario = skewed(4000, 5000, FIRST_HOT, 4)
    with pytest.raises(ConservationError, match="records on, to the next one came"):
        simulate_stages([Stage(scenario, policy_named("static")), Leaky(scenario, policy_named("static"))])


def test_a_stage_without_shares_while_nothing_comes_is_none_the_worse_for_it() -> None:
    scenario = skewed(4000, 5000, FIRST_HOT, 4)
    late = replace(scenario, arrivals=During(Steady(np.zeros(SLOTS)), scenario.arrivals, 1.0))
    first, second = simulate_stages([Stage(late, policy_named("static")), Stage(late, policy_named("static"))])
    assert second.arrived.sum() == pytest.approx(first.served.sum(), rel=1e-9)


class TestRefusals:
    one = Stage(skewed(4000, 5000, FIRST_HOT, 4), policy_named("static"))

    def test_no_stage_at_all(self) -> None:
        with pytest.raises(InputError, match="at least 1 stage"):
            simulate_stages([])

    @pytest.mark.parametrize("change", [{"step_s": 1 / 8}, {"duration_s": 8.0}])
    def test_stages_that_cannot_go_in_lock_step(self, change: dict[str, float]) -> None:
        other = replace(self.one, scenario=replace(self.one.scenario, **change))  # type: ignore[arg-type]
        with pytest.raises(InputError, match="give both the same step_s"):
            simulate_stages([self.one, other])

    def test_a_later_stage_with_producers_of_its_own(self) -> None:
        other = replace(self.one, scenario=replace(self.one.scenario, flow=Flow()))
        with pytest.raises(InputError, match="only the first may have a flow"):
            simulate_stages([self.one, other])

    def test_arrivals_without_shares_for_what_comes(self) -> None:
        scenario = self.one.scenario
        pausing = replace(scenario, arrivals=During(scenario.arrivals, Steady(np.zeros(SLOTS)), 1.0))
        with pytest.raises(InputError, match=r"at 1 s a stage gets .* its arrivals give no slot a share"):
            simulate_stages([self.one, replace(self.one, scenario=pausing)])

    def test_a_mixing_that_does_not_fit(self) -> None:
        with pytest.raises(InputError, match=r"mixing of stage 2 must be \(64, 64\), slots before by slots"):
            simulate_stages([self.one, replace(self.one, mixing=np.eye(8))])
        with pytest.raises(InputError, match="mixing of stage 2 must not be negative"):
            simulate_stages([self.one, replace(self.one, mixing=-np.eye(SLOTS))])
