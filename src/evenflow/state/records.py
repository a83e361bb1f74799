"""What the checkpoint writes down: frozen values, wrapped in a versioned envelope by `Folder.write_json`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np

from evenflow.model import Contents, Epoch, EpochTime, LaneId, RoutingTable, SlotId, Watermarks
from evenflow.model.slots import IntArray
from evenflow.state.files import FileRef


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all records; an unknown field is an error, since the envelope's format says which there are."""


class StageIdentity(Record, frozen=True):
    """What one stage of a query is: by which columns it is keyed, its slots, and what its state is made of."""

    keys: tuple[str, ...]
    key_types: tuple[str, ...]
    slots: int
    contents: Contents


class Identity(Record, frozen=True):
    """Whose checkpoint it is, at its first start: the id stays. What it holds now, if it was changed, a base says."""

    query_id: str
    stages: tuple[StageIdentity, ...]
    output_mode: str
    created_at_s: float

    @property
    def units(self) -> int:
        """How many units all stages have together."""
        return sum(stage.slots for stage in self.stages)

    @property
    def contents(self) -> tuple[Contents, ...]:
        """What the state of each stage is made of."""
        return tuple(stage.contents for stage in self.stages)

    def holding(self, contents: Sequence[Contents]) -> Identity:
        """Return the same query with state that is made of something else, stage by stage."""
        pairs = zip(self.stages, contents, strict=True)
        stages = tuple(msgspec.structs.replace(stage, contents=each) for stage, each in pairs)
        return msgspec.structs.replace(self, stages=stages)


class Claim(Record, frozen=True):
    """Who has started a run, and when: for people who must find out what else is running."""

    host: str
    pid: int
    started_at_s: float


class Segment(Record, frozen=True):
    """One record batch of a block file: rows of one lane, sorted by slot, `counts[i]` of them in `slots[i]`."""

    lane: LaneId
    batch: int
    rows: int
    slots: tuple[SlotId, ...]
    counts: tuple[int, ...]


class Block(Record, frozen=True):
    """One block file and what is in it."""

    file: FileRef
    segments: tuple[Segment, ...]


class EpochRecord(Record, frozen=True, dict=True):
    """An accepted epoch: all that a lane needs to fold it again after a crash. `owners[slot]` is the slot's lane.

    Epochs have numbers of their own: `batch` is the newest micro-batch of Spark's in this epoch or one before it. A
    *tick* carries none, only the time. `watermarks` are those of the inputs, in their order, in microseconds;
    `watermark_us` is what they come to for the query, `before_us` what it was before this epoch, and `late_us` what it
    was before the epoch before; None for a stream without any. As it is stored, `owners` is empty if the table is that
    of the epoch before.
    """

    epoch: Epoch
    batch: int
    table_version: int
    lanes: tuple[LaneId, ...]
    owners: tuple[LaneId, ...]
    moves: tuple[tuple[SlotId, LaneId, LaneId], ...]
    blocks: tuple[Block, ...]
    watermarks: tuple[int, ...]
    rows: int
    accepted_at_s: float
    tick: bool = False
    watermark_us: int | None = None
    before_us: int | None = None
    late_us: int | None = None

    def table(self) -> RoutingTable:
        """Return the routing table in force for this epoch."""
        return RoutingTable(self.owner_of, self.lanes, self.table_version)

    @property
    def time(self) -> EpochTime:
        """What time it is in this epoch, whenever and however often it is folded."""
        processing_us = round(self.accepted_at_s * 1e6)
        return EpochTime(self.epoch, self.watermark_us, processing_us, self.before_us, self.late_us)

    @property
    def marks(self) -> Watermarks:
        """The watermarks of this epoch, from which those of the next one follow."""
        return Watermarks(self.watermarks, self.watermark_us, self.before_us, self.late_us)

    @cached_property
    def owner_of(self) -> IntArray:
        """The lane of each slot, as an array."""
        return np.array(self.owners, dtype=np.int64)

    @cached_property
    def slot_rows(self) -> IntArray:
        """The number of rows of each slot."""
        segments = [segment for block in self.blocks for segment in block.segments]
        slots = np.array([slot for segment in segments for slot in segment.slots], dtype=np.int64)
        counts = np.array([count for segment in segments for count in segment.counts], dtype=np.int64)
        return np.bincount(slots, counts, len(self.owners)).astype(np.int64)


class SlotRef(Record, frozen=True):
    """The rows of one slot in a file: its whole state at `version`, or the rows that changed up to it."""

    file: FileRef
    version: Epoch
    start: int
    rows: int


class Advance(Record, frozen=True):
    """Slots that a lane has taken from version `since` to `version`, all input between the two folded."""

    since: Epoch
    version: Epoch
    slots: tuple[SlotId, ...]


class Changes(Record, frozen=True):
    """Rows of state that changed, in one file: of units of one stage, since what is in a file has one schema.

    `slots` are (slot, start, rows, state rows): where the new content of all rows lies that changed since the slot's
    committed version, and how many rows of state the slot has now.
    """

    file: FileRef
    slots: tuple[tuple[SlotId, int, int, int], ...]


class LaneCommit(Record, frozen=True):
    """What one attempt of a lane has done, up to `epoch`; only what `advances` names has come further.

    `outputs` are the rows for the sink, by the epoch they belong to; `feeds` those for units of a later stage, which
    are input of theirs in the same epoch.
    """

    lane: LaneId
    attempt: str
    epoch: Epoch
    advances: tuple[Advance, ...] = ()
    changes: tuple[Changes, ...] = ()
    outputs: tuple[tuple[Epoch, FileRef], ...] = ()
    snapshots: tuple[tuple[SlotId, SlotRef], ...] = ()
    feeds: tuple[tuple[Epoch, Block], ...] = ()


class CommitEntry(Record, frozen=True):
    """What has arrived from the lanes since the entry before; all of it counts, or nothing."""

    sequence: int
    lanes: tuple[LaneCommit, ...]


class Published(Record, frozen=True):
    """The sink has all output up to this epoch."""

    epoch: Epoch


class Accepted(Record, frozen=True):
    """An epoch's record as it is stored, chained to the one before so that a missing one is noticed."""

    previous: Epoch
    record: EpochRecord


class Parts(Record, frozen=True):
    """Rows of slots in files, in columns: of `slots[i]` at `versions[i]`, `rows[i]` rows from `starts[i]` on.

    `files` are numbers, `sizes` about how many bytes the rows take.
    """

    slots: tuple[SlotId, ...]
    files: tuple[int, ...]
    versions: tuple[Epoch, ...]
    starts: tuple[int, ...]
    rows: tuple[int, ...]
    sizes: tuple[int, ...]


class Base(Record, frozen=True):
    """All commit entries up to `sequence`, folded into what they come to; `files` are what parts call by a number.

    `reached` is the record of epoch `frontier`, without its blocks; `state_rows` how many rows each slot's state has.
    """

    sequence: int
    frontier: Epoch
    accepted: Epoch
    reached: EpochRecord | None
    slot_versions: tuple[Epoch, ...]
    state_rows: tuple[int, ...]
    files: tuple[FileRef, ...]
    snapshots: Parts
    changes: Parts
    outputs: tuple[tuple[Epoch, tuple[tuple[LaneId, FileRef], ...]], ...]
    contents: tuple[Contents, ...] | None = None  # by stage; None: those that the checkpoint was created with
    fed: tuple[tuple[Epoch, tuple[Block, ...]], ...] = ()  # what stages have put out for others, by pending epoch
