"""Keys that go: tombstones in the changes, their order, the index behind them, and the memory they give back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from evenflow.errors import InputError
from evenflow.operators import GONE, HASH, SLOT, Agg, Aggregate, functions
from evenflow.operators.aggregate import AggregateState

KINDS = [pa.int64(), pa.string()]  # its own identity in the index, found by a hash


def opened(kind: pa.DataType, slots: int = 8) -> AggregateState:
    schema = pa.schema({"k": kind, "v": pa.string()})
    return Aggregate({"n": functions.count(), "low": Agg("min", "v"), "t": Agg("first", "v")}).open(
        schema, ("k",), slots
    )


def rows(kind: pa.DataType, keys: list[int | None], hashes: int = 1 << 40) -> tuple[pa.Table, Any]:
    """Return a row per key, all of one slot; the hashes are `hashes` different ones."""
    columns = {"k": pa.array(keys, pa.int64()).cast(kind), "v": [f"v{key}" for key in keys]}
    columns[HASH] = pa.array([(key or 0) % hashes for key in keys], pa.int64())
    return pa.table(columns), np.zeros(len(keys), np.int64)


def held(state: AggregateState) -> dict[str, int]:
    return {str(row["k"]): row["n"] for row in state.output([0]).to_pylist()}


def removed(state: AggregateState, *keys: int | None) -> pa.Table:
    """Remove keys of slot 0."""
    at = [*map(str, state.output([0])["k"].to_pylist())]
    return state.remove(state.rows_of([0])[[at.index(str(key)) for key in keys]])


@pytest.mark.parametrize("kind", KINDS)
def test_a_removed_key_is_a_tombstone_for_others_and_starts_anew_here(kind: pa.DataType) -> None:
    state, other = opened(kind), opened(kind)
    other.install(state.fold(*rows(kind, [1, 2, None, 1])).changes)
    tombstones = removed(state, None, 1)
    assert tombstones.schema == state.snapshot([]).schema
    assert tombstones[GONE].to_pylist() == [True, True]
    assert tombstones["n"].null_count == 2
    other.install(tombstones)
    for each in (state, other):
        assert held(each) == {"2": 1}
        assert each.slot_rows()[0] == 1
        assert each.snapshot([0])[GONE].to_pylist() == [False]
    other.install(state.fold(*rows(kind, [1, None])).changes)
    assert held(state) == held(other) == {"2": 1, "1": 1, "None": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_of_several_rows_of_a_key_the_last_counts(kind: pa.DataType) -> None:
    state = opened(kind)
    came = state.fold(*rows(kind, [1, 2])).changes
    went = removed(state, 1, 2)
    back = state.fold(*rows(kind, [2, 2])).changes
    for tables, expected in (
        ([came, went], {}),
        ([went, came], {"1": 1, "2": 1}),
        ([came, went, back], {"2": 2}),
        ([back, went, came, went], {}),
        ([went], {}),
    ):
        for parts in (tables, [pa.concat_tables(tables)]):
            other = opened(kind)
            for part in parts:
                other.install(part)
            assert held(other) == expected


@pytest.mark.parametrize("first", [0, 1, 2])
def test_keys_that_share_a_hash_are_found_after_one_of_them_has_gone(first: int) -> None:
    state = opened(pa.string())
    state.fold(*rows(pa.string(), [0, 1, 2], hashes=1))
    removed(state, first)
    state.fold(*rows(pa.string(), [0, 1, 2], hashes=1))
    assert held(state) == {str(key): 1 if key == first else 2 for key in range(3)}
    assert state.slot_rows()[0] == 3
    state.drop([0])
    state.fold(*rows(pa.string(), [2, 1], hashes=1))
    assert held(state) == {"2": 1, "1": 1}


def test_null_is_not_taken_for_the_key_0_that_has_gone() -> None:
    state = opened(pa.int64())
    state.fold(*rows(pa.int64(), [0, None]))
    removed(state, 0)
    state.fold(*rows(pa.int64(), [0, None]))
    assert held(state) == {"0": 1, "None": 2}


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_given_back(kind: pa.DataType) -> None:
    state, other = opened(kind), opened(kind)
    other.install(state.fold(*rows(kind, list(range(8000)))).changes)
    before = int(state.slot_bytes().sum())
    for low in range(0, 7900, 100):
        other.install(removed(state, *range(low, low + 100)))
    for each in (state, other):
        assert held(each) == {str(key): 1 for key in range(7900, 8000)}
        assert each.slot_bytes().sum() < before / 8
        assert each._keys.index.capacity == 1024


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_come_and_go_for_ever_take_bounded_memory(kind: pa.DataType) -> None:
    state = opened(kind)
    for epoch in range(60):
        state.fold(*rows(kind, list(range(500 * epoch, 500 * epoch + 500))))
        removed(state, *range(500 * epoch, 500 * epoch + 490))
    assert state.slot_rows()[0] == 600
    assert state._keys.index.rows < 2 * 600 + 500
    assert state._keys.index.capacity < 8192


def test_tombstones_are_sorted_by_slot() -> None:
    state = opened(pa.int64())
    table, _ = rows(pa.int64(), list(range(6)))
    state.fold(table, np.array([1, 1, 3, 3, 5, 5]))
    tombstones = state.remove(state.rows_of([1, 3, 5])[::-1])
    assert tombstones[SLOT].to_pylist() == [1, 1, 3, 3, 5, 5]
    assert state.remove(np.empty(0, np.int64)).num_rows == 0
    assert pc.all(tombstones[GONE]).as_py()


def test_its_name_is_reserved() -> None:
    with pytest.raises(InputError, match="the name '__gone' is reserved"):
        Aggregate({GONE: functions.count()})
