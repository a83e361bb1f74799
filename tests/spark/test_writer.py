"""`writeStream`: every name of Spark's DataStreamWriter works as there, or says in a sentence what to use."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import evenflow as ef
from evenflow.errors import InputError, UnknownNameError
from evenflow.operators import Aggregate, Apply
from evenflow.spark.writer import StreamWriter
from tests.spark.streams import Bench, Expected, files_below, one_bid_per_key, read_published, rows_of, totals

TOTALS = "auction long, total long, n long, last long"


class Passing(ef.SlotOperator):
    """Puts out every row."""

    output = "auction long, price long"

    def process(self, state: Any, rows: Any) -> tuple[Any, Any]:
        return (state or 0) + 1, rows.select(["auction", "price"])


# --- words, without Spark ----------------------------------------------------------------------------------------


def writer(operator: Any = None) -> StreamWriter:
    """Return a writer that can be told everything; it has no session to start in."""
    stage = SimpleNamespace(operator=operator or Aggregate({"n": ef.count()}))
    return StreamWriter(cast("Any", SimpleNamespace(stages=(stage,))))


def test_every_name_of_sparks_is_there_with_its_parameters() -> None:
    for name in dir(DataStreamWriter):
        if name.startswith("_"):
            continue
        assert hasattr(StreamWriter, name), f"Spark has a new name: {name}"
        theirs = inspect.signature(getattr(DataStreamWriter, name)).parameters
        ours = inspect.signature(getattr(StreamWriter, name)).parameters
        assert list(ours) == list(theirs), name
        assert [each.kind for each in ours.values()] == [each.kind for each in theirs.values()], name


Say = Callable[[StreamWriter], object]
WRONG: dict[str, tuple[Say, str]] = {
    "unknown format": (lambda w: w.format("parkett"), "no sink for format 'parkett'; known: parquet, json"),
    "kafka": (lambda w: w.format("kafka"), "no sink for format 'kafka'; known: .*or foreachBatch"),
    "no format": (lambda w: w.format(cast("Any", None)), "format takes a text that is not empty, got None"),
    "unknown mode": (lambda w: w.outputMode("upsert"), "outputMode is update or complete, got 'upsert'"),
    "append": (
        lambda w: w.outputMode("Append"),
        "append mode is for rows that do not change .*'update'.*'complete'",
    ),
    "a number for a mode": (lambda w: w.outputMode(cast("Any", 3)), "outputMode takes a text"),
    "a number for an option": (lambda w: w.option(cast("Any", 1), "x"), "an option's name is a text .*, got 1"),
    "an empty name": (lambda w: w.queryName(" "), "queryName takes a text that is not empty, got ' '"),
    "two triggers": (
        lambda w: w.trigger(processingTime="1 s", availableNow=True),
        "trigger takes either .*, got processingTime, availableNow",
    ),
    "no trigger": (lambda w: w.trigger(), "trigger takes either .*, got nothing"),
    "a trigger that is off": (
        lambda w: w.trigger(availableNow=False),
        r"trigger\(availableNow=...\) takes True, got Fa",
    ),
    "never once": (lambda w: w.trigger(once=cast("Any", 1)), r"trigger\(once=...\) takes True, got 1"),
    "no interval": (lambda w: w.trigger(processingTime=cast("Any", 5)), r"trigger\(processingTime=...\) takes a text"),
    "continuous": (lambda w: w.trigger(continuous="1 second"), "has no micro-batches.*use processingTime="),
    "real time": (lambda w: w.trigger(realTime="1 second"), "has no micro-batches.*use processingTime="),
    "no function": (lambda w: w.foreachBatch(cast("Any", "print")), "foreachBatch takes a function of .* got 'print'"),
    "no rows' function": (
        lambda w: w.foreach(3),
        r"foreach takes a function of a row, or an object .* of 3 is no method",
    ),
    "clusters": (lambda w: w.clusterBy("auction"), "clusterBy.* create one .* toTable; for files there is partitionBy"),
    "partitions": (lambda w: w.partitionBy(cast("Any", 3)), "partitionBy takes a text"),
    "two paths": (lambda w: w.option("path", "a").start("b"), "option path says 'a' and start 'b': keep one"),
    "a number for a path": (lambda w: w.start(cast("Any", 3)), "start takes a text"),
    "a number for a table": (lambda w: w.toTable(cast("Any", 3)), "toTable takes a text"),
    "sharing perhaps": (lambda w: w.option("evenflow.shareOutput", "x")._options.shares_output(), "is true or false"),
}


@pytest.mark.parametrize("name", WRONG)
def test_words_that_mean_nothing(name: str) -> None:
    say, message = WRONG[name]
    with pytest.raises(InputError, match=message):
        say(writer())


def test_an_unknown_option_of_evenflows() -> None:
    with pytest.raises(
        UnknownNameError, match=r"known: evenflow\.arrivalColumn.* Did you mean 'evenflow\.rowsPerSecond'"
    ):
        writer().option("evenflow.rowsPerSeconds", 3)


def test_options_are_named_in_any_letter_case_and_the_last_value_counts() -> None:
    told = writer().option("CheckpointLocation", "a").option("checkpointlocation", "b").option("header", value=True)
    told.options(compression="gzip", sep=None).option("EVENFLOW.shareoutput", "TRUE")
    assert told._options.get("checkpointLocation") == "b"
    assert told._options.of_sink() == {"header": "true", "compression": "gzip"}
    assert told._options.shares_output()


@pytest.mark.parametrize(("said", "mode"), [("Update", "update"), (" COMPLETE ", "complete")])
def test_modes_in_any_letter_case(said: str, mode: str) -> None:
    assert writer().outputMode(said)._mode == mode


def test_what_an_operator_of_ones_own_puts_out_is_never_revised_so_append_is_update() -> None:
    own = Apply(Passing())
    assert writer(own).outputMode("append")._mode == writer(own).outputMode("update")._mode == writer(own)._mode
    with pytest.raises(InputError, match=r"complete mode needs aggregates; .*Passing only knows the rows of each"):
        writer(own).outputMode("complete")


def test_the_last_word_on_where_rows_go_counts() -> None:
    assert writer().foreachBatch(print).format("JSON")._function is None
    assert writer().format("json").foreach(print)._format is None


# --- with Spark --------------------------------------------------------------------------------------------------


def other(bench: Bench, kind: str | None = "parquet") -> Any:
    """Return the writer of a second query on the same input, with a checkpoint of its own."""
    made = totals(bench.stream()).balance(lanes=1, slots=8).writeStream
    made = made.option("checkpointLocation", str(bench.place / "other"))
    return made if kind is None else made.format(kind)


def first(bench: Bench, kind: str = "parquet") -> Any:
    return bench.writer(totals(bench.stream()).balance(lanes=1, slots=8), kind)


@pytest.mark.spark
def test_two_queries_and_one_folder(bench: Bench) -> None:
    tables = [one_bid_per_key(epoch) for epoch in range(3)]
    bench.feed(*tables[:2])
    running = bench.started(first(bench).start(str(bench.out)))
    running.processAllAvailable()
    before = dict(files_below(bench.out))
    with pytest.raises(InputError, match=f"belongs to another query, {running.id} with checkpoint .*/checkpoint"):
        other(bench, "json").start(f"file://{bench.out}/")
    assert dict(files_below(bench.out)) == before
    assert not (bench.place / "other").exists()
    guest = bench.started(other(bench).option("evenflow.shareOutput", "true").start(str(bench.out)))
    bench.feed(tables[2])
    for query in (running, guest):
        query.processAllAvailable()
        query.stop()
    published = Expected(tables).published
    assert read_published(bench.out) == published + published
    assert rows_of(bench.spark.read.parquet(str(bench.out)).toArrow()) == published + published
    bench.feed(one_bid_per_key(3))
    for query in (first(bench), other(bench)):  # each goes on from its own checkpoint
        bench.started(query.trigger(availableNow=True).start(str(bench.out))).awaitTermination()
    published = Expected([*tables, one_bid_per_key(3)]).published
    assert read_published(bench.out) == published + published


@pytest.mark.spark
def test_two_queries_and_one_table(bench: Bench) -> None:
    tables = [one_bid_per_key(epoch, keys=5) for epoch in range(2)]
    bench.feed(*tables)
    bench.spark.sql(f"CREATE TABLE shared_totals ({TOTALS}) USING csv")
    bench.spark.sql("INSERT INTO shared_totals VALUES (-1, 0, 0, 0)")  # rows of a batch job
    bench.started(first(bench, "csv").trigger(availableNow=True).toTable("shared_totals")).awaitTermination()
    for format_of in (None, "csv"):
        with pytest.raises(InputError, match="shared_totals belongs to another query"):
            other(bench, format_of).toTable("shared_totals")
    assert not (bench.place / "other").exists()
    sharing = other(bench, None).option("evenflow.shareOutput", value=True).trigger(availableNow=True)
    bench.started(sharing.toTable("shared_totals")).awaitTermination()
    published = Expected(tables).published
    assert rows_of(bench.spark.table("shared_totals").toArrow()) == published + published + Counter([(-1, 0, 0, 0)])
    bench.spark.sql("DROP TABLE shared_totals")


@pytest.mark.spark
def test_the_default_format_is_sparks(bench: Bench, spark: SparkSession) -> None:
    """Also of tables; one that has no sink here is refused."""
    bench.feed(one_bid_per_key(0))
    query = other(bench, None).option("path", bench.out).trigger(availableNow=True).start()
    bench.started(query).awaitTermination()
    assert read_published(bench.out) == Expected([one_bid_per_key(0)]).published
    spark.conf.set("spark.sql.sources.default", "JSON")
    try:
        bench.started(
            first(bench, "noop").trigger(availableNow=True).start()
        ).awaitTermination()  # what was said counts
        fresh = totals(bench.stream()).balance(lanes=1, slots=8).writeStream.trigger(availableNow=True)
        fresh = fresh.option("checkpointLocation", str(bench.place / "third"))
        bench.started(fresh.toTable("default_totals", path=str(bench.place / "table"))).awaitTermination()
        assert list((bench.place / "table").glob("part-epoch*.json"))
        assert spark.table("default_totals").count() == 40
        spark.sql("DROP TABLE default_totals")
        spark.conf.set("spark.sql.sources.default", "hive")
        with pytest.raises(
            InputError, match=r"format 'hive', which spark\.sql\.sources\.default names; known: parquet"
        ):
            other(bench, None).start(str(bench.place / "never"))
    finally:
        spark.conf.unset("spark.sql.sources.default")


@pytest.mark.spark
def test_locations_with_options(bench: Bench) -> None:
    """Arrow reads options at the end of a URI; Spark must not see them, and the query must go on from there."""
    tables = [one_bid_per_key(epoch) for epoch in range(3)]
    checkpoint, out = f"file://{bench.place}/check%20 point/?region=x", f"file://{bench.place}/o u%20t?region=x"
    for table, kind in zip(tables, ("json", "json", "parquet"), strict=True):
        bench.feed(table)
        stateful = totals(bench.stream()).balance(lanes=1, slots=8).writeStream.option("checkpointLocation", checkpoint)
        bench.started(stateful.format(kind).trigger(availableNow=True).start(out)).awaitTermination()
    assert {path.name for path in bench.place.iterdir()} == {"in", "check%20 point", "o u%20t"}
    assert {path.name for path in (bench.place / "check%20 point").iterdir()} == {"evenflow", "spark"}
    read = bench.spark.read.schema(TOTALS).option("pathGlobFilter", "*.json").json(f"{bench.place}/o u%20t")
    assert rows_of(read.toArrow()) + read_published(bench.place / "o u%20t") == Expected(tables).published
    mark = json.loads((bench.place / "o u%20t/_evenflow/owner.json").read_text())
    assert mark["checkpoint"] == f"{bench.place}/check%20 point"


class Noting:
    """Writes down what it is called with, in a file per call; the second epoch is not wanted."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def open(self, partition_id: int, epoch_id: int) -> bool:
        self.file = self.place / f"{epoch_id}-{partition_id}"
        self.file.write_text("open")
        return epoch_id != 1

    def process(self, row: Any) -> None:
        with self.file.open("a") as file:
            file.write(f" {row.auction}:{row['n']}")

    def close(self, error: Exception | None) -> None:
        with self.file.open("a") as file:
            file.write(f" close {error}")


