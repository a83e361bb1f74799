"""A handoff that takes 50 times as long as others: the hot spot of other lanes is relieved meanwhile (AF-M8)."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.control import Balancer, BalancerOptions
from evenflow.control.journal import Decided, PhaseChanged
from evenflow.migration import Event, strategy_named
from evenflow.model import Move, RoutingTable
from evenflow.policies import policy_named
from evenflow.sim.quantum import Cluster, Handover, Network, Scenario, Steady, Way

SLOW, HOT_LANE = 0, 2  # slot 0 has 50 times the state of others; lane 2 gets more than it can do
RATES = np.array([100.0] * 8 + [325.0] * 4 + [100.0] * 4)


def run(policy: str, *, overlap: bool) -> Cluster:
    """Four lanes of four slots; slot 0 is on its way from lane 0 to lane 1 for all of the 20 s."""
    sizes = np.full(16, 1e5)
    sizes[SLOW] = 50e5
    scenario = Scenario(
        lanes=4,
        slots=16,
        arrivals=Steady(RATES),
        seconds_per_record=1e-3,
        state_bytes=sizes,
        duration_s=20,
        step_s=0.05,
        epoch_steps=10,
        poisson=False,
        handover=Handover(Way.AT_ONCE),
        network=Network(point_to_point=2.4e5),
        table=RoutingTable(np.arange(16) // 4, (0, 1, 2, 3)),
    )
    options = BalancerOptions(overlap=overlap, whole_epochs=False)
    balancer = Balancer(scenario.first_table, policy_named(policy), strategy_named("paced"), options)
    cluster = Cluster(scenario, balancer, np.random.default_rng(1))
    balancer.request([Move(SLOW, 0, 1)])
    for _ in range(scenario.steps):
        cluster.step()
    cluster.check()
    assert [life.move.slot for life in balancer.in_flight] == [SLOW], "the long one is still on its way"
    return cluster


@pytest.mark.parametrize("policy", ["even", "autoflow"])
def test_the_hot_spot_of_other_lanes_is_relieved_while_a_long_handoff_is_under_way(policy: str) -> None:
    overlapping, serial = run(policy, overlap=True), run(policy, overlap=False)
    journal = overlapping.balancer.journal
    moved = [entry.move for entry in journal.of(PhaseChanged) if entry.event is Event.INSTALLED]
    assert HOT_LANE in {move.source for move in moved}
    assert 1 not in {lane for move in moved for lane in (move.source, move.target)}, "lane 1 still takes the long one"
    assert overlapping.counts.waiting[8:12].sum() < 1000
    assert serial.counts.waiting[8:12].sum() > 4000, "without overlap lane 2 falls behind for as long as it takes"
    asked_about = {entry.lanes for entry in journal.of(Decided)}
    assert (0, 2, 3) in asked_about, "lane 0 has handed off"
    assert not any(1 in lanes for lanes in asked_about), "lane 1 has not got it"
    assert serial.balancer.journal.of(Decided) == []
