"""A world small enough to look at every order of events in it: 2 lanes, 3 units, 3 epochs; the real engine and ledger.

    python -m tests.engine.small_world                             what the tests look at
    python -m tests.engine.small_world --depth 6 --losses 2        deeper

Events: the next epoch is accepted, with rows or as a tick, a unit is asked to move, a lane answers its oldest work, or
what it loads or writes in the background is ready, it is lost (also right after its last word, heard in one go), is
given up, joins again, an attempt that was lost speaks all the same, a commit becomes durable. All orders are gone
through, breadth first; two orders that lead to the same state are followed once. Each event is checked against what
must always hold; and from every state at the bound all epochs can be finished if nobody is lost any more, so there is
no deadlock before it.

State is played as the list of the epochs that were folded into it: a file holds such lists, and whoever loads a unit
must end up with each epoch up to the committed version once, in order. In a world of two stages units 0 and 1 feed unit
2: it must get one row of each in every epoch, ticks excepted, whoever has put it out and however often.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgspec
import numpy as np

from evenflow.control import Balancer, BalancerOptions
from evenflow.engine import Accepted, Action, Asked, Commit, Committed, Engine, Event, Handover, Tell, TimePassed
from evenflow.engine.units import Place
from evenflow.lane.events import Joined, Lost, Said
from evenflow.lane.messages import (
    PROTOCOL,
    Adopt,
    Adopted,
    Done,
    EpochLoad,
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
from evenflow.migration import strategy_named
from evenflow.model import Move, RoutingTable, StageUnits
from evenflow.model.slots import IntArray
from evenflow.policies import policy_named
from evenflow.state import (
    Block,
    Changes,
    EpochRecord,
    FileRef,
    LaneCommit,
    Segment,
    SlotRef,
    SlotSources,
    block_name,
    handoff_name,
    work_name,
)
from evenflow.state.ledger import Ledger

UNITS, LANES, EPOCHS = 3, 2, 3
OWNERS = {1: (0, 0, 1), 2: (0, 1, 1)}  # by the number of stages
STAGES = {1: (), 2: (StageUnits(0, 2), StageUnits(2, 1, fed_by=0))}
GRACE_S = 1.0
# What decides nothing, and what is the same object as another one that counts.
_SKIPPED = {"balancer", "journal", "_records", "_loads", "hot_spots", "_absences", "_left_s", "_now_s", "_planner"}
_SKIPPED |= {"lanes", "units", "handoffs"}

Folded: TypeAlias = tuple[int, ...]  # what a unit's state is: the epochs that were folded into it, in order
Choice: TypeAlias = tuple[Any, ...]  # an event: its name and what it is about


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    depth: int = 4
    moves: int = 1
    losses: int = 1
    handover: Handover = "at once"
    copy_ahead: bool = False
    stages: int = 1
    ticks: int = 0
    gone: int = 0  # how often a lane that is lost is given up
    begin: tuple[Choice, ...] = ()  # what has happened before; both lanes are there and have loaded their units


# A unit that has state and is about to move: what follows is where most can go wrong.
MOVING: tuple[Choice, ...] = (("accept",), ("work", 0), ("durable",), ("work", 1), ("durable",), ("ask", 0))


# Its source is two epochs behind, and lane 1 is not.
LAGGING: tuple[Choice, ...] = (("accept",), ("accept",), *((("work", 1), ("durable",)) * 2), ("ask", 0))
# The lane that is to get it, or that has it, is not there, and is given up in the next few events.
LOST: tuple[Choice, ...] = (*MOVING, ("accept",), ("lose", 1))
_HANDOVERS: tuple[Handover, ...] = ("at once", "at the timestamp")


def _worlds() -> Iterator[Bounds]:
    for begin, handover, copy_ahead in itertools.product(((), MOVING), _HANDOVERS, (False, True)):
        yield Bounds(4 if begin else 3, 1, 1, handover, copy_ahead, begin=begin)
    for stages, handover in itertools.product((1, 2), _HANDOVERS):
        yield Bounds(3, 1, 1, handover, stages=stages, ticks=1, begin=LAGGING)
        yield Bounds(3, 1, 2, handover, stages=stages, ticks=1, gone=1, begin=LOST)
    for handover, copy_ahead in itertools.product(_HANDOVERS, (False, True)):
        yield Bounds(3, 1, 1, handover, copy_ahead, stages=2, ticks=1, begin=MOVING)


WORLDS = tuple(_worlds())  # what the tests look at


class Records:
    """The ledger without I/O. Every unit is written out with each second epoch: snapshots overtake changes often."""

    def __init__(self) -> None:
        self.ledger = Ledger.empty(UNITS)

    @property
    def slot_versions(self) -> IntArray:
        return self.ledger.slot_versions

    @property
    def frontier(self) -> int:
        return self.ledger.frontier

    @property
    def pending(self) -> dict[int, EpochRecord]:
        return self.ledger.pending

    @property
    def last_accepted(self) -> int:
        return self.ledger.accepted

    def fed(self, epoch: int) -> tuple[Block, ...]:
        return self.ledger.fed.get(epoch, ())

    def sources(self, unit: int) -> SlotSources:
        return self.ledger.sources(unit)

    def due_snapshots(self, slots: IntArray, lanes: int) -> list[int]:  # noqa: ARG002 - as the engine asks
        return [int(unit) for unit in slots if self.slot_versions[unit] == 0]


@dataclass
class Attempt:
    """A played lane: works in order, and loads and writes in the background, as `LaneWorker` does."""

    hello: Hello
    works: deque[Work | Release] = field(default_factory=deque)
    coming: deque[Adopt | Prepare | Forget] = field(default_factory=deque)
    going: deque[tuple[Release, dict[int, int]]] = field(default_factory=deque)
    held: dict[int, Folded] = field(default_factory=dict)
    served: set[int] = field(default_factory=set)
    late: Work | None = None  # it was lost before it was done with this


@dataclass
class World:
    """The engine, its records, two played lanes, and what is checked of them after each event."""

    bounds: Bounds
    lanes: dict[int, Attempt | None] = field(default_factory=dict)
    fenced: list[Attempt] = field(default_factory=list)
    committing: tuple[LaneCommit, ...] | None = None
    files: dict[tuple[str, int, int], tuple[int, Folded]] = field(default_factory=dict)  # since, and what was folded
    handed: dict[int, SlotRef] = field(default_factory=dict)  # the newest handoff of a unit
    owed: list[LaneCommit] = field(default_factory=list)  # said by present attempts, not yet asked to be committed
    history: list[EpochRecord] = field(default_factory=list)
    moves: int = 0
    losses: int = 0
    ticks: int = 0
    gone: int = 0
    now_s: float = 0.0
    adopted: set[int] = field(default_factory=set)  # units of a lane that was given up: others may have them at once
    fed: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of a file for unit 2: who has put out a row

    def __post_init__(self) -> None:
        self.records = Records()
        self.balancer = Balancer(
            RoutingTable(np.array(OWNERS[self.bounds.stages]), tuple(range(LANES))),
            policy_named("static"),
            strategy_named("sudden"),
            BalancerOptions(copy_ahead_bytes=0 if self.bounds.copy_ahead else None),
        )
        stages = STAGES[self.bounds.stages]
        self.engine = Engine(
            self.records,
            self.balancer,
            self.bounds.handover,
            most_losses=1 << 30,
            lane_grace_s=GRACE_S,
            stages=stages,
        )
        self.of_source = stages[0].slots if stages else UNITS
        self._act(self.engine.start())
        for lane in range(LANES):
            self.do(("join", lane))
            self.do(("load", lane))

    # --- what can happen -----------------------------------------------------------------------------------------

    def choices(self) -> Iterator[Choice]:
        """Yield every event that is possible now."""
        yield from self.good_choices()
        if self.losses < self.bounds.losses:
            for lane, attempt in self.lanes.items():
                if attempt is not None:
                    yield from self._ends(lane, attempt)
        if self.moves < self.bounds.moves:
            yield from (("ask", unit) for unit in range(UNITS))
        if self.records.last_accepted + 1 < EPOCHS and self.ticks < self.bounds.ticks:
            yield ("tick",)
        there = [attempt for attempt in self.lanes.values() if attempt is not None]
        if self.gone < self.bounds.gone and there and len(there) < len(self.lanes):
            yield ("give up",)
        yield from (("late word", at) for at, attempt in enumerate(self.fenced) if attempt.late is not None)

    def good_choices(self) -> Iterator[Choice]:
        """Yield what is possible now if nobody is lost, and nobody asks for anything."""
        if self.committing is not None:
            yield ("durable",)
        for lane, attempt in self.lanes.items():
            if attempt is None:
                yield ("join", lane)
                continue
            if attempt.works:
                yield ("work", lane)
            if attempt.coming and not self._waits_to_leave(attempt):
                yield ("load", lane)
            if attempt.going:
                yield ("leave", lane)
        if self.records.last_accepted + 1 < EPOCHS:
            yield ("accept",)

    @staticmethod
    def _ends(lane: int, attempt: Attempt) -> Iterator[Choice]:
        """Yield the ways in which a lane can be lost now: silently, or with a last word."""
        yield ("lose", lane)
        if attempt.works and isinstance(attempt.works[0], Work):
            yield ("work and be lost", lane)
        if attempt.going:
            yield ("leave and be lost", lane)

    @staticmethod
    def _waits_to_leave(attempt: Attempt) -> bool:
        first = attempt.coming[0]
        leaving = {unit for release, versions in attempt.going if not release.handoff for unit in versions}
        return isinstance(first, Forget) and not leaving.isdisjoint(first.slots)

    def do(self, choice: Choice) -> None:
        """Let an event happen, and check what must hold."""
        kind, *about = choice
        if kind == "durable":
            self._durable()
        elif kind == "join":
            self._join(*about)
        elif kind in {"accept", "tick"}:
            self._accept(with_rows=kind == "accept")
        elif kind == "give up":
            self.gone += 1
            self.now_s += GRACE_S
            given_up = [lane for lane, attempt in self.lanes.items() if attempt is None]
            owners = self.balancer.table.owners.tolist()
            self.adopted |= {unit for unit, owner in enumerate(owners) if owner in given_up}
            self.adopted |= {life.move.slot for life in self.balancer.in_flight if life.move.target in given_up}
            self._handle(TimePassed())
        elif kind == "ask":
            self._ask(*about)
        elif kind == "late word":
            attempt = self.fenced[about[0]]
            assert attempt.late is not None
            work, attempt.late = attempt.late, None
            self._handle(Said(attempt.hello.lane, attempt.hello.token, self._done(attempt, work)))
        else:
            self._lane_does(kind, self.lanes[about[0]])
        self.check()

    def _lane_does(self, kind: str, attempt: Attempt | None) -> None:
        assert attempt is not None
        heard: list[Event] = []
        if kind.startswith("work"):
            heard += self._said(attempt, self._works(attempt))
        elif kind == "load":
            heard += self._said(attempt, self._loads(attempt))
        elif kind.startswith("leave"):
            heard += self._said(attempt, self._leaves(attempt))
        if kind.endswith("lost") or kind == "lose":
            self.losses += 1
            self.lanes[attempt.hello.lane] = None
            attempt.late = next((each for each in attempt.works if isinstance(each, Work)), None)
            self.fenced.append(attempt)
            heard.append(Lost(attempt.hello.lane, attempt.hello.token))
        if heard:
            self._handle(*heard)

    def _said(self, attempt: Attempt, answer: FromLane | None) -> list[Event]:
        if answer is None:
            return []
        if isinstance(answer, Done) and answer.commit.advances:
            self.owed.append(answer.commit)
        return [Said(attempt.hello.lane, attempt.hello.token, answer)]

    def _join(self, lane: int) -> None:
        number = sum(each.hello.lane == lane for each in self.fenced)
        hello = Hello(PROTOCOL, lane, number, 0, 0, "here", "driver", f"r{lane}")
        self.lanes[lane] = Attempt(hello)
        self._handle(Joined(hello))

    def _durable(self) -> None:
        assert self.committing is not None
        ledger, commits, self.committing = self.records.ledger, self.committing, None
        ledger.commit(ledger.sequence + 1, ledger.checked(commits))  # refuses what does not begin where units are
        self._handle(Committed())

    def _ask(self, unit: int) -> None:
        self.moves += 1
        source = int(self.balancer.table.owners[unit])
        self.balancer.request([Move(unit, source, 1 - source)])
        self._handle(Asked())

    def _accept(self, *, with_rows: bool) -> None:
        self.ticks += not with_rows
        epoch = self.records.last_accepted + 1
        message, table = self.balancer.next_epoch(epoch), self.balancer.table
        segments = tuple(
            Segment(lane, at, mine.size, tuple(mine.tolist()), (1,) * mine.size)
            for at, lane in enumerate(table.lanes)
            if (mine := self._of_source(table.slots_of(lane))).size
        )
        record = EpochRecord(
            epoch=epoch,
            batch=sum(not record.tick for record in self.history) - (not with_rows),
            tick=not with_rows,
            table_version=table.version,
            lanes=table.lanes,
            owners=tuple(table.owners.tolist()),
            moves=tuple((move.slot, move.source, move.target) for move in message.moves),
            blocks=(Block(FileRef(block_name(epoch, "a", 0), 1, 0), segments),) if with_rows else (),
            watermarks=(),
            rows=self.of_source if with_rows else 0,
            accepted_at_s=0.0,
        )
        self.records.ledger.check_record(record)
        self.records.ledger.accept(record)
        self.history.append(record)
        self._handle(Accepted(record))

    def _of_source(self, units: IntArray) -> IntArray:
        return units[units < self.of_source]

    # --- what lanes do -------------------------------------------------------------------------------------------

    def _works(self, attempt: Attempt) -> FromLane | None:
        message = attempt.works.popleft()
        if isinstance(message, Work):
            return self._done(attempt, message)
        missing = set(message.slots) - attempt.served
        assert not missing, f"{attempt.hello.token} was told to let go of {missing}, which it does not serve"
        attempt.served -= set(message.slots)
        attempt.going.append((message, {unit: len(attempt.held[unit]) - 1 for unit in message.slots}))
        return None

    def _done(self, attempt: Attempt, work: Work) -> Done:
        lane, token = attempt.hello.lane, attempt.hello.token
        ways = "_".join(f"{each.since}-{each.version}-{each.slots}" for each in work.advances)
        name = work_name(work.epoch, lane, f"{token}.{abs(hash(ways))}")
        units = sorted(unit for advance in work.advances for unit in advance.slots)
        changes, snapshots = [], []
        for advance in work.advances:
            for unit in advance.slots:
                assert unit in attempt.served, f"{token} was told to fold unit {unit}, which it does not serve"
                before = attempt.held[unit]
                assert len(before) - 1 == advance.since, f"unit {unit} is at {before}, told from {advance.since}"
                new = tuple(each.epoch for each in work.inputs if advance.since < each.epoch <= advance.version)
                self._check_rows(work, unit, new)
                attempt.held[unit] = before + new
                self.files[name, unit, advance.version] = (advance.since, new)
                changes.append((unit, units.index(unit), 1, 1))
                if unit in work.snapshot_slots:
                    whole = work_name(work.epoch, lane, f"{token}.{abs(hash(ways))}.s")
                    snapshots.append((unit, SlotRef(FileRef(whole, 1, 0), advance.version, 0, 1)))
                    self.files[whole, unit, advance.version] = (-1, attempt.held[unit])
        commit = LaneCommit(
            lane,
            token,
            work.epoch,
            work.advances,
            (Changes(FileRef(name, 1, 0), tuple(sorted(changes))),) if units else (),
            (),
            tuple(snapshots),
            self._feeds(work, lane, name),
        )
        size = len(units)
        columns = SlotColumns(tuple(units), (1,) * size, (0.1,) * size, (1,) * size)
        loads = tuple(EpochLoad(each.epoch, columns, 1, 1.0) for each in work.inputs)
        return Done(commit, loads, 0.0, 0, 0)

    def _feeds(self, work: Work, lane: int, name: str) -> tuple[tuple[int, Block], ...]:
        """Put out a row for unit 2 per unit of the first stage and epoch with rows; a file for each epoch."""
        found = []
        for each in work.inputs if self.bounds.stages > 1 and work.advances else ():
            units = tuple(
                unit
                for advance in work.advances
                if advance.since < each.epoch <= advance.version and self._has_rows(each.epoch)
                for unit in advance.slots
                if unit < self.of_source
            )
            if units:
                file = FileRef(f"{name}.{each.epoch}", 1, 0)
                self.fed[file.name] = units
                found.append((each.epoch, Block(file, (Segment(lane, 0, len(units), (2,), (len(units),)),))))
        return tuple(found)

    def _has_rows(self, epoch: int) -> bool:
        return not self.history[epoch].tick

    def _loads(self, attempt: Attempt) -> FromLane | None:
        message = attempt.coming.popleft()
        if isinstance(message, Forget):
            for unit in message.slots:
                attempt.served.discard(unit)
                attempt.held.pop(unit, None)
            return None
        for entry in message.slots:
            assert isinstance(message, Adopt) or entry.slot not in attempt.served, f"it serves {entry.slot}, and copies"
            attempt.held[entry.slot] = self._loaded(attempt, entry)
        if isinstance(message, Prepare):
            return Prepared(tuple((entry.slot, entry.version) for entry in message.slots), 1, 0.0)
        attempt.served.update(entry.slot for entry in message.slots)
        return Adopted(tuple(entry.slot for entry in message.slots), 1, 0.0)

    def _loaded(self, attempt: Attempt, entry: SlotToLoad) -> Folded:
        """Return what is loaded; it must be all epochs up to the version, once each."""
        state: Folded = ()
        if entry.prepared is not None:
            state = attempt.held[entry.slot]
            assert len(state) - 1 == entry.prepared, f"unit {entry.slot} was copied at {state}, not {entry.prepared}"
        if entry.snapshot is not None:
            state = self.files[entry.snapshot.file.name, entry.slot, entry.snapshot.version][1]
        for change in entry.changes:
            since, new = self.files[change.file.name, entry.slot, change.version]
            assert since == len(state) - 1, f"a change of unit {entry.slot} from {since} on top of {state}"
            state += new
        assert state == tuple(range(entry.version + 1)), f"unit {entry.slot} was loaded as {state} for {entry.version}"
        return state

    def _leaves(self, attempt: Attempt) -> Released:
        release, versions = attempt.going.popleft()
        file = FileRef(handoff_name(max(versions.values()), attempt.hello.lane, attempt.hello.token), 1, 0)
        refs = {unit: SlotRef(file, version, 0, 1) for unit, version in versions.items()} if release.handoff else {}
        for unit, ref in refs.items():
            self.files[file.name, unit, ref.version] = (-1, attempt.held[unit])
            self.handed[unit] = ref
        for unit in versions:
            if unit not in attempt.served:
                attempt.held.pop(unit)
        return Released(tuple(versions.items()), tuple(refs.items()), 1, 0.0)

    # --- the shell -----------------------------------------------------------------------------------------------

    def _handle(self, *events: Event) -> None:
        self._act(self.engine.handle(events, self.now_s))

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Commit):
                self._commits(action)
            elif isinstance(action, Tell):
                attempt = self.lanes.get(action.lane)
                if attempt is not None and attempt.hello.token == action.token:
                    self._told(attempt, action.message)

    def _commits(self, action: Commit) -> None:
        assert self.committing is None, "two commits at a time"
        self.committing = action.lanes
        for commit in action.lanes:
            said = [each for each in self.owed if each.attempt == commit.attempt and each.advances == commit.advances]
            assert said, f"{commit.attempt} is to be committed, and has said nothing while it was there"
            self.owed.remove(said[0])
            for advance in commit.advances:
                for unit in advance.slots:
                    self.handed.pop(unit, None)

    def _told(self, attempt: Attempt, message: ToLane) -> None:
        if isinstance(message, Work):
            self._check_work(attempt, message)
            attempt.works.append(message)
        elif isinstance(message, Release):
            attempt.works.append(message)
        elif isinstance(message, Adopt | Prepare | Forget):
            if isinstance(message, Adopt | Prepare):
                self._check_entries(message)
            attempt.coming.append(message)

    # --- what must hold ------------------------------------------------------------------------------------------

    def _check_entries(self, message: Adopt | Prepare) -> None:
        """State is loaded at its committed version, and from the handoff that was just written."""
        for entry in message.slots:
            assert entry.version == self.records.slot_versions[entry.slot], f"{entry} is not at the committed version"
            handed = self.handed.get(entry.slot)
            if isinstance(message, Adopt) and handed is not None and entry.prepared is None:
                assert entry.snapshot == handed, f"{entry} is not loaded from {handed}"

    def _check_rows(self, work: Work, unit: int, epochs: Folded) -> None:
        """Each epoch with rows has one for the unit; for one that is fed, one of each unit that feeds it."""
        for epoch in epochs:
            files = _files_of(work, epoch, unit)
            came = files if unit < self.of_source else [of for name in files for of in self.fed[name]]
            expected = 0 if not self._has_rows(epoch) else 1 if unit < self.of_source else self.of_source
            assert len(came) == len(set(came)) == expected, f"unit {unit} gets {came} in epoch {epoch} of {work}"

    def _check_work(self, attempt: Attempt, work: Work) -> None:
        """A unit is folded by who is to serve it at that epoch or later, and by one present attempt at a time."""
        for advance in work.advances:
            for unit in advance.slots:
                later = {record.owners[unit] for record in self.history if record.epoch >= advance.version}
                assert unit in self.adopted or attempt.hello.lane in later, (
                    f"{attempt.hello.token} folds unit {unit} past its move: {work}"
                )
        mine = {unit for advance in work.advances for unit in advance.slots}
        for other in self.lanes.values():
            works = [told for told in other.works if isinstance(told, Work)] if other is not None else []
            theirs = {unit for told in works for advance in told.advances for unit in advance.slots}
            assert mine.isdisjoint(theirs), f"units {mine & theirs} are folded by two"

    def check(self) -> None:
        """What one state tells: what was said counts, and who is taken to serve a unit does, or is about to let go."""
        assert self.committing is not None or not self.owed, f"{self.owed} was said and is not committed"
        units = self.engine._units
        for unit in range(UNITS):
            if units.place(unit) is Place.RESIDENT:
                attempt = self.lanes[int(units.lane[unit])]
                lost = attempt is None and self.committing is not None  # the engine has not heard of it
                assert lost or (attempt is not None and self._is_served(attempt, unit)), f"nobody serves unit {unit}"

    def _is_served(self, attempt: Attempt, unit: int) -> bool:
        return unit in attempt.served or self.committing is not None

    @property
    def is_finished(self) -> bool:
        return bool((self.records.slot_versions == EPOCHS - 1).all())

    def key(self) -> tuple[Any, ...]:
        """Return what the future depends on: two worlds with the same key are one state."""
        balancer = self.balancer
        return (
            frozen(self.engine),
            (balancer.planned, balancer.in_flight, balancer.table.owners.tobytes(), balancer.to_prepare()),
            self.records.slot_versions.tobytes(),
            tuple(self.records.pending),
            tuple((sources.snapshot, sources.changes) for sources in map(self.records.sources, range(UNITS))),
            frozen(self.lanes),
            frozen(self.fenced),
            self.committing,
            tuple(self.owed),
            frozen(self.handed),
            frozen(self.records.ledger.fed),
            (self.moves, self.losses, self.ticks, self.gone, tuple(record.tick for record in self.history)),
        )


def _files_of(work: Work, epoch: int, unit: int) -> list[str]:
    """Return the files from which a work takes rows of an epoch for a unit, as often as it does."""
    parts = (part for each in work.inputs if each.epoch == epoch for part in each.parts)
    return [part.file.name for part in parts if unit in (part.segment.slots if part.slots is None else part.slots)]


def frozen(value: Any) -> Any:  # noqa: PLR0911 - one for each kind of value
    """Return a value that is equal for equal contents, of all that is an engine's, a lane's or a plain container."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return tuple((key, frozen(value[key])) for key in sorted(value, key=repr))
    if isinstance(value, list | tuple | deque):
        return tuple(map(frozen, value))
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, Committed | Asked):
        return type(value).__name__
    if isinstance(value, Accepted):
        return value.record.epoch
    if isinstance(value, msgspec.Struct | str | int | float | Joined | Lost | Said | Move) or value is None:
        return value
    if type(value).__module__.startswith(("evenflow.engine", "tests.engine")):
        names = value.__slots__ if hasattr(type(value), "__slots__") and not hasattr(value, "__dict__") else vars(value)
        if type(value).__name__ == "EpochIndex":
            return "input"
        return tuple((name, frozen(getattr(value, name))) for name in names if name not in _SKIPPED)
    return None


