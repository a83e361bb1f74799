"""Lanes that do not listen, over real sockets and in real processes: they hold up nobody, and others take over."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from evenflow.errors import InputError
from evenflow.lane import LaneConfig, chained
from evenflow.lane.events import Joined, LaneEvent, Lost, Said
from evenflow.lane.messages import PROTOCOL, Adopt, Adopted, Forget, Hello, SlotToLoad, encode
from evenflow.lane.wire import CHALLENGE, Frames, LaneEnd, framed
from evenflow.log import QueryLog
from evenflow.operators import Stage
from evenflow.spark import lane_links, wires
from evenflow.spark.driver_socket import driver_socket, port_of
from evenflow.spark.lane_links import LaneLinks
from tests.engine.calculations import SCHEMA, Totals
from tests.spark.lane_processes import Processes
from tests.spark.streams import until

LARGE = Forget(tuple(range(1 << 18)))  # a message that fills a socket, and means nothing
Start = Callable[..., LaneLinks]


@pytest.fixture
def context() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.kill()


@pytest.fixture
def start(context: Processes, tmp_path: Path) -> Iterator[Start]:
    """Return how to open links; they are ended after the test."""
    opened: list[LaneLinks] = []
    config = LaneConfig(0, str(tmp_path), chained([Stage(Totals.operator, SCHEMA, ("key",))], 4))

    def open_links(**settings: Any) -> LaneLinks:
        made = LaneLinks(
            cast("Any", context), lambda lane: replace(config, lane=lane), "group", QueryLog("test"), **settings
        )
        opened.append(made)
        return made

    yield open_links
    for process in context.started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
    for made in opened:
        made.stop()


def joined(links: LaneLinks, lanes: int) -> dict[int, Hello]:
    """Wait for lanes to come."""
    found: dict[int, Hello] = {}
    while len(found) < lanes:
        event = links.events.get(timeout=60)
        assert isinstance(event, Joined)
        found[event.hello.lane] = event.hello
    return found


def heard(links: LaneLinks) -> LaneEvent:
    return cast("LaneEvent", links.events.get(timeout=60))


def serves(links: LaneLinks, hello: Hello, slot: int) -> bool:
    """Return whether a lane answers."""
    assert links.send(hello.lane, hello.token, Adopt((SlotToLoad(slot, -1),)))
    said = heard(links)
    return isinstance(said, Said) and said.lane == hello.lane and isinstance(said.message, Adopted)


# --- lanes that are stopped --------------------------------------------------------------------------------------


@pytest.mark.timeout(180)
def test_a_stopped_lane_with_a_full_socket_holds_up_nobody_and_is_replaced(
    start: Start, context: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    links = start(lane_timeout_s=4.0)
    for lane in range(2):
        links.start(lane)
    hellos = joined(links, 2)
    stopped = next(process for process in context.started if process.pid == hellos[0].pid)
    stopped.send_signal(signal.SIGSTOP)
    assert all(links.send(0, hellos[0].token, LARGE) for _ in range(20))  # more than any socket takes
    assert serves(links, hellos[1], 1)
    assert links.hello_of(0) == hellos[0]
    assert heard(links) == Lost(0, hellos[0].token)
    new = joined(links, 1)[0]
    assert (new.incarnation, new.pid) > (hellos[0].incarnation, 0)
    assert new.pid != hellos[0].pid
    assert "nothing was heard of it for 4 s (lane_timeout_s)" in caplog.text
    assert context.cancelled == {f"group-lane-0-{hellos[0].incarnation}"}, "its task slot comes free"
    stopped.send_signal(signal.SIGCONT)
    until(lambda: stopped.poll() is not None, "the lane that wakes sees that it is fenced off and ends")
    assert stopped.returncode == 0
    assert serves(links, new, 0)
    assert serves(links, hellos[1], 2)
    assert links.events.empty(), "nothing of what the old attempt said counts"


@pytest.mark.timeout(120)
def test_stop_does_not_wait_for_a_stopped_lane(start: Start, context: Processes) -> None:
    links = start()
    links.start(0)
    hello = joined(links, 1)[0]
    context.started[0].send_signal(signal.SIGSTOP)
    for _ in range(20):
        links.send(0, hello.token, LARGE)
    links.stop()
    assert context.cancelled == {"group"}


@pytest.mark.timeout(120)
def test_a_lane_that_is_busy_for_long_is_not_lost(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heartbeats come from a thread of their own: here from a lane whose only other thread does nothing at all."""
    links = start(lane_timeout_s=1.0)
    beats: list[float] = []
    original = wires.Wires._read

    def read(self: wires.Wires, wire: wires.Wire) -> None:
        original(self, wire)
        beats.append(wire.heard_s)

    monkeypatch.setattr(wires.Wires, "_read", read)
    with LaneEnd.connected(links.address, links._key) as lane:
        lane.send(encode(hello_of(0)))
        with lane.heartbeats(0.1):
            assert heard(links) == Joined(hello_of(0))
            until(lambda: beats and beats[-1] - beats[0] > 2.5, "more than twice the time passes")
            assert links.hello_of(0) == hello_of(0)
        assert heard(links) == Lost(0, hello_of(0).token)


