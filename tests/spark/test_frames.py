"""Frames between user code and a session, without a session: what differs from plain Arrow, and what is refused."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from evenflow.errors import InputError
from evenflow.operators import Apply, SlotOperator
from evenflow.spark.frames import SparkFrames
from evenflow.spark.internals import arrow_schema

GIVEN = StructType().add("key", "long").add("at", "timestamp").add("note", "string")
OUTPUT = StructType().add("at", "timestamp").add("n", "integer")


def frames(**settings: Any) -> SparkFrames:
    return SparkFrames(GIVEN, OUTPUT, **{"zone": "America/New_York", **settings})


def rows(*times: datetime | None) -> pa.Table:
    columns = [[1] * len(times), list(times), ["x"] * len(times)]
    schema = arrow_schema(GIVEN)
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)], schema)


def test_instants_are_shown_in_the_zone_of_the_session_and_read_there() -> None:
    noon = datetime(2020, 7, 1, 12, tzinfo=UTC)
    shown = frames().shown(rows(noon, None))
    assert shown.schema.field("at").type == pa.timestamp("us", "America/New_York")
    frame = frames().frame(shown)
    assert str(frame["at"].dtype) == "datetime64[ns]"
    assert frame["at"].tolist() == [pd.Timestamp("2020-07-01 08:00:00"), pd.NaT]
    table = frames().table(frame[["at"]].assign(n=[1, 2]))
    assert table["at"].to_pylist()[0] == noon
    aware = pd.DataFrame({"n": [1], "at": [pd.Timestamp("2020-07-01 12:00", tz="Asia/Tokyo")]})
    assert frames().table(aware)["at"].to_pylist()[0] == datetime(2020, 7, 1, 3, tzinfo=UTC)


def test_columns_are_read_by_name_or_without_names_by_place() -> None:
    at = pd.Timestamp("2020-01-01")
    for frame in (pd.DataFrame({"n": [5], "at": [at]}), pd.DataFrame([[at, 5]])):
        assert frames().table(frame)["n"].to_pylist() == [5]
    assert frames(by_name=False).table(pd.DataFrame({"x": [at], "y": [5]}))["n"].to_pylist() == [5]
    assert frames().table(pd.DataFrame()).num_rows == 0


def test_a_column_without_values_is_of_any_type() -> None:
    nothing = SparkFrames(GIVEN, StructType().add("name", "string").add("day", "date"), "UTC")
    frame = pd.DataFrame({"name": [float("nan")] * 2, "day": [float("nan")] * 2})
    assert nothing.table(frame).to_pylist() == [{"name": None, "day": None}] * 2


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pd.DataFrame({"at": [pd.Timestamp("2020-03-08 02:30")], "n": [1]}), "output column 'at': expected timestamp"),
        (pd.DataFrame({"at": [pd.NaT], "n": ["five"]}), "output column 'n': expected int, got (object|str)"),
        (pd.DataFrame({"at": [pd.NaT], "m": [1]}), "output columns: expected at, n; got at, m"),
        (pd.DataFrame([[1, 2, 3]]), "output columns: expected 2, at, n; got 3"),
    ],
    ids=["a time that the clocks skipped", "text for a number", "another name", "too many"],
)
def test_what_spark_would_not_read_is_refused_by_name(frame: pd.DataFrame, said: str) -> None:
    with pytest.raises(InputError, match=said):
        frames().table(frame)


def test_times_that_pandas_cannot_hold_are_refused_by_name() -> None:
    shown = frames().shown(rows(datetime(1, 1, 2, tzinfo=UTC)))
    with pytest.raises(
        InputError, match=r"column 'at', timestamp, has values that pandas cannot hold.*frame = 'arrow'"
    ):
        frames().frame(shown)


def test_a_number_that_does_not_fit_is_refused_where_the_session_checks() -> None:
    frame = pd.DataFrame({"at": [pd.NaT], "n": [2**40]})
    with pytest.raises(InputError, match="output column 'n': expected int, got int64"):
        frames(safe=True).table(frame)


class Naive(SlotOperator):
    """Makes a time of its own, as it reads on the user's wall."""

    output = arrow_schema(OUTPUT)
    frame = "pandas"

    def process(self, state: Any, rows: Any) -> tuple[Any, Any]:
        return state, pd.DataFrame({"at": [pd.Timestamp("2020-07-01 08:00")], "n": [len(rows)]})


def test_the_conversions_travel_with_the_operator() -> None:
    operator = pickle.loads(pickle.dumps(Apply(Naive()).seeing(frames())))  # noqa: S301 - our own
    resident = operator.open(arrow_schema(GIVEN), ("key",), 4)
    output = resident.fold(rows(None, None), pa.array([2, 2]).to_numpy()).output
    assert output.schema == Naive.output
    assert output.to_pylist() == [{"at": datetime(2020, 7, 1, 12, tzinfo=UTC), "n": 2}]
