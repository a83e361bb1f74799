"""Quality of service (FX-F4): important slots are served first and refused last, and what is refused is counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from evenflow.control import Balancer
from evenflow.errors import InputError
from evenflow.migration import strategy_named
from evenflow.model import Move
from evenflow.policies import policy_named
from evenflow.sim.quantum import (
    Arrivals,
    Cluster,
    During,
    Flow,
    Handover,
    Memory,
    Network,
    Scenario,
    ServiceClass,
    Steady,
    Timeline,
    Way,
    simulate,
    uniform,
    with_hotspot,
)
from evenflow.sim.quantum.admission import Queues
from evenflow.sim.quantum.memory import Fixed

SLOTS, IMPORTANT = 8, (0, 1, 2, 3)  # two of each lane's four slots
CAPACITY, QUEUE = 1000.0, 100.0


def overload(arrivals: Arrivals | None = None, *, queue: float | None = QUEUE) -> Scenario:
    """Two lanes of 1,000 records/s that get 1.5 times as many, half of them important."""
    return Scenario(
        lanes=2,
        slots=SLOTS,
        arrivals=arrivals or uniform(SLOTS, 1.5 * 2 * CAPACITY),
        seconds_per_record=1 / CAPACITY,
        duration_s=10,
        step_s=0.01,
        epoch_steps=100,
        poisson=False,
        queue_records=queue,
        important=IMPORTANT,
    )


def run(scenario: Scenario, seed: int = 1) -> Timeline:
    return simulate(scenario, policy_named("static"), seed=seed)


def important(timeline: Timeline) -> ServiceClass:
    assert timeline.important is not None
    return timeline.important


def test_important_slots_keep_their_bound_under_overload_and_the_drop_is_counted() -> None:
    timeline = run(overload())
    first, rest = important(timeline), timeline.others
    # By hand: 1,500 important records/s of 2,000 that lanes serve leave 500 for 1,500 others, so 1,000 are dropped.
    assert first.served == pytest.approx(np.full(10, 1500.0))
    assert first.refused.sum() == pytest.approx(0, abs=1e-6)
    assert first.latency_s(1.0) <= 0.01
    assert rest.served[1:] == pytest.approx(np.full(9, 500.0))
    assert rest.refused[1:] == pytest.approx(np.full(9, 1000.0))
    # Little's law: what waits (a full queue) over what is served, per lane; at the middle of a step less is there.
    assert rest.latency_s(0.5, since_s=2) == pytest.approx(QUEUE / 250, rel=0.06)
    assert timeline.backlog.max() <= QUEUE + 1e-9


def test_without_classes_all_degrade_alike() -> None:
    timeline = run(replace(overload(), important=None))
    assert timeline.important is None
    assert timeline.others.refused.sum() == timeline.refused.sum()
    assert timeline.latency_s(0.5, since_s=2) == pytest.approx(QUEUE / CAPACITY, rel=0.1)
    assert timeline.refused[1:] == pytest.approx(np.full(9, 1000.0))  # a third of either class


@pytest.mark.parametrize("seed", [1, 2])
def test_chance_does_not_cost_important_records_while_others_wait(seed: int) -> None:
    timeline = run(replace(overload(), poisson=True), seed)
    first, rest = important(timeline), timeline.others
    assert first.refused.sum() == pytest.approx(0, abs=1e-6)
    assert first.latency_s(0.99) < QUEUE / CAPACITY
    assert rest.refused.sum() == pytest.approx(10_000, rel=0.03)
    assert timeline.backlog.max() <= QUEUE + 1e-9


def test_important_records_that_are_too_many_alone_have_the_bound_of_the_queue() -> None:
    timeline = run(overload(Steady([700.0] * 4 + [50.0] * 4)))  # 2,800 important records/s for 2,000
    first, rest = important(timeline), timeline.others
    assert first.latency_s(1.0) <= 1.024 * (QUEUE / CAPACITY + 0.01)
    assert first.refused[1:] == pytest.approx(np.full(9, 800.0))
    assert rest.served[1:].sum() == pytest.approx(0, abs=1e-6)
    assert rest.refused[1:] == pytest.approx(np.full(9, 200.0))


@pytest.mark.parametrize("queue", [None, QUEUE])
def test_important_slots_are_served_as_if_they_were_alone(queue: float | None) -> None:
    rates = np.full(SLOTS, 300.0)
    burst, alone = np.where(np.arange(SLOTS) < 4, 700.0, 300.0), np.where(np.arange(SLOTS) < 4, 1.0, 0.0)
    both = overload(During(Steady(rates), Steady(burst), 2.0, 4.0), queue=queue)
    only = overload(During(Steady(rates * alone), Steady(burst * alone), 2.0, 4.0), queue=queue)
    found, expected = important(run(both)), run(only)
    assert found.latency_s(1.0) > 0.05  # they do wait, for each other
    assert found.arrived == pytest.approx(expected.arrived)
    assert found.refused == pytest.approx(expected.refused, abs=1e-6)
    assert found.histogram == pytest.approx(expected.histogram, abs=1e-6)
    assert (found.refused.sum() > 0) == (queue is not None)


CALM = Steady([0.0] * 4 + [600.0] * 4)  # 1,200 others/s for each lane of 1,000: in the end they fill its queue


def test_important_records_take_the_place_of_others_that_wait() -> None:
    burst = Steady([9000.0] * 4 + [600.0] * 4)
    cluster = cluster_of(overload(During(CALM, burst, 5.0, 5.01)), "static")  # 180 important ones for each lane at once
    for _ in range(1000):
        cluster.step()
        assert sum(cluster._by_lane(cluster.counts.waiting)) <= 2 * QUEUE + 1e-6
    timeline = cluster.timeline()
    first, rest = important(timeline), timeline.others
    assert first.arrived.sum() == pytest.approx(2 * QUEUE)
    assert first.refused.sum() == pytest.approx(2 * (180 - QUEUE))
    assert rest.arrived.sum() + rest.refused.sum() == pytest.approx(2400 * 10)


def test_a_slot_that_drains_before_a_move_is_not_cut_short() -> None:
    burst = Steady([800.0] * 4 + [600.0] * 4)  # 1,600 important records/s for each lane
    cluster = cluster_of(overload(During(CALM, burst, 5.0, 5.5)), "static")
    for _ in range(500):
        cluster.step()
    before = cluster.counts.waiting
    cluster.balancer.request([Move(4, 0, 1)])  # in force at once; queues are full of others
    for _ in range(20):
        cluster.step()
    assert cluster.placement.draining[4]
    assert cluster.counts.waiting[4] == pytest.approx(before[4])
    assert (cluster.counts.waiting[5:] < before[5:] / 2).all()  # the others have made room for important ones
    for _ in range(170):
        cluster.step()
    assert cluster.placement.owner[4] == 1
    assert not cluster.placement.draining[4]
    cluster.check()


@pytest.mark.parametrize("queue", [None, QUEUE])
@pytest.mark.parametrize("chosen", [(), tuple(range(SLOTS))])
def test_if_all_slots_are_of_one_class_nothing_changes(queue: float | None, chosen: tuple[int, ...]) -> None:
    scenario = replace(overload(queue=queue), poisson=True, duration_s=3)
    one_class, plain = run(replace(scenario, important=chosen)), run(replace(scenario, important=None))
    found = one_class.as_dict()
    assert found.pop("important")["arrived"] == (plain.arrived.tolist() if chosen else [0.0] * 3)
    assert found == plain.as_dict()


def skewed(way: Way, share: float, queue: float | None, chosen: set[int]) -> Scenario:
    """Three lanes with half as much again as they can do, and moves that take a while."""
    return Scenario(
        lanes=3,
        slots=12,
        arrivals=with_hotspot(12, 4500, [0, 3], share),
        seconds_per_record=1e-3,
        state_bytes=2e5,
        duration_s=4,
        step_s=0.05,
        epoch_steps=4,
        poisson=False,
        handover=Handover(way, 1e-8, 1e-8, 1e-3, 1e-3),
        network=Network(1e6, 2e6, 0.01),
        queue_records=queue,
        important=sorted(chosen),
    )


def cluster_of(scenario: Scenario, policy: str) -> Cluster:
    balancer = Balancer(scenario.first_table, policy_named(policy), strategy_named("paced"))
    return Cluster(scenario, balancer, np.random.default_rng(1))


ways = st.sampled_from([Way.AT_TIMESTAMP, Way.AT_ONCE, Way.PAUSE_ALL])
policies = st.sampled_from(["static", "even", "flux-load", "clb"])


@given(ways, policies, st.floats(0.1, 0.9), st.sampled_from([None, 30.0, 120.0]), st.sets(st.integers(0, 11)))
@settings(max_examples=20)
def test_the_books_of_both_classes_are_right_whatever_moves(
    way: Way, policy: str, share: float, queue: float | None, chosen: set[int]
) -> None:
    scenario = skewed(way, share, queue, chosen)
    cluster = cluster_of(scenario, policy)
    for _ in range(scenario.steps):
        cluster.step()
    timeline = cluster.timeline()
    rates, mask = scenario.arrivals.rates(0.0), np.isin(np.arange(12), sorted(chosen))
    first, rest = important(timeline), timeline.others
    for found, slots in ((first, mask), (rest, ~mask)):
        waits = cluster.service.waiting()[slots].sum()
        assert found.arrived.sum() + found.refused.sum() == pytest.approx(rates[slots].sum() * 4, abs=1e-6)
        assert found.arrived.sum() == pytest.approx(found.served.sum() + waits, abs=1e-6)
    assert first.served + rest.served == pytest.approx(timeline.served.sum(axis=1), abs=1e-6)
    assert first.refused + rest.refused == pytest.approx(timeline.refused, abs=1e-6)


@given(ways, policies, st.floats(0.1, 0.9), st.sets(st.integers(0, 11)))
@settings(max_examples=15)
def test_order_within_a_slot_holds(way: Way, policy: str, share: float, chosen: set[int]) -> None:
    scenario = skewed(way, share, None, chosen)
    cluster = cluster_of(scenario, policy)
    came = scenario.arrivals.rates(0.0) * scenario.step_s  # the same in every step
    for _ in range(scenario.steps):
        cluster.step()
        left = np.zeros((cluster.at, 12))  # by the step in which it came
        for queue in cluster.service.queues:
            for cohort in queue.cohorts:
                left[cohort.step, cohort.slots] += cohort.left
        # Of each slot: nothing is left of old steps, of one perhaps a part, and all of those that came later.
        begun, untouched = left < came - 1e-6, left > 1e-6
        assert not (begun[1:] & untouched[:-1]).any()


amounts = npst.arrays(np.float64, 6, elements=st.floats(0, 50))


@given(amounts, amounts, npst.arrays(np.bool_, 6), npst.arrays(np.bool_, 6), st.floats(0, 200))
@settings(max_examples=100)
def test_others_are_refused_before_anything_important_is(
    offered: np.ndarray, waiting: np.ndarray, chosen: np.ndarray, drains: np.ndarray, limit: float
) -> None:
    owner, may_go = np.arange(6) % 2, ~chosen & ~drains
    records, share = Queues(waiting, owner, 2, limit).admit_by_class(offered, chosen, may_go)
    assert ((records >= 0) & (records <= offered + 1e-9)).all()
    assert ((share >= 0) & (share <= 1)).all()
    assert not share[~may_go].any()
    kept = waiting * (1 - share)
    for lane in (0, 1):
        mine = owner == lane
        first, rest = mine & chosen, mine & ~chosen
        held = (kept + records)[mine].sum()
        if records[first].sum() < offered[first].sum() - 1e-6:  # important ones are refused: they fill the queue
            assert (waiting + records)[first].sum() >= limit - 1e-6
        if (waiting * share)[mine].sum() > 1e-6:  # others had to go: none of theirs came in, and one for one
            assert records[rest].sum() <= 1e-6
            assert (waiting * share)[mine].sum() <= records[first].sum() + 1e-6
        if not drains[rest].any():
            assert held <= max(limit, waiting[mine].sum()) + 1e-6


class TestRefusals:
    def test_a_slot_there_is_none_of(self) -> None:
        with pytest.raises(InputError, match="important: there is no slot 8; slots are 0 to 7"):
            replace(overload(), important=[8])

    def test_queues_that_are_not_the_lanes_own(self) -> None:
        with pytest.raises(InputError, match="with a flow, or input that is spooled"):
            replace(overload(), flow=Flow())
        with pytest.raises(InputError, match="with a flow, or input that is spooled"):
            replace(overload(), memory=Memory(Fixed(1e9), spool_s=1e-6))
        assert replace(overload(), memory=Memory(Fixed(1e9))).memory is not None
