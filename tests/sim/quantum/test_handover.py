from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.control import Balancer, BalancerOptions
from evenflow.control.journal import Decided, PhaseChanged
from evenflow.migration import Event, strategy_named
from evenflow.model import LoadView, Move
from evenflow.policies import Proposal, policy_named
from evenflow.sim.quantum import (
    Cluster,
    Flow,
    Handover,
    Loaded,
    Network,
    Scenario,
    Way,
    simulate,
    uniform,
    with_hotspot,
)
from evenflow.sim.quantum.engine import Listening


def two_lanes(way: Way, per_s: float = 1500.0, state_bytes: float = 1e6) -> Scenario:
    """Eight slots on two lanes of 1,000 records/s; state travels at 1 MB/s."""
    return Scenario(
        lanes=2,
        slots=8,
        arrivals=uniform(8, per_s),
        seconds_per_record=1e-3,
        state_bytes=state_bytes,
        duration_s=10,
        step_s=0.01,
        epoch_steps=10,
        poisson=False,
        mergeable=True,
        handover=Handover(way),
        network=Network(point_to_point=1e6),
    )


def moved_by_hand(scenario: Scenario, wait_s: float) -> Cluster:
    """Run for `wait_s`, then ask for slot 0 to go from lane 0 to lane 1 and run on until it has settled."""
    balancer = Balancer(scenario.first_table, policy_named("static"), strategy_named("sudden"))
    cluster = Cluster(scenario, balancer, np.random.default_rng(1))
    for _ in range(round(wait_s / scenario.step_s)):
        cluster.step()
    balancer.request([Move(0, 0, 1)])
    for _ in range(10_000):
        cluster.step()
        if any(entry.event is Event.INSTALLED for entry in balancer.journal.of(PhaseChanged)):
            return cluster
    raise AssertionError("the move never settled")


@pytest.mark.parametrize("way", Way)
def test_a_move_ends_at_its_target_and_loses_nothing(way: Way) -> None:
    cluster = moved_by_hand(two_lanes(way, per_s=1900), 2.0)
    cluster.check()
    assert cluster.placement.owner[0] == 1
    assert cluster.handovers.bytes_moved == (0 if way is Way.FORWARD_MERGE else 1e6)


def quiesce_s(way: Way, overload_s: float) -> float:
    """How long a move takes when lane 0 has been overloaded for some time."""
    scenario = replace(two_lanes(way, per_s=2400), network=Network())
    cluster = moved_by_hand(scenario, overload_s)
    return cluster.now_s - overload_s


def test_at_once_the_time_to_quiesce_does_not_depend_on_the_backlog() -> None:
    assert quiesce_s(Way.AT_ONCE, 0.5) == pytest.approx(quiesce_s(Way.AT_ONCE, 5.0), abs=0.11)
    assert quiesce_s(Way.AT_TIMESTAMP, 5.0) > quiesce_s(Way.AT_TIMESTAMP, 0.5) + 0.5


@pytest.mark.parametrize("way", [Way.AT_TIMESTAMP, Way.AT_ONCE])
def test_other_slots_are_served_while_state_travels(way: Way) -> None:
    scenario = two_lanes(way, per_s=1000, state_bytes=3e6)  # three seconds on the way
    balancer = Balancer(scenario.first_table, policy_named("static"), strategy_named("sudden"))
    cluster = Cluster(scenario, balancer, np.random.default_rng(1))
    balancer.request([Move(0, 0, 1)])
    for _ in range(250):
        cluster.step()
    assert cluster.placement.absent[0]
    waiting = cluster.counts.waiting
    assert waiting[0] == pytest.approx(1000 / 8 * 2.5, rel=0.1)
    assert waiting[1:].max() < 5


def test_pause_all_stops_every_lane_until_the_move_has_settled() -> None:
    scenario = two_lanes(Way.PAUSE_ALL, per_s=1000, state_bytes=2e6)
    balancer = Balancer(scenario.first_table, policy_named("static"), strategy_named("sudden"))
    cluster = Cluster(scenario, balancer, np.random.default_rng(1))
    balancer.request([Move(0, 0, 1)])
    for _ in range(150):
        cluster.step()
    assert cluster.counts.served.sum() == 0
    for _ in range(600):
        cluster.step()
    assert cluster.counts.waiting.max() < 5


def test_forward_and_merge_leaves_parts_to_merge() -> None:
    cluster = moved_by_hand(two_lanes(Way.FORWARD_MERGE), 1.0)
    assert cluster.handovers.merge_bytes == 1e6


def test_slots_whose_records_came_before_the_boundary_are_served_by_the_old_owner() -> None:
    scenario = two_lanes(Way.AT_TIMESTAMP, per_s=2400)
    balancer = Balancer(scenario.first_table, policy_named("static"), strategy_named("sudden"))
    cluster = Cluster(scenario, balancer, np.random.default_rng(1))
    for _ in range(200):
        cluster.step()
    balancer.request([Move(0, 0, 1)])
    while not cluster.placement.has_boundaries:
        cluster.step()
    came_before = cluster.counts.arrived[0]
    while cluster.placement.has_boundaries:
        assert cluster.counts.served[0] < came_before
        cluster.step()
    assert cluster.counts.served[0] == pytest.approx(came_before, rel=0.02)


