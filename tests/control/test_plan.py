"""One decision on windows of which the older are from before the lanes changed."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.control import plan_moves
from evenflow.migration import strategy_named
from evenflow.model import LoadView, LoadWindow, RoutingTable, SlotLoads, window_of
from evenflow.policies import POLICIES, policy_named, proposal_of

TWO, THREE = RoutingTable(np.array([0, 1, 0, 1]), (0, 1)), RoutingTable(np.array([0, 1, 0, 2]), (0, 1, 2))


def window(table: RoutingTable, epoch: int) -> LoadWindow:
    loads = SlotLoads.of([10] * 4, [0.6, 0.2, 0.5, 0.2], pending=[3 + epoch, 0, 5 * epoch, 1])
    derived = window_of(table, loads)
    return LoadWindow(derived.slots, derived.lanes, (epoch, epoch))


def windows(*tables: RoutingTable) -> tuple[LoadWindow, ...]:
    return tuple(window(table, epoch) for epoch, table in enumerate(tables))


@pytest.mark.parametrize("policy", POLICIES)
def test_windows_from_before_the_lanes_changed_do_not_count(policy: str) -> None:
    given = windows(THREE, TWO, TWO, THREE, THREE)
    chosen, strategy = policy_named(policy), strategy_named("sudden")
    planned = plan_moves(given, THREE, chosen, strategy)
    assert planned == plan_moves(given[3:], THREE, chosen, strategy)
    assert planned.moves == proposal_of(chosen, LoadView(given[3:], THREE)).moves


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_can_look_at_windows_of_other_lanes(policy: str) -> None:
    proposal = proposal_of(policy_named(policy), LoadView(windows(TWO, TWO, THREE), THREE))
    assert {move.target for move in proposal.moves} <= set(THREE.lanes) | {3, 4, 5, 6, 7}
