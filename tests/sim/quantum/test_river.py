"""River's distributed queue (FX-M2): records go wherever there is room, and only stateless lanes allow it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from evenflow.errors import InputError
from evenflow.policies import policy_named
from evenflow.sim.quantum import Flow, Loaded, Memory, Scenario, Timeline, simulate, uniform, with_hotspot
from evenflow.sim.quantum.flow import Producers
from evenflow.sim.quantum.memory import Fixed

LANES, COST_S, SLOW = 8, 1e-3, 0.43  # external load cuts one machine to 43 % (FX-P7)
RIVER = Flow(LANES, 10, 0, river=True)


def stage(flow: Flow) -> Scenario:
    """Eight lanes of 1,000 records/s, one of them slow."""
    return Scenario(
        lanes=LANES,
        slots=2 * LANES,
        arrivals=uniform(2 * LANES, 1.0),
        seconds_per_record=COST_S,
        duration_s=4,
        step_s=0.02,
        epoch_steps=50,
        speeds=Loaded([0], SLOW),
        flow=flow,
        stateless=True,
    )


def run(scenario: Scenario) -> Timeline:
    return simulate(scenario, policy_named("static"))


def records_per_s(timeline: Timeline) -> float:
    return float(timeline.throughput[1:].mean())


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("drawn", [True, False])
def test_river_uses_all_that_lanes_can_do_where_exchange_waits_for_the_slowest(together: bool, drawn: bool) -> None:
    river = replace(RIVER, together=together, drawn=drawn)
    exchange = replace(river, river=False, exchange=True)
    sum_of_all, slowest = (LANES - 1 + SLOW) / COST_S, LANES * SLOW / COST_S
    assert records_per_s(run(stage(river))) == pytest.approx(sum_of_all, rel=0.02)
    assert records_per_s(run(stage(exchange))) == pytest.approx(slowest, rel=0.05)


def test_skew_in_the_keys_is_nothing_to_river() -> None:
    even = run(stage(RIVER))
    skewed = run(replace(stage(RIVER), arrivals=with_hotspot(2 * LANES, 1.0, [0], 0.9)))
    assert skewed.as_dict() == even.as_dict()


def by_record(every_s: float, places: int, service_s: list[float], count: int, seed: int) -> np.ndarray:
    """River record by record, with a loop and a list: how many of `count` records each lane got."""
    rng = np.random.default_rng(seed)
    ends: list[list[float]] = [[] for _ in service_s]  # when each record that a lane holds is done
    got, now = np.zeros(len(service_s)), 0.0
    for _ in range(count):
        now += every_s
        ends = [[end for end in lane if end > now] for lane in ends]
        if all(len(lane) == places for lane in ends):
            now = min(lane[0] for lane in ends)
            ends = [[end for end in lane if end > now] for lane in ends]
        free = np.array([places - len(lane) for lane in ends])
        chosen = int(rng.choice(free.size, p=free / free.sum()))
        ends[chosen].append(max([now, *ends[chosen][-1:]]) + service_s[chosen])
        got[chosen] += 1
    return got


@pytest.mark.parametrize("load", [0.7, 0.95, 1.2])
def test_lanes_get_what_they_get_when_records_are_sent_one_by_one(load: float) -> None:
    places, speeds = 25, np.array([SLOW, 1.0, 1.0])
    every_s = COST_S / (speeds.sum() * load)
    scenario = Scenario(
        lanes=3,
        slots=3,
        arrivals=uniform(3, 1.0),
        seconds_per_record=COST_S,
        duration_s=10,
        step_s=0.004,
        epoch_steps=250,
        speeds=Loaded([0], SLOW),
        flow=Flow(1, places, 0, river=True, produce_s=every_s),
        stateless=True,
    )
    one_by_one = by_record(every_s, places, (COST_S / speeds).tolist(), 8_000, seed=1)
    served = run(scenario).served[2:].sum(axis=0)
    assert served / served.sum() == pytest.approx(one_by_one / one_by_one.sum(), abs=0.02)
    assert served.sum() / 8 == pytest.approx(min(1.0, load) * speeds.sum() / COST_S, rel=0.02)


@given(
    npst.arrays(np.float64, (2, 4), elements=st.floats(0, 60)),
    npst.arrays(np.float64, 2, elements=st.floats(0, 200)),
    st.booleans(),
)
@settings(max_examples=60)
def test_no_lane_is_sent_more_than_it_has_room_for(room: np.ndarray, count: np.ndarray, drawn: bool) -> None:
    producers = Producers(Flow(2, 10, 0, river=True, together=False, drawn=drawn), 8, 4, np.random.default_rng(1))
    count = np.minimum(count, room.sum(axis=1))
    going = producers._draw_places(room, count)
    assert (going >= 0).all()
    rounding = 1e-12  # of a record, or of so many of them
    assert (going <= room * (1 + rounding) + rounding).all()
    assert (going.sum(axis=1) <= count * (1 + rounding) + rounding).all()
    assert (going.sum(axis=1) >= np.minimum(count, room.sum(axis=1)) - (5 if drawn else 1e-9)).all()  # whole records


def test_records_choose_by_room() -> None:
    producers = Producers(Flow(1, 100, 0, river=True), 4, 4, np.random.default_rng(1))
    room = np.array([[10.0, 20.0, 30.0, 40.0]])
    drawn = [producers._draw_places(room, np.array([10.0]))[0] for _ in range(2000)]
    assert np.mean(drawn, axis=0) == pytest.approx([1.0, 2.0, 3.0, 4.0], rel=0.05)


def test_nothing_is_made_that_does_not_leave_and_lanes_without_slots_get_nothing() -> None:
    producers = Producers(RIVER, 8, LANES, np.random.default_rng(2))
    owner, stalled, left = np.array([0, 0, 0, 1, 1, 2, 3, 4]), np.arange(8) == 7, np.zeros(8)
    for _ in range(20):
        left += producers.fill(np.full(8, 1 / 8), owner, stalled, 0.01)
        assert producers.sent[:, 4:].sum() == 0  # lane 4 has one slot, and that is away
        producers.taken(np.full(LANES, 3.0) * (producers.sent[0] > 0))
    assert producers.made == pytest.approx(left)
    assert left[7] == 0
    assert left[0] == left[1] == left[2]


class TestRefusals:
    def test_a_keyed_scenario_is_told_why_it_cannot_have_it(self) -> None:
        with pytest.raises(InputError, match="state of a key on one lane only; set stateless=True and state_bytes=0"):
            replace(stage(RIVER), stateless=False)

    def test_who_is_stateless_has_no_state(self) -> None:
        with pytest.raises(InputError, match="stateless, yet with state_bytes above 0"):
            replace(stage(RIVER), state_bytes=1.0)
        with pytest.raises(InputError, match=r"stateless, yet .* a memory"):
            replace(stage(RIVER), memory=Memory(Fixed(1e9)))

    def test_records_that_cost_differently_have_a_key(self) -> None:
        with pytest.raises(InputError, match="one seconds_per_record for all"):
            replace(stage(RIVER), seconds_per_record=np.linspace(1e-3, 2e-3, 2 * LANES))

    def test_it_is_one_kind_of_flow(self) -> None:
        with pytest.raises(InputError, match="leave out exchange and packet_records"):
            replace(RIVER, exchange=True)
        with pytest.raises(InputError, match="leave out exchange and packet_records"):
            replace(RIVER, packet_records=10.0)

    def test_a_policy_that_balances_has_nothing_to_move(self) -> None:
        with pytest.raises(InputError, match="leaves policy 'even' nothing to move; choose 'static'"):
            simulate(stage(RIVER), policy_named("even"))
