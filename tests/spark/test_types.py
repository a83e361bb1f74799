"""Values of every type, through user code and back, as `applyInPandas` and `applyInArrow` have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import evenflow as ef
from evenflow.errors import InputError
from evenflow.spark.stream import StatefulStream
from tests.spark.streams import Bench

pytestmark = pytest.mark.spark

ZONE = "spark.sql.session.timeZone"
LARGE = "spark.sql.execution.arrow.useLargeVarTypes"
EXTENSION = "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype"
ZONES = ("UTC", "America/New_York", "Asia/Kolkata")

# Column, type, and the values of three rows; each column once more, with a null added, as `column_n`.
VALUES = [
    ("flag", "boolean", "true", "false", "true"),
    ("tiny", "tinyint", "-128Y", "0Y", "127Y"),
    ("small", "smallint", "-32768S", "0S", "32767S"),
    ("whole", "int", "-2147483648", "0", "2147483647"),
    ("id", "bigint", "-9223372036854775808", "9007199254740993", "9223372036854775807"),
    ("single", "float", "float('NaN')", "float('-Infinity')", "1.5f"),
    ("ratio", "double", "double('NaN')", "double('Infinity')", "-0.0d"),
    ("price", "decimal(38,18)", "'-99999999999999999999.999999999999999999'", "'0.000000000000000001'", "0"),
    ("name", "string", "''", "'cæsar \\u0000 𝄞'", "'bob'"),
    ("code", "varchar(9)", "''", "'ab'", "'abcdefghi'"),
    ("raw", "binary", "X''", "X'00ff'", "X'41'"),
    ("day", "date", "date'0001-01-01'", "date'9999-12-31'", "date'1970-01-01'"),
    # Before 1883 New York was 4:56:02 behind; at 05:30Z and at 06:30Z its clocks showed 1:30 on that day.
    (
        "at",
        "timestamp",
        "timestamp'1850-06-01 00:00:00.000001Z'",
        "timestamp'2015-11-01 05:30:00Z'",
        "timestamp'2015-11-01 06:30:00Z'",
    ),
    (
        "local",
        "timestamp_ntz",
        "timestamp_ntz'1850-06-01 00:00:00.000001'",
        "timestamp_ntz'2020-03-08 02:30:00'",
        "timestamp_ntz'2200-01-01 00:00:00'",
    ),
    (
        "span",
        "interval day to second",
        "interval '-106751 04:00:54.775807' day to second",
        "interval '0 00:00:00.000001' day to second",
        "interval '1 02:03:04' day to second",
    ),
    ("clock", "time(6)", "time'00:00:00'", "time'23:59:59.999999'", "time'12:00:00'"),
    ("list", "array<bigint>", "array()", "array(9007199254740993, null)", "array(1)"),
    (
        "times",
        "array<timestamp>",
        "array()",
        "array(timestamp'2020-07-01 12:00:00Z', null)",
        "array(timestamp'1999-01-01 00:00:00Z')",
    ),
    ("pairs", "map<string,bigint>", "map()", "map('', 9007199254740993, 'b', null)", "map('a', 1)"),
    (
        "inner",
        "struct<i:bigint,s:string,l:array<int>>",
        "named_struct('i', null, 's', null, 'l', null)",
        "named_struct('i', 9007199254740993, 's', '', 'l', array(1, null))",
        "named_struct('i', 1, 's', 'x', 'l', array())",
    ),
]
COLUMNS = {name: kind for name, kind, *_ in VALUES}
INTEGERS = ("tiny", "small", "whole", "id")
DDL = ", ".join(["key bigint", "row int", *(f"{n} {k}, {n}_n {k}" for n, k in COLUMNS.items())])
OUTPUT = DDL.replace("varchar(9)", "string")
FAR = "far timestamp"  # beyond what pandas can hold


def rows(spark: SparkSession) -> DataFrame:
    """Return rows of one key, so that a slot is what a group is in Spark."""
    lines = []
    for row in range(4):
        cells = ["7L as key", f"{row} as row"]
        for name, kind, *values in VALUES:
            kept, null = (values[row % 3], "null" if row == 3 else values[row])
            cells += [f"cast({kept} as {kind}) as {name}", f"cast({null} as {kind}) as {name}_n"]
        far = ("timestamp'0001-01-01 12:00:00Z'", "timestamp'9999-12-31 23:59:59.999999Z'", "null", "null")[row]
        lines.append(f"select {', '.join(cells)}, {far} as far")
    return spark.sql(" union all ".join(lines)).coalesce(1)


def echo_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what came, and what it looked like."""
    frame = frame.sort_values("row").reset_index(drop=True)
    seen = {name: [str(frame[name].dtype), repr(frame[name].tolist())] for name in frame.columns}
    return frame.assign(seen=json.dumps(seen))


def echo_arrow(table: pa.Table) -> pa.Table:
    table = table.sort_by("row")
    return table.append_column("seen", pa.array([str(table.schema)] * table.num_rows, table.schema.field("name").type))


class EchoPandas(ef.SlotOperator):
    output = f"{OUTPUT}, seen string"
    columns_needed = ("row", *(f"{name}{end}" for name in COLUMNS for end in ("", "_n")))
    frame = "pandas"

    def process(self, state: Any, rows: Any) -> tuple[Any, Any]:
        return state, echo_pandas(rows)


class EchoArrow(ef.SlotOperator):
    output = f"{OUTPUT}, {FAR}, seen string"

    def process(self, state: Any, rows: Any) -> tuple[Any, Any]:
        return state, echo_arrow(rows)


