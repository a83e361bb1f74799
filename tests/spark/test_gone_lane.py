"""A lane on Spark whose task cannot start any more: others take over its slots, and it gets a share when it is back."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenflow.control.journal import LanesChanged
from evenflow.spark.lane_jobs import LaneJobs
from tests.spark.streams import Bench, Expected, one_bid_per_key, pids_of, read_published, state_of, totals, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def cannot_start(task: Callable[..., Any], while_exists: Path) -> Callable[..., Any]:
    """Return a task that fails as long as a file is there."""
    sign = str(while_exists)

    def start(*args: Any) -> Any:
        if os.path.exists(sign):  # noqa: PTH110 - the task travels by value
            raise RuntimeError("there is no place for this lane")
        return task(*args)

    return start


def test_others_adopt_the_slots_of_a_lane_that_cannot_start(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = tmp_path / "no place"
    task_of = LaneJobs.__init__

    def init(self: LaneJobs, *args: Any, **named: Any) -> None:
        task_of(self, *args, **named)
        made = self._task_of
        self._task_of = lambda lane, at: cannot_start(made(lane, at), sign) if lane == 0 else made(lane, at)

    monkeypatch.setattr(LaneJobs, "__init__", init)
    tables = [one_bid_per_key(epoch) for epoch in range(8)]
    bench.feed(*tables[:2])
    query = bench.start(totals(bench.stream()).balance(lanes=2, slots=8, policy="static", lane_grace_s=1.0))
    query.processAllAvailable()
    sign.touch()
    os.kill(pids_of(query)[0], signal.SIGKILL)
    bench.feed(*tables[2:5])
    query.processAllAvailable()
    assert {row["lane"] for row in query.slots()} == {1}
    assert [entry.gone for entry in query.journal().of(LanesChanged) if entry.gone] == [(0,)]
    sign.unlink()
    until(lambda: 0 in pids_of(query), "the lane is back")
    bench.feed(*tables[5:7])
    query.processAllAvailable()
    bench.feed(tables[7])
    query.processAllAvailable()
    assert {row["lane"] for row in query.slots()} == {0, 1}, "it has a share again"
    expected = Expected(tables)
    assert state_of(query) == Counter(expected.state.values())
    assert read_published(bench.out) == expected.published
