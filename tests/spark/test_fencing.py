"""Attempts of lanes at the coordinator, over real sockets: the newest counts, an older one gets no word in."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, cast

import pytest

from evenflow.lane import LaneConfig
from evenflow.lane.messages import PROTOCOL, Adopt, Done, EpochLoad, Hello, SlotColumns, Stop, decode_to_lane, encode
from evenflow.log import QueryLog
from evenflow.spark.coordinator import Coordinator, Joined, LaneEvent, Lost, Said
from evenflow.state import Advance, LaneCommit
from tests.spark.calculations import SCHEMA, Totals
from tests.spark.streams import until

RUN = "run"


class Context:
    """As much of a SparkContext as is needed without jobs."""

    master = "local[2]"

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - Spark's name
        raise AssertionError(f"{group} has no jobs")


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator(cast("Any", Context()), cast("Any", None), "group", QueryLog("test"))
    yield made
    made.stop()


def hello(lane: int = 0, incarnation: int = 0, attempt: int = 0, protocol: int = PROTOCOL) -> Hello:
    return Hello(protocol, lane, incarnation, attempt, 1, "here", "driver", RUN)


def connected(coordinator: Coordinator, said: Hello) -> Connection:
    connection = Client(cast("tuple[str, int]", coordinator._address), authkey=coordinator._key)
    connection.send_bytes(encode(said))
    return connection


def done(epoch: int, attempt: str) -> Done:
    commit = LaneCommit(0, attempt, epoch, (Advance(epoch - 1, epoch, (4, 7)),))
    return Done(commit, (EpochLoad(epoch, SlotColumns((4,), (9,), (0.5,), (64,)), 9, 0.5),), 0.25, 2, 64)


def heard(coordinator: Coordinator) -> LaneEvent:
    return coordinator.events.get(timeout=10)


def is_hung_up(connection: Connection) -> bool:
    try:
        connection.recv_bytes()
    except (EOFError, ConnectionError):
        return True
    return False


def test_the_newest_attempt_counts_and_the_one_before_is_fenced_off(coordinator: Coordinator) -> None:
    first, second = hello(attempt=0), hello(attempt=1)
    old = connected(coordinator, first)
    assert heard(coordinator) == Joined(first)
    new = connected(coordinator, second)
    assert [heard(coordinator), heard(coordinator)] == [Lost(0, first.token), Joined(second)]
    assert is_hung_up(old)
    assert coordinator.hello_of(0) == second
    assert not coordinator.send(0, first.token, Stop())
    assert coordinator.send(0, second.token, Adopt(()))
    assert decode_to_lane(new.recv_bytes()) == Adopt(())
    new.send_bytes(encode(done(3, second.token)))
    assert heard(coordinator) == Said(0, second.token, done(3, second.token))


def test_what_a_fenced_attempt_says_bears_its_own_name(coordinator: Coordinator) -> None:
    """The engine counts what bears the newest token; a word that was on its way does not get another one."""
    first, second = hello(attempt=0), hello(attempt=1)
    old = connected(coordinator, first)
    assert heard(coordinator) == Joined(first)
    new = connected(coordinator, second)
    with contextlib.suppress(OSError):
        old.send_bytes(encode(done(3, first.token)))
    new.send_bytes(encode(done(3, second.token)))
    said: list[LaneEvent] = []
    while not said or said[-1] != Said(0, second.token, done(3, second.token)):
        said.append(heard(coordinator))
    late = [event for event in said[:-1] if isinstance(event, Said)]
    assert all(event.token == first.token for event in late)


@pytest.mark.parametrize("late", [hello(attempt=0), hello(attempt=1), hello(incarnation=0, attempt=9)])
def test_an_attempt_that_is_not_newer_is_not_let_in(coordinator: Coordinator, late: Hello) -> None:
    newest = hello(incarnation=1 if late.attempt == 9 else 0, attempt=1 if late.attempt < 9 else 0)
    keep = connected(coordinator, newest)
    assert heard(coordinator) == Joined(newest)
    assert is_hung_up(connected(coordinator, late))
    assert coordinator.hello_of(0) == newest
    assert coordinator.send(0, newest.token, Stop())
    keep.close()
    assert heard(coordinator) == Lost(0, newest.token)


def test_a_lost_lane_is_noticed_and_a_newer_attempt_is_let_in(coordinator: Coordinator) -> None:
    connected(coordinator, hello()).close()
    assert [heard(coordinator), heard(coordinator)] == [Joined(hello()), Lost(0, hello().token)]
    assert not coordinator.send(0, hello().token, Stop())
    keep = connected(coordinator, hello(incarnation=1))
    assert heard(coordinator) == Joined(hello(incarnation=1))
    keep.close()


def test_who_comes_and_goes_is_told_in_the_order_in_which_it_happens(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told later, the end of an attempt could come after the next one's hello, and nobody would listen any more."""
    told: list[tuple[type, bool]] = []
    monkeypatch.setattr(coordinator.events, "put", lambda event: told.append((type(event), coordinator._lock.locked())))
    first = connected(coordinator, hello(attempt=0))
    until(lambda: len(told) == 1, "the first is there", 10)
    second = connected(coordinator, hello(attempt=1))
    until(lambda: len(told) == 3, "the second is there", 10)
    assert is_hung_up(first)
    second.close()
    until(lambda: len(told) == 4, "the second is gone", 10)
    assert told == [(Joined, True), (Lost, True), (Joined, True), (Lost, True)]


