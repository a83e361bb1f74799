"""What the coordinator and a lane say to each other: typed values, one per frame, checked on arrival.

::

    coordinator                         lane
                    ◀── Hello ─────────  who I am, which attempt
        Adopt ─────▶                     load these slots from the checkpoint
                    ◀── Adopted ───────
        Release ───▶                     write these slots as a handoff and let them go
                    ◀── Released ──────
        Work ──────▶                     fold the blocks of an epoch
                    ◀── Done ──────────  files written, load report
        Stop ──────▶
                    ◀── Failed ────────  at any time: the user's operator raised, a file is damaged
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from evenflow.errors import ProtocolError
from evenflow.state import FileRef, LaneCommit, Segment, SlotRef

PROTOCOL = 1  # raised when the meaning of a message changes; a lane of another version is refused


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A lane's first word."""

    protocol: int
    lane: int
    incarnation: int
    attempt: int
    pid: int
    host: str
    executor: str
    run: str  # the driver's name for itself, another one at every start

    @property
    def token(self) -> str:
        """The attempt as it stands in file names: no two attempts of a lane share one, in no run of the query."""
        return f"{self.run}.{self.incarnation}.{self.attempt}"


class SlotToLoad(msgspec.Struct, frozen=True):
    """Where the state of one slot lies: a snapshot (or handoff) and the changes after it, in order."""

    slot: int
    snapshot: SlotRef | None = None
    changes: tuple[SlotRef, ...] = ()


class Adopt(msgspec.Struct, frozen=True, tag=True):
    """Load these slots; a slot with neither snapshot nor changes starts empty."""

    slots: tuple[SlotToLoad, ...]


class Adopted(msgspec.Struct, frozen=True, tag=True):
    """The slots are resident."""

    slots: tuple[int, ...]
    state_bytes: int
    seconds: float


class Release(msgspec.Struct, frozen=True, tag=True):
    """Write these slots, as they stand after epoch `version`, to the file `handoff`, and forget them."""

    slots: tuple[int, ...]
    version: int
    handoff: str


class Released(msgspec.Struct, frozen=True, tag=True):
    """The handoff is written: where each slot lies in it."""

    handoffs: tuple[tuple[int, SlotRef], ...]
    state_bytes: int
    seconds: float


class BlockSegment(msgspec.Struct, frozen=True):
    """One lane's part of one block."""

    file: FileRef
    segment: Segment


class Work(msgspec.Struct, frozen=True, tag=True):
    """Fold one epoch; also write snapshots of some slots."""

    epoch: int
    blocks: tuple[BlockSegment, ...]
    snapshot_slots: tuple[int, ...] = ()


class SlotColumns(msgspec.Struct, frozen=True):
    """A load report in columns: only slots with records or state."""

    slots: tuple[int, ...]
    records: tuple[int, ...]
    busy_s: tuple[float, ...]
    state_bytes: tuple[int, ...]


class Done(msgspec.Struct, frozen=True, tag=True):
    """An epoch is folded and its files are written; they count once the coordinator commits them."""

    commit: LaneCommit
    load: SlotColumns
    rows: int
    busy_s: float
    idle_s: float
    state_rows: int
    state_bytes: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The lane cannot go on; `kind` is the error's class, `detail` its traceback."""

    kind: str
    message: str
    detail: str


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the lane."""


ToLane: TypeAlias = Adopt | Release | Work | Stop
FromLane: TypeAlias = Hello | Adopted | Released | Done | Failed

_encoder = msgspec.msgpack.Encoder()
_to_lane = msgspec.msgpack.Decoder(ToLane)
_from_lane = msgspec.msgpack.Decoder(FromLane)


def encode(message: ToLane | FromLane) -> bytes:
    """Return a message as one frame."""
    return _encoder.encode(message)


def decode_to_lane(frame: bytes) -> ToLane:
    """Read a frame on the lane's side."""
    message: ToLane = _decoded(_to_lane, frame)
    return message


def decode_from_lane(frame: bytes) -> FromLane:
    """Read a frame on the coordinator's side."""
    message: FromLane = _decoded(_from_lane, frame)
    return message


def _decoded(decoder: msgspec.msgpack.Decoder[Any], frame: bytes) -> Any:
    try:
        return decoder.decode(frame)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a frame that is no message of protocol {PROTOCOL}: {error}") from error
