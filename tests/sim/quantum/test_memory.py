from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from evenflow.control import Balancer
from evenflow.errors import InputError
from evenflow.migration import strategy_named
from evenflow.model import Move, RoutingTable
from evenflow.model.slots import FloatArray
from evenflow.policies import policy_named
from evenflow.sim.quantum import (
    Cluster,
    Disk,
    Fixed,
    Flow,
    Handover,
    Memory,
    Scenario,
    Steady,
    Timeline,
    Way,
    simulate,
    uniform,
)

SIZE = 1e6
DISK = Disk(read=20e6, write=20e6, seek_s=0.005)


def pressed(budget: float, *, gap_s: float | None = None, flow: bool = False, duration_s: float = 20.0) -> Scenario:
    """Two lanes with eight slots of 1 MB each; lane 0 may hold `budget` bytes."""
    return Scenario(
        lanes=2,
        slots=16,
        arrivals=uniform(16, 400.0),
        seconds_per_record=1e-3,
        state_bytes=SIZE,
        duration_s=duration_s,
        step_s=0.01,
        epoch_steps=10,
        memory=Memory(Fixed(20 * SIZE, (0,), budget), DISK, gap_s, 1e-5 if flow else None),
        flow=Flow(2, 20, 200) if flow else None,
    )


def cluster_of(scenario: Scenario, policy: str = "static") -> Cluster:
    balancer = Balancer(scenario.first_table, policy_named(policy), strategy_named("sudden"))
    return Cluster(scenario, balancer, np.random.default_rng(1))


def held(cluster: Cluster, lane: int) -> float:
    mine = (cluster.placement.owner == lane) & ~cluster.placement.spilled & ~cluster.placement.absent
    return float(cluster.sizes[mine].sum())


@pytest.mark.parametrize("flow", [False, True])
def test_memory_is_bounded_and_every_slot_has_its_turn(flow: bool) -> None:
    cluster = cluster_of(pressed(5.5 * SIZE, flow=flow))
    out_at_some_time = np.zeros(16, np.bool_)
    for step in range(1000):
        cluster.step()
        out_at_some_time |= cluster.placement.spilled
        if step > 50:
            assert held(cluster, 0) <= 5.5 * SIZE
    cluster.check()
    assert out_at_some_time[cluster.placement.owner == 0].all()
    assert not out_at_some_time[cluster.placement.owner == 1].any()
    assert cluster.counts.served.min() > 0


def test_spilled_input_waits_for_its_turn_and_is_then_served_in_order() -> None:
    static = simulate(pressed(5.5 * SIZE, flow=True, duration_s=8), policy_named("static"))
    roomy = simulate(pressed(20 * SIZE, flow=True, duration_s=4), policy_named("static"))
    assert np.nanmax(static.latency_max_s) > 5 * np.nanmax(roomy.latency_max_s)
    assert static.throughput[-20:].mean() < roomy.throughput[-20:].mean()


def rotating(gap_s: float) -> Timeline:
    scenario = replace(pressed(6.5 * SIZE, gap_s=gap_s, flow=True, duration_s=24), step_s=0.02)
    return simulate(scenario, policy_named("static"))


def test_a_longer_stay_gives_throughput_and_costs_latency() -> None:
    runs = [rotating(gap) for gap in (0.05, 2.0)]
    rates = [run.throughput[60:].mean() for run in runs]
    latencies = [run.mean_latency_s(12) for run in runs]
    assert rates == sorted(rates)
    assert latencies == sorted(latencies)


@dataclass(frozen=True)
class TakenAndGiven:
    """The runtime takes memory away at 1 s and gives it back at 5 s."""

    def at(self, at_s: float, lanes: int) -> FloatArray:
        return np.full(lanes, 4.2 * SIZE if 1 <= at_s < 5 else 20 * SIZE)


def test_memory_asked_for_is_released_in_bounded_time_and_used_again_when_given_back() -> None:
    scenario = replace(pressed(20 * SIZE, duration_s=10), memory=Memory(TakenAndGiven(), DISK))
    cluster = cluster_of(scenario)
    out_by = 1 + 4 * DISK.write_s(SIZE) + 0.05  # four slots of each lane have to go, one after the other
    for step in range(1000):
        cluster.step()
        now = (step + 1) * 0.01
        if out_by < now < 5:
            assert max(held(cluster, 0), held(cluster, 1)) <= 4.2 * SIZE
        if now > 5 + 4 * DISK.read_s(SIZE) + 0.3:  # a swap under way ends first
            assert not cluster.placement.spilled.any()


def test_a_slot_on_disk_moves_with_all_that_waits_for_it() -> None:
    cluster = cluster_of(pressed(5.5 * SIZE))
    for _ in range(100):
        cluster.step()
    slot = int(np.flatnonzero(cluster.placement.spilled)[0])
    cluster.balancer.request([Move(slot, 0, 1)])
    for _ in range(300):
        cluster.step()
    cluster.check()
    assert cluster.placement.owner[slot] == 1
    assert not cluster.placement.spilled[slot]
    assert not cluster.placement.absent[slot]
    assert cluster.counts.waiting[slot] < 20


@dataclass(frozen=True)
class RoomForOne:
    """Lanes 0 and 2 have room for one slot, lane 1 for all."""

    def at(self, at_s: float, lanes: int) -> FloatArray:  # noqa: ARG002 - the interface
        return np.array([SIZE, 20 * SIZE, SIZE])[:lanes]


@pytest.mark.parametrize("way", [Way.AT_TIMESTAMP, Way.AT_ONCE])
def test_a_slot_whose_input_is_spooled_moves_however_much_is_spooled(way: Way) -> None:
    scenario = Scenario(
        lanes=3,
        slots=5,
        arrivals=Steady([10, 300, 10, 10, 100]),
        seconds_per_record=1e-3,
        state_bytes=SIZE,
        duration_s=60,
        step_s=0.02,
        handover=Handover(way),
        memory=Memory(RoomForOne(), gap_s=1e6, spool_s=1e-5),  # what is on disk stays there
        poisson=False,
        table=RoutingTable(np.array([0, 0, 1, 2, 2]), (0, 1, 2)),
    )
    cluster = cluster_of(scenario)
    for _ in range(1000):
        cluster.step()
    assert cluster.placement.spilled[1]
    assert len(cluster.service.spool.cohorts) > cluster.service.spool.most
    cluster.balancer.request([Move(1, 0, 1)])
    for _ in range(1500):  # 20 s of input to serve, at less than half of what the lane can do
        cluster.step()
    cluster.check()
    assert not cluster.handovers.under_way
    assert cluster.counts.waiting[1] < 10


@pytest.mark.parametrize(("name", "value"), [("spool_s", 0.0), ("spool_s", np.nan), ("spool_s", np.inf), ("gap_s", -1)])
def test_disk_work_that_takes_no_time_is_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"memory: {name} is None"):
        replace(Memory(Fixed(SIZE)), **{name: value})  # type: ignore[arg-type]


def test_the_memory_policy_empties_the_disk() -> None:
    scenario = replace(pressed(5.5 * SIZE, duration_s=16), stretch=True, epoch_steps=1, row_epochs=100)
    moved, static = simulate(scenario, policy_named("flux-memory")), simulate(scenario, policy_named("static"))
    assert static.spilled[-1] > 0
    assert moved.spilled[-1] == 0
    assert moved.mean_latency_s(12) < static.mean_latency_s(12)
