"""How a query ends, as everyone who watches it sees it: a failure is one error everywhere, a stop is none anywhere."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

import evenflow as ef
from evenflow.errors import LaneFailedError
from tests.spark.streams import Bench, Expected, one_bid_per_key, read_published, state_of, totals, until

pytestmark = pytest.mark.spark


@dataclass
class Listener(StreamingQueryListener):
    """What a monitoring system would hear."""

    ids: set[str] = field(default_factory=set)
    ends: dict[str, QueryTerminatedEvent] = field(default_factory=dict)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        self.ids.add(str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self.ids.add(str(event.progress.id))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self.ends[str(event.runId)] = event

    def end_of(self, query: ef.Query) -> QueryTerminatedEvent:
        until(lambda: query.runId in self.ends, "the listener hears of the end")
        return self.ends[query.runId]


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[Listener]:
    heard = Listener()
    spark.streams.resetTerminated()
    spark.streams.addListener(heard)
    yield heard
    spark.streams.removeListener(heard)
    spark.streams.resetTerminated()


def failed_with(query: ef.Query, listener: Listener, spark: SparkSession, *words: str) -> None:
    """Check that everyone is told of the failure, in these words."""
    with pytest.raises(Exception) as ours:  # noqa: PT011 - what it says is checked below
        query.awaitTermination(60)
    assert ours.value is query.exception()
    with pytest.raises(StreamingQueryException) as any_of_all:
        spark.streams.awaitAnyTermination(60)
    with pytest.raises(StreamingQueryException) as sparks:
        query.spark_query.awaitTermination()
    told = {
        "exception()": "\n".join([str(ours.value), *getattr(ours.value, "__notes__", ())]),
        "the listener": str(listener.end_of(query).exception),
        "Spark's exception()": str(query.spark_query.exception()),
        "awaitAnyTermination": str(any_of_all.value),
        "Spark's awaitTermination": str(sparks.value),
    }
    for who, text in told.items():
        for word in words:
            assert word in text, f"{who} says {text}"
        assert "StackOverflowError" not in text
    assert words[0] in query.status["message"]
    assert not query.isActive
    spark.streams.resetTerminated()


def stopped_without_error(query: ef.Query, listener: Listener, spark: SparkSession) -> None:
    """Check that nobody takes a stop for a failure."""
    assert query.awaitTermination(60) is True
    assert query.exception() is None
    assert query.spark_query.exception() is None
    assert listener.end_of(query).exception is None
    assert spark.streams.awaitAnyTermination(60) is True
    assert query.status["message"] == "Stopped"
    spark.streams.resetTerminated()


class FailsAt(ef.SlotOperator):
    """Raises at a price."""

    output = "auction long"

    def __init__(self, price: int) -> None:
        self.price = price

    def init(self) -> int:
        return 0

    def process(self, state: int, rows: Any) -> tuple[int, None]:
        if any(price >= self.price for price in rows["price"].to_pylist()):
            self.look_up()
        return state + 1, None

    def look_up(self) -> None:
        raise ConnectionError("the service is away")


def test_an_operator_that_fails_while_spark_is_idle_or_busy(
    bench: Bench, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """Idle: the last epoch there is fails. Busy: Spark's thread has brought the next one, and waits for lanes."""
    caplog.set_level("INFO", "evenflow")
    words = ("FailsAt, slot", "ConnectionError: the service is away", "in look_up")
    bench.feed(one_bid_per_key(0))
    idle = bench.started(
        bench.writer(ef.keyed(bench.stream(), "auction").apply(FailsAt(1000)).balance(lanes=2, slots=8), "noop").start()
    )
    idle.processAllAvailable()
    assert listener.ids >= {idle.id, idle.spark_query.id}
    assert idle.id == idle.spark_query.id
    bench.feed(one_bid_per_key(1))
    failed_with(idle, listener, bench.spark, *words)
    bench.feed(*(one_bid_per_key(epoch) for epoch in range(2, 8)))
    busy = bench.started(
        ef.keyed(bench.stream(), "auction")
        .apply(FailsAt(3000))
        .balance(lanes=2, slots=8, max_lag=0)
        .writeStream.format("noop")
        .start()
    )
    failed_with(busy, listener, bench.spark, *words)
    assert isinstance(busy.exception(), LaneFailedError)
    # Here Spark hands over all there is and then ends by itself: the last epoch fails, and its end tells of that.
    last = bench.started(
        ef.keyed(bench.stream(), "auction")
        .apply(FailsAt(7000))
        .balance(lanes=2, slots=8)
        .writeStream.format("noop")
        .trigger(availableNow=True)
        .start()
    )
    failed_with(last, listener, bench.spark, *words)
    assert isinstance(last.exception(), LaneFailedError)
    for query in (idle, busy, last):
        told = [record for record in caplog.records if record.message.startswith(f"{query.id[:8]}")]
        assert "starts with 2 lanes (as asked), 8 slots, policy even" in told[0].message
        errors = [record.message for record in told if record.levelname == "ERROR"]
        assert len(errors) == 1, "one failure is one line"
        assert all(word in errors[0] for word in words)
    bench.no_jobs_are_left()