class Failing(Noting):
    """Cannot take a row."""

    def process(self, row: Any) -> None:
        raise OSError(f"no room for {row.auction}")


@pytest.mark.spark
def test_foreach(bench: Bench) -> None:
    """As in Spark, which is asked to do the same with rows that it has; once as an object, once as a function."""
    bench.feed(*[one_bid_per_key(epoch, keys=3) for epoch in range(3)])
    for name in ("ours", "sparks", "broken"):
        (bench.place / name).mkdir()
    made = first(bench, "json").foreach(Noting(bench.place / "ours")).trigger(availableNow=True)
    bench.started(made.start()).awaitTermination()
    rows = bench.spark.readStream.schema("auction long").option("maxFilesPerTrigger", 1)
    counted = rows.parquet(str(bench.place / "in")).coalesce(1).groupBy("auction").count()
    theirs = counted.withColumnRenamed("count", "n").coalesce(1).writeStream.outputMode("update")
    theirs = theirs.foreach(Noting(bench.place / "sparks")).trigger(availableNow=True)
    theirs.start().awaitTermination()

    def noted(place: str) -> dict[str, list[str]]:
        return {path.name: sorted(path.read_text().split()) for path in (bench.place / place).iterdir()}

    assert noted("ours") == noted("sparks")
    assert noted("ours")["1-0"] == ["None", "close", "open"]

    broken = bench.started(other(bench).foreach(Failing(bench.place / "broken")).start())
    with pytest.raises(PySparkException, match="no room for"):
        broken.awaitTermination()
    assert (bench.place / "broken/0-0").read_text().startswith("open close no room for")

    def note(row: Any, place: Path = bench.place / "broken") -> None:
        (place / f"{row.auction}").touch()

    once = totals(bench.stream()).balance(lanes=1, slots=8).writeStream.foreach(note).trigger(once=True)
    query = bench.started(once.start())
    query.awaitTermination()
    assert {path.name for path in (bench.place / "broken").iterdir()} == {"0-0", "0", "1", "2"}
    assert [progress["numInputRows"] for progress in query.recentProgress] == [9], (
        "once takes all there is as one epoch"
    )