@dataclass
class Elastic:
    """Asks for one lane more at the second call, gives it some slots, and lets it go again later."""

    name: str = "elastic"

    def propose(self, view: LoadView) -> Proposal:
        calls = (view.memory or 0) + 1
        if len(view.table.lanes) == 2 and calls == 2:
            return Proposal(add_lanes=1, memory=calls)
        if len(view.table.lanes) == 3 and not view.table.slots_of(2).size and calls < 20:
            moves = tuple(Move(slot, int(view.table.owners[slot]), 2) for slot in (0, 1))
            return Proposal(moves, memory=calls)
        if len(view.table.lanes) == 3 and calls >= 20:
            moves = tuple(Move(int(slot), 2, int(slot) % 2) for slot in view.table.slots_of(2))
            return Proposal(moves, retire=(2,), memory=calls)
        return Proposal(memory=calls)


def test_lanes_come_and_go_while_the_stream_runs() -> None:
    scenario = replace(two_lanes(Way.AT_ONCE, per_s=1200), lane_start_s=0.5, network=Network(), duration_s=8)
    timeline = simulate(scenario, Elastic(), options=BalancerOptions(min_lanes=1, max_lanes=4))
    assert timeline.lanes.max() == 3
    assert timeline.lanes[-1] == 2
    assert timeline.served[:, 2].sum() > 0
    assert timeline.backlog[-1].sum() < 50


def test_transfers_share_links_fairly() -> None:
    network = Network(point_to_point=10.0, cross_section=24.0)
    rates = network.rates(np.array([0, 0, 1, 2]), np.array([1, 1, 2, 3]))
    assert rates.tolist() == [5.0, 5.0, 7.0, 7.0]
    assert Network(10.0).rates(np.array([0, 1]), np.array([1, 2])).tolist() == [10.0, 10.0]


def test_links_that_are_full_to_the_last_byte_are_shared_in_spite_of_rounding() -> None:
    # Seven transfers want 1 + 6/6 links; as floats that is a little more than the 2 there are, or a little less.
    network = Network(point_to_point=31.25e6, cross_section=62.5e6)
    rates = network.rates(np.array([0] + [1] * 6), np.array([2] + [3] * 6))
    assert rates == pytest.approx([31.25e6] + [31.25e6 / 6] * 6)


@given(
    pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40),
    link=st.floats(0.1, 1e9),
    links=st.floats(0.1, 8.0) | st.integers(1, 8),
)
def test_no_link_carries_more_than_it_can_and_none_is_left_idle(
    pairs: list[tuple[int, int]], link: float, links: float
) -> None:
    network = Network(point_to_point=link, cross_section=link * links)
    rates = network.rates(*np.array(pairs).T)
    used = len(set(pairs))
    assert rates.sum() == pytest.approx(link * min(used, links))
    for pair in set(pairs):
        assert rates[[one == pair for one in pairs]].sum() <= link * (1 + 1e-9)


def test_a_policy_that_moves_all_the_time_spends_at_most_half_of_it_moving() -> None:
    # Flux's rule: collect as long as the last move phase took (FX-M11).
    scenario = Scenario(
        lanes=4,
        slots=64,
        arrivals=with_hotspot(64, 1.0, [5], 0.4),
        seconds_per_record=1e-3,
        state_bytes=5e5,
        duration_s=12,
        step_s=0.02,
        epoch_steps=1,
        row_epochs=50,
        stretch=True,
        network=Network(4e6, 4e6),
        flow=Flow(4, 40, 200, packet_records=10.0),
    )
    balancer = Balancer(scenario.first_table, policy_named("flux-load"), strategy_named("sudden"))
    cluster = Cluster(scenario, balancer, np.random.default_rng(1))
    listening = Listening(balancer.policy)
    balancer.set_policy(listening)
    moving = 0
    for _ in range(scenario.steps):
        cluster.step()
        moving += cluster.handovers.under_way
    assert listening.collect_s is not None
    assert len(balancer.journal.of(Decided)) > 10
    assert moving / scenario.steps <= 0.6  # the first round collects for the shortest time


@given(
    way=st.sampled_from(list(Way)),
    policy=st.sampled_from(["even", "autoflow", "flux-load", "dpa-halving", "clb"]),
    strategy=st.sampled_from(["sudden", "fluid", "batched", "paced"]),
    share=st.floats(0.1, 0.9),
    seed=st.integers(0, 1000),
)
@settings(max_examples=15)
def test_whatever_decides_and_however_it_is_handed_over_nothing_is_lost(
    way: Way, policy: str, strategy: str, share: float, seed: int
) -> None:
    scenario = Scenario(
        lanes=3,
        slots=12,
        arrivals=with_hotspot(12, 2500, [0, 3], share),
        seconds_per_record=1e-3,
        state_bytes=2e5,
        duration_s=4,
        step_s=0.05,
        epoch_steps=4,
        mergeable=True,
        handover=Handover(way, 1e-8, 1e-8, 1e-3, 1e-3, 1e-4),
        network=Network(1e6, 2e6, 0.01),
        speeds=Loaded([1], 0.5, 2.0),
    )
    timeline = simulate(scenario, policy_named(policy), strategy_named(strategy), seed=seed)
    assert timeline.arrived.sum() == pytest.approx(timeline.served.sum() + timeline.backlog[-1].sum())
    assert timeline.refused.sum() == 0


def test_queues_with_a_bound_refuse_and_count_what_is_too_much() -> None:
    scenario = replace(two_lanes(Way.AT_ONCE, per_s=3000), queue_records=100.0)
    timeline = simulate(scenario, policy_named("static"))
    assert timeline.backlog.max() <= 100 + 1e-6
    assert timeline.refused.sum() == pytest.approx(3000 * 10 - timeline.arrived.sum())
    assert timeline.refused.sum() > 9000
