"""Writes what a lane has done as ranges of one file: changes, snapshots, outputs, and what stages feed others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from evenflow.lane.config import LaneConfig
from evenflow.lane.feeding import Feed, feed_of
from evenflow.lane.folding import Fold
from evenflow.lane.holding import HeldStage, Holding
from evenflow.lane.messages import Work
from evenflow.model import Epoch, SlotId
from evenflow.operators import SLOT, by_slot
from evenflow.state import (
    Changes,
    FileRef,
    Folder,
    LaneCommit,
    SlotRef,
    output_name,
    work_name,
    write_output,
)


@dataclass
class _WorkFile:
    """Tables on their way into one file; a table is known by its number until it is written."""

    tables: list[pa.Table] = field(default_factory=list)

    def add(self, table: pa.Table) -> int:
        self.tables.append(table)
        return len(self.tables) - 1

    def written(self, folder: Folder, name: str) -> list[FileRef]:
        """Return the range of each table."""
        return folder.write_tables(name, self.tables) if self.tables else []


@dataclass(frozen=True)
class Writing:
    """Writes into the folder of the checkpoint; nothing counts before the driver commits it."""

    config: LaneConfig
    holding: Holding
    folder: Folder
    attempt: str

    def commit(self, message: Work, folds: Sequence[Fold], file: str) -> LaneCommit:
        """Write what was done; `file` tells these files from all others of this attempt."""
        lane, epoch, work = self.config.lane, message.epoch, _WorkFile()
        changes = [(work.add(table), self._changed(held, table)) for held, table in _changes(folds)]
        snapshots = [(work.add(state), held, state, mine) for held, state, mine in self._snapshots(message)]
        outputs = [(fold.epoch, fold.output) for fold in folds if fold.output is not None]
        form = self.config.output
        in_work = [(at, work.add(rows)) for at, rows in outputs] if form.codec is None else []
        # A sink that takes files as they are needs each by itself.
        apart = [
            (at, write_output(self.folder, output_name(at, lane, file, form.ending), rows, form))
            for at, rows in (outputs if form.codec is not None else [])
        ]
        feeds = [(at, work.add(feed.rows), feed) for at, feed in self._feeds(folds)]
        refs = work.written(self.folder, work_name(epoch, lane, file))
        versions = {unit: advance.version for advance in message.advances for unit in advance.slots}
        return LaneCommit(
            lane,
            self.attempt,
            epoch,
            message.advances,
            tuple(Changes(refs[at], places) for at, places in changes),
            outputs=(*((at, refs[number]) for at, number in in_work), *apart),
            snapshots=tuple(
                (unit, SlotRef(refs[at], versions[unit], start, rows))
                for at, held, state, mine in snapshots
                for unit, start, rows in held.places(state, mine)
            ),
            feeds=tuple((at, feed.block(refs[number])) for at, number, feed in feeds),
        )

    @staticmethod
    def _changed(held: HeldStage, changes: pa.Table) -> tuple[tuple[SlotId, int, int, int], ...]:
        """Return where the changes of each unit lie, and how many rows of state the unit has now."""
        rows, first = held.resident.slot_rows(), held.stage.units.first
        return tuple((unit, start, count, int(rows[unit - first])) for unit, start, count in held.places(changes))

    def _snapshots(self, message: Work) -> Iterator[tuple[HeldStage, pa.Table, list[SlotId]]]:
        """Yield the state of the units to write out whole, stage by stage."""
        for held, mine in self.holding.by_stage(message.snapshot_slots):
            yield held, held.resident.snapshot(held.slots(mine)), mine

    def _feeds(self, folds: Sequence[Fold]) -> Iterator[tuple[Epoch, Feed]]:
        """Yield what stages have put out for those that they feed, by epoch."""
        for fold in folds:
            if fold.folded is None or not fold.folded.output.num_rows:
                continue
            producers = fold.folded.output_slots + fold.held.stage.units.first
            for target in self.config.stages:
                if target.units.fed_by == fold.held.number:
                    yield fold.epoch, feed_of(fold.folded.output, producers, target, self.config.lane)


def _changes(folds: Sequence[Fold]) -> Iterator[tuple[HeldStage, pa.Table]]:
    """Yield the changes of each stage sorted by slot, older ones first: the last row of a key counts."""
    for number, held in sorted({fold.held.number: fold.held for fold in folds}.items()):
        tables = [fold.folded.changes for fold in folds if fold.held.number == number and fold.folded is not None]
        changed = [table for table in tables if table.num_rows]
        if changed:
            yield held, by_slot([(table, table[SLOT].to_numpy()) for table in changed])[0]
