"""From one set of lanes to another: no slot without an owner, none moved in vain, new lanes with about their share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.control.fitting import fitted
from evenflow.model import RoutingTable

LANES = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True).map(sorted)


@st.composite
def tables(draw: st.DrawFn) -> RoutingTable:
    lanes = draw(LANES)
    owners = draw(st.lists(st.sampled_from(lanes), min_size=1, max_size=40))
    return RoutingTable(np.array(owners, dtype=np.int64), tuple(lanes))


def weights_of(table: RoutingTable) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(0, 100), min_size=table.slots, max_size=table.slots)


@given(st.data(), tables(), LANES)
def test_every_slot_is_owned_by_a_lane_that_stays_and_only_what_must_moves(
    data: st.DataObject, table: RoutingTable, lanes: list[int]
) -> None:
    after = fitted(table, lanes, data.draw(weights_of(table)))
    assert after.lanes == tuple(lanes)
    assert set(after.owners.tolist()) <= set(lanes)
    new = set(lanes) - set(table.lanes)
    for slot in np.flatnonzero(after.owners != table.owners).tolist():
        assert int(table.owners[slot]) not in lanes or int(after.owners[slot]) in new


@given(tables(), LANES)
def test_with_equal_slots_a_new_lane_gets_its_share_and_no_old_one_falls_below_it(
    table: RoutingTable, lanes: list[int]
) -> None:
    after = fitted(table, lanes)
    share = table.slots / len(lanes)
    counts = {lane: int((after.owners == lane).sum()) for lane in lanes}
    new = set(lanes) - set(table.lanes)
    for lane in new:
        assert counts[lane] <= share + 1
        givers = [other for other in lanes if other not in new and counts[other] > max(1.0, share + 1)]
        assert counts[lane] >= int(share) or not givers


@pytest.mark.parametrize("lanes", [3, 5, 8])
def test_from_two_lanes_to_more_all_have_about_the_same(lanes: int) -> None:
    after = fitted(RoutingTable.even(240, 2), range(lanes))
    counts = [int((after.owners == lane).sum()) for lane in range(lanes)]
    assert max(counts) - min(counts) <= 1


def test_load_counts_not_slots() -> None:
    table = RoutingTable(np.array([0, 0, 0, 0, 1, 1, 1, 1]), (0, 1))
    after = fitted(table, range(3), [9.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0])
    load = np.array([9.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0])
    sums = [float(load[after.owners == lane].sum()) for lane in range(3)]
    assert max(sums) <= 9.0
    assert sums[2] >= 6.0


def test_what_leaves_goes_to_the_least_loaded_heaviest_first() -> None:
    table = RoutingTable(np.array([0, 1, 2, 2]), (0, 1, 2))
    assert fitted(table, [0, 1], [5.0, 1.0, 3.0, 2.0]).owners.tolist() == [0, 1, 1, 1]


def test_the_same_lanes_are_the_same_table() -> None:
    table = RoutingTable.even(8, 3)
    assert fitted(table, [2, 0, 1]) is table
