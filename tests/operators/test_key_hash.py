"""The hash that decides where a row of the next stage goes: as it is written down, whatever it is computed with."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.operators.key_hash import hashes_of

_ALL = (1 << 64) - 1


def mixed(value: int, word: int) -> int:
    value = ((value ^ word) * 0x9E3779B97F4A7C15) & _ALL
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _ALL
    return value ^ (value >> 31)


NULL = 0xA0761D6478BD642F


def words(value: Any) -> list[int]:
    """Return the words of a key, by the book."""
    if value is None:
        return [NULL]
    if isinstance(value, float):
        plain = math.nan if math.isnan(value) else value + 0.0
        return [struct.unpack("<Q", struct.pack("<d", plain))[0]]
    if isinstance(value, Decimal):
        (unscaled,) = [int(value.scaleb(2))]
        return [unscaled & _ALL, (unscaled >> 64) & _ALL]
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        eights = [data[at : at + 8].ljust(8, b"\0") for at in range(0, len(data), 8)]
        return [len(data), *(struct.unpack("<Q", eight)[0] for eight in eights)]
    return [int(value) & _ALL]


def expected(*columns: list[Any], per_null: int = 1) -> list[int]:
    found = []
    for row in zip(*columns, strict=True):
        value = 0
        for word in (word for cell in row for word in words(cell) * (per_null if cell is None else 1)):
            value = mixed(value, word)
        found.append(value - (1 << 64) if value >> 63 else value)
    return found


CASES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [0, 1, -1, None, 1 << 62]),
    "int8": (pa.int8(), [0, 1, -1, None, 127]),
    "bool": (pa.bool_(), [True, False, None, True, False]),
    "double": (pa.float64(), [0.0, -0.0, math.nan, None, 1.5]),
    "decimal": (pa.decimal128(20, 2), [Decimal("1.25"), Decimal("-1.25"), None, Decimal("0.00"), Decimal("9.99")]),
    "string": (pa.string(), ["", "a", "eight by", None, "more than eight bytes: ü"]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", None, b"x" * 17]),
    "large": (pa.large_string(), ["", "a", "eight by", None, "more than eight bytes: ü"]),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_hash_is_as_it_is_written_down(kind: str) -> None:
    of_type, values = CASES[kind]
    table = pa.table({"key": pa.array(values, of_type)})
    hashes = expected(values, per_null=2 if kind == "decimal" else 1)
    assert hashes_of(table, ["key"]).tolist() == hashes
    assert hashes_of(table.slice(2), ["key"]).tolist() == hashes[2:], "a part of a table"
    assert hashes_of(pa.concat_tables([table, table]), ["key"]).tolist() == hashes * 2, "in chunks"
    assert hashes_of(table.slice(0, 0), ["key"]).tolist() == []


def test_all_columns_count_and_their_order_does() -> None:
    one, two = ["a", None, "b", None], [1, 2, None, None]
    table = pa.table({"one": one, "two": pa.array(two, pa.int64())})
    assert hashes_of(table, ["one", "two"]).tolist() == expected(one, two)
    assert hashes_of(table, ["two", "one"]).tolist() == expected(two, one)


def test_what_spark_groups_together_has_one_hash() -> None:
    floats = pa.table({"key": pa.array([0.0, -0.0, math.nan, -math.nan], pa.float64())})
    zero, minus_zero, nan, other_nan = hashes_of(floats, ["key"]).tolist()
    assert (zero, nan) == (minus_zero, other_nan)


def test_bytes_of_a_fixed_number_that_is_no_multiple_of_eight() -> None:
    table = pa.table({"key": pa.array([b"abcdefghi", b"abcdefgh\0"], pa.binary(9))})
    eight = struct.unpack("<Q", b"abcdefgh")[0]
    assert hashes_of(table, ["key"]).view(np.uint64).tolist() == [
        mixed(mixed(0, eight), ord("i")),
        mixed(mixed(0, eight), 0),
    ]


def test_times_are_hashed_by_their_value() -> None:
    day = dt.date(2026, 1, 1)
    table = pa.table({"key": pa.array([day], pa.date32())})
    assert hashes_of(table, ["key"]).tolist() == expected([(day - dt.date(1970, 1, 1)).days])


def test_the_slots_of_near_keys_are_spread_evenly() -> None:
    hashes = hashes_of(pa.table({"key": np.arange(64_000)}), ["key"])
    counts = np.bincount(hashes % 64, minlength=64)
    assert 850 < counts.min() <= counts.max() < 1150


def test_it_has_not_changed() -> None:
    """Slots of running queries are found by it."""
    table = pa.table({"key": ["evenflow", None], "n": pa.array([7, None], pa.int64())})
    assert hashes_of(table, ["key", "n"]).tolist() == [218395179902291628, 3719034923040802573]