@dataclass
class Count:
    """What was looked at."""

    states: int = 0
    events: int = 0
    finished: int = 0


def replayed(bounds: Bounds, trace: Sequence[Choice]) -> World:
    world = World(bounds)
    for choice in trace:
        world.do(choice)
    return world


def explore(bounds: Bounds) -> Count:
    """Go through every order of events up to the bounds; raise with the order that breaks something."""
    count = Count()
    seen, ends = {replayed(bounds, bounds.begin).key()}, set[Any]()
    level: list[tuple[Choice, ...]] = [bounds.begin]
    for depth in itertools.count(1):
        found: list[tuple[Choice, ...]] = []
        for trace in level:
            world = replayed(bounds, trace)
            choices = list(world.choices())
            count.finished += world.is_finished
            assert choices or world.is_finished, f"deadlock after {trace}"
            for nth, choice in enumerate(choices):
                there = (*trace, choice)
                each = world if nth == len(choices) - 1 else replayed(bounds, trace)
                try:
                    each.do(choice)
                    count.events += 1
                    key = each.key()
                    if key in seen:
                        continue
                    seen.add(key)
                    if depth == bounds.depth:
                        count.finished += finish(each, ends)
                    else:
                        found.append(there)
                except Exception as error:
                    error.add_note(f"{bounds}, after {there}")
                    raise
        level = found
        if not level:
            break
    count.states = len(seen)
    return count


def finish(world: World, known: set[Any]) -> bool:
    """Let all go well from here: every epoch must come to its end. `known` are states of which that is known."""
    path = []
    while not world.is_finished:
        key = world.key()
        if key in known:
            break
        path.append(key)
        choice = next(world.good_choices(), None)
        assert choice is not None, f"deadlock: {world.records.slot_versions} of {world.records.last_accepted}"
        world.do(choice)
        assert len(path) < 200, "it goes on and on, and no epoch ends"
    known.update(path)
    return world.is_finished


def main() -> None:
    parser = argparse.ArgumentParser(description="every order of events in a small world")
    parser.add_argument("--depth", type=int, help="events after the beginning of each world")
    parser.add_argument("--moves", type=int)
    parser.add_argument("--losses", type=int)
    told = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    for world in WORLDS:
        began = time.perf_counter()
        bounds = replace(world, **told)
        sys.stdout.write(f"{bounds}: {explore(bounds)}, {time.perf_counter() - began:.1f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
