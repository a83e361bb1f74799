"""A disk that hangs under the driver: the query answers and can be stopped, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evenflow.state.storage import LocalStorage, Write
from tests.spark.streams import Bench, Expected, one_bid_per_key, read_published, totals
from tests.spark.test_hung_sink import answered

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("folder", "ends"),
    [
        ("epochs/", "it is let go"),
        ("epochs/", "a restart"),
        ("commits/", "it is let go"),
        ("commits/", "a restart"),
    ],
)
def test_a_record_that_cannot_be_written(bench: Bench, monkeypatch: pytest.MonkeyPatch, folder: str, ends: str) -> None:
    tables = [one_bid_per_key(epoch) for epoch in range(4)]
    bench.feed(tables[0])
    stateful = totals(bench.stream()).balance(lanes=2, slots=8, policy="static", max_lag=1)
    query = bench.start(stateful)
    query.processAllAvailable()
    entered, let_go, create = threading.Event(), threading.Event(), LocalStorage.create

    @contextmanager
    def hang(self: LocalStorage, name: str, *, exclusive: bool = False) -> Iterator[Write]:
        if name.startswith(folder):
            entered.set()
            assert let_go.wait(150)
        with create(self, name, exclusive=exclusive) as write:
            yield write

    def stopped() -> bool:
        query.stop()
        return not query.isActive

    monkeypatch.setattr(LocalStorage, "create", hang)
    bench.feed(*tables[1:])
    try:
        assert entered.wait(60)
        assert answered(lambda: query.status)["isTriggerActive"] in (True, False)
        assert answered(lambda: query.lastProgress)["epoch"] == 0
        assert [row["lane"] for row in answered(query.lanes)] == [0, 1]
        assert len(answered(query.slots)) == 8
        assert answered(lambda: query.isActive)
        if ends == "a restart":
            assert answered(stopped)
    finally:
        let_go.set()
    if ends == "a restart":
        monkeypatch.undo()
        query = bench.start(stateful)
    query.processAllAvailable()
    assert read_published(bench.out) == Expected(tables).published
