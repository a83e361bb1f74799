"""A query that is started again in another time zone, with other aggregates and wider types, goes on as Spark would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import evenflow as ef
from evenflow.errors import CheckpointMismatchError
from evenflow.spark.stream import StatefulStream
from tests.spark.streams import DDL, Bench, one_bid_per_key

pytestmark = pytest.mark.spark

ZONE = "spark.sql.session.timeZone"
TIMES = ["timestamp_seconds(auction * 3600) AS hour", "timestamp_seconds(price) AS seen"]
NARROW = [*TIMES, "CAST(price AS int) AS price"]
WIDE = [*TIMES, "price", "ratio", "bidder AS unused"]
KEYS = 5


@pytest.fixture
def zone(bench: Bench) -> Iterator[None]:
    before = bench.spark.conf.get(ZONE)
    yield
    bench.spark.conf.set(ZONE, str(before))


def before(bench: Bench) -> StatefulStream:
    keyed = ef.keyed(bench.stream().selectExpr(*NARROW), "hour")
    return keyed.agg(total=ef.sum("price"), low=ef.min("price"), newest=ef.max("seen"), gone=ef.count())


def after(bench: Bench) -> StatefulStream:
    keyed = ef.keyed(bench.stream().selectExpr(*WIDE), "hour")
    return keyed.agg(total=ef.sum("price"), low=ef.min("price"), newest=ef.max("seen"), n=ef.count(), r=ef.sum("ratio"))


def shown(frame: DataFrame) -> Counter[tuple[object, ...]]:
    """Return rows with instants as numbers: the same in every zone."""
    columns = [f"unix_micros({name}) AS {name}" if name in ("hour", "newest") else name for name in frame.columns]
    return Counter(map(tuple, frame.selectExpr(*columns).collect()))


@pytest.mark.usefixtures("zone")
def test_another_zone_more_aggregates_fewer_and_wider_ones(bench: Bench) -> None:
    published: dict[int, DataFrame] = {}

    def publish(frame: DataFrame, epoch: int) -> None:
        if epoch == 1 and "gone" in frame.columns:
            raise ValueError("the sink is full")
        published[epoch] = frame.sparkSession.createDataFrame(frame.toArrow())

    def started(stateful: StatefulStream) -> ef.Query:
        return bench.started(bench.writer(stateful.balance(lanes=2, slots=4)).foreachBatch(publish).start())

    bench.spark.conf.set(ZONE, "America/New_York")
    bench.feed(*(one_bid_per_key(epoch, KEYS) for epoch in range(2)))
    with pytest.raises(Exception, match="the sink is full"):
        started(before(bench)).awaitTermination()

    bench.spark.conf.set(ZONE, "Asia/Tokyo")
    with pytest.raises(CheckpointMismatchError, match=r"aggregate gone: was count\(\), is sum\(price\)"):
        started(ef.keyed(bench.stream().selectExpr(*NARROW), "hour").agg(gone=ef.sum("price")))
    query = started(after(bench))
    bench.feed(*(one_bid_per_key(epoch, KEYS) for epoch in range(2, 4)))
    query.processAllAvailable()
    query.stop()
    with pytest.raises(CheckpointMismatchError, match="were int64, are int32"):
        started(before(bench))

    rows = bench.spark.read.schema(DDL).parquet(str(bench.place / "in")).selectExpr(*WIDE, "bidder")
    later = F.when(F.col("bidder").isin("b2", "b3"), F.col("ratio"))  # of the epochs after the change
    wanted = rows.groupBy("hour").agg(
        F.sum("price").alias("total"),
        F.min("price").alias("low"),
        F.max("seen").alias("newest"),
        F.count(later).alias("n"),
        F.sum(later).alias("r"),
    )
    state = query.state()
    assert state.epoch == 3
    assert state.dtypes == wanted.dtypes
    assert shown(state) == shown(wanted) == shown(published[3])
    # What was still to be published is in the columns of today; nothing had been counted for the new ones.
    left = [(hour, low, n, r) for hour, _, low, _, n, r in shown(published[1])]
    assert sorted(left) == [(key * 3600 * 10**6, key, None, None) for key in range(KEYS)]
    assert published[1].dtypes == published[3].dtypes
