"""A played lane: hears what a real one hears, and says what that would say, when it would have done it.

One thing at a time, in the order in which messages came, as a lane's own thread: folding, getting slots ready to go,
installing those that have come. Reading what comes goes on beside that.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate

from evenflow.errors import ProtocolError
from evenflow.lane.holding import must_hold, must_not_hold
from evenflow.lane.messages import (
    Adopt,
    Adopted,
    Done,
    EpochLoad,
    Failed,
    Forget,
    FromLane,
    Hello,
    Prepare,
    Prepared,
    Release,
    Released,
    SlotColumns,
    SlotToLoad,
    ToLane,
    Work,
)
from evenflow.model import Epoch, LaneId, SlotId
from evenflow.sim.engine_run.agenda import Agenda
from evenflow.sim.engine_run.files import MissingFileError, PlayedFiles, Stored
from evenflow.sim.engine_run.operator import PlayedOperator, SlotState
from evenflow.sim.engine_run.prices import Network, Pace, Prices
from evenflow.sim.engine_run.watching import Piece, Watcher
from evenflow.state import Changes, FileRef, LaneCommit, SlotRef, handoff_name, work_name

_ROW_BYTES = 100  # of state; a row that comes changes one of them


@dataclass(frozen=True)
class Plant:
    """What all lanes of a query share."""

    agenda: Agenda
    files: PlayedFiles
    network: Network
    operator: PlayedOperator
    prices: Prices
    pace: Pace
    watcher: Watcher


@dataclass(slots=True)
class Held:
    """A slot as a lane has it."""

    version: Epoch
    state: SlotState


@dataclass(frozen=True, slots=True)
class _Job:
    """Something that takes the lane's own time. `begin` returns how many seconds of an ordinary lane, `end` does it."""

    begin: Callable[[], float]
    end: Callable[[float], None]  # is told when it began


