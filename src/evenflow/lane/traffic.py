"""State on its way into a lane and out of it: files in the background, memory a piece at a time.

So the units that stay are served meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from evenflow.errors import EvenflowError
from evenflow.lane.background import Background, Future
from evenflow.lane.faults import Faults
from evenflow.lane.holding import HeldStage, Holding
from evenflow.lane.loading import tables_of
from evenflow.lane.messages import (
    Adopt,
    Adopted,
    Failed,
    Forget,
    FromLane,
    Prepare,
    Prepared,
    Release,
    Released,
)
from evenflow.model import Epoch, SlotId
from evenflow.state import FileRef, Folder, SlotRef, handoff_name

_PIECE = 1 << 16  # state rows installed at a time: what other units may have to wait for


@dataclass
class _Coming:
    """State on its way into this lane; no tables: what is here of the units is to be forgotten."""

    message: Adopt | Prepare | Forget
    tables: Future[list[tuple[HeldStage, pa.Table]]] | None
    began: float
    pieces: deque[tuple[HeldStage, pa.Table]] | None = None
    failed: EvenflowError | None = None


@dataclass
class _Going:
    """State on its way out of this lane: `places` say, for each range of the file, where units lie in it."""

    versions: tuple[tuple[SlotId, Epoch], ...]
    places: list[tuple[tuple[SlotId, int, int], ...]]
    files: Future[list[FileRef]]
    began: float


@dataclass
class Traffic:
    """Carries out what a lane is told to load, to copy, to hand off and to forget, in this order."""

    lane: int
    holding: Holding
    folder: Folder
    faults: Faults
    background: Background
    clock: Callable[[], float]
    file: Callable[[], str]  # what tells this attempt's files apart
    _coming: deque[_Coming] = field(default_factory=deque)
    _going: deque[_Going] = field(default_factory=deque)

    @property
    def is_under_way(self) -> bool:
        """Whether anything is: `step` brings it on."""
        return bool(self._coming or self._going)

    def load(self, message: Adopt | Prepare) -> None:
        """Begin to load units."""
        self.faults.reach("lane.adopting" if isinstance(message, Adopt) else "lane.preparing", self.lane)
        wanted = self.holding.entries_by_stage(message.slots)

        def read() -> list[tuple[HeldStage, pa.Table]]:
            return [(held, table) for held, entries in wanted for table in tables_of(self.folder, entries)]

        self._coming.append(_Coming(message, self.background.submit(read), self.clock()))

    def forget(self, message: Forget) -> None:
        """Drop units when all that was told before is done."""
        self._coming.append(_Coming(message, None, self.clock()))

    def release(self, message: Release) -> None:
        """Stop serving units. What is written is as they stand now; their memory is freed after they have left."""
        began, holding = self.clock(), self.holding
        holding.must_serve(message.slots, "hand off")
        version = max(holding.versions[unit] for unit in message.slots)
        self.faults.reach("lane.releasing", self.lane, version)
        versions = tuple((unit, holding.versions.pop(unit)) for unit in message.slots)
        tables, places = self._handed_off(message.slots) if message.handoff else ([], [])
        name = handoff_name(version, self.lane, self.file())

        def written() -> list[FileRef]:
            return self.folder.write_tables(name, tables) if tables else []

        self._going.append(_Going(versions, places, self.background.submit(written), began))
        self._coming.append(_Coming(Forget(message.slots), None, began))

    def _handed_off(self, units: Sequence[SlotId]) -> tuple[list[pa.Table], list[tuple[tuple[SlotId, int, int], ...]]]:
        """Return the state of units, a table per stage, and where each unit lies in it."""
        tables, places = [], []
        for held, mine in self.holding.by_stage(units):
            state = held.resident.snapshot(held.slots(mine))
            tables.append(state)
            places.append(held.places(state, mine))
        return tables, places

    def step(self) -> list[FromLane]:
        """Bring what is under way a piece further; return what has become ready."""
        return self._step_out() or self._step_in()  # who waits for what has left need not wait for the rest

    def _step_out(self) -> list[FromLane]:
        if not self._going or not self._going[0].files.done():
            return []
        job = self._going.popleft()
        files, versions = job.files.result(), dict(job.versions)
        self.faults.reach("lane.released", self.lane, max(versions.values()))
        handoffs = tuple(
            (unit, SlotRef(file, versions[unit], start, rows))
            for file, places in zip(files, job.places, strict=True)
            for unit, start, rows in places
        )
        return [Released(job.versions, handoffs, sum(file.size for file in files), self.clock() - job.began)]

    def _step_in(self) -> list[FromLane]:
        if not self._coming or not self._is_ready(self._coming[0]):
            return []
        job = self._coming[0]
        if job.pieces is None:
            job.pieces = self._unpacked(job)
        if job.pieces:
            held, piece = job.pieces.popleft()
            held.resident.install(piece)
        if job.pieces:
            return []
        self._coming.popleft()
        return self._arrived(job)

    def _is_ready(self, job: _Coming) -> bool:
        """Tell whether a job can go on. What leaves without a file has left in a moment: freeing its memory waits."""
        if job.tables is not None:
            return job.tables.done()
        leaving = {unit for going in self._going if not going.places for unit, _ in going.versions}
        return leaving.isdisjoint(entry for entry in job.message.slots if isinstance(entry, int))

    def _unpacked(self, job: _Coming) -> deque[tuple[HeldStage, pa.Table]]:
        """Make room for what comes and return it in pieces."""
        holding = self.holding
        if isinstance(job.message, Forget):
            for unit in job.message.slots:
                holding.versions.pop(unit, None)
            holding.drop(job.message.slots)
            return deque()
        if isinstance(job.message, Prepare):
            holding.must_not_serve([entry.slot for entry in job.message.slots])
        holding.drop([entry.slot for entry in job.message.slots if entry.prepared is None])
        try:
            tables = job.tables.result() if job.tables else []
        except EvenflowError as error:
            job.failed, tables = error, []
        job.tables = None
        if not holding.versions:  # nobody waits, and the whole installs faster than its pieces
            return deque(tables)
        return deque(
            (held, table.slice(at, _PIECE)) for held, table in tables for at in range(0, table.num_rows, _PIECE)
        )

    def _arrived(self, job: _Coming) -> list[FromLane]:
        message = job.message
        if isinstance(message, Forget):
            return []
        units = tuple(entry.slot for entry in message.slots)
        size, seconds = int(self.holding.unit_bytes()[list(units)].sum()), self.clock() - job.began
        if isinstance(message, Prepare):
            there = tuple((entry.slot, None if job.failed else entry.version) for entry in message.slots)
            return [Prepared(there, size, seconds)]
        if job.failed:
            return [Failed(type(job.failed).__name__, str(job.failed), "", units)]
        self.holding.versions.update({entry.slot: entry.version for entry in message.slots})
        return [Adopted(units, size, seconds, self.holding.due())]