def test_strangers_get_no_word_in_and_hold_up_nobody(coordinator: Coordinator) -> None:
    address = cast("tuple[str, int]", coordinator._address)
    silent = socket.create_connection(address)  # says nothing, for ever
    with pytest.raises(AuthenticationError):
        Client(address, authkey=b"another key")
    babbler = Client(address, authkey=coordinator._key)
    babbler.send_bytes(b"no message at all")
    assert is_hung_up(babbler)
    assert is_hung_up(connected(coordinator, hello(protocol=PROTOCOL + 1)))
    keep = connected(coordinator, hello(lane=5))
    assert heard(coordinator) == Joined(hello(lane=5))
    with pytest.raises(queue.Empty):
        coordinator.events.get_nowait()
    keep.close()
    silent.close()


def test_stop_tells_the_lanes_lets_nobody_in_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    coordinator = Coordinator(cast("Any", Context()), cast("Any", None), "group", QueryLog("test"))
    lane = connected(coordinator, hello())
    assert heard(coordinator) == Joined(hello())
    coordinator.stop()
    assert isinstance(decode_to_lane(lane.recv_bytes()), Stop)
    assert is_hung_up(lane)
    with pytest.raises((OSError, EOFError)):
        connected(coordinator, hello(lane=1)).recv_bytes()
    until(lambda: set(threading.enumerate()) <= before, "the coordinator's threads end", 10)


# --- lanes that come and go --------------------------------------------------------------------------------------


class Jobs(Context):
    """A SparkContext whose jobs run in the thread that submits them, one lane each."""

    def __init__(self) -> None:
        self.running: list[int] = []

    def setJobGroup(self, *_: object, **__: object) -> None:  # noqa: N802 - Spark's name
        """Take it as said."""

    def parallelize(self, lanes: list[int], _parts: int) -> Job:
        return Job(self, lanes)


@dataclass
class Job:
    context: Jobs
    lanes: list[int]
    task: Any = None

    def mapPartitionsWithIndex(self, task: Any) -> Job:  # noqa: N802 - Spark's name
        return replace(self, task=task)

    def collect(self) -> list[int]:
        self.context.running += self.lanes
        try:
            return list(self.task(0, iter(self.lanes)))
        finally:
            self.context.running.remove(self.lanes[0])


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Coordinator]:
    config = LaneConfig(0, str(tmp_path), Totals.operator, SCHEMA, ("key",), 4)
    made = Coordinator(cast("Any", Jobs()), lambda lane: replace(config, lane=lane), "group", QueryLog("test"))
    yield made
    made.stop()


def joined(coordinator: Coordinator) -> Hello:
    """Return the next attempt to come; that old ones go is passed over."""
    while True:
        event = heard(coordinator)
        if isinstance(event, Joined):
            return event.hello


def test_a_lane_that_was_retired_and_comes_back_at_once_is_one_lane(jobs: Coordinator) -> None:
    """Its old job must not be submitted again: the two would fence each other off for ever."""
    context = cast("Jobs", jobs._context)
    jobs.start(2)
    first = joined(jobs)
    old = [thread for thread in threading.enumerate() if thread.name == "evenflow-lane-2"]
    jobs.retire(2)
    jobs.start(2)
    second = joined(jobs)
    assert (second.incarnation, second.attempt) > (first.incarnation, first.attempt)
    until(lambda: not any(thread.is_alive() for thread in old), "the job of before is over", 10)
    assert context.running == [2]
    assert jobs.hello_of(2) == second
    assert not [event for event in list(jobs.events.queue) if isinstance(event, Joined)]


def test_an_attempt_of_a_lane_that_was_retired_is_not_let_in(jobs: Coordinator) -> None:
    jobs.start(2)
    last = joined(jobs)
    jobs.retire(2)
    late = connected(jobs, hello(lane=2, incarnation=last.incarnation, attempt=1))
    assert is_hung_up(late)
    until(lambda: not cast("Jobs", jobs._context).running, "the lane ends", 10)