@pytest.mark.spark
def test_partitions_are_sparks(bench: Bench) -> None:
    """Of files and of tables, with a null and a letter that no folder's name may hold."""
    rows = [one_bid_per_key(epoch, keys=6) for epoch in range(2)]
    bench.feed(*rows)
    named = bench.stream().selectExpr("auction", "price", "nullif(concat('is/', auction % 3), 'is/2') AS Kind")
    stateful = ef.keyed(named, "Kind", "auction").agg(n=ef.count(), last=ef.last("price")).balance(lanes=2, slots=8)
    made = stateful.writeStream.option("checkpointLocation", str(bench.place / "checkpoint")).trigger(availableNow=True)
    bench.started(made.start(str(bench.out), partitionBy=["kind"])).awaitTermination()
    expected = [
        (key, n, 1000 * (n - 1) + key, f"is/{key % 3}" if key % 3 < 2 else None) for key in range(6) for n in (1, 2)
    ]
    read = bench.spark.read.parquet(str(bench.out))
    assert rows_of(read.select("auction", "n", "last", "Kind").toArrow()) == Counter(expected)
    batch = bench.spark.createDataFrame(expected, "auction long, n long, last long, Kind string")
    batch.write.partitionBy("Kind").parquet(str(bench.place / "sparks"))
    assert folders(bench.out) == folders(bench.place / "sparks")

    made = made.option("checkpointLocation", str(bench.place / "of_table")).partitionBy("Kind")
    for number in range(2):  # made by the first run, there for the second
        bench.started(made.toTable("totals_by_kind")).awaitTermination()
        if number == 0:
            bench.feed(one_bid_per_key(2, keys=7))
            made = made.partitionBy()
    table = bench.spark.table("totals_by_kind")
    assert table.columns == ["auction", "n", "last", "Kind"]
    more = [
        (key, min(key, 0) + (3 if key < 6 else 1), 2000 + key, f"is/{key % 3}" if key % 3 < 2 else None)
        for key in range(7)
    ]
    assert rows_of(table.toArrow()) == Counter([*expected, *more])
    bench.spark.sql("DROP TABLE totals_by_kind")


