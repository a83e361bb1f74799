"""The links to lanes: lets lanes in, fences off old attempts, passes messages, notices who is silent.

Lanes connect to the driver, never to each other. An attempt of a lane is known by (incarnation of its job, attempt of
the task); once a newer one has said hello, an older one gets no word in, and what it wrote is never committed.

A lane is lost when its connection ends, when it says nothing for `lane_timeout_s` (it has a thread for heartbeats, so
it is stopped or cut off), or when it lets messages pile up. In the last two cases its job is cancelled as well.
"""

from __future__ import annotations

import hmac
import queue
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pyspark import SparkContext

from evenflow.engine import Event
from evenflow.errors import ProtocolError
from evenflow.lane import LaneConfig
from evenflow.lane.events import Joined, Lost, Said
from evenflow.lane.messages import PROTOCOL, Failed, Hello, Stop, ToLane, decode_from_lane, encode
from evenflow.lane.wire import CHALLENGE, HEARTBEAT, MOST_BYTES, PROOF, challenge, proof
from evenflow.log import QueryLog
from evenflow.spark.driver_socket import driver_socket
from evenflow.spark.lane_jobs import LaneJobs
from evenflow.spark.lanes import Dial, lane_task
from evenflow.spark.wires import Wire, Wires

LANE_TIMEOUT_S = 60.0
BEATS = 4  # heartbeats of a lane in the time after which it counts as lost
_JOIN_S = 5.0
_STRANGERS = 64  # connections that may be in the handshake at a time; more wait outside
_HANDSHAKE_S = 10.0
_HANDSHAKE_BYTES = 4096  # no frame is longer before a lane is let in
_LOOK_S = 1.0


@dataclass
class _Stranger:
    """A connection in the handshake."""

    since_s: float
    challenge: bytes
    is_known: bool = False  # it has the key; its hello is to come


@dataclass(frozen=True)
class _Link:
    """The connection of a lane's newest attempt."""

    hello: Hello
    wire: Wire


