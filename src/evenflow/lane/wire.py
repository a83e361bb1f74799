"""The wire between driver and lane: frames, the proof that each side knows the query's key, and the lane's end of it.

::

    driver                                lane
        challenge ─▶                       32 random bytes
                    ◀── challenge, proof ─ its own 32 bytes, then HMAC(key, "lane", both)
        proof ─────▶                       HMAC(key, "driver", both)
                    ◀── frames ──────────▶ messages (see `messages`)
                    ◀── empty frames ───── the lane is alive

A frame is its length in 4 bytes, then its bytes. An empty frame is a heartbeat: any byte from a lane shows that it is
alive, an empty frame shows nothing else.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from typing import Self

from evenflow.errors import ProtocolError

CHALLENGE = 32
PROOF = 32
HEARTBEAT = b""
_LENGTH = struct.Struct("!I")
_CHUNK = 1 << 18
MOST_BYTES = (1 << 32) - 1  # of a frame
_CONNECT_S = 30.0  # for the connection and each step of the handshake


def framed(payload: bytes) -> bytes:
    """Return the bytes that carry one frame."""
    return _LENGTH.pack(len(payload)) + payload


def challenge() -> bytes:
    """Return bytes that nobody has seen before."""
    return secrets.token_bytes(CHALLENGE)


def proof(key: bytes, side: str, of_driver: bytes, of_lane: bytes) -> bytes:
    """Return what only a holder of the key can say to both challenges; `side` is "driver" or "lane".

    The side is part of it: what one side has said is no answer of the other.
    """
    return hmac.digest(key, side.encode() + of_driver + of_lane, "sha256")


class Frames:
    """Cuts received bytes into frames; `most` bytes per frame are let through."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        """Begin with nothing received."""
        self.most = most
        self._received = bytearray()
        self._whole: deque[bytes] = deque()

    def feed(self, received: bytes) -> None:
        """Take in what has come."""
        self._received += received
        at = 0
        while len(self._received) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._received, at)
            if size > self.most:
                raise ProtocolError(f"a frame of {size} bytes, where at most {self.most} are expected")
            end = at + _LENGTH.size + size
            if len(self._received) < end:
                break
            self._whole.append(bytes(memoryview(self._received)[at + _LENGTH.size : end]))
            at = end
        if at:
            del self._received[:at]

    def __bool__(self) -> bool:
        """Whether a whole frame is there."""
        return bool(self._whole)

    def pop(self) -> bytes:
        """Return the oldest whole frame."""
        return self._whole.popleft()


class LaneEnd:
    """The lane's end of its link to the driver. Frames are received by one thread and sent by any."""

    def __init__(self, connection: socket.socket) -> None:
        """Use an open connection."""
        self._connection = connection
        self._frames = Frames()
        self._sending = threading.Lock()

    @classmethod
    def connected(cls, address: tuple[str, int], key: bytes) -> LaneEnd:
        """Connect to the driver; each side proves to the other that it knows the key."""
        connection = socket.create_connection(address, timeout=_CONNECT_S)
        end = cls(connection)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end._shake_hands(key)
            connection.settimeout(None)
        except BaseException:
            end.close()
            raise
        return end

    def _shake_hands(self, key: bytes) -> None:
        of_driver, of_lane = self.receive(), challenge()
        self.send(of_lane + proof(key, "lane", of_driver, of_lane))
        if not hmac.compare_digest(self.receive(), proof(key, "driver", of_driver, of_lane)):
            host, port = self._connection.getpeername()[:2]
            raise ProtocolError(f"{host}:{port} is not the driver of this query: it does not have the query's key")

    def send(self, payload: bytes) -> None:
        """Send one frame; wait until it is on its way."""
        with self._sending:
            self._connection.sendall(framed(payload))

    def receive(self) -> bytes:
        """Return the next frame; EOFError if the driver has ended the link."""
        while not self._frames:
            received = self._connection.recv(_CHUNK)
            if not received:
                raise EOFError("the driver has ended the link")
            self._frames.feed(received)
        return self._frames.pop()

    def has_news(self, within_s: float) -> bool:
        """Return whether the driver has said something, or does so within a time."""
        return bool(self._frames or select.select([self._connection], [], [], within_s)[0])

    @contextlib.contextmanager
    def heartbeats(self, every_s: float) -> Iterator[None]:
        """Tell the driver from a thread of its own, whatever else the lane is at, that it is alive."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(every_s):
                try:
                    self.send(HEARTBEAT)
                except OSError:
                    with contextlib.suppress(OSError):
                        self._connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that receives
                    return

        threading.Thread(target=beat, name="evenflow-heartbeat", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def close(self) -> None:
        """End the link."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
