"""`transformWithState` puts out what Spark's own does, batch by batch, whatever moves or dies."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

import evenflow as ef
from evenflow.errors import InputError
from tests.seeds import seed_of_run
from tests.spark.streams import Bench, bids, write_input
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
