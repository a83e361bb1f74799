"""A checkpoint whose storage stops answering while a query runs: tried again, told, and never taken for a takeover."""

from __future__ import annotations

import errno

import pytest

from evenflow.errors import UnreachableError
from evenflow.state.storage import LocalStorage
from tests.spark.streams import Bench, Expected, one_bid_per_key, read_published, totals

pytestmark = pytest.mark.spark


def test_a_storage_that_stops_answering_fails_the_query_in_its_own_words(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.feed(one_bid_per_key(0))
    stateful = totals(bench.stream()).balance(lanes=2, slots=8)
    writer = bench.writer(stateful).queryName("away").option("evenflow.storageRetrySeconds", "0.5")
    query = bench.started(writer.start(str(bench.out)))
    query.processAllAvailable()
    exists = LocalStorage.exists

    def away(self: LocalStorage, name: str) -> bool:
        if name.startswith("runs/"):
            raise OSError(errno.EIO, "Input/output error")
        return exists(self, name)

    with monkeypatch.context() as broken:
        broken.setattr(LocalStorage, "exists", away)
        with pytest.raises(UnreachableError, match=r"cannot look for .*/runs/.*Input/output error"):
            query.awaitTermination(120)
    told = [record.message for record in caplog.records if "Input/output error" in record.message]
    tried = [line for line in told if "It is tried again in" in line]
    assert tried
    assert all(line.startswith("away: cannot look for ") for line in tried)
    assert any("Given up after" in line for line in told)
    bench.feed(one_bid_per_key(1))
    bench.run(stateful)
    assert read_published(bench.out) == Expected([one_bid_per_key(epoch) for epoch in range(2)]).published
