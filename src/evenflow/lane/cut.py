"""The state of all slots at one epoch, read beside the lanes: nothing is written, and no lane is asked.

Lanes take epochs at their own pace, so slots' committed versions differ. What a slot is at its committed version, and
its blocks after that, determine what it is at any later epoch. So a stage is cut at the highest version that any slot
of it has, and slots that are behind are taken there by whoever reads them, as a lane would, but for nobody else to see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from evenflow.lane.config import LaneStage
from evenflow.lane.loading import committed_slot, rows_of, tables_of
from evenflow.lane.messages import BlockPart, EpochInput, SlotToLoad
from evenflow.model import Epoch, SlotId, StageUnits
from evenflow.state import Block, EpochRecord, FileRef, Folder, Recovery, SlotRef

_PORTION_BYTES = 1 << 26  # stored state that is read at a time: what a reader needs memory for
_CHUNK = 1 << 16  # rows handed on at a time


class Portion(msgspec.Struct, frozen=True):
    """Some slots as they are committed, and the input that takes them all to the same epoch."""

    slots: tuple[SlotToLoad, ...]
    inputs: tuple[EpochInput, ...]


@dataclass(frozen=True)
class Cut:
    """The state at the end of an epoch, -1 before the first; all slots, in portions."""

    epoch: Epoch
    portions: tuple[Portion, ...]


def cut_of(recovery: Recovery, stage: StageUnits, portion_bytes: int = _PORTION_BYTES) -> Cut:
    """Return the newest epoch that any unit of a stage has reached, and what it takes to read all of them at it.

    What feeds a stage is complete up to there: a unit passes an epoch when all that feed it have.
    """
    slots = [committed_slot(recovery, unit) for unit in range(stage.units.start, stage.units.stop)]
    epoch = int(recovery.slot_versions[stage.units].max())
    passed = [record for record in recovery.pending if record.epoch <= epoch]
    blocks = {record.epoch: record.blocks if stage.fed_by is None else recovery.fed(record.epoch) for record in passed}
    return Cut(
        epoch,
        tuple(
            Portion(tuple(portion), tuple(_input(record, blocks[record.epoch], portion) for record in passed))
            for portion in _portions(slots, portion_bytes)
        ),
    )


def read(stage: LaneStage, folder: Folder, portion: Portion) -> Iterator[pa.RecordBatch]:
    """Yield the state of a portion of a stage, as people read it (`Resident.view`)."""
    resident, first = stage.empty(), stage.units.first
    for table in tables_of(folder, portion.slots):
        resident.install(table)
    for each in portion.inputs:
        rows, units = rows_of(folder, each.parts, stage)
        if rows.num_rows:
            resident.fold(rows, units - first, each.time)
        resident.fire([entry.slot - first for entry in portion.slots if entry.version < each.epoch], each.time)
    yield from resident.view([entry.slot - first for entry in portion.slots]).to_batches(_CHUNK)


def _input(record: EpochRecord, blocks: Iterable[Block], portion: list[SlotToLoad]) -> EpochInput:
    """Return what slots of a portion that have not passed an epoch have in it."""
    behind = {entry.slot for entry in portion if entry.version < record.epoch}
    parts = []
    for block in blocks:
        for segment in block.segments:
            chosen = tuple(slot for slot in segment.slots if slot in behind)
            if chosen:
                parts.append(BlockPart(block.file, segment, chosen))
    return EpochInput.of(record, tuple(parts))


def _portions(slots: list[SlotToLoad], most_bytes: int) -> Iterator[list[SlotToLoad]]:
    """Yield slots in groups of about so many bytes, those of one snapshot file together: each reads its files once."""
    refs = {entry.slot: [*([entry.snapshot] if entry.snapshot else []), *entry.changes] for entry in slots}
    bytes_of = _stored_bytes(refs)
    group: list[SlotToLoad] = []
    size = 0.0
    for entry in sorted(slots, key=lambda entry: (entry.snapshot.file.name if entry.snapshot else "", entry.slot)):
        if group and size + bytes_of[entry.slot] > most_bytes:
            yield group
            group, size = [], 0.0
        group.append(entry)
        size += bytes_of[entry.slot]
    yield group


def _stored_bytes(refs: dict[SlotId, list[SlotRef]]) -> dict[SlotId, float]:
    """Return about how many bytes each slot has in files: its share of the rows that are still needed of each."""
    rows = Counter[FileRef]()
    for ref in (ref for found in refs.values() for ref in found):
        rows[ref.file] += ref.rows
    return {
        slot: sum(ref.file.size * ref.rows / max(1, rows[ref.file]) for ref in found) for slot, found in refs.items()
    }
