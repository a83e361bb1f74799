"""An engine with lanes played by the test: it says what they say, and reads what they are told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from evenflow.control import Balancer, BalancerOptions
from evenflow.engine import (
    Accepted,
    Action,
    Asked,
    Commit,
    Committed,
    Engine,
    Event,
    Handover,
    RetireLane,
    StartLane,
    Tell,
)
from evenflow.lane.events import Joined, Lost, Said
from evenflow.lane.messages import (
    PROTOCOL,
    Adopt,
    Adopted,
    Done,
    EpochLoad,
    Forget,
    Hello,
    HotKey,
    Prepare,
    Prepared,
    Release,
    Released,
    SlotColumns,
    ToLane,
    Work,
)
from evenflow.migration import strategy_named
from evenflow.model import Contents, Move, RoutingTable, StageUnits
from evenflow.model.slots import IntArray
from evenflow.policies import policy_named
from evenflow.state import (
    Block,
    Changes,
    Checkpoint,
    EpochRecord,
    FileRef,
    Identity,
    LaneCommit,
    Segment,
    SlotRef,
    StageIdentity,
    block_name,
    handoff_name,
    work_name,
)

Message = TypeVar("Message", bound=ToLane)

_BYTES = 64  # of a changed slot


@dataclass
class Scene:
    """`slots` slots on `lanes` lanes, in runs. Files are named and never written: an engine reads none."""

    place: Path
    slots: int = 4
    lanes: int = 2
    handover: Handover = "at once"
    options: Mapping[str, Any] = field(default_factory=dict)
    stages: Sequence[StageUnits] = ()
    heard: dict[int, list[ToLane]] = field(default_factory=lambda: defaultdict(list))
    started: list[int] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)
    now_s: float = 0.0
    _pending: list[Event] = field(default_factory=list)
    _tokens: dict[int, Hello] = field(default_factory=dict)
    _epoch: int = -1

    def __post_init__(self) -> None:
        identity = Identity("id", (StageIdentity(("key",), ("int64",), self.slots, Contents("op")),), "update", 0.0)
        self.checkpoint = Checkpoint.open(str(self.place), identity, durable=False)
        self.checkpoint.take_over()
        self.balancer = Balancer(
            RoutingTable(np.arange(self.slots) * self.lanes // self.slots, tuple(range(self.lanes))),
            policy_named("static"),
            strategy_named("sudden"),
            BalancerOptions(**self.options),
        )
        self.engine = Engine(self.checkpoint, self.balancer, self.handover, stages=self.stages)
        self._epoch = self.checkpoint.last_accepted
        self._act(self.engine.start())

    @classmethod
    def ready(cls, place: Path, **how: Any) -> Scene:
        """Return a scene whose lanes are there and hold their slots."""
        scene = cls(place, **how)
        for lane in range(scene.lanes):
            scene.join(lane)
            if scene.told(lane, Adopt):
                scene.adopt(lane)
        return scene

    # --- the shell -----------------------------------------------------------------------------------------------

    def handle(self, *events: Event) -> None:
        """Let the engine take something in, and do what it wants done."""
        self._pending += events
        while self._pending:
            now, self._pending = self._pending, []
            self._act(self.engine.handle(now, self.now_s))

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Tell):
                hello = self._tokens.get(action.lane)
                if hello is not None and hello.token == action.token:
                    self.heard[action.lane].append(action.message)
            elif isinstance(action, Commit):
                self.checkpoint.commit(action.lanes)
                self._pending.append(Committed())
            elif isinstance(action, StartLane):
                self.started.append(action.lane)
            elif isinstance(action, RetireLane):
                self.retired.append(action.lane)

    # --- what lanes do -------------------------------------------------------------------------------------------

    def join(self, lane: int) -> None:
        before = self._tokens.get(lane)
        hello = Hello(PROTOCOL, lane, before.incarnation + 1 if before else 0, 0, 0, "here", "driver", f"r{lane}")
        self._tokens[lane] = hello
        self.handle(Joined(hello))

    def lose(self, lane: int) -> None:
        self.heard[lane].clear()
        self.handle(Lost(lane, self._tokens[lane].token))

    def told(self, lane: int, kind: type[Message]) -> list[Message]:
        """Return what a lane was told of a kind and has not answered."""
        return [message for message in self.heard[lane] if isinstance(message, kind)]

    def take(self, lane: int, kind: type[Message]) -> Message:
        """Return the first of what a lane was told of a kind; the test answers it."""
        message = self.told(lane, kind)[0]
        self.heard[lane].remove(message)
        return message

    def say(self, lane: int, answer: Any, *, later: bool = False) -> None:
        """Say something; with `later` the engine hears it together with what is said next."""
        said = Said(lane, self._tokens[lane].token, answer)
        if later:
            self._pending.append(said)
        else:
            self.handle(said)

    def adopt(self, lane: int, size: int = 0) -> Adopt:
        message = self.take(lane, Adopt)
        self.say(lane, Adopted(tuple(entry.slot for entry in message.slots), size, 0.0))
        return message

    def prepare(self, lane: int) -> Prepare:
        message = self.take(lane, Prepare)
        self.say(lane, Prepared(tuple((entry.slot, entry.version) for entry in message.slots), 0, 0.0))
        return message

    def release(self, lane: int) -> Release:
        message = self.take(lane, Release)
        versions = {slot: int(self.checkpoint.slot_versions[slot]) for slot in message.slots}
        file = FileRef(handoff_name(max(versions.values()), lane, self._file()), 1, 0)
        refs = tuple((slot, SlotRef(file, version, 0, 1)) for slot, version in versions.items())
        self.say(lane, Released(tuple(versions.items()), refs if message.handoff else (), 1, 0.0))
        return message

    def done(self, lane: int, seconds: float = 1.0, size: int = 0, *, idle_s: float = 0.0, later: bool = False) -> Work:
        """Do the work that a lane was told, all slots with one changed row, in `seconds` per epoch with rows.

        If the hottest keys of slots are asked for, each is a third of its slot's rows, and is called as the slot.
        """
        work = self.take(lane, Work)
        slots = sorted(slot for advance in work.advances for slot in advance.slots)
        versions = {slot: advance.version for advance in work.advances for slot in advance.slots}
        many = len(slots), len(work.snapshot_slots)
        changes, snapshot = (FileRef(work_name(work.epoch, lane, self._file()), _BYTES * n, 0) for n in many)
        commit = LaneCommit(
            lane,
            self._tokens[lane].token,
            work.epoch,
            work.advances,
            (Changes(changes, tuple((slot, at, 1, 1) for at, slot in enumerate(slots))),) if slots else (),
            (),
            tuple((slot, SlotRef(snapshot, versions[slot], 0, 1)) for slot in work.snapshot_slots),
            self._feeds(work, lane),
        )
        loads = tuple(self._load(each.epoch, each.parts, slots, seconds, size) for each in work.inputs)
        hot = tuple(HotKey(slot, {"key": slot}, 1 / 3, 5) for slot in work.hot_slots)
        self.say(lane, Done(commit, loads, idle_s, 0, 0, hot), later=later)
        return work

    def answer(self, lane: int) -> bool:
        """Let a lane answer the first thing it was told, whatever it is; return whether there was one."""
        message = next((message for message in self.heard[lane] if not isinstance(message, Forget)), None)
        for kind, answer in ((Work, self.done), (Adopt, self.adopt), (Release, self.release), (Prepare, self.prepare)):
            if isinstance(message, kind):
                answer(lane)
        return message is not None

    def run(self, lane: int) -> dict[int, list[int]]:
        """Let a lane do all that there is; return which slots it folded rows of, by epoch."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        while self.told(lane, Work):
            for epoch, slots in folded(self.done(lane)).items():
                found[epoch] += slots
        return {epoch: sorted(slots) for epoch, slots in sorted(found.items())}

    # --- what the driver does ------------------------------------------------------------------------------------

    def accept(self, rows: int = 1) -> int:
        """Accept an epoch with so many rows in each slot, and the moves that the balancer wants."""
        self._epoch += 1
        message = self.balancer.next_epoch(self._epoch)
        table = self.balancer.table
        segments = [
            Segment(lane, at, rows * mine.size, tuple(mine.tolist()), (rows,) * mine.size)
            for at, lane in enumerate(table.lanes)
            if (mine := self._of_source(table.slots_of(lane))).size and rows
        ]
        block = Block(FileRef(block_name(self._epoch, "a", 0), 1, 0), tuple(segments))
        record = EpochRecord(
            epoch=self._epoch,
            batch=self._epoch,
            table_version=table.version,
            lanes=table.lanes,
            owners=tuple(table.owners.tolist()),
            moves=tuple((move.slot, move.source, move.target) for move in message.moves),
            blocks=(block,) if segments else (),
            watermarks=(),
            rows=sum(segment.rows for segment in segments),
            accepted_at_s=0.0,
        )
        self.checkpoint.accept(record)
        self.handle(Accepted(record))
        return self._epoch

    def ask(self, *moves: tuple[int, int], not_before: int = 0) -> None:
        owners = self.balancer.table.owners
        self.balancer.request([Move(slot, int(owners[slot]), lane) for slot, lane in moves], not_before)
        self.handle(Asked())

    @property
    def versions(self) -> list[int]:
        return [int(version) for version in self.checkpoint.slot_versions]

    def forgotten(self, lane: int) -> list[int]:
        return [slot for message in self.told(lane, Forget) for slot in message.slots]

    def _of_source(self, units: IntArray) -> IntArray:
        """Return those of some units that get rows from the source."""
        fed = [stage.first for stage in self.stages if stage.fed_by is not None]
        return units[units < min(fed, default=self.slots)]

    def _feeds(self, work: Work, lane: int) -> tuple[tuple[int, Block], ...]:
        """Put out one row per unit and epoch for each stage that the unit's feeds, all in one file."""
        found = []
        for stage in (stage for stage in self.stages if stage.fed_by is not None):
            source = self.stages[stage.fed_by or 0]
            for each in work.inputs:
                fed = Counter(
                    stage.first + unit % stage.slots
                    for advance in work.advances
                    if advance.since < each.epoch <= advance.version
                    for unit in advance.slots
                    if source.first <= unit < source.first + source.slots
                )
                units = tuple(sorted(fed))
                segment = Segment(lane, 0, fed.total(), units, tuple(fed[unit] for unit in units))
                file = FileRef(work_name(work.epoch, lane, self._file()), 1, 0)
                found += [(each.epoch, Block(file, (segment,)))] if fed else []
        return tuple(found)

    def _file(self) -> str:
        self._files = getattr(self, "_files", 0) + 1
        return f"f{self._files}"

    def _load(self, epoch: int, parts: Iterable[Any], slots: list[int], seconds: float, size: int) -> EpochLoad:
        """Say what an epoch cost: 0.1 s for each row of a slot, and what the slots of the work hold."""
        rows = Counter[int]()
        for part in parts:
            counts = dict(zip(part.segment.slots, part.segment.counts, strict=True))
            rows.update({slot: counts[slot] for slot in (counts if part.slots is None else part.slots)})
        listed = sorted({*rows, *(slots if size else ())})
        columns = SlotColumns(
            tuple(listed),
            tuple(rows[slot] for slot in listed),
            tuple(0.1 * rows[slot] for slot in listed),
            (size,) * len(listed),
        )
        return EpochLoad(epoch, columns, rows.total(), seconds if rows else 0.0)


def folded(work: Work) -> dict[int, list[int]]:
    """Return which slots a work folds rows of, by epoch."""
    return {
        each.epoch: sorted(
            slot for part in each.parts for slot in (part.segment.slots if part.slots is None else part.slots)
        )
        for each in work.inputs
    }
