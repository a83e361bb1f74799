"""What is believed of lanes' speeds: one whose core is taken counts as slow when that lasts, its slots as no dearer."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.model import LaneLoad, LoadView, LoadWindow, RoutingTable, SlotLoads
from evenflow.policies import policy_named
from evenflow.policies.speeds import Speeds

TABLE = RoutingTable.even(16, 4)


def window(*crowded_s: float) -> LoadWindow:
    """Return a second on four lanes with equal work, of which others had the core for so long."""
    loads = SlotLoads.of(np.full(16, 100), np.full(16, 0.1))
    lanes = [LaneLoad(lane, window_s=1.0, crowded_s=lost) for lane, lost in enumerate(crowded_s)]
    return LoadWindow(loads, tuple(lanes))


def believed(*windows: LoadWindow) -> list[float]:
    speeds = Speeds.unknown(TABLE)
    for one in windows:
        speeds = speeds.after(one, TABLE)
    assert speeds.in_costs(TABLE).tolist() == [1.0, 1.0, 1.0, 1.0]
    return list(speeds.factors(TABLE))


def test_a_crowded_lane_is_slow_when_it_lasts() -> None:
    half = window(0.0, 0.5, 0.0, 0.0)
    assert believed(half) == [1.0, 1.0, 1.0, 1.0]
    assert believed(half, half) == pytest.approx([1.0, 2.0, 1.0, 1.0])
    assert believed(half, half, window(0.0, 0.0, 0.0, 0.0)) == [1.0, 1.0, 1.0, 1.0]


def test_a_lane_that_was_quickly_done_is_not_slow_for_having_shared_its_core_meanwhile() -> None:
    loads = SlotLoads.of(np.full(16, 100), np.full(16, 0.1))
    ahead = LaneLoad(0, window_s=0.4, crowded_s=0.15)
    others = tuple(LaneLoad(lane, window_s=1.0, crowded_s=0.1) for lane in (1, 2, 3))
    assert believed(*[LoadWindow(loads, (ahead, *others))] * 3) == [1.0, 1.0, 1.0, 1.0]


def test_lanes_that_are_all_as_crowded_are_equally_fast() -> None:
    assert believed(*[window(0.5, 0.52, 0.5, 0.48)] * 3) == [1.0, 1.0, 1.0, 1.0]


def priced(*cost: float) -> LoadWindow:
    """Return a second in which a record costs so much on each of four lanes."""
    busy = np.full(16, 0.1) * np.array(cost)[TABLE.lane_positions()]
    return LoadWindow(SlotLoads.of(np.full(16, 100), busy), tuple(LaneLoad(lane) for lane in range(4)))


def slowness(*windows: LoadWindow) -> list[float]:
    speeds = Speeds.unknown(TABLE)
    for one in windows:
        speeds = speeds.after(one, TABLE)
    return [round(factor, 6) for factor in speeds.factors(TABLE)]


USUAL, DEAR = priced(1, 1, 1, 1), priced(1, 2, 1, 1)


def test_a_lane_that_gets_dearer_is_slow_when_the_next_window_agrees() -> None:
    assert slowness(USUAL, DEAR) == [1, 1, 1, 1]
    assert slowness(USUAL, DEAR, DEAR) == [1, 2, 1, 1]
    assert slowness(USUAL, DEAR, DEAR, USUAL, USUAL) == [1, 1, 1, 1]


def test_what_gets_dearer_everywhere_makes_no_lane_slow_whenever_its_slots_were_first_seen() -> None:
    """Slot 3 is idle at first; later all costs are ten times what they were."""
    late = np.where(np.arange(16) % 4 == 3, 0, 100)
    speeds = Speeds.unknown(TABLE)
    for records, cost in ((late, 0.1), (np.full(16, 100), 1.0), (late, 0.3), (np.full(16, 100), 3.0)) * 5:
        loads = SlotLoads.of(records, records * cost)
        speeds = speeds.after(LoadWindow(loads, tuple(LaneLoad(lane) for lane in range(4))), TABLE)
        assert list(speeds.in_costs(TABLE)) == [1, 1, 1, 1]


def test_one_bad_moment_moves_nothing() -> None:
    table_after = policy_named("even").propose(LoadView((USUAL, USUAL, DEAR), TABLE))
    assert table_after.moves == ()
    assert policy_named("even").propose(LoadView((USUAL, DEAR, DEAR), TABLE)).moves


def test_a_bad_moment_weighs_no_more_than_its_window() -> None:
    """Averaged with quiet windows, it is taken off once, not for all of them: nothing moves on an even load."""
    rng = np.random.default_rng(1)
    quiet = [priced(*np.exp(rng.normal(0.0, 0.02, 4))) for _ in range(8)]
    stray = priced(1, 1.13, 1, 1)
    assert policy_named("even").propose(LoadView((*quiet, stray), TABLE)).moves == ()
    speeds = Speeds.unknown(TABLE).after(USUAL, TABLE).after(DEAR, TABLE)
    assert speeds.in_costs(TABLE).tolist() == pytest.approx([1, 2, 1, 1])
    assert speeds.in_costs(TABLE, 10).tolist() == pytest.approx([1, 1.1, 1, 1])


@pytest.mark.parametrize("seed", range(5))
def test_costs_that_stray_for_ever_do_not_add_up_to_a_slow_lane(seed: int) -> None:
    """Steps up of more than what counts and steps down of less, again and again: a lane is what it is."""
    rng = np.random.default_rng(seed)
    speeds = Speeds.unknown(TABLE)
    furthest = 0.0
    for _ in range(500):
        speeds = speeds.after(priced(*np.exp(rng.normal(0.0, 0.05, 4))), TABLE)
        furthest = max(furthest, float(np.abs(np.log(speeds.factors(TABLE))).max()))
    assert furthest < 0.3


def test_even_relieves_a_lane_whose_core_is_taken() -> None:
    half = window(0.0, 0.5, 0.0, 0.0)
    proposal = policy_named("even").propose(LoadView((half, half), TABLE))
    assert proposal.moves
    assert {move.source for move in proposal.moves} == {1}
