"""A lane on Spark that is stopped, not killed: its connection stays, and nothing comes from it any more."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.streams import Bench, Expected, one_bid_per_key, pids_of, read_published, state_of, totals, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; one that nobody has asked for its end has, too."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_stopped_lane_is_replaced_and_the_others_go_on(bench: Bench) -> None:
    tables = [one_bid_per_key(epoch) for epoch in range(6)]
    bench.feed(*tables[:2])
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=8, policy="static", lane_timeout_s=5.0))
    query.processAllAvailable()
    before = pids_of(query)
    steps = len([step for step in query.steps() if step.lane == 1])
    os.kill(before[0], signal.SIGSTOP)
    bench.feed(*tables[2:])
    until(
        lambda: len([step for step in query.steps() if step.lane == 1]) > steps,
        "the other lane goes on while one is stopped",
    )
    assert query.status["isDataAvailable"] in (True, False)
    assert query.lastProgress is not None
    assert query.isActive
    until(lambda: pids_of(query).get(0, before[0]) != before[0], "another process serves the lane")
    query.processAllAvailable()
    assert pids_of(query)[1] == before[1], "only the silent lane was replaced"
    expected = Expected(tables)
    assert state_of(query) == Counter(expected.state.values())
    assert read_published(bench.out) == expected.published
    until(lambda: is_gone(before[0]), "Spark ends the process that does not answer")
    assert [row["lane"] for row in query.lanes()] == [0, 1]


def test_a_query_with_a_stopped_lane_can_be_stopped(bench: Bench) -> None:
    bench.feed(one_bid_per_key(0))
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=8, policy="static"))
    query.processAllAvailable()
    pids = pids_of(query)
    os.kill(pids[1], signal.SIGSTOP)
    bench.feed(one_bid_per_key(1))
    query.stop()
    assert not query.isActive
    assert query.exception() is None
    bench.no_jobs_are_left()
