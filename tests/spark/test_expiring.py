"""expire(...) on Spark: keys without rows go, by the watermark and by the clock, and start afresh."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import evenflow as ef
from evenflow.errors import InputError
from tests.operators.dedup_oracle import SECOND, table_of
from tests.spark.dedup_seeds import DDL
from tests.spark.streams import Bench, Wanderlust, read_published, state_of, until


def test_a_key_goes_by_the_watermark_and_starts_afresh(bench: Bench) -> None:
    epochs = [[(1, 100, 5), (2, 100, 6)], [(2, 150, 1)], [(2, 171, 1)], [(1, 172, 7)]]
    bench.feed(*(table_of((key, at * SECOND, value) for key, at, value in rows) for rows in epochs))
    stream = bench.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(bench.place / "in"))
    sums = ef.keyed(stream.withWatermark("at", "1 second"), "key").agg(total=ef.sum("value"), last=ef.max("at"))
    query = bench.run(sums.expire("1 minute", on="at").balance(2, 8, policy=Wanderlust(), window_epochs=1))
    assert {(key, total) for key, total, _ in read_published(bench.out)} == {(1, 5), (2, 6), (2, 7), (2, 8), (1, 7)}
    assert {(key, total) for key, total, _ in state_of(query)} == {(1, 7), (2, 8)}


def test_a_key_goes_by_the_clock_while_no_rows_come(bench: Bench) -> None:
    bench.feed(table_of([(1, 0, 5)]))
    stream = bench.spark.readStream.schema(DDL).parquet(str(bench.place / "in"))
    query = bench.start(ef.keyed(stream, "key").count().expire("1 second").balance(lanes=2, slots=8))
    query.processAllAvailable()
    until(lambda: not state_of(query), "the key goes")
    bench.feed(table_of([(1, 0, 5)]))
    query.processAllAvailable()
    assert read_published(bench.out) == {(1, 1): 2}


def test_what_is_wrong_is_said_when_it_is_written(bench: Bench) -> None:
    stream = bench.stream().withColumn("at", F.current_timestamp())
    counts = ef.keyed(stream, "auction").count()
    with pytest.raises(InputError, match=r"expire: 'at' has no watermark.* leave on= out"):
        counts.expire("7 days", on="at")
    with pytest.raises(InputError, match="expire: after is a span of time"):
        counts.expire("a while")
    with pytest.raises(InputError, match="expire: it comes once, after agg"):
        counts.expire("7 days").expire("7 days")