def folders(place: Path) -> set[str]:
    return {path.name for path in place.iterdir() if path.is_dir() and "=" in path.name}


@pytest.mark.spark
def test_partitions_that_cannot_be(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0))
    made = other(bench, None)
    for columns, message in (
        (["bidder"], "partitionBy: there is no column 'bidder'; the query puts out auction, total, n, last"),
        (["n", "N"], "partitionBy names each column once, got n, n"),
        (["auction", "total", "n", "last"], "must leave a column for the files themselves"),
    ):
        with pytest.raises(InputError, match=message):
            made.start(str(bench.out), partitionBy=columns)
    made.partitionBy("n")
    for kind in ("console", "noop"):
        with pytest.raises(InputError, match=f"{kind} has no partitions: leave it out"):
            made.start(format=kind)
    with pytest.raises(InputError, match="a function has no partitions"):
        made.foreachBatch(print).start()
    with pytest.raises(InputError, match="toTable and foreach or foreachBatch both say where rows go"):
        made.toTable("never_made")
    assert not (bench.place / "other").exists()
    assert not bench.out.exists()


@pytest.mark.spark
def test_names_views_and_the_sessions_folder_for_checkpoints(bench: Bench, spark: SparkSession) -> None:
    bench.feed(one_bid_per_key(0, keys=5))
    live = totals(bench.stream()).balance(lanes=1, slots=8).writeStream.format("memory").queryName("seen")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(bench.place / "all"))
    try:
        query = bench.started(live.start())
        assert spark.table("seen").columns == ["auction", "total", "n", "last"]  # from the start on, as in Spark
        query.processAllAvailable()
        assert spark.table("seen").count() == 5
        for kind in ("memory", "noop"):
            with pytest.raises(InputError, match="a query named 'seen' is running in this session"):
                other(bench, kind).option("QueryName", "seen").start()
        assert not (bench.place / "other").exists()
        query.stop()
        assert [path.name for path in (bench.place / "all").iterdir()] == ["seen"]
        with pytest.raises(InputError, match="the memory sink holds what one run puts out"):
            live.start()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


@pytest.mark.spark
def test_rows_of_ones_own_operator_in_append_mode(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0, keys=3))
    made = bench.writer(ef.keyed(bench.stream(), "auction").apply(Passing()).balance(lanes=1, slots=8))
    for mode in ("append", "update"):  # the same to a checkpoint
        query = bench.started(made.outputMode(mode).trigger(availableNow=True).start(str(bench.out)))
        query.awaitTermination()
    assert read_published(bench.out) == Counter({(key, key): 1 for key in range(3)})


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["avro", "delta"])
def test_formats_whose_package_is_not_there(bench: Bench, kind: str) -> None:
    """Said at the start, not with the first rows."""
    bench.feed(one_bid_per_key(0))
    message = f"(?s)this session cannot write {kind}: start it with the package.*Spark says: .*{kind}"
    with pytest.raises(InputError, match=message):
        other(bench, kind).start(str(bench.out))
    with pytest.raises(InputError, match=message):
        other(bench, kind).toTable("never_made")
    assert not (bench.place / "other").exists()
