"""Routing tables: one owner per slot, immutable, versioned; moves and differences undo each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import InputError
from evenflow.model import ControlMessage, Move, RoutingTable, Transfer, slots_of_hashes
from tests.strategies import tables


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(1, 1000))
def test_a_hash_falls_into_the_slot_that_sparks_pmod_gives(hashes: list[int], slots: int) -> None:
    expected = [((value % slots) + slots) % slots for value in hashes]  # pmod, written out
    assert slots_of_hashes(np.array(hashes), slots).tolist() == expected


def test_the_first_table_is_dealt_out_evenly() -> None:
    assert RoutingTable.even(8, 3).owners.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert RoutingTable.even(2, 4).owners.tolist() == [0, 1]
    assert RoutingTable.even(4, [5, 3]).owners.tolist() == [3, 5, 3, 5]
    assert len(RoutingTable.even(256, 4).with_lanes(range(8)).difference(RoutingTable.even(256, 8))) == 128
    assert str(RoutingTable.even(8, 3)) == "routing table v0 (8 slots; lane 0: 3, lane 1: 3, lane 2: 2)"


@given(tables(), st.data())
def test_look_up_of_an_array_equals_single_look_ups(table: RoutingTable, data: st.DataObject) -> None:
    slots = data.draw(st.lists(st.integers(0, table.slots - 1)))
    assert table.lanes_of(np.array(slots, dtype=int)).tolist() == [int(table.owners[slot]) for slot in slots]
    assert sorted(slot for lane in table.lanes for slot in table.slots_of(lane).tolist()) == list(range(table.slots))


@given(tables(), st.data())
def test_the_difference_of_two_tables_leads_from_one_to_the_other(before: RoutingTable, data: st.DataObject) -> None:
    owners = data.draw(st.lists(st.sampled_from(before.lanes), min_size=before.slots, max_size=before.slots))
    after = RoutingTable(np.array(owners), before.lanes)
    moves = before.difference(after)
    assert before.apply(moves).owners.tolist() == owners
    assert before.apply(moves).version == before.version + 1
    assert {move.slot for move in moves} == {
        slot for slot in range(before.slots) if before.owners[slot] != owners[slot]
    }


def test_tables_are_values() -> None:
    one, same = RoutingTable.even(8, 2), RoutingTable.even(8, 2)
    assert one == same
    assert hash(one) == hash(same)
    assert one != one.apply([Move(0, 0, 1)])
    with pytest.raises(ValueError, match="read-only"):
        one.owners[0] = 1
    given_array = np.zeros(3, dtype=int)
    table = RoutingTable(given_array, (0, 1))
    given_array[0] = 1
    assert table.owners[0] == 0


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ([Move(9, 0, 1)], "no slot 9; slots are 0 to 3"),
        ([Move(0, 1, 0)], "owned by lane 0"),
        ([Move(0, 0, 5)], r"no lane 5; lanes are \[0, 1\]"),
        ([Move(0, 0, 1), Move(0, 1, 0)], "slot 0 is moved twice"),
    ],
)
def test_moves_that_do_not_fit_are_refused(moves: list[Move], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RoutingTable.even(4, 2).apply(moves)


@pytest.mark.parametrize(
    ("owners", "lanes", "message"),
    [
        ([], (0,), "at least 1 slot"),
        ([0], (), "at least 1 lane"),
        ([0, 3], (0, 1), r"lanes \[3\], but the lanes are \[0, 1\]"),
        ([0], (0, 0), "each lane once"),
        ([-1], (-1,), "start at 0"),
    ],
)
def test_tables_that_break_the_rules_are_refused(owners: list[int], lanes: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RoutingTable(np.array(owners, dtype=int), lanes)


def test_lanes_come_and_go_but_not_with_slots() -> None:
    table = RoutingTable.even(4, 2).with_lanes([0, 1, 2])
    assert (table.lanes, table.version) == ((0, 1, 2), 1)
    with pytest.raises(InputError, match=r"owned by lanes \[1\]"):
        table.with_lanes([0, 2])


def test_control_messages_have_the_fields_of_table_1() -> None:
    empty = ControlMessage(200)
    assert (empty.event_type, empty.event_time, empty.migration, empty.transfers) == ("control", 200, False, ())
    message = ControlMessage(201, (Move(2, 0, 1), Move(7, 3, 1), Move(1, 0, 1)))
    assert message.migration
    assert message.transfers == (Transfer(0, 1, (1, 2)), Transfer(3, 1, (7,)))
    assert empty < message, "control messages are totally ordered"
    assert str(message.moves[0]) == "slot 2: lane 0 -> lane 1"
