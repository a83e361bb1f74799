"""Keys and inputs of aggregates are found and named as Spark finds and names them; compared with Spark's groupBy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

import evenflow as ef
from evenflow.errors import InputError
from evenflow.operators import Aggregate
from evenflow.spark.internals import spark_schema
from evenflow.spark.stream import KeyedStream, StatefulStream
from tests.spark.streams import Bench, one_bid_per_key

pytestmark = pytest.mark.spark

COLUMNS = [
    "timestamp AS at",
    "value AS price",
    "cast(value AS string) AS user",
    "named_struct('x', value, 'y', 1) AS s",
    "value AS `a.b`",
    "cast(value AS decimal(20, 2)) AS big",
    "array(value) AS many",
    "cast(value AS string) COLLATE UTF8_LCASE AS word",
]


@pytest.fixture(scope="module")
def rates(spark: SparkSession) -> DataFrame:
    """A stream that is only looked at."""
    return spark.readStream.format("rate").load().selectExpr(*COLUMNS)


Keys = Callable[[DataFrame], list[Any]]
KEYS: dict[str, Keys] = {
    "a name": lambda _: ["user"],
    "another letter case": lambda _: ["USER", "Price"],
    "a list": lambda _: [["user", "price"]],
    "F.col": lambda _: [F.col("user")],
    "df.user": lambda df: [df.user],
    "df['USER']": lambda df: [df["USER"]],
    "an alias": lambda _: [F.col("user").alias("who")],
    "an expression": lambda _: [F.col("price") % 2, F.upper("user")],
    "an expression in SQL": lambda _: [F.expr("price + 1")],
    "a cast, with the column's name": lambda _: [F.col("price").cast("string")],
    "a field of a struct": lambda _: ["s.x", F.col("s.y")],
    "a dotted name in quotes": lambda _: ["`a.b`"],
    "the start of a window": lambda _: ["user", F.window("at", "1 minute").start],
    "a sliding window's end": lambda _: [F.window("at", "1 minute", "30 seconds")["end"].alias("until")],
    "a constant": lambda _: [F.lit(1)],
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_named_as_group_by_names_them(rates: DataFrame, name: str) -> None:
    keys = KEYS[name](rates)
    counted, oracle = ef.keyed(rates, *keys).count(), rates.groupBy(*keys).count()
    made = counted.operator.output_schema(counted.schema, counted.keys)
    assert made.names == oracle.columns
    narrow = rates.select(*counted.selected).schema
    assert [field.dataType for field in narrow] == [field.dataType for field in oracle.schema][:-1]


def test_a_dotted_name_needs_no_quotes_where_it_can_mean_one_thing_only(rates: DataFrame) -> None:
    assert ef.keyed(rates, "a.b").count().keys == ("a.b",)


def test_letter_case_counts_where_spark_counts_it(rates: DataFrame) -> None:
    conf = rates.sparkSession.conf
    conf.set("spark.sql.caseSensitive", "true")
    try:
        assert ef.keyed(rates, "user").count().keys == ("user",)
        with pytest.raises(InputError, match="keyed: there is no column 'USER'; the stream has at, price, user"):
            ef.keyed(rates, "USER")
    finally:
        conf.set("spark.sql.caseSensitive", "false")


Say = Callable[[DataFrame], object]
REFUSED: dict[str, tuple[Say, str]] = {
    "no frame": (lambda _: ef.keyed("user"), "expected a streaming DataFrame .* got str"),  # type: ignore[arg-type]
    "no key": (ef.keyed, "name at least one key column"),
    "an empty list": (lambda df: ef.keyed(df, []), "name at least one key column"),
    "a number": (lambda df: ef.keyed(df, 1), r"the name of a column or a Column such as F\.col\('x'\), got 1"),  # type: ignore[arg-type]
    "a misspelt name": (lambda df: ef.keyed(df, "prize"), "there is no column 'prize'; .* Did you mean 'price'"),
    "a misspelt field": (lambda df: ef.keyed(df, "s.z"), "keyed: Spark cannot use s.z here: No such struct field `z`"),
    "a star": (lambda df: ef.keyed(df, "*"), r"there is no column '\*'"),
    "a starred struct": (lambda df: ef.keyed(df, "s.*"), "Invalid usage of '\\*'"),
    "the same twice": (lambda df: ef.keyed(df, "user", F.col("USER")), "each key once, got user, USER"),
    "two of one name": (lambda df: ef.keyed(df, "user", F.col("s.x").alias("User")), "are named 'User': .*alias"),
    "a struct": (lambda df: ef.keyed(df, "s").count(), "key column 's' .* cannot be a key; .* the fields of a struct"),
    "a window": (
        lambda df: ef.keyed(df, F.window("at", "1 minute")).count(),
        r"'window' is a window, .* take its start: F\.window\('at', '1 minute'\)\.start",
    ),
    "a session": (lambda df: ef.keyed(df, F.session_window("at", "1 minute").start), "is of a session, and sessions"),
    "a session's end": (
        lambda df: ef.keyed(df, "user").agg(e=ef.max(F.session_window("at", "1 minute").end)),
        "sessions are not there yet",
    ),
    "an array": (lambda df: ef.keyed(df, "many").count(), "key column 'many' .* cannot be a key"),
    "a collation": (lambda df: ef.keyed(df, "word").count(), "'word' has the collation UTF8_LCASE, .*F.collate"),
    "chance": (lambda df: ef.keyed(df, F.rand()), r"rand\(.* gives another value each time it is computed"),
    "an aggregate": (lambda df: ef.keyed(df, F.sum("price")), "Aggregate functions are not allowed in GROUP BY"),
    "a generator": (lambda df: ef.keyed(df, F.explode("many")), "keyed: Spark cannot use explode"),
    "of another frame": (
        lambda df: ef.keyed(df, df.sparkSession.range(1).id),
        "keyed: Spark cannot use id here",
    ),
    "reserved": (lambda df: ef.keyed(df, F.col("user").alias("__SLOT")), "__SLOT.* evenflow's own; rename yours"),
    "reserved in the stream": (
        lambda df: ef.keyed(df.withColumnRenamed("price", "__arrival"), "user"),
        "__arrival.* evenflow's own",
    ),
    "nothing kept": (lambda df: ef.keyed(df, "user").agg(), "name at least one aggregate"),
    "no aggregate": (lambda df: ef.keyed(df, "user").agg(n="price"), r"agg: n must be .* ef\.sum\('column'\), got"),  # type: ignore[arg-type]
    "a list of aggregates": (lambda df: ef.keyed(df, "user").agg([F.sum("price")]), "must be an aggregate"),  # type: ignore[arg-type]
    "the function": (lambda df: ef.keyed(df, "user").agg(n=ef.count), "must be an aggregate .*: call it"),  # type: ignore[arg-type]
    "an unknown input": (lambda df: ef.keyed(df, "user").agg(n=ef.sum("prise")), "agg: there is no column 'prise'"),
    "a sum of text": (lambda df: ef.keyed(df, "price").agg(n=ef.sum("user")), "'user' has type .*string; expected"),
    "the least word": (lambda df: ef.keyed(df, "user").agg(n=ef.min("word")), "collation UTF8_LCASE"),
    "a bare column": (lambda df: ef.keyed(df, "user").agg(F.col("price")), "price is no call of an aggregate"),
    "an input in SQL": (lambda df: ef.keyed(df, "user").agg(F.expr("price + 1")), "is no call of an aggregate"),
    "a ratio": (lambda df: ef.keyed(df, "user").agg(F.sum("price") / 2), "evenflow cannot compute .*there are ef.sum"),
    "skewness": (lambda df: ef.keyed(df, "user").agg(F.skewness("price")), r"compute skewness\(price\); there are"),
    "distinct": (lambda df: ef.keyed(df, "user").agg(F.sum_distinct("price")), "of distinct values; there are"),
    "no nulls": (lambda df: ef.keyed(df, "user").agg(F.first("price", ignorenulls=True)), "be it null"),
    "a dict of skews": (lambda df: ef.keyed(df, "user").agg({"price": "skewness"}), r"cannot compute skewness"),
    "a dict of lists": (lambda df: ef.keyed(df, "user").agg({"price": ["sum"]}), "a dict says which function"),  # type: ignore[dict-item]
    "a sum of all": (lambda df: ef.keyed(df, "user").agg({"*": "sum"}), r"sum\(\) needs the name of a column"),
    "more rows": (lambda df: ef.keyed(df, "user").agg(n=ef.sum(F.explode("many"))), "agg: Spark cannot use explode"),
    "a rank": (
        lambda df: ef.keyed(df, "user").agg(n=ef.sum(F.row_number().over(Window.orderBy("at")))),
        "agg: Spark cannot use row_number",
    ),
    "two results of one name": (lambda df: ef.keyed(df, "user").agg(ef.sum("price"), F.sum("price")), "are named 'sum"),
    "two of another letter case": (
        lambda df: ef.keyed(df, "user").agg(ef.sum("price"), F.sum("PRICE")),
        r"duplicate output name 'sum\(PRICE\)'",
    ),
    "a result named as a key": (lambda df: ef.keyed(df, "user").agg(User=ef.count()), "has the name of a key"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_columns_that_cannot_be(rates: DataFrame, name: str) -> None:
    say, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as raised:
        say(rates)
    assert "\n" not in str(raised.value)


def test_a_column_that_stands_twice_in_the_stream(rates: DataFrame) -> None:
    """Others of its columns can be used all the same, and the twins where the user says which."""
    again = rates.sparkSession.readStream.format("rate").load().selectExpr(*COLUMNS)
    left, right = rates.select("price", "user"), again.select("price", "at")
    twins = left.join(right, left.price == right.price)
    with pytest.raises(InputError, match="keyed: 'price' is ambiguous, the stream has 2 columns of this name: rename"):
        ef.keyed(twins, "price")
    with pytest.raises(InputError, match="agg: 'PRICE' is ambiguous"):
        ef.keyed(twins, "user").agg(total=ef.sum("PRICE"))
    with pytest.raises(InputError, match="apply: 'price' is ambiguous"):
        ef.keyed(twins, "user").apply(Nothing())
    both = ef.keyed(twins, "user").agg(a=ef.sum(left.price), b=ef.sum(right.price))
    assert both.schema.names == ["user", "price", "`price`"]
    assert ef.keyed(twins, "user").agg(last=ef.last("at")).schema.names == ["user", "at"]
    assert ef.keyed(twins, left.price).agg(total=ef.sum(left.price)).schema.names == ["price"]


# --- aggregates ---------------------------------------------------------------------------------------------------


def output_of(stateful: StatefulStream) -> StructType:
    return spark_schema(stateful.operator.output_schema(stateful.schema, stateful.keys))


Forms = list[tuple[Callable[[KeyedStream], StatefulStream], Callable[[GroupedData], DataFrame]]]
FORMS: Forms = [
    (lambda k: k.count(), lambda g: g.count()),
    (lambda k: k.sum("price"), lambda g: g.sum("price")),
    (lambda k: k.avg("price", "big"), lambda g: g.avg("price", "big")),
    (lambda k: k.mean("price"), lambda g: g.mean("price")),
    (lambda k: k.min("price"), lambda g: g.min("price")),
    (lambda k: k.max("PRICE"), lambda g: g.max("PRICE")),
    (lambda k: k.agg({"price": "sum", "*": "count"}), lambda g: g.agg({"price": "sum", "*": "count"})),
    (
        lambda k: k.agg(F.sum("price").alias("t"), F.count("*")),
        lambda g: g.agg(F.sum("price").alias("t"), F.count("*")),
    ),
    (lambda k: k.agg(t=F.avg("price")), lambda g: g.agg(F.avg("price").alias("t"))),
    (lambda k: k.agg(ef.avg("price"), ef.first("at")), lambda g: g.agg(F.avg("price"), F.first("at"))),
    (lambda k: k.agg(ef.sum("price").alias("t"), ef.count()), lambda g: g.agg(F.sum("price").alias("t"), F.count("*"))),
    (lambda k: k.agg(ef.count("*"), n=ef.count(1)), lambda g: g.agg(F.count("*"), F.count(F.lit(1)).alias("n"))),
    (lambda k: k.agg(F.sum(F.col("price") * 2)), lambda g: g.agg(F.sum(F.col("price") * 2))),
    (lambda k: k.agg(ef.max("s.x"), ef.min("`a.b`")), lambda g: g.agg(F.max("s.x"), F.min("`a.b`"))),
    (lambda k: k.agg(F.last("price"), F.mean("price")), lambda g: g.agg(F.last("price"), F.mean("price"))),
    (lambda k: k.agg(ef.count(F.col("user"))), lambda g: g.agg(F.count(F.col("user")))),
]


@pytest.mark.parametrize("at", range(len(FORMS)))
def test_aggregates_in_every_form_are_named_and_typed_as_in_spark(rates: DataFrame, at: int) -> None:
    ours, oracle = FORMS[at]
    stateful, wanted = ours(ef.keyed(rates, "user")), oracle(rates.groupBy("user"))
    made = output_of(stateful)
    assert [(field.name, field.dataType) for field in made] == [(field.name, field.dataType) for field in wanted.schema]


def test_sum_of_nothing_is_the_sum_of_all_numbers(rates: DataFrame) -> None:
    plain = rates.select("user", "price", F.lit(1.5).alias("ratio"))
    stateful = ef.keyed(plain, "price").sum()
    assert output_of(stateful).names == plain.groupBy("price").sum().columns


def test_what_an_aggregate_takes_travels_once_and_under_one_name(rates: DataFrame) -> None:
    """However it is written: a checkpoint does not depend on it."""
    one = ef.keyed(rates, "user").agg(a=ef.sum("price"), b=ef.max(F.col("PRICE")), c=ef.count("USER"))
    assert one.schema.names == ["user", "price"]
    assert isinstance(one.operator, Aggregate)
    assert [str(agg) for agg in one.operator.aggregates.values()] == ["sum(price)", "max(price)", "count(user)"]
    hidden = ef.keyed(rates, F.upper("user").alias("price")).agg(t=ef.sum("price"), u=ef.max("s.x"))
    assert hidden.schema.names == ["price", "`price`", "s.x"]
    two = ef.keyed(rates, "user").agg(a=ef.sum(F.col("price") + 1), b=ef.max(F.col("price") + 1))
    assert len(two.schema.names) == 2


# --- Spark's habits -----------------------------------------------------------------------------------------------


def test_every_name_of_grouped_data_is_there_or_says_what_to_use(rates: DataFrame) -> None:
    stream = ef.keyed(rates, "user")
    for name in (name for name in dir(rates.groupBy("user")) if not name.startswith("_")):
        if not hasattr(KeyedStream, name):
            with pytest.raises(InputError, match=rf"keyed\(\.\.\.\) has no '{name}': \w+"):
                getattr(stream, name)


def test_every_name_of_frames_says_what_to_use(rates: DataFrame) -> None:
    stream = ef.keyed(rates, "user")
    for name in (name for name in dir(rates) if not name.startswith("_") and hasattr(DataFrame, name)):
        for thing in (stream, stream.count()):
            if not hasattr(type(thing), name) and name not in ("columns", "schema", "stream"):
                with pytest.raises(InputError, match=rf"has no '{name}': \w+") as raised:
                    getattr(thing, name)
                assert "it has" not in str(raised.value), name


def test_other_names(rates: DataFrame) -> None:
    stream = ef.keyed(rates, "user")
    with pytest.raises(
        AttributeError, match=r"keyed\(\.\.\.\) has no 'aggg': it has agg, apply, .*Did you mean 'agg'\?"
    ):
        stream.aggg  # noqa: B018 - that is the test
    with pytest.raises(
        AttributeError, match=r"keyed\(\.\.\.\)\.agg\(\.\.\.\) has no 'balanec': .*Did you mean 'balance'"
    ):
        stream.count().balanec  # noqa: B018
    assert not hasattr(stream, "_repr_html_")


# --- operators of one's own ---------------------------------------------------------------------------------------


class Nothing(ef.SlotOperator):
    output: Any = "user string"

    def process(self, state: Any, rows: Any) -> tuple[Any, None]:  # noqa: ARG002 - whatever comes
        return state, None


def operator(**what: Any) -> ef.SlotOperator:
    """Return an operator that differs from Nothing in these attributes."""
    made: ef.SlotOperator = type("Mine", (Nothing,), what)()
    return made


class NoOutput(ef.SlotOperator):
    def process(self, state: Any, rows: Any) -> tuple[Any, None]:  # noqa: ARG002 - whatever comes
        return state, None


OPERATORS: dict[str, tuple[Callable[[], Any], str]] = {
    "a class": (lambda: Nothing, r"got <class .*Nothing'> \(the class itself: call it\)"),
    "a function": (lambda: lambda state, rows: (state, None), "takes an instance of a subclass of SlotOperator"),  # noqa: ARG005
    "no output": (NoOutput, "apply: NoOutput.output must say which rows process.. returns: .* got None"),
    "a number": (lambda: operator(output=3), "Mine.output must say which rows .* got 3"),
    "no DDL": (
        lambda: operator(output="user strin, total"),
        "such as 'user string, total long', got 'user strin, total'",
    ),
    "a bare type": (lambda: operator(output="long"), "'user string, total long'"),
    "an empty text": (lambda: operator(output=""), "Mine.output must"),
    "columns twice": (lambda: operator(output="user string, User long"), "Mine.output names columns twice: User, user"),
    "process without rows": (lambda: operator(process=lambda self: None), r"def process\(self, state, rows\)"),  # noqa: ARG005
    "init with a key": (lambda: operator(init=lambda self, key: None), r"Mine.init must take nothing"),  # noqa: ARG005
    "a frame": (lambda: operator(frame="polars"), "Mine.frame is 'arrow' or 'pandas', got 'polars'"),
    "a bare name": (lambda: operator(columns_needed="price"), r"is a tuple of names such as \('price',\)"),
    "a Column": (lambda: operator(columns_needed=(F.col("price"),)), "is a tuple of names"),
    "a missing column": (lambda: operator(columns_needed=("prize",)), "apply: there is no column 'prize'.*'price'"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_that_cannot_run(rates: DataFrame, name: str) -> None:
    made, message = OPERATORS[name]
    with pytest.raises(InputError, match=message):
        ef.keyed(rates, "user").apply(made())


def test_what_operators_see(rates: DataFrame) -> None:
    frame = rates.drop("word", "many")
    everything = ef.keyed(frame, "user").apply(operator(output=frame.select("user").schema))
    assert everything.schema.names == ["user", "at", "price", "s", "a.b", "big"]
    some = ef.keyed(frame, F.upper("user").alias("who"), "price").apply(
        operator(columns_needed=["a.b", "price", "User"])
    )
    assert some.schema.names == ["who", "price", "a.b", "User"]
    with pytest.raises(InputError, match=r"apply: two different columns, .* are named 'user'"):
        ef.keyed(frame, F.upper("user").alias("user")).apply(Nothing())


# --- event time ---------------------------------------------------------------------------------------------------


def test_a_watermark_as_a_key_is_refused(rates: DataFrame) -> None:
    marked = rates.withWatermark("at", "10 seconds")
    with pytest.raises(InputError, match=r"'at' has a watermark .* df\.withMetadata\('at', \{\}\)$"):
        ef.keyed(marked, "user", "at").count()
    assert ef.keyed(marked.withMetadata("at", {}), "user", "at").count().keys == ("user", "at")
    assert ef.keyed(marked, "user").count().keys == ("user",)


# --- and they run -------------------------------------------------------------------------------------------------


def test_expressions_and_dotted_names_count_as_spark_counts_them(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0), one_bid_per_key(1))
    frame = bench.stream().withColumnRenamed("price", "a.price").withColumn("s", F.struct("ratio"))
    batch = bench.spark.read.parquet(str(bench.place / "in"))
    batch = batch.withColumnRenamed("price", "a.price").withColumn("s", F.struct("ratio"))
    keys: list[Any] = [F.col("auction") % 7, "BIDDER", F.col("`a.price`").cast("string")]
    asked: list[Column] = [
        F.count("*"),
        F.avg("`a.price`"),
        F.sum(F.col("`a.price`") * 2).alias("twice"),
        F.max("s.ratio"),
    ]
    query = bench.run(ef.keyed(frame, *keys).agg(*asked).balance(lanes=2, slots=8))
    oracle = batch.groupBy(*keys).agg(*asked)
    state = bench.spark.read.parquet(str(bench.out))
    assert state.columns == oracle.columns
    assert sorted(state.collect()) == sorted(oracle.collect())
    assert query.exception() is None
