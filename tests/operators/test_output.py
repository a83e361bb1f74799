"""What user code may return where another type is declared: whatever loses nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import InputError
from evenflow.operators.frames import PlainFrames
from evenflow.operators.output import conform

NEW_YORK = pa.timestamp("us", "America/New_York")
UTC = pa.timestamp("us", "UTC")


def returned(given: pa.DataType, declared: pa.DataType, *values: Any) -> list[Any]:
    schema = pa.schema([("x", declared)])
    table = conform(pa.table({"x": pa.array(values, given)}), schema, PlainFrames(schema))
    assert table.schema == schema
    values_of: list[Any] = table["x"].to_pylist()
    return values_of


@pytest.mark.parametrize(
    ("given", "declared", "value"),
    [
        (pa.int32(), pa.int64(), 2**31 - 1),
        (pa.uint32(), pa.int64(), 2**32 - 1),
        (pa.int8(), pa.float32(), -128),
        (pa.int32(), pa.float64(), 2**31 - 1),
        (pa.int64(), pa.decimal128(20, 0), 2**63 - 1),
        (pa.float32(), pa.float64(), 0.5),
        (pa.decimal128(5, 2), pa.decimal128(38, 18), 1),
        (pa.large_string(), pa.string(), "x"),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), "x"),
        (pa.large_binary(), pa.binary(), b"x"),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), [1, None]),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.large_string(), pa.int64()), [("a", 1)]),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())]), {"a": 1}),
        (pa.duration("ns"), pa.duration("us"), None),
        (pa.null(), pa.list_(pa.string()), None),
    ],
    ids=str,
)
def test_a_narrower_type_is_widened(given: pa.DataType, declared: pa.DataType, value: Any) -> None:
    assert returned(given, declared, value, None) == [value, None]


def test_an_instant_may_be_in_any_zone_and_any_unit_that_loses_nothing() -> None:
    [found] = returned(NEW_YORK, UTC, 1_000_000)
    assert found.timestamp() == 1
    [found] = returned(pa.timestamp("ns", "Asia/Kolkata"), UTC, 1_000_000_000)
    assert found.timestamp() == 1
    with pytest.raises(InputError, match=r"output column 'x': expected timestamp.* would lose data"):
        returned(pa.timestamp("ns", "UTC"), UTC, 1)


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        (pa.int64(), pa.int32()),
        (pa.uint64(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.int64(), pa.decimal128(18, 0)),
        (pa.decimal128(10, 2), pa.decimal128(10, 4)),
        (pa.string(), pa.int64()),
        (pa.bool_(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.timestamp("us"), UTC),
        (UTC, pa.timestamp("us")),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())])),
    ],
    ids=str,
)
def test_what_could_lose_something_is_refused_whatever_the_values(given: pa.DataType, declared: pa.DataType) -> None:
    with pytest.raises(InputError, match="output column 'x': expected"):
        returned(given, declared, None)


def test_integers_beside_nulls_stay_integers() -> None:
    rows = pa.table({"id": pa.array([2**53 + 1, None]), "n": pa.array([1, 2], pa.int16())})
    frame = PlainFrames(rows.schema).frame(rows)
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {"id": "Int64", "n": "int16"}
    assert frame["id"].tolist()[0] == 2**53 + 1
