"""Lanes advance on their own: a slow one holds up nobody, and holds up the source when it is too far behind."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.control.window_json import read_window_json
from evenflow.errors import LaneFailedError
from tests.spark.streams import Bench, one_bid_per_key, read_published, until

pytestmark = pytest.mark.spark

POLL_S = 0.02
SLOW = 0  # the key whose slot waits


class Gate(ef.SlotOperator):
    """Counts the rows of each key; while a file is there, the slot of one key waits. A second file makes it fail."""

    output = "auction long, n long"
    columns_needed = ()

    def __init__(self, closed: Path) -> None:
        self.closed = str(closed)

    def init(self) -> dict[int, int]:
        return {}

    def process(self, state: dict[int, int], rows: Any) -> tuple[dict[int, int], pa.Table]:
        keys = rows["auction"].to_pylist()
        while SLOW in keys and Path(self.closed).exists():
            threading.Event().wait(POLL_S)
        if SLOW in keys and Path(f"{self.closed}.fail").exists():
            raise ValueError("the gate is broken")
        state = dict(state)
        for key in keys:
            state[key] = state.get(key, 0) + 1
        return state, pa.table({"auction": keys, "n": [state[key] for key in keys]})


@contextmanager
def closed(gate: Path) -> Iterator[None]:
    """Keep the gate closed; whatever happens, it is opened, or lanes would wait for ever."""
    gate.touch()
    try:
        yield
    finally:
        gate.unlink()


def start(bench: Bench, max_lag: int) -> ef.Query:
    stateful = ef.keyed(bench.stream(), "auction").apply(Gate(bench.place / "closed"))
    return bench.start(stateful.balance(lanes=2, slots=8, policy="static", max_lag=max_lag))


def documented_policy() -> ef.Policy:
    """Return the example of docs/policies.md, as it stands there."""
    page = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    block = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "LongestQueue" in block)
    scope: dict[str, Any] = {}
    exec(block, scope)  # noqa: S102 - our own page
    policy: ef.Policy = scope["LongestQueue"]()
    return policy


def epochs_of(query: ef.Query) -> tuple[int, int]:
    """Return how far the lane with the slow slot has come, and how far the other one."""
    checkpoint, table = query._shell.checkpoint, query._shell.balancer.table
    versions = checkpoint.slot_versions
    slow = int(versions.argmin())  # at the closed gate: the slow lane's slots are behind
    lane = int(table.owners[slow])
    return int(versions[table.slots_of(lane)].min()), int(versions[table.owners != lane].min())


def waiting(query: ef.Query) -> threading.Event:
    """Return what is set once the source has to wait for lanes."""
    intake, waits = query._shell.intake, threading.Event()
    wait_for = intake.wait_for

    def told(condition: Callable[[], bool]) -> None:
        if not condition():
            waits.set()
        wait_for(condition)

    intake.wait_for = told
    return waits


def published(bench: Bench, epochs: int) -> None:
    """Check that each key's count was published as 1, 2, 3, ... and nothing else."""
    rows = read_published(bench.out)
    assert rows == {(key, n): 1 for key in range(40) for n in range(1, epochs + 1)}


def test_a_slow_lane_delays_nobody_up_to_max_lag_and_then_the_source_waits(bench: Bench) -> None:
    query, gate, most = start(bench, max_lag=3), bench.place / "closed", 3
    bench.feed(one_bid_per_key(0))
    query.processAllAvailable()
    waits = waiting(query)
    with closed(gate):
        bench.feed(*(one_bid_per_key(epoch) for epoch in range(1, 8)))
        until(lambda: epochs_of(query) == (0, 1 + most), "the other lane goes on as far as it may")
        until(waits.is_set, "the source waits")
        # The slow one is at epoch 1: epochs 1 to 4 are under way, and no fifth is accepted.
        assert query._shell.checkpoint.recover().last_accepted == 1 + most
        assert query._shell.intake.lag == 1 + most
        assert query.isActive
    query.processAllAvailable()
    assert max(row["lag"] for row in query.recentProgress) >= most
    published(bench, 8)


def test_what_waits_is_reported_slot_by_slot_and_the_documented_policy_moves_by_it(bench: Bench) -> None:
    gate = bench.place / "closed"
    stateful = ef.keyed(bench.stream(), "auction").apply(Gate(gate))
    query = bench.start(
        stateful.balance(lanes=2, slots=8, policy=documented_policy(), max_lag=3, settle_windows=0, warm_up_windows=1)
    )
    bench.feed(one_bid_per_key(0))
    query.processAllAvailable()
    with closed(gate):
        bench.feed(*(one_bid_per_key(epoch) for epoch in range(1, 8)))
        until(lambda: epochs_of(query) == (0, 4), "the other lane goes on as far as it may")
        rows = query.slots()
        slow = {row["lane"] for row in rows if row["pending"]}
        assert len(slow) == 1
        # Epochs 1 to 4 wait, with a row for each key of the lane; each slot has as many keys as rows in an epoch.
        assert all(row["pending"] == (4 * row["records"] if row["lane"] in slow else 0) for row in rows)
    query.processAllAvailable()
    lane = slow.pop()
    first = query.moves()[0]
    assert (first["source"], first["target"]) == (lane, 1 - lane)
    assert re.fullmatch(rf"\d+ records wait on lane {lane}", first["reason"])
    assert not any(row["pending"] for row in query.slots())
    query.save_journal(bench.place / "journal.json")
    windows = read_window_json((bench.place / "journal.json").read_bytes()).windows
    assert max(window.slots.pending.sum() for window in windows) > 0
    published(bench, 8)


def test_no_lag_is_lock_step_and_a_stop_with_epochs_pending_loses_nothing(bench: Bench) -> None:
    query, gate = start(bench, max_lag=0), bench.place / "closed"
    bench.feed(one_bid_per_key(0))
    query.processAllAvailable()
    with closed(gate):
        bench.feed(*(one_bid_per_key(epoch) for epoch in range(1, 4)))
        until(lambda: epochs_of(query) == (0, 1), "the other lane is one epoch ahead")
        assert query._shell.checkpoint.recover().last_accepted == 1
    query.processAllAvailable()
    query.stop()

    query = start(bench, max_lag=3)
    with closed(gate):
        bench.feed(*(one_bid_per_key(epoch) for epoch in range(4, 8)))
        until(lambda: epochs_of(query) == (3, 7), "four epochs are pending")
        query.stop()
    query = start(bench, max_lag=1)  # may be less far behind than it is
    query.processAllAvailable()
    published(bench, 8)


def test_a_lane_that_fails_ends_a_query_to_which_nothing_comes(bench: Bench) -> None:
    query, gate = start(bench, max_lag=3), bench.place / "closed"
    with closed(gate):
        bench.feed(one_bid_per_key(0))
        until(lambda: epochs_of(query) == (-1, 0), "the other lane is done")
        Path(f"{gate}.fail").touch()  # Spark has no batch in hand, and none comes any more
    until(lambda: not query.isActive, "the query ends")
    with pytest.raises(LaneFailedError, match="the gate is broken"):
        query.awaitTermination()
    bench.no_jobs_are_left()
