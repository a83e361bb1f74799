"""What the driver and a lane say to each other: typed values, one per frame, checked on arrival.

::

    driver                              lane
                    ◀── Hello ─────────  who I am, which attempt
        Adopt ─────▶                     load these slots; serve the others meanwhile
                    ◀── Adopted ───────  they are resident
        Prepare ───▶                     load these slots ahead of a move; another lane still serves them
                    ◀── Prepared ──────
        Release ───▶                     stop serving these slots and hand them off
                    ◀── Released ──────
        Forget ────▶                     drop what was loaded for nothing
        Work ──────▶                     fold the input of some epochs
                    ◀── Done ──────────  files written, load report
        Stop ──────▶
                    ◀── Failed ────────  at any time: the user's operator raised, a file is damaged

A lane carries out messages in the order they come, but reads and writes state that moves in the background: *Adopted*,
*Prepared* and *Released* come when they are ready. There is at most one *Work* without its *Done*.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from evenflow.errors import ProtocolError
from evenflow.model import Due, EpochTime
from evenflow.state import Advance, EpochRecord, FileRef, LaneCommit, Segment, SlotRef

PROTOCOL = 5  # raised when the meaning of a message changes; a lane of another version is refused

KeyValue: TypeAlias = bool | int | float | str | None


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
    """Where the state of one slot lies: a snapshot (or handoff) and the changes after it, in order.

    It is at `version` then. With `prepared`, the lane has the slot at that version; only `changes` are to be added.
    """

    slot: int
    version: int
    snapshot: SlotRef | None = None
    changes: tuple[SlotRef, ...] = ()
    prepared: int | None = None


class Adopt(msgspec.Struct, frozen=True, tag=True):
    """Load these slots and hold them from then on; a slot with neither snapshot nor changes starts empty."""

    slots: tuple[SlotToLoad, ...]


class Adopted(msgspec.Struct, frozen=True, tag=True):
    """The slots are resident. `due`: when something is to be done next in one of the slots that the lane serves."""

    slots: tuple[int, ...]
    state_bytes: int
    seconds: float
    due: Due | None = None


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Load these slots and keep them aside."""

    slots: tuple[SlotToLoad, ...]


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The slots are there as they were at these versions: (slot, version); None where it could not be done.

    The slot goes on changing meanwhile, so a file may be gone before it is read: then the move is made without a copy.
    """

    slots: tuple[tuple[int, int | None], ...]
    state_bytes: int
    seconds: float


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Drop these slots: they were prepared, or were to be adopted, for nothing."""

    slots: tuple[int, ...]


class Release(msgspec.Struct, frozen=True, tag=True):
    """Let go of these slots, as they stand; with `handoff`, write them to a file for their new lanes."""

    slots: tuple[int, ...]
    handoff: bool = True


class Released(msgspec.Struct, frozen=True, tag=True):
    """The slots are no longer served here: (slot, version), and where each lies in the handoff."""

    slots: tuple[tuple[int, int], ...]
    handoffs: tuple[tuple[int, SlotRef], ...]
    state_bytes: int
    seconds: float


class BlockPart(msgspec.Struct, frozen=True):
    """Some rows of a block: those of `slots` in one of its segments; None for all of them."""

    file: FileRef
    segment: Segment
    slots: tuple[int, ...] | None = None


class EpochInput(msgspec.Struct, frozen=True):
    """What a lane is to fold of one epoch, and the time of the epoch.

    Each epoch that a slot passes must be there, also one without rows for it: something may be due.
    """

    epoch: int
    parts: tuple[BlockPart, ...]
    watermark_us: int | None = None
    processing_us: int = 0
    before_us: int | None = None
    late_us: int | None = None

    @classmethod
    def of(cls, record: EpochRecord, parts: tuple[BlockPart, ...]) -> EpochInput:
        """Return parts of an accepted epoch."""
        time = record.time
        return cls(record.epoch, parts, time.watermark_us, time.processing_us, time.before_us, time.late_us)

    @property
    def time(self) -> EpochTime:
        """What time it is in the epoch."""
        return EpochTime(self.epoch, self.watermark_us, self.processing_us, self.before_us, self.late_us)


class Work(msgspec.Struct, frozen=True, tag=True):
    """Fold these epochs, oldest first, which advances these slots; also write snapshots of some of them.

    `hot_slots`: those of which the driver would like to know the most frequent key.
    """

    epoch: int
    advances: tuple[Advance, ...]
    inputs: tuple[EpochInput, ...]
    snapshot_slots: tuple[int, ...] = ()
    hot_slots: tuple[int, ...] = ()


class SlotColumns(msgspec.Struct, frozen=True):
    """A load report in columns: only slots with records or state."""

    slots: tuple[int, ...]
    records: tuple[int, ...]
    busy_s: tuple[float, ...]
    state_bytes: tuple[int, ...]


class EpochLoad(msgspec.Struct, frozen=True):
    """What one epoch cost: `busy_s` by the clock, `crowded_s` of it without a core, which no slot is charged for."""

    epoch: int
    load: SlotColumns
    rows: int
    busy_s: float
    crowded_s: float = 0.0


class HotKey(msgspec.Struct, frozen=True):
    """The most frequent key of a slot's rows: its columns, its share of the rows, and how many keys there were.

    Of many rows a sample is looked at.
    """

    slot: int
    key: dict[str, KeyValue]
    share: float
    keys: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """The work is done and its files are written; they count once the driver commits them.

    `due`: when something is to be done next in one of the slots that the lane serves; None if nothing is.
    """

    commit: LaneCommit
    loads: tuple[EpochLoad, ...]
    idle_s: float
    state_rows: int
    state_bytes: int
    hot_keys: tuple[HotKey, ...] = ()
    due: Due | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The lane cannot go on; `kind` is the error's class, `detail` its traceback.

    With `slots` it can: it could not load these. That is nothing if they are elsewhere by now, and their files gone.
    """

    kind: str
    message: str
    detail: str
    slots: tuple[int, ...] = ()


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the lane."""


ToLane: TypeAlias = Adopt | Prepare | Release | Forget | Work | Stop
FromLane: TypeAlias = Hello | Adopted | Prepared | Released | Done | Failed

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
    """Read a frame on the driver's side."""
    message: FromLane = _decoded(_from_lane, frame)
    return message


def _decoded(decoder: msgspec.msgpack.Decoder[Any], frame: bytes) -> Any:
    try:
        return decoder.decode(frame)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a frame that is no message of protocol {PROTOCOL}: {error}") from error