def test_what_is_left_of_an_earlier_run_fails_the_start_of_a_query_that_ends_by_itself(bench: Bench) -> None:
    """Spark has nothing new to read there, so its own query could not tell of it."""
    stateful = ef.keyed(bench.stream(), "auction").apply(FailsAt(1000)).balance(lanes=2, slots=8)
    bench.feed(one_bid_per_key(0))
    query = bench.started(bench.writer(stateful, "noop").start())
    query.processAllAvailable()
    bench.feed(one_bid_per_key(1))
    with pytest.raises(LaneFailedError):
        query.awaitTermination(60)
    committed = bench.place / "checkpoint" / "spark" / "commits" / "1"
    if not committed.exists():  # Spark was stopped before it had noted what it had handed over
        committed.write_text((committed.parent / "0").read_text())
    with pytest.raises(LaneFailedError, match="the service is away"):
        bench.writer(stateful, "noop").trigger(availableNow=True).start()
    bench.no_jobs_are_left()


def test_a_full_disk_is_named(bench: Bench, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.feed(one_bid_per_key(0), one_bid_per_key(1))
    link = os.link

    def full_at_the_second(path: Path, name: Path) -> None:
        if name.name.startswith("epoch0000000001-"):
            raise OSError(errno.ENOSPC, "No space left on device")
        link(path, name)

    monkeypatch.setattr(os, "link", full_at_the_second)
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=8))
    failed_with(query, listener, bench.spark, "No space left on device", str(bench.out), "epoch 1")
    monkeypatch.undo()
    bench.run(totals(bench.stream()).balance(lanes=2, slots=8))
    assert read_published(bench.out) == Expected([one_bid_per_key(0), one_bid_per_key(1)]).published


def test_a_stop_while_all_are_busy_is_no_failure(
    bench: Bench, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """By our handle and by Spark's; Spark's thread has a batch in hand, and the sink is in the middle of an epoch."""
    bench.feed(*(one_bid_per_key(epoch) for epoch in range(4)))
    in_sink, go_on = threading.Event(), threading.Event()
    jobs: list[dict[str, str | None]] = []

    def write(rows: DataFrame, _epoch: int) -> None:
        context = rows.sparkSession.sparkContext
        names = ("spark.scheduler.pool", "spark.jobGroup.id", "sql.streaming.queryId", "streaming.sql.batchId")
        jobs.append({**{name: context.getLocalProperty(name) for name in names}, "tags": str(context.getJobTags())})
        in_sink.set()
        go_on.wait(60)

    def started() -> ef.Query:
        in_sink.clear()
        go_on.clear()
        stateful = totals(bench.stream()).balance(lanes=2, slots=8, max_lag=0)
        query = bench.started(bench.writer(stateful).foreachBatch(write).start())
        assert in_sink.wait(60)
        until(query._run._in_hand.is_set, "Spark's thread has brought the next batch")
        return query

    context = bench.spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", "reports")
    context.addJobTag("mine")
    try:
        query = started()
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # that is how it is unset
        context.removeJobTag("mine")
    tracker = context.statusTracker()
    assert len(tracker.getJobIdsForGroup(f"evenflow-{query.id}")) == 2, "lanes can be cancelled by themselves"
    threading.Timer(0.1, go_on.set).start()
    query.stop()
    stopped_without_error(query, listener, bench.spark)
    assert jobs[0] == {
        "spark.scheduler.pool": "reports",
        "spark.jobGroup.id": query.runId,
        "sql.streaming.queryId": query.id,
        "streaming.sql.batchId": "0",
        "tags": "{'mine'}",
    }
    again = started()
    assert (again.id, again.runId != query.runId) == (query.id, True)
    active: list[StreamingQuery] = bench.spark.streams.active
    assert [(each.id, each.runId) for each in active] == [(again.id, again.runId)]
    threading.Timer(0.1, go_on.set).start()
    active[0].stop()
    stopped_without_error(again, listener, bench.spark)
    assert "InterruptedBySpark" not in caplog.text, "nor does Py4J's log"
    go_on.set()
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=8))
    query.processAllAvailable()
    assert set(state_of(query)) == set(Expected([one_bid_per_key(epoch) for epoch in range(4)]).state.values())
