"""Operators of one's own per key, on Spark: through moves and a restart, exactly once; timers fire without rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

import evenflow as ef
from evenflow.operators.ddl import schema_of_text
from evenflow.operators.key_operator import Clock
from evenflow.spark.internals import arrow_schema, schema_of_ddl
from tests.operators.test_ddl import TEXTS
from tests.spark.streams import Bench, Expected, Wanderlust, bids, one_bid_per_key, read_published, state_of, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


class Totals(ef.KeyOperator):
    """What the aggregates of other tests come to."""

    state = output = "total long, n long, last long"
    columns_needed = ("price",)

    def process(self, batch: ef.KeyBatch) -> ef.KeyChanges:
        prices = batch.rows["price"].to_pylist()
        total = batch.state["total"].to_pylist()
        for key in range(len(batch)):
            came = [price for price in prices[batch.offsets[key] : batch.offsets[key + 1]] if price is not None]
            total[key] = sum(came, total[key] or 0) if came else total[key]
        last = [prices[end - 1] for end in batch.offsets[1:]]
        state = {"total": total, "n": batch.held("n", 0) + batch.counts, "last": last}
        return ef.KeyChanges(state, output=state)


def test_moves_and_a_restart_change_nothing(bench: Bench) -> None:
    rng = random.Random(7)
    tables = [bids(rng, 60) for _ in range(8)]
    for part in (tables[:4], tables[4:]):
        bench.feed(*part)
        keyed = ef.keyed(bench.stream(), "auction").apply(Totals())
        query = bench.start(keyed.balance(lanes=2, slots=8, policy=Wanderlust(3), cooldown_windows=0))
        query.processAllAvailable()
        expected = Expected(tables[: bench.fed])
        assert state_of(query) == Counter(expected.state.values())
        query.stop()
    assert read_published(bench.out) == expected.published


class Once(ef.KeyOperator):
    """Each key is put out a moment after its first row, by the clock, though no more rows come."""

    state = "n long, due timestamp"
    output = "n long"
    timers: ClassVar[Mapping[str, Clock]] = {"due": "processing"}
    columns_needed = ()

    def process(self, batch: ef.KeyBatch) -> ef.KeyChanges:
        due = np.where(batch.is_new, batch.processing_time + np.timedelta64(1, "s"), batch.held("due"))
        return ef.KeyChanges({"n": batch.held("n", 0) + batch.counts, "due": due})

    def fire(self, batch: ef.KeyBatch) -> ef.KeyChanges:
        return ef.KeyChanges(output={"n": batch.held("n")})


def test_timers_fire_once_without_rows(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0))
    query = bench.start(ef.keyed(bench.stream(), "auction").apply(Once()).balance(lanes=2, slots=8, policy="static"))
    until(lambda: len(read_published(bench.out)) == 40, "all timers have fired")
    query.processAllAvailable()
    assert read_published(bench.out) == Counter((key, 1) for key in range(40))
    assert query.state().where(F.col("due").isNotNull()).count() == 0


def test_a_fold_goes_on_after_a_restart(bench: Bench) -> None:
    for epoch in range(2):
        bench.feed(one_bid_per_key(epoch))
        bench.run(ef.keyed(bench.stream(), "auction").fold(0, added, state="total long").balance(lanes=2, slots=8))
    assert read_published(bench.out) == Counter(
        [*((key, key) for key in range(40)), *((key, 1000 + 2 * key) for key in range(40))]
    )


def added(total: int, price: int) -> int:
    return total + price


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.usefixtures("bench")
def test_columns_as_text_mean_the_same_with_and_without_spark(text: str) -> None:
    assert schema_of_text(text) == arrow_schema(schema_of_ddl(text))
