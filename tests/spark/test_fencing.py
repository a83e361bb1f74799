"""Attempts of lanes at the links, over real sockets: the newest counts, an older one gets no word in."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from evenflow.lane import LaneConfig, chained
from evenflow.lane.events import Joined, LaneEvent, Lost, Said
from evenflow.lane.messages import PROTOCOL, Adopt, Done, EpochLoad, Hello, SlotColumns, Stop, decode_to_lane, encode
from evenflow.lane.wire import LaneEnd
from evenflow.log import QueryLog
from evenflow.operators import Stage
from evenflow.spark.lane_links import LaneLinks
from evenflow.state import Advance, LaneCommit
from tests.engine.calculations import SCHEMA, Totals
from tests.spark.streams import until

RUN = "run"
ENDS: list[LaneEnd] = []


class Context:
    """As much of a SparkContext as is needed without jobs."""

    master = "local[2]"

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return {}

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - Spark's name
        raise AssertionError(f"{group} has no jobs")


@pytest.fixture
def links() -> Iterator[LaneLinks]:
    made = LaneLinks(cast("Any", Context()), cast("Any", None), "group", QueryLog("test"))
    yield made
    made.stop()


def hello(lane: int = 0, incarnation: int = 0, attempt: int = 0, protocol: int = PROTOCOL) -> Hello:
    return Hello(protocol, lane, incarnation, attempt, 1, "here", "driver", RUN)


@pytest.fixture(autouse=True)
def ends() -> Iterator[list[LaneEnd]]:
    """The lanes' ends of all links; closed after the test."""
    yield ENDS
    while ENDS:
        ENDS.pop().close()


def connected(links: LaneLinks, said: Hello) -> LaneEnd:
    lane = acquainted(links)
    lane.send(encode(said))
    return lane


def acquainted(links: LaneLinks) -> LaneEnd:
    """Return a connection whose other side has the key, and has not said hello."""
    ENDS.append(LaneEnd.connected(links.address, links._key))
    return ENDS[-1]


def done(epoch: int, attempt: str) -> Done:
    commit = LaneCommit(0, attempt, epoch, (Advance(epoch - 1, epoch, (4, 7)),))
    return Done(commit, (EpochLoad(epoch, SlotColumns((4,), (9,), (0.5,), (64,)), 9, 0.5),), 0.25, 2, 64)


def heard(links: LaneLinks) -> LaneEvent:
    return cast("LaneEvent", links.events.get(timeout=10))


def is_hung_up(lane: LaneEnd) -> bool:
    try:
        lane.receive()
    except (EOFError, ConnectionError):
        return True
    return False


def test_the_newest_attempt_counts_and_the_one_before_is_fenced_off(links: LaneLinks) -> None:
    first, second = hello(attempt=0), hello(attempt=1)
    old = connected(links, first)
    assert heard(links) == Joined(first)
    new = connected(links, second)
    assert [heard(links), heard(links)] == [Lost(0, first.token), Joined(second)]
    assert is_hung_up(old)
    assert links.hello_of(0) == second
    assert not links.send(0, first.token, Stop())
    assert links.send(0, second.token, Adopt(()))
    assert decode_to_lane(new.receive()) == Adopt(())
    new.send(encode(done(3, second.token)))
    assert heard(links) == Said(0, second.token, done(3, second.token))


def test_what_a_fenced_attempt_says_bears_its_own_name(links: LaneLinks) -> None:
    """The engine counts what bears the newest token; a word that was on its way does not get another one."""
    first, second = hello(attempt=0), hello(attempt=1)
    old = connected(links, first)
    assert heard(links) == Joined(first)
    new = connected(links, second)
    with contextlib.suppress(OSError):
        old.send(encode(done(3, first.token)))
    new.send(encode(done(3, second.token)))
    said: list[LaneEvent] = []
    while not said or said[-1] != Said(0, second.token, done(3, second.token)):
        said.append(heard(links))
    late = [event for event in said[:-1] if isinstance(event, Said)]
    assert all(event.token == first.token for event in late)


@pytest.mark.parametrize("late", [hello(attempt=0), hello(attempt=1), hello(incarnation=0, attempt=9)])
def test_an_attempt_that_is_not_newer_is_not_let_in(links: LaneLinks, late: Hello) -> None:
    newest = hello(incarnation=1 if late.attempt == 9 else 0, attempt=1 if late.attempt < 9 else 0)
    keep = connected(links, newest)
    assert heard(links) == Joined(newest)
    assert is_hung_up(connected(links, late))
    assert links.hello_of(0) == newest
    assert links.send(0, newest.token, Stop())
    keep.close()
    assert heard(links) == Lost(0, newest.token)


