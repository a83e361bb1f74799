"""The links to lanes: starts lanes, fences off old attempts, passes messages. Lanes connect here, never to each other.

Each lane is a Spark job of one task. Spark retries a task a few times; when its patience ends, only that lane's job
fails and is submitted again. An attempt is known by (incarnation of the job, attempt of the task); once a newer one
has said hello, an older one gets no word in, and what it wrote is never committed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import re
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from pyspark import SparkContext

from evenflow.errors import EvenflowError
from evenflow.lane import LaneConfig
from evenflow.lane.events import Joined, LaneEvent, Lost, Said
from evenflow.lane.messages import PROTOCOL, Failed, Hello, Stop, ToLane, decode_from_lane, encode
from evenflow.log import QueryLog
from evenflow.spark.internals import master_of
from evenflow.spark.lanes import lane_task

_RESUBMIT_PAUSE_S = 0.2
_JOIN_S = 5.0
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")

lanes_running: Counter[str] = Counter()  # by job group: a lane holds its task slot for as long as it lives


@dataclass
class _Link:
    hello: Hello
    connection: Connection
    sending: threading.Lock = field(default_factory=threading.Lock)


class LaneLinks:
    """Runs lanes and queues what they say; one thread consumes `events`."""

    def __init__(
        self, context: SparkContext, config_of: Callable[[int], LaneConfig], group: str, log: QueryLog
    ) -> None:
        """Listen on the driver's address with a key of its own; no lane is started yet."""
        self.events: queue.Queue[LaneEvent] = queue.Queue()
        self._context, self._config_of, self._group, self._log = context, config_of, group, log
        self._key = secrets.token_bytes(32)
        self._run = secrets.token_hex(4)
        self._listener = Listener((_listening_host(context), 0), backlog=128)
        self._address = self._listener.address
        self._links: dict[int, _Link] = {}
        self._last: dict[int, Hello] = {}
        self._newest: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._jobs: list[Any] = []
        self._failures: dict[int, list[str]] = {}
        self._retired: dict[int, threading.Event] = {}  # of each lane's present life: a number may be used again
        self._incarnations = itertools.count()
        self.prepare_thread: Callable[[], None] = lambda: None
        threading.Thread(target=self._accept, name="evenflow-accept", daemon=True).start()

    def start(self, lane: int) -> None:
        """Submit the job of one lane."""
        retired = threading.Event()
        with self._lock:
            self._retired[lane] = retired
        thread = threading.Thread(
            target=self._keep_running, args=(lane, retired), name=f"evenflow-lane-{lane}", daemon=True
        )
        self._jobs.append(thread)
        lanes_running[self._group] += 1
        thread.start()

    def send(self, lane: int, token: str, message: ToLane) -> bool:
        """Send to one attempt of a lane; return whether it went out. Only the present attempt is spoken to."""
        with self._lock:
            link = self._links.get(lane)
        if link is None or link.hello.token != token:
            return False
        try:
            with link.sending:
                link.connection.send_bytes(encode(message))
        except (OSError, ValueError):
            return False
        return True

    def retire(self, lane: int) -> None:
        """End one lane for good."""
        with self._lock:
            self._retired[lane].set()
            link = self._links.get(lane)
        if link is not None:
            with contextlib.suppress(OSError, ValueError), link.sending:
                link.connection.send_bytes(encode(Stop()))
        lanes_running[self._group] -= 1

    def hello_of(self, lane: int) -> Hello | None:
        """Return who serves a lane now."""
        with self._lock:
            link = self._links.get(lane)
        return link.hello if link else None

    def last_hello_of(self, lane: int) -> Hello | None:
        """Return who serves a lane, or has served it last."""
        with self._lock:
            return self._last.get(lane)

    def has_come(self, lane: int) -> bool:
        """Return whether any attempt of a lane was ever there."""
        with self._lock:
            return lane in self._newest

    def last_failure(self, lane: int) -> str | None:
        """Return what Spark said when the lane's job failed last."""
        return self._failures[lane][-1] if self._failures.get(lane) else None

    def missing_module(self, lane: int) -> str | None:
        """Return the module that is not there where the lane's job ran, if that is what it failed of."""
        found = _MISSING.search(self.last_failure(lane) or "")
        return found[1] if found else None

    def failures_in_a_row(self, lane: int) -> int:
        """Return how often the lane's job has failed since the lane said hello last."""
        return len(self._failures.get(lane, ()))

    def stop(self) -> None:
        """Tell all lanes to end, wait a little, then cancel what is left."""
        self._stopping.set()
        with self._lock:
            links = list(self._links.values())
        for link in links:
            with contextlib.suppress(OSError, ValueError), link.sending:
                link.connection.send_bytes(encode(Stop()))
        deadline = time.monotonic() + _JOIN_S
        for thread in self._jobs:
            thread.join(max(0.0, deadline - time.monotonic()))
        for link in links:
            _hang_up(link.connection)
        if any(thread.is_alive() for thread in self._jobs):
            self._context.cancelJobGroup(self._group)
        lanes_running.pop(self._group, None)
        with contextlib.suppress(OSError):
            Client(self._address).close()  # wakes the thread that accepts
            self._listener.close()

    # --- threads -------------------------------------------------------------------------------------------------

    def _keep_running(self, lane: int, retired: threading.Event) -> None:
        """Run the lane's job, again and again, until the query stops or the lane is retired."""
        self.prepare_thread()
        while not self._stopping.is_set() and not retired.is_set():
            incarnation = next(self._incarnations)
            self._context.setJobGroup(self._group, f"evenflow lane {lane}", interruptOnCancel=True)
            task = lane_task(self._config_of(lane), self._address, self._key, self._run, incarnation)
            try:
                self._context.parallelize([lane], 1).mapPartitionsWithIndex(task).collect()
            except Exception as error:  # noqa: BLE001 - a lost task; the next incarnation takes over
                self._failures.setdefault(lane, []).append(str(error))
                self._log.debug("its job failed: %s", error, lane=lane)
            self._stopping.wait(_RESUBMIT_PAUSE_S)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection = self._listener.accept()
            except OSError:
                continue  # one that is gone already, or the listener was closed
            threading.Thread(target=self._welcome, args=(connection,), name="evenflow-read", daemon=True).start()

    def _welcome(self, connection: Connection) -> None:
        """Listen to who comes; in a thread of its own, for a stranger may say nothing for ever."""
        with contextlib.suppress(OSError, EOFError, AuthenticationError, EvenflowError), connection:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            hello = decode_from_lane(connection.recv_bytes())
            if isinstance(hello, Hello) and hello.protocol == PROTOCOL and self._admit(hello, connection):
                self._read(hello, connection)

    def _admit(self, hello: Hello, connection: Connection) -> bool:
        """Let the newest attempt in and fence off the one before."""
        number = (hello.incarnation, hello.attempt)
        with self._lock:
            gone = self._stopping.is_set() or (hello.lane in self._retired and self._retired[hello.lane].is_set())
            if gone or number <= self._newest.get(hello.lane, (-1, -1)):
                return False
            self._newest[hello.lane] = number
            self._failures.pop(hello.lane, None)
            old = self._links.get(hello.lane)
            self._links[hello.lane], self._last[hello.lane] = _Link(hello, connection), hello
            # Under the lock, for whoever hears of an attempt must have heard of the end of the one before.
            if old is not None:
                self.events.put(Lost(hello.lane, old.hello.token))
            self.events.put(Joined(hello))
        if old is not None:
            _hang_up(old.connection)
        return True

    def _read(self, hello: Hello, connection: Connection) -> None:
        """Queue what one attempt says until its connection ends."""
        try:
            while True:
                message = decode_from_lane(connection.recv_bytes())
                if isinstance(message, Failed) and not message.slots:
                    self._let_rest(hello.lane, connection)
                self.events.put(Said(hello.lane, hello.token, message))
        except (OSError, EOFError, EvenflowError):
            pass
        with self._lock:
            link = self._links.get(hello.lane)
            if link is not None and link.connection is connection:
                del self._links[hello.lane]
                self.events.put(Lost(hello.lane, hello.token))

    def _let_rest(self, lane: int, connection: Connection) -> None:
        """Do not start a lane again whose present attempt has failed: the query ends, it would only be noise."""
        with self._lock:
            if lane in self._links and self._links[lane].connection is connection:
                self._retired[lane].set()


def _hang_up(connection: Connection) -> None:
    """End a connection; the thread that reads from it and the lane both see it end, as they would not by a close."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


def _listening_host(context: SparkContext) -> str:
    if re.fullmatch(r"local(\[.*\])?", master_of(context)):
        return "127.0.0.1"
    return context.getConf().get("spark.driver.host") or "127.0.0.1"