def test_a_lane_that_takes_nothing_is_lost_before_memory_is(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "_MOST_UNSENT", 4 << 20)
    links = start()
    links._jobs._retired[0] = threading.Event()
    with LaneEnd.connected(links.address, links._key) as lane:
        lane.send(encode(hello_of(0)))
        assert heard(links) == Joined(hello_of(0))
        sent = 0
        while links.send(0, hello_of(0).token, LARGE):
            sent += 1
            assert sent < 1000, "there is no bound"
        assert heard(links) == Lost(0, hello_of(0).token)


def test_a_message_beyond_the_bound_goes_out_if_nothing_waits(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "_MOST_UNSENT", 1)
    links = start()
    with LaneEnd.connected(links.address, links._key) as lane:
        lane.send(encode(hello_of(0)))
        assert heard(links) == Joined(hello_of(0))
        assert links.send(0, hello_of(0).token, LARGE)
        assert lane.receive() == encode(LARGE)


def test_it_is_not_held_against_lanes_that_the_driver_was_stopped(start: Start) -> None:
    """After a pause of this process, what lanes said meanwhile may not have been read yet."""
    links = start(lane_timeout_s=1000.0)
    with LaneEnd.connected(links.address, links._key) as lane:
        lane.send(encode(hello_of(0)))
        assert heard(links) == Joined(hello_of(0))
        (wire,) = links._served
        before_s = wire.heard_s
        links._wires._excuse(5000.0)
        assert wire.heard_s == before_s + 5000.0


# --- strangers ---------------------------------------------------------------------------------------------------


def hello_of(lane: int) -> Hello:
    return Hello(PROTOCOL, lane, 0, 0, 1, "here", "driver", "run")


def frame_from(connection: socket.socket) -> bytes | None:
    """Return the next frame, None if there is no more."""
    frames = Frames()
    while not frames:
        try:
            received = connection.recv(4096)
        except ConnectionError:
            return None
        if not received:
            return None
        frames.feed(received)
    return frames.pop()


def test_silent_strangers_pin_no_thread_and_are_dropped_in_time(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "evenflow")
    monkeypatch.setattr(lane_links, "_STRANGERS", 3)
    monkeypatch.setattr(lane_links, "_HANDSHAKE_S", 0.5)
    links = start()
    threads = set(threading.enumerate())
    silent = [socket.create_connection(links.address) for _ in range(10)]  # some of them wait outside
    try:
        with LaneEnd.connected(links.address, links._key) as lane:  # behind them all, and its turn comes
            lane.send(encode(hello_of(0)))
            assert heard(links) == Joined(hello_of(0))
            assert set(threading.enumerate()) == threads
            for connection in silent:
                assert len(frame_from(connection) or b"") == CHALLENGE
                assert frame_from(connection) is None
        assert "it did not say who it is within 0.5 s" in caplog.text
    finally:
        for connection in silent:
            connection.close()


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: driver\r\n\r\n", "a frame of 1195725856 bytes, where at most 4096 are expected"),
        (framed(b"x" * 64), "it does not have the query's key"),
        (framed(b"too short"), "it does not have the query's key"),
        (framed(b""), "it does not have the query's key"),
    ],
    ids=["another protocol", "another key", "too short", "empty"],
)
def test_garbage_is_dropped_and_logged_at_debug(
    start: Start, caplog: pytest.LogCaptureFixture, garbage: bytes, said: str
) -> None:
    caplog.set_level(logging.DEBUG, "evenflow")
    links = start()
    with socket.create_connection(links.address) as stranger:
        assert len(frame_from(stranger) or b"") == CHALLENGE
        stranger.sendall(garbage)
        assert frame_from(stranger) is None
    until(lambda: said in caplog.text, "it is logged")
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    with LaneEnd.connected(links.address, links._key) as lane:
        lane.send(encode(hello_of(0)))
        assert heard(links) == Joined(hello_of(0))


