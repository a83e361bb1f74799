"""The index against a dict: any identities, any slots, growth, removal, renumbering, runs that wrap around."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.model.slots import IntArray
from evenflow.operators.key_index import KeyIndex

SLOTS = 4
identities = st.sampled_from([0, -1, -2, 1, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)
batches = st.lists(st.lists(identities, max_size=30), min_size=1, max_size=5)


def slots_of(batch: IntArray) -> IntArray:
    return batch % SLOTS


@given(batches, st.integers(0, SLOTS - 1), st.booleans())
@settings(max_examples=60)
def test_identities_keep_their_rows(drawn: list[list[int]], dropped: int, renumber: bool) -> None:
    index, expected = KeyIndex(SLOTS), dict[int, int]()
    for batch in (np.array(values, np.int64) for values in drawn):
        rows, new = index.find(batch, slots_of(batch))
        assert index.identities(rows).tolist() == batch.tolist()
        assert set(batch[new].tolist()) == set(batch.tolist()) - set(expected)
        expected |= dict(zip(batch.tolist(), rows.tolist(), strict=True))
        assert [expected[value] for value in batch.tolist()] == rows.tolist()
    index.forget(index.rows_of_slots(np.array([dropped])))
    left = np.array([value for value in expected if value % SLOTS != dropped], np.int64)
    if renumber:
        index.keep()
        assert index.rows == index.live == len(left)
    before = index.rows
    rows, new = index.find(left, slots_of(left))
    assert len(new) == 0
    assert index.rows == before
    assert index.identities(rows).tolist() == left.tolist()
    assert index.slot_rows.tolist() == np.bincount(slots_of(left), minlength=SLOTS).tolist()


@pytest.mark.parametrize("bulk", [True, False])
def test_keys_with_one_home_fill_a_run_that_wraps_around_the_end(bulk: bool) -> None:
    index = KeyIndex(1)
    candidates = np.arange(2_000_000, dtype=np.int64)
    last = index._home(candidates) == len(index._table) - 1
    same_home, zeros = candidates[last][:200], np.zeros(200, np.int64)
    if bulk:
        index.append(same_home, zeros)
    rows, _ = index.find(same_home, zeros)
    assert index.identities(rows).tolist() == same_home.tolist()
    assert index.rows == 200


def test_many_keys_in_one_call() -> None:
    index = KeyIndex(1)
    keys = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 50_000)
    twice = np.concatenate([keys, keys])
    rows, new = index.find(twice, np.zeros(len(twice), np.int64))
    assert len(new) == index.rows == 50_000
    assert (rows[:50_000] == rows[50_000:]).all()
    assert (index.identities(rows) == twice).all()


def test_loose_rows_are_found_by_no_identity() -> None:
    index, zero = KeyIndex(2), np.zeros(1, np.int64)
    first, loose = index.append_loose(zero, zero), index.append_loose(zero, zero + 1)
    rows, new = index.find(zero, zero)
    assert rows.tolist() == [2]
    assert new.tolist() == [0]
    index.forget(first)
    assert index.keep().tolist() == [1, 2]
    assert index.find(zero, zero)[0].tolist() == [1]
    index.forget(loose - 1)
    assert index.slot_rows.tolist() == [1, 0]
    assert index.find(zero, zero)[0].tolist() == [1]


def test_a_removed_position_leads_to_no_row_at_the_end() -> None:
    index = KeyIndex(2)
    keys = np.arange(index.capacity - 1, dtype=np.int64)
    index.find(keys, np.zeros(len(keys), np.int64))
    last = index.identities(np.array([len(keys) - 1]))  # read through -2, the mark of a removed position
    index.forget(np.array([len(keys) - 1]))
    rows, new = index.find(last, np.ones(1, np.int64))
    assert rows.tolist() == [len(keys)]
    assert new.tolist() == [0]
    assert index.identities(rows).tolist() == last.tolist()


def test_first_positions() -> None:
    index = KeyIndex(1)
    assert index.first_positions(np.array([7, 3, 7, 7, 3, 0])).tolist() == [0, 1, 0, 0, 1, 5]
