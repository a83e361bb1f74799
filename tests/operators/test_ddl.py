"""Spark's text for columns, read without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from evenflow.errors import InputError
from evenflow.operators.ddl import schema_of_text

TEXTS = {
    "user string, total long": [("user", pa.string()), ("total", pa.int64())],
    "a INT, b bigint,c smallint , d tinyint": [
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("c", pa.int16()),
        ("d", pa.int8()),
    ],
    "`a b` double, `c``d`: float": [("a b", pa.float64()), ("c`d", pa.float32())],
    "at timestamp, local timestamp_ntz, day date": [
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
    ],
    "price decimal(12, 2), n decimal, m decimal(7)": [
        ("price", pa.decimal128(12, 2)),
        ("n", pa.decimal128(10, 0)),
        ("m", pa.decimal128(7, 0)),
    ],
    "tags array<string>, seen map<string, array<int>>, who struct<name: string, age: int>": [
        ("tags", pa.list_(pa.string())),
        ("seen", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("who", pa.struct([("name", pa.string()), ("age", pa.int32())])),
    ],
}


@pytest.mark.parametrize("text", TEXTS)
def test_columns(text: str) -> None:
    assert schema_of_text(text) == pa.schema(TEXTS[text])


def test_what_may_not_be_null_and_comments() -> None:
    schema = schema_of_text("id long NOT NULL COMMENT 'the id, of course', flag boolean, raw binary")
    assert [(field.name, field.nullable) for field in schema] == [("id", False), ("flag", True), ("raw", True)]


@pytest.mark.parametrize(
    "text", ["", "long", "a strng", "a long b", "a long,", "a array<", "a decimal(x)", "1.5 long", "a map<int>"]
)
def test_what_describes_no_columns_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected columns with types, such as 'user string, total long', got"):
        schema_of_text(text)
