"""The first rows of each key: against plain Python that sorts all rows, with moves and replays between epochs."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import InputError
from evenflow.operators import Top, arrays
from evenflow.testing import run_batches
from tests.operators.rows_oracle import SCHEMA, Row, plain, random_rows, run_moving, table_of

ALL = tuple(SCHEMA.names)
ORDERS = [(("price", False),), (("name", True), ("price", False)), (("at", False),)]


def first_rows(rows: list[Row], most: int, by: tuple[tuple[str, bool], ...]) -> list[Row]:
    """Return what is kept of all rows, each with its rank: null is the smallest, NaN the largest."""
    order = [*by, *((name, True) for name in ALL if name not in dict(by))]
    keyed: dict[Any, list[Row]] = {}
    for row in plain(table_of(rows)):
        keyed.setdefault(row[0], []).append(row)
    found = []
    for mine in keyed.values():
        for name, ascending in reversed(order):
            mine.sort(key=partial(_ranked, at=ALL.index(name)), reverse=not ascending)
        found += [(*row, rank) for rank, row in enumerate(mine[:most], 1)]
    return found


def _ranked(row: Row, at: int) -> tuple[int, Any]:
    value = row[at]
    if value is None:
        return 0, 0
    return (2, 0) if value == "NaN" else (1, value)


@pytest.mark.parametrize("keys", [("key",), ("key", "name")])
@pytest.mark.parametrize("by", [ORDERS[0], ORDERS[2]])
@pytest.mark.parametrize("seed", range(15))
def test_by_any_keys_it_keeps_what_a_sort_of_all_rows_has_first(
    seed: int, by: tuple[tuple[str, bool], ...], keys: tuple[str, ...]
) -> None:
    rng = random.Random(seed)
    epochs, most = random_rows(rng), rng.choice([1, 2, 5])
    seen: list[Row] = []
    ranks: dict[Any, Row] = {}
    for rows, (output, kept) in zip(
        epochs, run_moving(Top(ALL, most, by), map(table_of, epochs), keys, rng), strict=True
    ):
        seen += rows
        expected = _by_key(seen, most, by, keys)
        assert sorted(plain(kept), key=repr) == sorted(expected, key=repr)
        changed = plain(output)
        ids = [(*_key(row, keys), row[-1]) for row in changed]
        assert len(set(ids)) == len(ids)
        assert all(ranks.get(each) != row for each, row in zip(ids, changed, strict=True)), "only what changed"
        ranks.update(zip(ids, changed, strict=True))
        assert sorted(ranks.values(), key=repr) == sorted(expected, key=repr)


def _key(row: Row, keys: tuple[str, ...]) -> Row:
    return tuple(row[ALL.index(name)] for name in keys)


def _by_key(rows: list[Row], most: int, by: tuple[tuple[str, bool], ...], keys: tuple[str, ...]) -> list[Row]:
    parts: dict[Row, list[Row]] = {}
    for row in rows:
        parts.setdefault((row[0], *_key(row, keys)), []).append(row)
    return [row for part in parts.values() for row in first_rows(part, most, by)]


@pytest.mark.parametrize("by", ORDERS)
@pytest.mark.parametrize("seed", range(10))
def test_neither_epochs_nor_the_order_of_arrival_change_the_result(seed: int, by: tuple[tuple[str, bool], ...]) -> None:
    rng = random.Random(seed)
    rows = [row for epoch in random_rows(rng) for row in epoch]
    at_once = run_batches(Top(ALL, 3, by), [table_of(rows)], keys="key", schema=SCHEMA)
    rng.shuffle(rows)
    one_by_one = run_batches(Top(ALL, 3, by), [table_of([row]) for row in rows], keys="key", schema=SCHEMA)
    expected = sorted(first_rows(rows, 3, by), key=repr)
    assert sorted(plain(at_once.state), key=repr) == sorted(plain(one_by_one.state), key=repr) == expected


def test_an_epoch_of_several_pieces_puts_out_each_rank_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for epoch in random_rows(random.Random(1)) for row in epoch]
    whole = run_batches(Top(ALL, 3, ORDERS[0]), [table_of(rows)], keys="key", schema=SCHEMA)
    monkeypatch.setattr(arrays, "JOINED", 300)
    cut = run_batches(Top(ALL, 3, ORDERS[0]), [table_of(rows)], keys="key", schema=SCHEMA)
    assert plain(cut.outputs[0]) == plain(whole.outputs[0])
    assert repr(cut.changes[0].to_pylist()) == repr(whole.changes[0].to_pylist())  # NaN equals nothing


def test_a_row_that_does_not_make_it_writes_no_state() -> None:
    batches = [[{"user": "ann", "n": 1}, {"user": "ann", "n": 2}], [{"user": "ann", "n": 0}], [{"user": "ann", "n": 3}]]
    run = run_batches(Top(("user", "n"), 2, (("n", False),)), batches, keys="user")
    assert [table.num_rows for table in run.changes] == [1, 0, 1]
    assert run.rows(2) == [{"user": "ann", "n": 3, "rank": 1}, {"user": "ann", "n": 2, "rank": 2}]
    assert run.due is None


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="better rows may still come"):
        Top(ALL, 1, ORDERS[0]).in_mode("append")
    with pytest.raises(InputError, match="'key' is a key, and the same in all rows"):
        Top(ALL, 1, (("key", True),)).output_schema(SCHEMA, ("key",))
    with pytest.raises(InputError, match="'rank' is the name of its own column"):
        Top(("k", "Rank"), 1, (("Rank", True),)).output_schema(pa.schema([("k", "int64"), ("Rank", "int64")]), ("k",))
    listed = pa.schema([("k", pa.int64()), ("v", pa.list_(pa.int64()))])
    with pytest.raises(InputError, match=r"column 'v' has type list.*, which lanes cannot keep"):
        Top(("k", "v"), 1, (("v", True),)).output_schema(listed, ("k",))
