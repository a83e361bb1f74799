from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from evenflow.policies import policy_named
from evenflow.sim.quantum import During, Flow, Loaded, Scenario, Steady, Timeline, simulate, uniform
from evenflow.sim.quantum.flow import Producers, _by_lane, _in_turn, _until_buffer_is_full

LANES, COST_S = 4, 1e-3


def stage(buffer: float, *, exchange: bool = False, duration_s: float = 6.0, together: bool = True) -> Timeline:
    """Four lanes of 1,000 records/s, one of them at a quarter of its speed."""
    scenario = Scenario(
        lanes=LANES,
        slots=LANES,
        arrivals=uniform(LANES, 1.0),
        seconds_per_record=COST_S,
        duration_s=duration_s,
        step_s=0.02,
        epoch_steps=50,
        speeds=Loaded([0], 0.25),
        flow=Flow(LANES, 10, buffer, exchange=exchange, together=together),
    )
    return simulate(scenario, policy_named("static"))


@pytest.mark.parametrize("together", [True, False])
def test_one_slow_consumer_slows_all_when_queues_block(together: bool) -> None:
    rate = stage(0, exchange=True, together=together).throughput[2:].mean()
    assert rate == pytest.approx(0.25 * LANES / COST_S, rel=0.15)


@pytest.mark.parametrize("together", [True, False])
def test_a_skew_buffer_serves_the_others_while_one_is_blocked(together: bool) -> None:
    ideal = (LANES - 0.75) / COST_S
    buffered = stage(20_000, together=together).throughput[2:].mean()
    divided = stage(5_000, exchange=True, duration_s=14, together=together).throughput[-4:].mean()
    assert buffered == pytest.approx(ideal, rel=0.05)
    assert divided < 0.6 * ideal


def test_a_full_skew_buffer_blocks_too() -> None:
    timeline = stage(300, duration_s=10)
    assert timeline.throughput[-5:].mean() == pytest.approx(0.25 * LANES / COST_S, rel=0.15)


def test_producers_never_hold_more_than_their_space() -> None:
    rng = np.random.default_rng(1)
    producers = Producers(Flow(4, 10, 100), 16, 4, rng)
    owner, stalled, shares = np.arange(16) % 4, np.arange(16) == 3, np.full(16, 1 / 16)
    for _ in range(200):
        producers.fill(shares, owner, stalled, 0.01)
        # All four together; what is drawn may land off the expected mix by chance, never by more than that.
        assert producers.buffer.sum() <= 4 * 100 + 5 * np.sqrt(400)
        producers.taken(np.zeros(4))  # lanes take all they get
    assert producers.buffer[:, 3].sum() > 300  # in the end the stalled slot fills it (FX-A15)


def test_nothing_is_made_that_does_not_wait_or_leave() -> None:
    producers = Producers(Flow(4, 10, 100, packet_records=5.0), 8, 4, np.random.default_rng(2))
    owner, nothing, left = np.arange(8) % 4, np.zeros(8, np.bool_), np.zeros(8)
    for _ in range(50):
        left += producers.fill(np.full(8, 1 / 8), owner, nothing, 0.01)
        producers.taken(np.zeros(4))
    assert producers.made == pytest.approx(left + producers.buffer.sum(axis=0))


@pytest.mark.parametrize("kind", [{}, {"exchange": True}, {"river": True}, {"packet_records": 5.0}])
def test_a_stream_that_pauses_for_all_slots_makes_nothing_and_goes_on_later(kind: dict[str, Any]) -> None:
    flow = Flow(buffer_records=100, **kind)
    scenario = Scenario(
        lanes=2,
        slots=4,
        arrivals=During(uniform(4, 10.0), Steady(np.zeros(4)), 2.0, 4.0),
        seconds_per_record=COST_S,
        duration_s=6,
        stateless=flow.river,
        flow=flow,
    )
    timeline = simulate(scenario, policy_named("static"))
    assert timeline.arrived[[0, 1, 4, 5]].min() > 400
    assert timeline.arrived[2] <= 100  # what was held
    assert timeline.arrived[3] == 0


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_when_all_that_comes_is_for_stalled_slots_it_waits_in_the_space_there_is(
    exchange: bool, together: bool
) -> None:
    producers = Producers(Flow(4, 10, 100, exchange=exchange, together=together), 8, 4, np.random.default_rng(3))
    owner, stalled = np.arange(8) % 4, np.arange(8) < 2
    shares = np.where(stalled, 0.5, 0.0)
    for _ in range(20):
        assert not producers.fill(shares, owner, stalled, 0.01).any()
    assert producers.buffer.sum() == (0 if exchange else 400)
    nothing = np.zeros(8, np.bool_)
    assert producers.fill(shares, owner, nothing, 0.01).sum() > 0


amounts = npst.arrays(np.float64, (2, 9), elements=st.floats(0, 100))


@given(
    amounts,
    st.lists(st.integers(0, 2), min_size=9, max_size=9),
    npst.arrays(np.float64, (2, 3), elements=st.floats(0, 200)),
)
@settings(max_examples=100)
def test_slots_of_a_blocked_connection_are_served_in_turn(
    ready: np.ndarray, owners: list[int], room: np.ndarray
) -> None:
    owner = np.array(owners)
    going = _in_turn(ready, owner, room, _by_lane(ready, owner, 3))
    assert (going <= ready + 1e-9).all()
    assert _by_lane(going, owner, 3) == pytest.approx(np.minimum(room, _by_lane(ready, owner, 3)), abs=1e-6)
    for row in range(2):
        for lane in range(3):
            sent, had = going[row, owner == lane], ready[row, owner == lane]
            held_back = sent < had - 1e-6
            if held_back.any():  # who got less than it had got as much as anybody
                assert sent[held_back].min() >= sent.max() - 1e-6


@given(
    npst.arrays(np.float64, (1, 4), elements=st.floats(0, 50)),
    npst.arrays(np.float64, 4, elements=st.floats(0.01, 1)),
    st.floats(0, 500),
    st.floats(0, 0.5),
)
@settings(max_examples=100)
def test_producers_stop_exactly_when_the_buffer_is_full(
    free: np.ndarray, weights: np.ndarray, space: float, aside: float
) -> None:
    shares = weights / weights.sum() * (1 - aside)
    count = _until_buffer_is_full(free, shares, aside, np.array([space]))[0]
    left_over = count * aside + np.maximum(0.0, count * shares - free[0]).sum()
    assert left_over == pytest.approx(space, rel=1e-6, abs=1e-6)
