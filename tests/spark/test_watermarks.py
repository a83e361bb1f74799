"""The watermark of every epoch is the one that Spark itself has in a query of its own over the same stream.

There are as many epochs as Spark has batches: for its batches without rows we have ticks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import evenflow as ef
from evenflow.operators import Aggregate
from tests.seeds import seed_of_run
from tests.spark.streams import Bench, write_input

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def one(stream: DataFrame) -> DataFrame:
    return stream.withWatermark("at", "10 seconds")


def filtered(stream: DataFrame) -> DataFrame:
    """What Spark can leave out before it looks at the time does not count; the rest does, whatever comes later."""
    return stream.withWatermark("at", "10 seconds").where("k != 'c'").where("second(at) < 50")


def united(stream: DataFrame) -> DataFrame:
    """Two inputs, of which one is often without rows, each with a watermark of its own."""
    ahead = stream.where("k = 'a'").select("k", (F.col("at") + F.expr("interval 40 seconds")).alias("at"))
    return stream.withWatermark("at", "10 seconds").unionAll(ahead.withWatermark("at", "5 seconds"))


@pytest.fixture
def policy(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    spark.conf.set(_POLICY, request.param)
    yield request.param
    spark.conf.unset(_POLICY)


def rows(rng: random.Random) -> pa.Table:
    """Return rows out of order, some without time; sometimes none, sometimes far behind."""
    behind = rng.choice([0, 0, 0, 300])
    times = [
        rng.choice([None, _BEGIN + timedelta(milliseconds=rng.randrange(200_000)) - timedelta(seconds=behind)])
        for _ in range(rng.randrange(6))
    ]
    keys = [rng.choice("abc") for _ in times]
    return pa.table({"k": pa.array(keys, pa.string()), "at": pa.array(times, pa.timestamp("us", "UTC"))})


def files(spark: SparkSession, place: Path) -> DataFrame:
    return spark.readStream.schema("k string, at timestamp").option("maxFilesPerTrigger", 1).parquet(str(place))


@pytest.fixture(autouse=True)
def goes_by_the_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are running; here they stand for an operator that goes by event time."""
    monkeypatch.setattr(Aggregate, "uses_event_time", lambda _: True)


def watermarks_of(progress: list[Any], number: str) -> list[str]:
    """Return the watermark of each batch, or epoch; of one that is told of twice, once."""
    return list({each[number]: each["eventTime"]["watermark"] for each in progress if each["eventTime"]}.values())


@pytest.mark.parametrize(
    ("marked", "policy"), [(one, "min"), (filtered, "min"), (united, "min"), (united, "max")], indirect=["policy"]
)
@pytest.mark.parametrize("seed", [seed_of_run("EVENFLOW_WATERMARK_SEED")])
def test_it_is_spark_s(bench: Bench, policy: str, marked: Callable[[DataFrame], DataFrame], seed: int) -> None:
    rng = random.Random(seed)
    for number in range(6):
        write_input(bench.place / "in", number, rows(rng))
    stream = marked(files(bench.spark, bench.place / "in"))
    theirs = stream.groupBy(F.window("at", "10 seconds")).count().writeStream.outputMode("update").format("noop")
    query = theirs.option("checkpointLocation", str(bench.place / "theirs")).trigger(availableNow=True).start()
    query.awaitTermination()
    expected = watermarks_of(query.recentProgress, "batchId")
    ours = bench.run(ef.keyed(stream, "k").count().balance(lanes=2, slots=8))
    assert watermarks_of(ours.recentProgress, "epoch") == expected, policy
    ticks = [each["epoch"] for each in ours.recentProgress if each["epoch"] >= 6]
    assert ticks == ([6] if len(expected) > 6 else []), (
        "one, at the end: batches that follow each other have none between"
    )


def test_a_tick_comes_whenever_the_source_rests(bench: Bench) -> None:
    tables = [rows(random.Random(seed)) for seed in (1, 2, 3)]
    place = bench.place / "in"
    place.mkdir()
    stream = one(files(bench.spark, place))
    grouped = stream.groupBy(F.window("at", "10 seconds")).count()
    theirs = grouped.writeStream.outputMode("append").format("noop")
    counts = bench.writer(ef.keyed(stream, "k").count().balance(lanes=2, slots=8)).outputMode("update")
    spark_s = theirs.option("checkpointLocation", str(bench.place / "theirs")).start()
    ours = bench.started(counts.start(str(bench.out)))
    for number, table in enumerate(tables):
        write_input(place, number, table)
        spark_s.processAllAvailable()
        ours.processAllAvailable()
    spark_s.stop()
    expected = watermarks_of(spark_s.recentProgress, "batchId")
    assert watermarks_of(ours.recentProgress, "epoch") == expected
    assert len(expected) > len(tables), "the watermark never moved: nothing was shown"