def test_a_driver_without_the_key_gets_no_lane() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pretend() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(framed(b"c" * CHALLENGE))
                frame_from(connection)
                connection.sendall(framed(b"p" * 32))

        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(Exception, match="is not the driver of this query"):
            LaneEnd.connected(listener.getsockname(), b"key")


def test_running_out_of_descriptors_is_told_once_and_does_not_spin(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wires, "_REST_S", 0.3)
    links = start()
    tries: list[float] = []
    original = wires.Wires._rest

    def rest(self: wires.Wires, error: OSError, now_s: float) -> None:
        assert error.errno == errno.EMFILE
        tries.append(now_s)
        original(self, error, now_s)

    monkeypatch.setattr(wires.Wires, "_rest", rest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as lane:
        highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        taken = [os.dup(lane.fileno())]
        while taken[-1] <= highest:  # no lower number is free
            taken.append(os.dup(lane.fileno()))
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, hard))
            lane.connect(links.address)
            until(lambda: len(tries) >= 3, "it is tried again and again")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for number in taken:
                os.close(number)
        assert len(frame_from(lane) or b"") == CHALLENGE, "who waited is let in"
    assert caplog.text.count("lanes cannot connect") == 1
    assert all(later - earlier >= 0.3 for earlier, later in pairwise(tries)), "in between it rests"


# --- where the driver listens ------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def listening(port: int = 0, **conf: str) -> tuple[socket.socket, tuple[str, int]]:
    settings = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    return driver_socket(cast("Any", Processes("spark://master:7077", settings)), port)


def test_the_driver_binds_and_advertises_as_spark_is_told() -> None:
    listener, address = listening(driver_host="driver.example", driver_bindAddress="127.0.0.2")
    with listener:
        assert listener.getsockname()[0] == "127.0.0.2"
        assert address == ("driver.example", listener.getsockname()[1])


def test_without_a_bind_address_it_is_the_advertised_one() -> None:
    listener, address = listening(driver_host="127.0.0.3")
    with listener:
        assert listener.getsockname()[:2] == address
        assert address[0] == "127.0.0.3"


def test_an_ipv6_address_in_brackets_is_one() -> None:
    listener, address = listening(driver_host="[::1]")
    with listener:
        assert (listener.family, address[0]) == (socket.AF_INET6, "::1")


def test_local_lanes_are_reached_from_this_machine_only() -> None:
    conf = {"spark.driver.host": "driver.example", "spark.driver.bindAddress": "0.0.0.0"}  # noqa: S104 - not here
    listener, address = driver_socket(cast("Any", Processes("local[4]", conf)))
    with listener:
        assert listener.getsockname()[0] == address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_followed_by_the_next() -> None:
    port = free_port()
    first, (_, got) = listening(port, driver_host="127.0.0.1")
    assert got == port
    second, (_, next_one) = listening(port, driver_host="127.0.0.1")
    with first, second:
        assert port < next_one <= port + 16
        with pytest.raises(InputError, match=rf"ports {port} to {port} are all in use.*evenflow.driver.port"):
            listening(port, driver_host="127.0.0.1", port_maxRetries="0")


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(InputError, match=r"cannot listen for lanes at 192\.0\.2\.1.*spark\.driver\.bindAddress"):
        listening(driver_bindAddress="192.0.2.1")


@pytest.mark.parametrize("text", ["http", "80", "65536", "-1", "4040.0", ""])
def test_ports_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match=r"evenflow\.driver\.port is a port from 1024 to 65535, or 0 for any"):
        port_of(text)
    assert (port_of(None), port_of("0"), port_of("40000")) == (0, 0, 40000)
