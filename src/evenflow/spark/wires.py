"""One loop for all connections to the driver: accepts, reads, writes. It knows frames, and not what they mean.

Nobody who sends waits: what is sent is queued, and the loop's thread brings it out as fast as the other side takes it.
The other side may stop reading; beyond a bound its connection ends.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from evenflow.errors import EvenflowError
from evenflow.lane.wire import Frames, framed
from evenflow.log import QueryLog

_CHUNK = 1 << 18
_MOST_UNSENT = 64 << 20  # bytes that may wait for one connection, one frame aside
_REST_S = 1.0  # how long nobody is let in after descriptors have run out
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Wire:
    """One connection. `send` and `end` may be called by any thread and return at once."""

    def __init__(self, wires: Wires, connection: socket.socket, peer: str) -> None:
        """Belong to a loop."""
        self.peer, self.frames = peer, Frames()
        self.heard_s = wires.clock()  # when the last byte came
        self.connection = connection
        self._wires = wires
        self._lock = threading.Lock()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._takes_more = True
        self.why_ended: str | None = None

    def send(self, payload: bytes) -> bool:
        """Queue one frame; return whether the connection is still there. One with too much unsent is ended."""
        frame = framed(payload)
        with self._lock:
            if not self._takes_more:
                return False
            full = bool(self._unsent) and self._unsent_bytes + len(frame) > _MOST_UNSENT
            if not full:
                self._unsent.append(memoryview(frame))
                self._unsent_bytes += len(frame)
        if full:
            self.end(f"{self._unsent_bytes} bytes wait for it, and it takes none")
            return False
        self._wires.attend_to(self)
        return True

    def end(self, why: str) -> None:
        """End the connection."""
        self.over(why)
        self._wires.attend_to(self)

    def flush(self) -> bool:
        """Send what can be sent now; return whether something is left. For the loop's thread."""
        try:
            while self._unsent:
                sent = self.connection.send(self._unsent[0])
                with self._lock:
                    self._unsent_bytes -= sent
                    rest = self._unsent.popleft()[sent:]
                    if rest:
                        self._unsent.appendleft(rest)
        except BlockingIOError:
            return True
        except OSError:
            # The other side is gone. Its last words may still be there to be read, and then comes the end.
            with self._lock:
                self._takes_more = False
                self._unsent.clear()
        return False

    def over(self, why: str) -> str:
        """Take nothing more; return why the connection has ended, the first reason if there are several."""
        with self._lock:
            self._takes_more = False
            self.why_ended = self.why_ended or why
        return self.why_ended


class Attendant(Protocol):
    """Who is told what happens on wires, by the loop's thread: it must not wait for anything."""

    def opened(self, wire: Wire) -> bool:
        """Somebody has connected; return whether more may come for now."""

    def received(self, wire: Wire, frame: bytes) -> None:
        """A frame has come; an EvenflowError ends the wire."""

    def ended(self, wire: Wire, why: str, *, by_us: bool) -> None:
        """A connection has ended: the other side is gone, or it was ended here."""

    def looked(self, now_s: float) -> bool:
        """Time has passed; return whether strangers may come."""