def test_a_lost_lane_is_noticed_and_a_newer_attempt_is_let_in(links: LaneLinks) -> None:
    connected(links, hello()).close()
    assert [heard(links), heard(links)] == [Joined(hello()), Lost(0, hello().token)]
    assert not links.send(0, hello().token, Stop())
    keep = connected(links, hello(incarnation=1))
    assert heard(links) == Joined(hello(incarnation=1))
    keep.close()


def test_who_comes_and_goes_is_told_in_the_order_in_which_it_happens(
    links: LaneLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told later, the end of an attempt could come after the next one's hello, and nobody would listen any more."""
    told: list[tuple[type, bool]] = []
    monkeypatch.setattr(links.events, "put", lambda event: told.append((type(event), links._lock.locked())))
    first = connected(links, hello(attempt=0))
    until(lambda: len(told) == 1, "the first is there", 10)
    second = connected(links, hello(attempt=1))
    until(lambda: len(told) == 3, "the second is there", 10)
    assert is_hung_up(first)
    second.close()
    until(lambda: len(told) == 4, "the second is gone", 10)
    assert told == [(Joined, True), (Lost, True), (Joined, True), (Lost, True)]


def test_strangers_get_no_word_in_and_hold_up_nobody(links: LaneLinks) -> None:
    silent = socket.create_connection(links.address)  # says nothing, for ever
    with pytest.raises((EOFError, ConnectionError)):
        LaneEnd.connected(links.address, b"another key")
    babbler = acquainted(links)
    babbler.send(b"no message at all")
    assert is_hung_up(babbler)
    assert is_hung_up(connected(links, hello(protocol=PROTOCOL + 1)))
    keep = connected(links, hello(lane=5))
    assert heard(links) == Joined(hello(lane=5))
    with pytest.raises(queue.Empty):
        links.events.get_nowait()
    keep.close()
    silent.close()


def test_stop_tells_the_lanes_lets_nobody_in_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    links = LaneLinks(cast("Any", Context()), cast("Any", None), "group", QueryLog("test"))
    lane = connected(links, hello())
    assert heard(links) == Joined(hello())
    links.stop()
    assert isinstance(decode_to_lane(lane.receive()), Stop)
    assert is_hung_up(lane)
    with pytest.raises((OSError, EOFError)):
        connected(links, hello(lane=1)).receive()
    until(lambda: set(threading.enumerate()) <= before, "the links's threads end", 10)


# --- lanes that come and go --------------------------------------------------------------------------------------


class Jobs(Context):
    """A SparkContext whose jobs run in the thread that submits them, one lane each."""

    def __init__(self) -> None:
        self.running: list[int] = []

    def setJobGroup(self, *_: object, **__: object) -> None:  # noqa: N802 - Spark's name
        """Take it as said."""

    def addJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        """Take it as said."""

    def removeJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
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
def jobs(tmp_path: Path) -> Iterator[LaneLinks]:
    config = LaneConfig(0, str(tmp_path), chained([Stage(Totals.operator, SCHEMA, ("key",))], 4))
    made = LaneLinks(cast("Any", Jobs()), lambda lane: replace(config, lane=lane), "group", QueryLog("test"))
    yield made
    made.stop()


def joined(links: LaneLinks) -> Hello:
    """Return the next attempt to come; that old ones go is passed over."""
    while True:
        event = heard(links)
        if isinstance(event, Joined):
            return event.hello


def test_a_lane_that_was_retired_and_comes_back_at_once_is_one_lane(jobs: LaneLinks) -> None:
    """Its old job must not be submitted again: the two would fence each other off for ever."""
    context = cast("Jobs", jobs._jobs._context)
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


def test_an_attempt_of_a_lane_that_was_retired_is_not_let_in(jobs: LaneLinks) -> None:
    jobs.start(2)
    last = joined(jobs)
    jobs.retire(2)
    late = connected(jobs, hello(lane=2, incarnation=last.incarnation, attempt=1))
    assert is_hung_up(late)
    until(lambda: not cast("Jobs", jobs._jobs._context).running, "the lane ends", 10)