@dataclass
class PlayedLane:
    """One attempt of a lane."""

    hello: Hello
    plant: Plant
    say: Callable[[FromLane], None]
    alive: bool = True
    held: dict[SlotId, Held] = field(default_factory=dict)
    _aside: dict[SlotId, Held] = field(default_factory=dict)
    _jobs: deque[_Job] = field(default_factory=deque)
    _coming: deque[Adopt | Prepare | Forget] = field(default_factory=deque)
    _at_work: bool = False
    _reading: bool = False
    _in_hand: list[Piece] = field(default_factory=list)
    _idle_since_s: float = field(init=False)
    _files: int = 0

    def __post_init__(self) -> None:
        """Begin with no slot."""
        self._idle_since_s = self.plant.agenda.now_s

    @property
    def lane(self) -> LaneId:
        """Its number."""
        return self.hello.lane

    @property
    def in_hand(self) -> Sequence[Piece]:
        """The pieces that it is folding."""
        return self._in_hand

    def hear(self, message: ToLane) -> None:
        """Take in a message."""
        if not self.alive:
            return
        if isinstance(message, Work):
            self._jobs.append(_Job(partial(self._begin_work, message), partial(self._end_work, message)))
        elif isinstance(message, Release):
            self._jobs.append(_Job(partial(self._begin_release, message), partial(self._end_release, message)))
        elif isinstance(message, Adopt | Prepare | Forget):
            self._coming.append(message)
            self._read_next()
        else:
            raise ProtocolError(f"a played lane cannot handle {type(message).__name__}")
        self._go_on()

    # --- its own time --------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._at_work or not self._jobs:
            return
        self._at_work = True
        job, agenda = self._jobs.popleft(), self.plant.agenda
        since_s, seconds = agenda.now_s, job.begin()
        until_s = self.plant.pace.until_s(self.lane, since_s, seconds) if seconds else since_s
        if self._in_hand:
            self._in_hand = _timed(self._in_hand, since_s, until_s, self.plant.operator)
        agenda.at(until_s, partial(self._done, job, since_s))

    def _done(self, job: _Job, since_s: float) -> None:
        if not self.alive:
            return
        now_s = self.plant.agenda.now_s
        if now_s > since_s:
            self.plant.watcher.worked(self.lane, since_s, now_s)
        self._at_work = False
        job.end(since_s)
        self._go_on()

    # --- slots come and go ---------------------------------------------------------------------------------------

    def _read_next(self) -> None:
        """Begin to read what comes next; what is to be forgotten is, once all that came before it is there."""
        if self._reading or not self._coming:
            return
        message, now_s = self._coming.popleft(), self.plant.agenda.now_s
        if isinstance(message, Forget):
            self._jobs.append(_Job(lambda: 0.0, partial(self._forget, message.slots)))
            self._read_next()
            return
        found: list[tuple[SlotState, int]] | None
        try:
            found = [self.plant.files.read(entry) for entry in message.slots]
        except MissingFileError:
            found = None
        size = sum(size for _, size in found or ())
        self._reading = True
        there_s = self.plant.network.carry_s(size) if size else now_s
        self.plant.agenda.at(there_s, partial(self._read, message, found, size, now_s))

    def _read(
        self, message: Adopt | Prepare, found: list[tuple[SlotState, int]] | None, size: int, began_s: float
    ) -> None:
        if not self.alive:
            return
        self._reading = False
        known = sum(entry.version >= 0 for entry in message.slots)
        seconds = self.plant.prices.installing_s(known, size)
        self._jobs.append(_Job(lambda: seconds, lambda _: self._install(message, found, size, began_s)))
        self._read_next()
        self._go_on()

    def _install(
        self, message: Adopt | Prepare, found: list[tuple[SlotState, int]] | None, size: int, began_s: float
    ) -> None:
        slots, took_s = tuple(entry.slot for entry in message.slots), self.plant.agenda.now_s - began_s
        if isinstance(message, Prepare):
            must_not_hold(self.lane, self.held.keys(), slots)
            for entry, (state, _) in zip(message.slots, found or (), strict=found is not None):
                self._aside[entry.slot] = Held(entry.version, state)
            versions = tuple((entry.slot, None if found is None else entry.version) for entry in message.slots)
            self.say(Prepared(versions, size, took_s))
        elif found is None:
            self.say(Failed("MissingFileError", f"lane {self.lane}: files of slots {slots} are gone", "", slots))
        else:
            for entry, (state, _) in zip(message.slots, found, strict=True):
                self.held[entry.slot] = Held(entry.version, self._brought_up_to_date(entry, state))
            self.plant.watcher.adopted(self.lane, slots, self.plant.agenda.now_s)
            self.say(Adopted(slots, size, took_s))

    def _brought_up_to_date(self, entry: SlotToLoad, read: SlotState) -> SlotState:
        copy = self._aside.pop(entry.slot, None)
        if entry.prepared is None:
            return read
        if copy is None or copy.version != entry.prepared:
            raise ProtocolError(f"lane {self.lane} has no copy of slot {entry.slot} at version {entry.prepared}")
        return {**copy.state, **read}

    def _forget(self, slots: Iterable[SlotId], _since_s: float) -> None:
        for slot in slots:
            self.held.pop(slot, None)
            self._aside.pop(slot, None)

    def _begin_release(self, message: Release) -> float:
        must_hold(self.lane, self.held.keys(), message.slots, "hand off")
        if not message.handoff:
            return 0.0
        return self.plant.prices.extracting_s(len(message.slots), sum(map(self._size, message.slots)))

    def _end_release(self, message: Release, since_s: float) -> None:
        sizes = {slot: self._size(slot) if message.handoff else 0 for slot in message.slots}
        going = {slot: self.held.pop(slot) for slot in message.slots}
        versions = {slot: held.version for slot, held in going.items()}
        name, now_s = handoff_name(max(versions.values()), self.lane, self._attempt()), self.plant.agenda.now_s
        refs: tuple[tuple[SlotId, SlotRef], ...] = ()
        if message.handoff:
            file = self.plant.files.write(name, {slot: Stored(going[slot].state, sizes[slot]) for slot in going})
            refs = _refs(file, versions, sizes)
        self.plant.watcher.released(self.lane, versions, sum(sizes.values()), now_s)
        self.say(Released(tuple(versions.items()), refs, sum(sizes.values()), now_s - since_s))

    # --- work ----------------------------------------------------------------------------------------------------

    def _begin_work(self, work: Work) -> float:
        for advance in work.advances:
            must_hold(self.lane, self.held.keys(), advance.slots, "fold rows of")
            wrong = [slot for slot in advance.slots if self.held[slot].version != advance.since]
            if wrong:
                raise ProtocolError(
                    f"lane {self.lane} was told to fold slot {wrong[0]} from version {advance.since}, "
                    f"it is at {self.held[wrong[0]].version}"
                )
        self._in_hand = [
            Piece(self.lane, slot, each.epoch, rows, 0.0, 0.0)
            for each in work.inputs
            for part in each.parts
            for slot, rows in zip(part.segment.slots, part.segment.counts, strict=True)
            if part.slots is None or slot in part.slots
        ]
        return sum(self.plant.operator.seconds(piece.slot, piece.rows) for piece in self._in_hand)

    def _end_work(self, work: Work, since_s: float) -> None:
        pieces, self._in_hand = self._in_hand, []
        idle_s, self._idle_since_s = since_s - self._idle_since_s, self.plant.agenda.now_s
        must_hold(self.lane, self.held.keys(), {piece.slot for piece in pieces}, "fold rows of")
        changed: dict[SlotId, SlotState] = {}
        for piece in pieces:
            held = self.held[piece.slot]
            new = self.plant.operator.fold(piece, held.state)
            held.state = {**held.state, **new}  # a file that was written has what it had
            changed[piece.slot] = {**changed.get(piece.slot, {}), **new}
        versions = {slot: advance.version for advance in work.advances for slot in advance.slots}
        for slot, version in versions.items():
            self.held[slot].version = version
        self.plant.watcher.folded(pieces)
        folded = Counter[SlotId]()
        for piece in pieces:
            folded[piece.slot] += piece.rows
        commit = self._written(work, changed, folded)
        sizes = {slot: self._size(slot) for slot in sorted(self.held)}
        loads = tuple(
            _load(each.epoch, [one for one in pieces if one.epoch == each.epoch], sizes) for each in work.inputs
        )
        self.say(Done(commit, loads, idle_s, sum(map(_rows, sizes.values())), sum(sizes.values())))

    def _written(self, work: Work, changed: dict[SlotId, SlotState], folded: Counter[SlotId]) -> LaneCommit:
        """Write changes and snapshots; nothing counts before the driver commits it."""
        changes: tuple[Changes, ...] = ()
        if changed:
            rows = {slot: min(_rows(self._size(slot)), folded[slot]) for slot in sorted(changed)}
            stored = {slot: Stored(changed[slot], rows[slot] * _ROW_BYTES) for slot in rows}
            file = self.plant.files.write(work_name(work.epoch, self.lane, self._attempt()), stored)
            starts = accumulate(rows.values(), initial=0)
            places = tuple(
                (slot, at, rows[slot], _rows(self._size(slot))) for slot, at in zip(rows, starts, strict=False)
            )
            changes = (Changes(file, places),)
        snapshots: tuple[tuple[SlotId, SlotRef], ...] = ()
        if work.snapshot_slots:
            whole = {slot: Stored(self.held[slot].state, self._size(slot)) for slot in work.snapshot_slots}
            file = self.plant.files.write(work_name(work.epoch, self.lane, self._attempt()), whole)
            versions, sizes = (
                {slot: self.held[slot].version for slot in whole},
                {s: one.size for s, one in whole.items()},
            )
            snapshots = _refs(file, versions, sizes)
        return LaneCommit(self.lane, self.hello.token, work.epoch, work.advances, changes, (), snapshots)

    def _size(self, slot: SlotId) -> int:
        return self.plant.operator.size(slot, self.held[slot].state)

    def _attempt(self) -> str:
        """Return what tells this attempt's files apart, from those of others and from each other."""
        self._files += 1
        return f"{self.hello.token}.{self._files}"


