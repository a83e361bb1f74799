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
    assert speeds.own_factors(TABLE).tolist() == [1.0, 1.0, 1.0, 1.0]
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


def test_even_relieves_a_lane_whose_core_is_taken() -> None:
    half = window(0.0, 0.5, 0.0, 0.0)
    proposal = policy_named("even").propose(LoadView((half, half), TABLE))
    assert proposal.moves
    assert {move.source for move in proposal.moves} == {1}
