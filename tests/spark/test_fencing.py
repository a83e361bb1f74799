"""Attempts of lanes at the coordinator, over real sockets: the newest counts, an older one gets no word in."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from typing import Any, cast

import pytest

from evenflow.lane.messages import PROTOCOL, Adopt, Done, EpochLoad, Hello, SlotColumns, Stop, decode_to_lane, encode
from evenflow.spark.coordinator import Coordinator, Joined, LaneEvent, Lost, Said
from evenflow.state import Advance, LaneCommit
from tests.spark.streams import until

RUN = "run"


class Context:
    """As much of a SparkContext as is needed without jobs."""

    master = "local[2]"

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - Spark's name
        raise AssertionError(f"{group} has no jobs")


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator(cast("Any", Context()), cast("Any", None), "group")
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
    coordinator = Coordinator(cast("Any", Context()), cast("Any", None), "group")
    lane = connected(coordinator, hello())
    assert heard(coordinator) == Joined(hello())
    coordinator.stop()
    assert isinstance(decode_to_lane(lane.recv_bytes()), Stop)
    assert is_hung_up(lane)
    with pytest.raises((OSError, EOFError)):
        connected(coordinator, hello(lane=1)).recv_bytes()
    until(lambda: set(threading.enumerate()) <= before, "the coordinator's threads end", 10)