def _rows(size: int) -> int:
    """Return how many rows so many bytes of state are."""
    return max(1, size // _ROW_BYTES)


def _refs(file: FileRef, versions: dict[SlotId, Epoch], sizes: dict[SlotId, int]) -> tuple[tuple[SlotId, SlotRef], ...]:
    """Return where slots lie in a file that holds them one after the other."""
    found, at = [], 0
    for slot, version in versions.items():
        found.append((slot, SlotRef(file, version, at, _rows(sizes[slot]))))
        at += _rows(sizes[slot])
    return tuple(found)


def _timed(pieces: Sequence[Piece], since_s: float, until_s: float, operator: PlayedOperator) -> list[Piece]:
    """Return pieces with the times at which they are folded, one after the other, each for as long as it costs."""
    costs = [operator.seconds(piece.slot, piece.rows) for piece in pieces]
    scale = (until_s - since_s) / (sum(costs) or 1.0)
    ends = [since_s + scale * done for done in accumulate(costs)]
    return [
        replace(piece, since_s=begin, until_s=end)
        for piece, begin, end in zip(pieces, [since_s, *ends[:-1]], ends, strict=True)
    ]


def _load(epoch: Epoch, pieces: Sequence[Piece], sizes: dict[SlotId, int]) -> EpochLoad:
    """Say what an epoch cost: each slot the time its rows took; slots with rows or state are listed."""
    rows, busy_s = Counter[SlotId](), dict.fromkeys(sizes, 0.0)
    for piece in pieces:
        rows[piece.slot] += piece.rows
        busy_s[piece.slot] += piece.until_s - piece.since_s
    listed = [slot for slot, size in sizes.items() if size or slot in rows]
    columns = SlotColumns(
        tuple(listed),
        tuple(rows[slot] for slot in listed),
        tuple(busy_s[slot] for slot in listed),
        tuple(sizes[slot] for slot in listed),
    )
    return EpochLoad(epoch, columns, rows.total(), sum(busy_s.values()))
