"""The most frequent key of a slot: of any type, of several columns, in words that JSON has, and only where asked."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.lane import hot_keys
from evenflow.lane.hot_keys import KeyCounter
from evenflow.lane.messages import Done, HotKey, SlotToLoad, Work, decode_from_lane, encode
from evenflow.state import Advance
from tests.lane.test_worker import Lane


def counted(slots: list[int], asked: list[int], **columns: Any) -> tuple[HotKey, ...]:
    counter = KeyCounter(tuple(columns), asked)
    counter.add(pa.table(columns), np.array(slots))
    return counter.hottest()


@pytest.mark.parametrize(
    ("kind", "hot", "other", "shown"),
    [
        (pa.int64(), 2**60 + 1, 7, 2**60 + 1),
        (pa.int8(), -3, 7, -3),
        (pa.bool_(), True, False, True),
        (pa.float64(), 0.5, 1.5, 0.5),
        (pa.float64(), float("nan"), 1.5, "nan"),
        (pa.string(), "ann", "bob", "ann"),
        (pa.large_string(), "cæsar", "", "cæsar"),
        (pa.binary(), b"\x00\xff", b"", "00ff"),
        (pa.large_binary(), b"a", b"", "61"),
        (pa.decimal128(20, 2), Decimal("1.50"), Decimal("2.00"), "1.50"),
        (pa.date32(), date(2026, 1, 2), date(2025, 1, 2), "2026-01-02"),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 2, tzinfo=UTC), None, "2026-01-02 00:00:00+00:00"),
        (pa.timestamp("us"), datetime(2026, 1, 2, 3), None, "2026-01-02 03:00:00"),  # noqa: DTZ001 - Spark's timestamp_ntz
        (pa.duration("us"), timedelta(hours=2), None, "2:00:00"),
        (pa.int64(), None, 7, None),
    ],
)
def test_keys_of_every_type(kind: pa.DataType, hot: Any, other: Any, shown: Any) -> None:
    (found,) = counted([5] * 4, [5], key=pa.array([hot, other, hot, hot], kind))
    assert found == HotKey(5, {"key": shown}, 0.75, 2)
    json.dumps(found.key, allow_nan=False)


def test_several_columns_are_one_key_and_only_the_slots_asked_for_are_looked_at() -> None:
    users, shops = ["a", "a", "b", "x", "y", "y", "y"], [1, 2, 1, 9, 9, 9, 8]
    (found,) = counted([0, 0, 0, 3, 3, 3, 3], [3, 7], user=users, shop=shops)
    assert found == HotKey(3, {"user": "y", "shop": 9}, 0.5, 3)


def test_epochs_are_taken_together() -> None:
    counter = KeyCounter(("key",), [1])
    counter.add(pa.table({"key": [4, 5]}), np.array([1, 1]))
    counter.add(pa.table({"key": [5]}), np.array([1]))
    assert counter.hottest() == (HotKey(1, {"key": 5}, 2 / 3, 2),)


def test_of_many_rows_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_keys, "_SAMPLE", 100)
    keys = np.random.default_rng(0).permutation(np.r_[np.full(9_000, -1), np.arange(1_000)])
    (found,) = counted([2] * 10_000, [2], key=keys)
    assert found.key == {"key": -1}
    assert found.share == pytest.approx(0.9, abs=0.1)
    assert found.keys <= 100


def test_a_lane_tells_the_key_of_a_slot_with_the_work_that_asks(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.adopt(SlotToLoad(1, -1), SlotToLoad(2, -1))
    rows = [(1, 10), (5, 10), (5, 10), (2, 10)]
    assert lane.work(Advance(-1, 0, (1, 2)), e0=rows).hot_keys == ()
    (answer,) = lane.say(Work(1, (Advance(0, 1, (1, 2)),), (lane.input(1, rows),), (), (1,)))
    assert isinstance(answer, Done)
    assert answer.hot_keys == (HotKey(1, {"key": 5}, 2 / 3, 2),)
    assert decode_from_lane(encode(answer)) == answer
    assert lane.state(1) == {1: (20, 2), 5: (40, 4)}