@pytest.fixture(autouse=True)
def with_time_type(spark: SparkSession) -> Iterator[None]:
    with settings(spark, time="true"):
        yield


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Set what a session has, for a while."""
    keys = {"zone": ZONE, "large": LARGE, "extension": EXTENSION, "time": "spark.sql.timeType.enabled"}
    before = {keys[name]: spark.conf.get(keys[name]) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(keys[name], value)
        yield
    finally:
        for key, old in before.items():
            spark.conf.set(key, str(old))


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """A table of the rows: only a table has varchar."""
    spark.sql(f"create table every_type ({DDL}, {FAR}) using parquet")
    rows(spark).write.insertInto("every_type")
    yield "every_type"
    spark.sql("drop table every_type")


def streamed(bench: Bench, table: str, operator: ef.SlotOperator) -> StatefulStream:
    return ef.keyed(bench.spark.readStream.table(table), "key").apply(operator).balance(lanes=2, slots=8)


def text_of(frame: DataFrame, without: str = "seen") -> dict[str, tuple[str, str]]:
    """Return each column as text, with its type; NaN equals NaN that way."""
    table = frame.orderBy("row").toArrow()
    return {
        name: (str(table[name].type), table[name].combine_chunks().to_string(window=99))
        for name in table.column_names
        if name != without
    }


def seen_in(frame: DataFrame) -> Any:
    return frame.orderBy("row").select("seen").first()["seen"]  # type: ignore[index]


@pytest.mark.parametrize("zone", ZONES)
def test_a_pandas_operator_sees_and_returns_what_a_function_of_spark_does(bench: Bench, table: str, zone: str) -> None:
    spark, batch = bench.spark, bench.spark.table(table).drop("far").groupBy("key")
    found: list[tuple[dict[str, tuple[str, str]], Any]] = []
    with settings(spark, zone=zone):
        look = batch.applyInPandas(lambda frame: echo_pandas(frame)[["row", "seen"]], "row int, seen string")
        plain = json.loads(seen_in(look))
        with settings(spark, extension="true"):
            exact = batch.applyInPandas(echo_pandas, EchoPandas.output)
            expected, seen = text_of(exact), json.loads(seen_in(exact))

        def keep(frame: DataFrame, _: int) -> None:
            found.append((text_of(frame), json.loads(seen_in(frame))))

        stateful = streamed(bench, table, EchoPandas())
        query = bench.writer(stateful).foreachBatch(keep).trigger(availableNow=True).start()
        bench.started(query).awaitTermination()
    [(values, ours)] = found
    assert values == expected
    with_nulls = {f"{name}_n" for name in INTEGERS}
    assert {name: ours[name] for name in ours if name not in with_nulls} == {
        name: plain[name] for name in plain if name not in with_nulls
    }
    # Spark makes floats of these, unless it is told to keep them.
    assert {name: ours[name] for name in with_nulls} == {name: seen[name] for name in with_nulls}
    assert ours["id_n"] == ["Int64", "[-9223372036854775808, 9007199254740993, 9223372036854775807, <NA>]"]


@pytest.mark.parametrize(("zone", "large"), [*((zone, "false") for zone in ZONES), ("Asia/Kolkata", "true")])
def test_an_arrow_operator_sees_what_a_function_of_spark_does_and_may_return_it(
    bench: Bench, table: str, zone: str, large: str
) -> None:
    spark, batch = bench.spark, bench.spark.table(table)
    with settings(spark, zone=zone, large=large):
        # Spark's own function could not return its timestamps unless the session is in UTC.
        shown = batch.groupBy("key").applyInArrow(
            lambda table: echo_arrow(table).select(["row", "seen"]), "row int, seen string"
        )
        expected, seen = text_of(batch), seen_in(shown)
        stateful = streamed(bench, table, EchoArrow())
        bench.run(stateful)
        out = spark.read.parquet(str(bench.out))
        assert text_of(out) == expected
        assert seen_in(out) == seen


def test_what_spark_cannot_hand_to_python_is_refused_by_name(bench: Bench) -> None:
    stream = bench.spark.readStream.schema("key long, age interval year to month, at timestamp").parquet(
        str(bench.place)
    )

    class Anything(ef.SlotOperator):
        output = "key long"

        def process(self, state: Any, rows: Any) -> tuple[Any, Any]:
            return state, rows

    with pytest.raises(InputError, match="column 'age' has the type interval year to month, which Spark cannot hand"):
        ef.keyed(stream, "key").apply(Anything())
    ef.keyed(stream, "key").agg(last=ef.max("at"))  # it is not needed there


def test_large_strings_and_more_rows_than_a_portion_come_to_what_batch_does(bench: Bench) -> None:
    spark, place = bench.spark, str(bench.place / "in")
    rows = spark.range(0, 1400, 1, 1).selectExpr(
        "concat('k', id % 7) as key", "id", "concat(id, repeat('x', 100000)) as text"
    )
    rows.write.parquet(place)  # 140 MB: a route task takes three portions
    with settings(spark, large="true"):
        stream = spark.readStream.schema(rows.schema).parquet(place)
        stateful = ef.keyed(stream, "key").agg(n=ef.count(), high=ef.max("text"), last=ef.last("text"))
        query = bench.run(stateful.balance(lanes=2, slots=8))
        found = spark.read.parquet(str(bench.out)).selectExpr("key", "n", "md5(high)", "md5(last)")
        expected = spark.read.parquet(place).groupBy("key").agg(F.count("*"), F.max("text"), F.max_by("text", "id"))
        wanted = expected.toDF("key", "n", "high", "last").selectExpr("key", "n", "md5(high)", "md5(last)")
        assert sorted(found.collect()) == sorted(wanted.collect())
        assert query.state().selectExpr("key", "md5(last)").count() == 7