class LaneLinks:
    """Runs lanes and queues what they say; one thread consumes `events`. No call here waits for a lane but `stop`."""

    def __init__(  # noqa: PLR0913 - settings by name
        self,
        context: SparkContext,
        config_of: Callable[[int], LaneConfig],
        group: str,
        log: QueryLog,
        *,
        lane_timeout_s: float = LANE_TIMEOUT_S,
        port: int = 0,
    ) -> None:
        """Listen on the driver's address with a key of its own; no lane is started yet."""
        self.events: queue.Queue[Event] = queue.Queue()
        self._log, self._lane_timeout_s = log, lane_timeout_s
        self._key = secrets.token_bytes(32)
        self.prepare_thread: Callable[[], None] = lambda: None  # in each thread that submits jobs, before the first
        self._strangers: dict[Wire, _Stranger] = {}  # the loop's thread alone knows these two
        self._served: dict[Wire, _Link] = {}
        self._links: dict[int, _Link] = {}
        self._last: dict[int, Hello] = {}
        self._newest: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()
        listener, self.address = driver_socket(context, port)
        dial = Dial(self.address, self._key, secrets.token_hex(4), lane_timeout_s / BEATS)
        self._jobs = LaneJobs(
            context,
            lambda lane, incarnation: lane_task(config_of(lane), dial, incarnation),
            group,
            log,
            prepare_thread=lambda: self.prepare_thread(),  # noqa: PLW0108 - it is set later
        )
        self._wires = Wires(listener, self, log, min(_LOOK_S, lane_timeout_s / BEATS))

    # --- what the engine asks for --------------------------------------------------------------------------------

    def start(self, lane: int) -> None:
        """Submit the job of one lane."""
        self._jobs.start(lane)

    def send(self, lane: int, token: str, message: ToLane) -> bool:
        """Send to one attempt of a lane; return whether it is there. Only the present attempt is spoken to."""
        link = self._link_of(lane)
        return link is not None and link.hello.token == token and link.wire.send(encode(message))

    def retire(self, lane: int) -> None:
        """End one lane for good."""
        self._jobs.retire(lane)
        link = self._link_of(lane)
        if link is not None:
            link.wire.send(encode(Stop()))

    def stop(self) -> None:
        """Tell all lanes to end, wait a little, then cancel what is left."""
        self._jobs.submit_no_more()
        with self._lock:
            links = list(self._links.values())
        for link in links:
            link.wire.send(encode(Stop()))
        self._jobs.end(_JOIN_S)
        self._wires.stop()

    # --- what is known of a lane ---------------------------------------------------------------------------------

    def hello_of(self, lane: int) -> Hello | None:
        """Return who serves a lane now."""
        link = self._link_of(lane)
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
        return self._jobs.last_failure(lane)

    def missing_module(self, lane: int) -> str | None:
        """Return the module that is not there where the lane's job ran, if that is what it failed of."""
        return self._jobs.missing_module(lane)

    def failures_in_a_row(self, lane: int) -> int:
        """Return how often the lane's job has failed since the lane said hello last."""
        return self._jobs.failures_in_a_row(lane)

    def _link_of(self, lane: int) -> _Link | None:
        with self._lock:
            return self._links.get(lane)

    # --- told by the loop, in its thread -------------------------------------------------------------------------

    def opened(self, wire: Wire) -> bool:
        """Challenge who has connected; let no more in than can be looked after."""
        stranger = _Stranger(wire.heard_s, challenge())
        wire.frames.most = _HANDSHAKE_BYTES
        self._strangers[wire] = stranger
        wire.send(stranger.challenge)
        return len(self._strangers) < _STRANGERS

    def received(self, wire: Wire, frame: bytes) -> None:
        """Take in a frame, of a lane or of a stranger."""
        link = self._served.get(wire)
        if link is not None:
            if frame != HEARTBEAT:
                self._hear(link, frame)
        elif self._strangers[wire].is_known:
            self._greet(wire, frame)
        else:
            self._recognise(wire, self._strangers[wire], frame)

    def ended(self, wire: Wire, why: str, *, by_us: bool) -> None:
        """Tell who consumes events that a lane's attempt is lost, if it was the present one."""
        if self._strangers.pop(wire, None) is not None:
            self._log.debug("a connection from %s is dropped: %s", wire.peer, why)
        link = self._served.pop(wire, None)
        if link is None:
            return
        hello = link.hello
        with self._lock:
            if self._links.get(hello.lane) is not link:
                return  # fenced off, and told of
            del self._links[hello.lane]
            self.events.put(Lost(hello.lane, hello.token))
        if by_us:
            self._log.warning(
                "process %d on %s is given up: %s. Its job is cancelled, and the next attempt takes over as soon as "
                "Spark has a free task slot",
                hello.pid,
                hello.host,
                why,
                lane=hello.lane,
            )
            self._jobs.cancel(hello.lane, hello.incarnation)

    def looked(self, now_s: float) -> bool:
        """End what is silent for too long; return whether more strangers may come."""
        for wire, stranger in self._strangers.items():
            if now_s - stranger.since_s > _HANDSHAKE_S:
                wire.end(f"it did not say who it is within {_HANDSHAKE_S:g} s")
        for wire in self._served:
            if now_s - wire.heard_s > self._lane_timeout_s:
                wire.end(f"nothing was heard of it for {self._lane_timeout_s:g} s (lane_timeout_s)")
        return len(self._strangers) < _STRANGERS

    # --- parts ---------------------------------------------------------------------------------------------------

    def _recognise(self, wire: Wire, stranger: _Stranger, frame: bytes) -> None:
        """Check that somebody has the key, and show that we have it."""
        theirs, said = frame[:CHALLENGE], frame[CHALLENGE:]
        if len(frame) != CHALLENGE + PROOF or not hmac.compare_digest(
            said, proof(self._key, "lane", stranger.challenge, theirs)
        ):
            raise ProtocolError("it does not have the query's key")
        stranger.is_known = True
        wire.send(proof(self._key, "driver", stranger.challenge, theirs))

    def _greet(self, wire: Wire, frame: bytes) -> None:
        """Let the newest attempt of a lane in and fence off the one before."""
        hello = decode_from_lane(frame)
        if not isinstance(hello, Hello):
            raise ProtocolError(f"expected Hello, got {type(hello).__name__}")
        if hello.protocol != PROTOCOL:
            self._log.warning(
                "a lane on %s speaks protocol %d, this driver %d: install the same version of evenflow on both",
                hello.host,
                hello.protocol,
                PROTOCOL,
                lane=hello.lane,
            )
            raise ProtocolError(f"protocol {hello.protocol}, expected {PROTOCOL}")
        link, number = _Link(hello, wire), (hello.incarnation, hello.attempt)
        with self._lock:
            if self._jobs.is_over(hello.lane) or number <= self._newest.get(hello.lane, (-1, -1)):
                raise ProtocolError(f"attempt {hello.token} of lane {hello.lane} is not wanted any more")
            old = self._links.get(hello.lane)
            self._newest[hello.lane] = number
            self._links[hello.lane], self._last[hello.lane] = link, hello
            # Under the lock, for whoever hears of an attempt must have heard of the end of the one before.
            if old is not None:
                self.events.put(Lost(hello.lane, old.hello.token))
            self.events.put(Joined(hello))
        del self._strangers[wire]
        self._served[wire] = link
        wire.frames.most = MOST_BYTES
        self._jobs.came_up(hello.lane)
        if old is not None:
            old.wire.end("a newer attempt is there")

    def _hear(self, link: _Link, frame: bytes) -> None:
        """Queue what a lane's attempt says."""
        message = decode_from_lane(frame)
        lane = link.hello.lane
        if isinstance(message, Failed) and not message.slots and self._link_of(lane) is link:
            self._jobs.let_rest(lane)  # the query ends; to start the lane again would only be noise
        self.events.put(Said(lane, link.hello.token, message))
