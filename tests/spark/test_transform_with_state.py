"""`transformWithState` puts out what Spark's own does, batch by batch, whatever moves or dies."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

import evenflow as ef
from evenflow.errors import InputError
from tests.seeds import seed_of_run
from tests.spark.streams import Bench, bids, one_bid_per_key, until, write_input
from tests.spark.tws_against_spark import KINDS, compare, published


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_spark_s_batch_for_batch_through_moves_and_a_death(bench: Bench, kind: str) -> None:
    compare(bench, kind, seed_of_run("EVENFLOW_TWS_SEED"), epochs=5)


class Fails(StatefulProcessor):
    """Updates its state with a value too many."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.n = handle.getValueState("n", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, ARG002 - Spark's names
        self.n.update((1, 2))
        yield Row(n=1)

    def close(self) -> None:
        pass


def test_an_error_names_the_key(bench: Bench) -> None:
    write_input(bench.place / "in", 0, bids(random.Random(1), 1))
    stateful = ef.keyed(bench.stream(), "auction").transformWithState(Fails(), "n long", "Update", "None")
    said = r"operator Fails, key auction=\d+, slot \d, epoch 0: ValueError: expected 1 values, struct<n:bigint>; got 2"
    with pytest.raises(Exception, match=said):
        bench.run(stateful.balance(lanes=2, slots=8))


class WithTtl(Fails):
    """Has a TTL."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.n = handle.getValueState("n", "n long", 1000)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((Fails, "n long", "update", "None"), "an object of a class of yours"),
        ((Fails(), "n nonsense", "update", "None"), "outputStructType"),
        ((Fails(), "n long", "complete", "None"), "outputMode is Append or Update"),
        ((Fails(), "n long", "append", None), "timeMode is None, ProcessingTime or EventTime"),
        ((Fails(), "n long", "append", "None", object()), "initialState is not there yet"),
        ((Fails(), "n long", "append", "EventTime", None, "at"), "eventTimeColumnName"),
        ((WithTtl(), "n long", "append", "None"), "a TTL in time mode ProcessingTime only"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_written(bench: Bench, arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        ef.keyed(bench.stream(), "auction").transformWithState(*arguments)


def test_the_page_s_processor_runs_before_and_after(bench: Bench) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text()
    section = page.partition("### Coming from transformWithState")[2]
    processor, before, after = re.findall(r"```text\n(.*?)```", section, re.DOTALL)[:3]
    rows = [
        (user, datetime(2026, 1, 1, 12, minute, tzinfo=UTC)) for user, minute in (("ann", 0), ("bob", 5), ("ann", 9))
    ]
    late = [("eve", datetime(2026, 1, 1, 14, 0, tzinfo=UTC))]
    for number, some in enumerate((rows, late)):
        write_input(
            bench.place / "in", number, pa.table([pa.array(c) for c in zip(*some, strict=True)], ["user", "at"])
        )
    reader = bench.spark.readStream.schema("user string, at timestamp").option("maxFilesPerTrigger", 1)
    clicks = reader.parquet(str(bench.place / "in"))
    found = []
    for text in (before, after):
        names: dict[str, Any] = {"StatefulProcessor": StatefulProcessor, "Row": Row, "ef": ef, "clicks": clicks}
        exec(processor + text, names)  # noqa: S102 - it is the page's
        found.append(published(bench, names["counted"], "update"))
    assert found[1] == found[0]
    assert found[1][0] == {("ann", 2): 1, ("bob", 1): 1}


class Later(StatefulProcessor):
    """Says a while after a key's rows what is left of its state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.kept = handle.getValueState("kept", "n long")
        self.short = handle.getListState("short", "n long", 200)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802 - Spark's name
        n = len(list(rows))
        self.kept.update((n,))
        self.short.put([(n,)])
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 300)
        yield Row(auction=key[0], said=str((self.kept.get(), list(self.short.get()))))

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        assert expiredTimerInfo.getExpiryTimeInMs() <= timerValues.getCurrentProcessingTimeInMs()
        yield Row(auction=key[0], said=str((self.kept.get(), list(self.short.get()))))
        self.kept.clear()

    def close(self) -> None:
        pass


def test_timers_and_ttl_by_the_clock_need_no_rows(bench: Bench) -> None:
    rows = one_bid_per_key(0, keys=5)
    bench.feed(rows)
    found: dict[int, Counter[Any]] = {}

    def take(frame: DataFrame, epoch: int) -> None:
        found[epoch] = Counter(tuple(row) for row in frame.collect())

    stateful = ef.keyed(bench.stream(), "auction").transformWithState(
        Later(), "auction long, said string", "append", "ProcessingTime"
    )
    writer = stateful.balance(lanes=2, slots=8).writeStream.foreachBatch(take)
    query = bench.started(writer.option("checkpointLocation", str(bench.place / "checkpoint")).start())
    until(lambda: sum(map(len, found.values())) >= 10, "all timers fire")
    first = Counter({(key, "((1,), [(1,)])"): 1 for key in range(5)})
    then = Counter({(key, "((1,), [])"): 1 for key in range(5)})
    assert sum(found.values(), Counter()) == first + then
    until(lambda: query.state().count() == 0, "nothing is kept")
