"""Memory first: `even` relieves lanes that hold more than their budget, with few bytes, and then comes to rest."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenflow.model import LaneLoad, LoadView, LoadWindow, RoutingTable, SlotLoads
from evenflow.policies import proposal_of
from evenflow.policies.even import Even
from evenflow.policies.relief import relieving_moves


def view_of(table: RoutingTable, sizes: list[int], budget: int | None, busy: list[float] | None = None) -> LoadView:
    busy_s = np.full(len(sizes), 0.01) if busy is None else np.array(busy)
    idle = 1.0 - table.sum_by_lane(busy_s)
    lanes = tuple(
        LaneLoad(lane, float(max(0.0, free)), 1.0, budget) for lane, free in zip(table.lanes, idle, strict=True)
    )
    loads = SlotLoads.of(np.ones(len(sizes), dtype=int), busy_s, sizes)
    return LoadView((LoadWindow(loads, lanes),), table)


def test_the_smallest_slot_that_is_enough_goes_to_the_least_busy_lane_with_room() -> None:
    table = RoutingTable(np.array([0, 0, 0, 1, 2]), (0, 1, 2))
    view = view_of(table, [70, 40, 20, 10, 10], 100, [0.1, 0.1, 0.1, 0.5, 0.2])
    (move,) = proposal_of(Even(), view).moves
    assert (move.slot, move.source, move.target) == (1, 0, 2)
    assert "30 bytes more than its memory budget" in move.reason


def test_records_of_slots_on_disk_are_not_taken_for_work() -> None:
    table = RoutingTable.even(4, 2)
    busy, spilled = np.full(4, 0.2), np.array([True, False, False, False])
    loads = SlotLoads.of(np.full(4, 20), busy, np.full(4, 10), np.array([5_000, 0, 0, 0]), spilled)
    window = LoadWindow(loads, tuple(LaneLoad(lane, 0.0, 0.4, 20) for lane in (0, 1)))
    assert proposal_of(Even(), LoadView((window,), table)).moves == ()


def test_a_smaller_slot_goes_where_the_one_that_is_enough_does_not_fit() -> None:
    table = RoutingTable(np.array([0, 0, 0, 1, 2]), (0, 1, 2))
    (move,) = relieving_moves(view_of(table, [70, 40, 20, 75, 90], 100), np.ones(5))
    assert (move.slot, move.target) == (2, 1)


def test_without_room_anywhere_nothing_moves() -> None:
    assert relieving_moves(view_of(RoutingTable.even(4, 2), [60, 60, 60, 60], 100), np.ones(4)) == ()


def test_a_lane_that_has_just_been_relieved_takes_nothing() -> None:
    table = RoutingTable(np.array([0, 0, 0, 1, 1, 2]), (0, 1, 2))
    moves = relieving_moves(view_of(table, [1, 1, 3, 1, 3, 0], 3), np.ones(6))
    assert [move.target for move in moves] == [2] * len(moves) != []


def test_without_budgets_nothing_moves() -> None:
    assert relieving_moves(view_of(RoutingTable.even(4, 2), [60, 60, 60, 60], None), np.ones(4)) == ()


@given(
    sizes=st.lists(st.integers(0, 50), min_size=4, max_size=20),
    owners=st.data(),
    budget=st.integers(1, 200),
)
def test_it_fills_no_lane_above_its_budget_and_comes_to_rest(
    sizes: list[int], owners: st.DataObject, budget: int
) -> None:
    held = owners.draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes)))
    table = RoutingTable(np.array(held), (0, 1, 2))
    over = table.sum_by_lane(sizes) > budget
    busy = np.full(len(sizes), 0.01)
    moves = relieving_moves(view_of(table, sizes, budget), busy)
    after = table.apply(moves)
    full = after.sum_by_lane(sizes)
    assert all(over[move.source] and not over[move.target] for move in moves)
    assert not (full > budget)[~over].any()
    assert relieving_moves(view_of(after, sizes, budget), busy) == () or (full > budget).any()
    if 2 * 50 + sum(sizes) <= 3 * budget and max(sizes) * 2 <= budget:
        assert (full <= budget).all()