class Wires:
    """The loop. It runs in a thread of its own until `stop`."""

    def __init__(
        self,
        listener: socket.socket,
        attendant: Attendant,
        log: QueryLog,
        look_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Serve a listening socket; the attendant is asked every `look_s`, at least."""
        self.clock = clock
        self._listener, self._attendant, self._log, self._look_s = listener, attendant, log, look_s
        self._selector = selectors.DefaultSelector()
        self._alarm, self._bell = socket.socketpair()
        self._attention: deque[Wire] = deque()
        self._wires: set[Wire] = set()
        self._stopped = threading.Event()
        self._rests_until_s = 0.0
        self._told_exhausted = False
        for one in (listener, self._alarm, self._bell):
            one.settimeout(0)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="evenflow-links", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all connections, after what can be sent at once is sent."""
        self._stopped.set()
        self._ring()
        self._thread.join()

    def attend_to(self, wire: Wire) -> None:
        """Let the loop look after a wire that something is to be done with."""
        self._attention.append(wire)
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it rings already, or the loop has ended
            self._bell.send(b".")

    # --- the loop's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        now_s = self.clock()
        try:
            while not self._stopped.is_set():
                self._open_or_close_the_door(now_s)
                ready = self._selector.select(self._look_s)
                before_s, now_s = now_s, self.clock()
                self._excuse(now_s - before_s - self._look_s)
                for key, mask in ready:
                    if key.fileobj is self._alarm:
                        self._quieten()
                    elif key.fileobj is self._listener:
                        self._accept(now_s)
                    else:
                        self._serve(key.data, mask)
                self._attend()
        finally:
            self._close()

    def _excuse(self, late_s: float) -> None:
        """Do not hold it against others if it was this process that was stopped, or had no core."""
        if late_s > self._look_s:
            for wire in self._wires:
                wire.heard_s += late_s

    def _open_or_close_the_door(self, now_s: float) -> None:
        welcome = self._attendant.looked(now_s) and now_s >= self._rests_until_s
        listening = self._listener in self._selector.get_map()
        if welcome and not listening:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif listening and not welcome:
            self._selector.unregister(self._listener)

    def _quieten(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._alarm.recv(4096):
                pass

    def _accept(self, now_s: float) -> None:
        """Let in all who wait."""
        more = True
        while more:
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest(error, now_s)
                    return
                continue  # one that is gone already
            self._told_exhausted = False
            connection.settimeout(0)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = Wire(self, connection, f"{address[0]}:{address[1]}")
            self._wires.add(wire)
            self._selector.register(connection, selectors.EVENT_READ, wire)
            more = self._attendant.opened(wire)

    def _rest(self, error: OSError, now_s: float) -> None:
        """Let nobody in for a moment: who waits to be let in would wake the loop again and again."""
        self._rests_until_s = now_s + _REST_S
        if not self._told_exhausted:
            self._told_exhausted = True
            self._log.warning(
                "lanes cannot connect: %s; it is tried again every %g s. Raise the driver's limit (ulimit -n), or "
                "close what it has open",
                error,
                _REST_S,
            )

    def _serve(self, wire: Wire, mask: int) -> None:
        if wire not in self._wires:
            return
        if mask & selectors.EVENT_READ:
            self._guarded(wire, self._read)
        if mask & selectors.EVENT_WRITE and wire in self._wires:
            self._guarded(wire, self._write)

    def _attend(self) -> None:
        while self._attention:
            wire = self._attention.popleft()
            if wire in self._wires:
                self._guarded(wire, self._write)
            if wire in self._wires and wire.why_ended is not None:
                self._drop(wire, wire.why_ended)

    def _guarded(self, wire: Wire, serve: Callable[[Wire], None]) -> None:
        """Serve one wire; whatever is wrong with it is no matter of the others."""
        try:
            serve(wire)
        except EOFError:
            self._drop(wire, "it has hung up")
        except OSError as error:
            self._drop(wire, str(error))
        except EvenflowError as error:
            wire.end(str(error))
        except Exception as error:  # noqa: BLE001 - a defect, in the log with its traceback
            self._log.exception("a frame from %s could not be taken in", wire.peer)
            wire.end(f"{type(error).__name__}: {error}")

    def _read(self, wire: Wire) -> None:
        try:
            received = wire.connection.recv(_CHUNK)
        except BlockingIOError:
            return
        if not received:
            raise EOFError
        wire.heard_s = self.clock()
        wire.frames.feed(received)
        while wire.frames and wire.why_ended is None:
            self._attendant.received(wire, wire.frames.pop())

    def _write(self, wire: Wire) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.flush() else 0)
        if self._selector.get_key(wire.connection).events != events:
            self._selector.modify(wire.connection, events, wire)

    def _drop(self, wire: Wire, why: str) -> None:
        self._wires.discard(wire)
        self._selector.unregister(wire.connection)
        wire.connection.close()
        by_us = wire.why_ended is not None
        self._attendant.ended(wire, wire.over(why), by_us=by_us)

    def _close(self) -> None:
        for wire in list(self._wires):
            wire.flush()
            self._drop(wire, "the query ends")
        for one in (self._listener, self._alarm, self._bell):
            one.close()
        self._selector.close()
