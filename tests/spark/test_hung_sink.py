"""A function of `foreachBatch` that never returns: lanes go on, the query answers, and it can be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame

import evenflow as ef
from tests.spark.streams import Bench, Expected, one_bid_per_key, read_published, totals, until

pytestmark = pytest.mark.spark

LAG = 2
EPOCHS = 8
_STOP_TIMEOUT = "spark.sql.streaming.stopTimeout"


def answered(ask: Callable[[], Any]) -> Any:
    """Return what is answered, in a thread of its own: who waits for the sink would never come back."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(ask()), daemon=True)
    thread.start()
    thread.join(60)
    assert found, "there was no answer"
    return found[0]


def test_a_function_that_never_returns(bench: Bench) -> None:
    tables = [one_bid_per_key(epoch) for epoch in range(EPOCHS)]
    bench.feed(*tables)
    entered, let_go = threading.Event(), threading.Event()

    def hang(_rows: DataFrame, epoch: int) -> None:
        if epoch == 1:
            entered.set()
            let_go.wait(240)

    stateful = totals(bench.stream()).balance(lanes=2, slots=8, max_lag=LAG)
    query = bench.started(bench.writer(stateful).foreachBatch(hang).start())
    assert entered.wait(60)
    last = 1 + LAG  # so many are accepted beside the one that the sink is at
    until(lambda: all(row["epoch"] == last for row in query.lanes()), f"both lanes have done epoch {last}")
    assert [row["epoch"] for row in answered(query.under_way)] == list(range(1, last + 1)), "and no other is accepted"
    assert answered(lambda: query.status)["isTriggerActive"]
    assert answered(lambda: query.lastProgress)["epoch"] == 0
    assert answered(lambda: query.isActive)
    assert len(answered(query.slots)) == 8
    assert sum(row.n for row in answered(lambda: query.state().collect())) == 40 * (last + 1)

    def stopped() -> bool:
        query.stop()
        return query.isActive

    bench.spark.conf.set(_STOP_TIMEOUT, "1s")
    try:
        assert not answered(stopped)
    finally:
        bench.spark.conf.unset(_STOP_TIMEOUT)
        let_go.set()
    assert query.exception() is None
    bench.no_jobs_are_left()
    again: ef.Query = bench.started(bench.writer(stateful).trigger(availableNow=True).start(str(bench.out)))
    again.awaitTermination()
    published, all_of_it = read_published(bench.out), Expected(tables).published
    assert published == all_of_it - Expected(tables[:1]).published, "all but the epoch that the function has taken"
