"""The conductor: knows where each slot is and how far, and tells lanes what to do next. It waits for nobody.

Lanes take epochs at their own pace. A slot is always in one of these places::

    resident(lane) ──Release──▶ leaving(lane) ──Released──▶ absent ──Adopt──▶ loading(lane) ──Adopted──▶ resident(lane)
          │                         │                          ▲                   │
          └── lane lost ────────────┴──────────────────────────┴───────────────────┘

An absent slot's input waits where it is, as references into the block log: what the slot is at its committed version,
and its blocks after that, is all its next lane needs, whoever folded it before. So a move *at the timestamp* lets the
source fold the slot up to the epoch before the move, and a move *at once* lets it stop where it is; a crash is a move
at once whose source says nothing. A restart, with as many lanes as there may be then, is that for all slots.

What lanes have done counts when it is committed; `settle` commits what has come in and sends out what follows from it.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from evenflow.control import Ack, Controller, LaneWish
from evenflow.control.journal import StateMoved
from evenflow.errors import EvenflowError, LaneFailedError
from evenflow.lane.events import Joined, LaneEvent, Lost, Said
from evenflow.lane.faults import Faults
from evenflow.lane.loading import committed_slot
from evenflow.lane.messages import (
    Adopt,
    Adopted,
    BlockPart,
    Done,
    EpochInput,
    EpochLoad,
    Failed,
    Forget,
    FromLane,
    Prepare,
    Prepared,
    Release,
    Released,
    SlotToLoad,
    ToLane,
    Work,
)
from evenflow.migration import Event
from evenflow.model import Epoch, LaneId, LaneLoad, LoadReport, Move, RoutingTable, SlotId, SlotLoads
from evenflow.model.slots import BoolArray, IntArray
from evenflow.spark.hot_spots import HotSpots
from evenflow.state import Advance, Checkpoint, EpochRecord, LaneCommit, SlotRef

Handover: TypeAlias = Literal["at the timestamp", "at once"]

_CATCH_UP = 2  # epochs that a slot that is behind takes per work, so that the others need not wait for it
_TOGETHER_S = 0.05  # epochs that take a lane less than this together are folded in one go
_MOST_LOSSES = 5  # of one lane without progress
_INSTANT_S = 1e-9  # the span of a lane that has neither worked nor waited
_ABSENCES = 2_000


class Sender(Protocol):
    """What brings messages to lanes: only the present attempt of a lane is spoken to."""

    def send(self, lane: int, token: str, message: ToLane) -> bool:
        """Send to one attempt of a lane; return whether it went out."""
        ...


@dataclass
class _Cost:
    """What an epoch has cost a lane so far; slots that are behind add their part when they pass it."""

    parts: list[EpochLoad] = field(default_factory=list)
    idle_s: float = 0.0


@dataclass
class _Lane:
    """A lane: its present attempt, the last epoch it has taken up, the work it is at, what it has not reported."""

    epoch: Epoch
    token: str | None = None
    work: Work | None = None
    losses: int = 0
    rows_per_s: float = 0.0
    spare_s: float = 0.0  # since the last new epoch: it waited, or took slots through epochs that are reported already
    costs: dict[Epoch, _Cost] = field(default_factory=dict)  # of the epochs to report, oldest first
    # What it was told to load, less what it was told to forget since; it answers each once, in this order.
    asked: deque[set[SlotId]] = field(default_factory=deque)


@dataclass(frozen=True)
class Absence:
    """A slot that moved was served by nobody for a while: from when its old lane let go until the new one had it."""

    move: Move
    epoch: Epoch
    since_s: float
    until_s: float


@dataclass
class _Slots:
    """Where all slots are; one entry per slot. `lane` holds the slot, or is the next to."""

    lane: IntArray
    resident: BoolArray
    loading: BoolArray
    leaving: BoolArray

    @classmethod
    def under(cls, table: RoutingTable) -> _Slots:
        flags = [np.zeros(table.slots, dtype=bool) for _ in range(3)]
        return cls(table.owners.copy(), *flags)


@dataclass
class Conductor:
    """See the module. One thread at a time calls it."""

    checkpoint: Checkpoint
    controller: Controller
    sender: Sender
    handover: Handover = "at once"
    most_losses: int = _MOST_LOSSES
    faults: Faults = field(default_factory=Faults)
    clock: Callable[[], float] = time.time
    on_done: Callable[[Done], None] = lambda _done: None
    hot_spots: HotSpots = field(init=False)
    _lanes: dict[LaneId, _Lane] = field(default_factory=dict)
    _slots: _Slots = field(init=False)
    _moves: dict[SlotId, tuple[Move, Epoch]] = field(default_factory=dict)  # told, and not settled
    _handoffs: dict[SlotId, SlotRef] = field(default_factory=dict)
    _prepared: dict[SlotId, tuple[LaneId, str, Epoch | None]] = field(default_factory=dict)
    _done: list[tuple[Done, Work]] = field(default_factory=list)
    _released: list[Released] = field(default_factory=list)
    _wishes: list[LaneWish] = field(default_factory=list)
    _left_s: dict[SlotId, float] = field(default_factory=dict)
    _loaded_s: float = -math.inf  # when slots that nobody had served were loaded last, for a move or after a loss
    _absences: deque[Absence] = field(default_factory=lambda: deque(maxlen=_ABSENCES))

    def __post_init__(self) -> None:
        """Start with all slots absent, to be held by the lanes of the controller's table."""
        self._slots = _Slots.under(self.controller.table)
        self.hot_spots = HotSpots(self.controller)

    # --- lanes come and go ---------------------------------------------------------------------------------------

    def add_lane(self, lane: LaneId) -> None:
        """Expect a lane."""
        self._lanes[lane] = _Lane(self.checkpoint.recover().last_accepted)

    def remove_lane(self, lane: LaneId) -> None:
        """Expect a lane no more; it holds nothing."""
        del self._lanes[lane]

    @property
    def lanes(self) -> dict[LaneId, _Lane]:
        """All lanes there are or should be."""
        return self._lanes

    @property
    def lanes_at_work(self) -> int:
        """How many lanes have work that they have not answered."""
        return sum(status.work is not None for status in self._lanes.values())

    def missing(self) -> list[LaneId]:
        """Return the lanes that are not there, or have not loaded all that waits for them."""
        waiting = set(self._slots.lane[~self._slots.resident].tolist())
        return [lane for lane, status in self._lanes.items() if status.token is None or lane in waiting]

    @property
    def absences(self) -> list[Absence]:
        """How long each slot that moved was served by nobody; the newest, oldest first."""
        return list(self._absences)

    def wishes(self) -> list[LaneWish]:
        """Return what the controller wants of lanes since the last time."""
        wishes, self._wishes = self._wishes, []
        return wishes

    # --- in ------------------------------------------------------------------------------------------------------

    def accepted(self, record: EpochRecord) -> None:
        """An epoch was accepted: its moves begin, its blocks are there to be folded."""
        for lane in record.lanes:
            if lane in self._lanes:
                self._lanes[lane].costs[record.epoch] = _Cost()
        reasons = {life.move.slot: life.move.reason for life in self.controller.in_flight}
        for move in (Move(*way, reasons.get(way[0], "")) for way in record.moves):
            self._moves[move.slot] = (move, record.epoch)
            if not self._slots.resident[move.slot]:  # its lane is gone, or is loading it: there is nothing to hand off
                if self._slots.loading[move.slot]:
                    self._forget(move.source, move.slot)
                self._forget_place(move.slot)
                self._slots.lane[move.slot] = move.target

    def heard(self, event: LaneEvent) -> None:
        """Take in what a lane says, or that it has come or gone; `settle` acts on it."""
        if isinstance(event, Joined):
            if event.hello.lane in self._lanes:
                self._lanes[event.hello.lane].token = event.hello.token
            return
        lane = self._lanes.get(event.lane)
        if lane is None or lane.token != event.token:
            return  # fenced off: whatever it says does not count
        if isinstance(event, Lost):
            self._lost(event.lane)
        elif isinstance(event, Said):
            self._said(event.lane, event.message)

    def _said(self, lane: LaneId, message: FromLane) -> None:
        status = self._lanes[lane]
        if isinstance(message, Failed):
            self._failed(lane, message)
        elif isinstance(message, Done) and status.work is not None:
            self._done.append((message, status.work))
            status.work, status.losses = None, 0
        elif isinstance(message, Released):
            self._released.append(message)
        elif isinstance(message, Adopted):
            self._adopted(lane, message)
        elif isinstance(message, Prepared):
            self._copied(lane, str(status.token), message)

    def _failed(self, lane: LaneId, message: Failed) -> None:
        """End the query, unless a lane could not load slots that were moved elsewhere meanwhile: then load the rest."""
        wanted = self._lanes[lane].asked.popleft() if message.slots else set()
        if len(wanted) == len(message.slots):
            raise LaneFailedError(lane, message.kind, message.message, message.detail)
        self._slots.loading[list(wanted)] = False

    def _copied(self, lane: LaneId, token: str, message: Prepared) -> None:
        """Slots were loaded ahead, or could not be; either way their moves need not wait any longer."""
        moves = {move.slot: move for move in self.controller.to_prepare()}
        wanted = self._lanes[lane].asked.popleft()
        self.controller.measured_move(message.state_bytes, message.seconds)
        for slot, version in message.slots:
            if slot not in wanted or self._prepared.get(slot, (-1, ""))[:2] != (lane, token):
                continue
            self._prepared[slot] = (lane, token, version)
            self.controller.prepared(slot)
            if version is not None and slot in moves:
                share = message.state_bytes // len(message.slots)
                entry = StateMoved(version, moves[slot], 0, share, message.seconds, ahead=True)
                self.controller.journal.record(entry)

    def _adopted(self, lane: LaneId, message: Adopted) -> None:
        self.controller.measured_move(message.state_bytes, message.seconds)
        for slot in sorted(self._lanes[lane].asked.popleft()):
            self._slots.loading[slot], self._slots.resident[slot] = False, True
            self._loaded_s = self.clock()
            if slot in self._moves and slot in self._left_s:
                self._absences.append(Absence(*self._moves[slot], self._left_s.pop(slot), self.clock()))
            self._acknowledge(slot, Event.INSTALLED)

    def _lost(self, lane: LaneId) -> None:
        """A lane's attempt is gone: so is what it held, and what it was told to load; what it handed off is not."""
        status = self._lanes[lane]
        # What it said before counts, and makes what is lost less.
        self.settle_reports()
        self.checkpoint.expect_strays()
        status.token, status.work = None, None
        status.asked.clear()
        status.losses += 1
        if status.losses >= self.most_losses:
            raise EvenflowError(
                f"lane {lane} was lost {status.losses} times in one epoch: its Python worker dies each time. See "
                f"the executor's log; often memory runs out (more lanes hold less each), or the operator crashes it"
            )
        self.controller.lane_lost(lane)
        for slot in np.flatnonzero(self._slots.lane == lane).tolist():
            self._forget_place(slot)
            if slot in self._moves and self._moves[slot][0].source == lane:
                self._slots.lane[slot] = self._moves[slot][0].target
        for slot, (target, _, _) in list(self._prepared.items()):
            if target == lane:
                self._unprepare(slot)

    def _forget_place(self, slot: SlotId) -> None:
        for flags in (self._slots.resident, self._slots.loading, self._slots.leaving):
            flags[slot] = False

    # --- out -----------------------------------------------------------------------------------------------------

    def settle(self) -> bool:
        """Commit what lanes have done, then tell them what is next. Return whether anything was committed."""
        committed = self.settle_reports()
        self._prepare()
        self._release()
        self._adopt()
        for lane in self._lanes:
            self._give_work(lane)
        return committed

    def settle_reports(self) -> bool:
        """Commit what lanes have done, and take in what they have let go of."""
        done, self._done = self._done, []
        if done:
            self.faults.reach("driver.before-commit", epoch=max(answer.commit.epoch for answer, _ in done))
            self.checkpoint.commit([self._with_handoffs(answer.commit) for answer, _ in done if answer.commit.advances])
            self.faults.reach("driver.after-commit", epoch=max(answer.commit.epoch for answer, _ in done))
            for answer, work in done:
                self._take_in(answer, work)
            self._report()
        released, self._released = self._released, []
        for message in released:
            self._let_go(message)
        return bool(done)

    def _let_go(self, message: Released) -> None:
        """Slots are on their way: the next lane may load them."""
        self.faults.reach("driver.during-move", epoch=max(version for _, version in message.slots))
        handoffs = dict(message.handoffs)
        self.controller.measured_move(message.state_bytes, message.seconds)
        rows = max(1, sum(ref.rows for ref in handoffs.values()))
        for slot, _ in message.slots:
            move, epoch = self._moves[slot]
            self._forget_place(slot)
            self._slots.lane[slot] = move.target
            self._left_s[slot] = self.clock() - message.seconds
            if slot in handoffs:
                if slot in self._handoffs:  # it has moved on before it was taken any further
                    self.checkpoint.discard([self._handoffs[slot].file])
                self._handoffs[slot] = handoffs[slot]
                share = message.state_bytes * handoffs[slot].rows // rows
                self.controller.journal.record(StateMoved(epoch, move, handoffs[slot].rows, share, message.seconds))
            self._acknowledge(slot, Event.HANDED_OFF)

    def _with_handoffs(self, commit: LaneCommit) -> LaneCommit:
        """Let the handoffs that a lane has loaded count as snapshots: they save reading older changes."""
        if not self._handoffs:
            return commit
        advanced = {slot for advance in commit.advances for slot in advance.slots}
        loaded = tuple((slot, self._handoffs.pop(slot)) for slot in list(self._handoffs) if slot in advanced)
        # Those that newer snapshots replace are named as well: so they are known, and go.
        return msgspec.structs.replace(commit, snapshots=(*loaded, *commit.snapshots)) if loaded else commit

    # --- moving --------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Tell sources to let go of what may leave now."""
        ready: defaultdict[tuple[LaneId, bool], list[SlotId]] = defaultdict(list)
        for slot, (move, epoch) in self._moves.items():
            at_source = self._slots.lane[slot] == move.source and self._slots.resident[slot]
            if at_source and not self._slots.leaving[slot] and self._may_leave(slot, epoch):
                ready[move.source, self._copy_of(slot) is None].append(slot)
        for (lane, handoff), slots in ready.items():
            if self._send(lane, Release(tuple(slots), handoff)):
                self._slots.leaving[slots] = True

    def _may_leave(self, slot: SlotId, epoch: Epoch) -> bool:
        """At once, or after the last epoch before the move; the work a lane is at comes before the release."""
        if self.handover == "at once":
            return True
        work = self._lanes[int(self._slots.lane[slot])].work
        told = next((advance.version for advance in work.advances if slot in advance.slots), -1) if work else -1
        reached = max(told, int(self.checkpoint.slot_versions[slot]))
        return not any(reached < pending < epoch for pending in self.checkpoint.pending)

    def _adopt(self) -> None:
        """Tell lanes to load what is to be theirs and nobody holds."""
        absent = ~(self._slots.resident | self._slots.loading)
        for lane, status in self._lanes.items():
            slots = np.flatnonzero(absent & (self._slots.lane == lane)).tolist()
            if status.token is not None and slots and self._send(lane, Adopt(tuple(map(self._entry, slots)))):
                self._slots.loading[slots] = True
                status.asked.append(set(slots))
                for slot in slots:
                    self._prepared.pop(slot, None)

    def _entry(self, slot: SlotId) -> SlotToLoad:
        """Return where a slot is loaded from: its handoff, the changes since it was copied, or the checkpoint."""
        sources = self.checkpoint.recover().sources(slot)
        version = int(self.checkpoint.slot_versions[slot])
        copied = self._copy_of(slot)
        if copied is not None:
            newer = tuple(change for change in sources.changes if change.version > copied)
            return SlotToLoad(slot, version, None, newer, copied)
        handoff = self._handoffs.get(slot)
        if handoff is not None and handoff.version == version:
            return SlotToLoad(slot, version, handoff)
        return committed_slot(self.checkpoint.recover(), slot)

    def _prepare(self) -> None:
        """Have targets load ahead what is planned to come and big enough; forget what is not planned any more."""
        under_way = {life.move.slot for life in self.controller.in_flight}
        # A slot that is to move on is copied when it is there: until then the lane it goes back to may still serve it.
        wanted = {move.slot: move for move in self.controller.to_prepare() if move.slot not in under_way}
        for slot, (lane, token, _) in list(self._prepared.items()):
            if slot not in under_way and (slot not in wanted or wanted[slot].target != lane):
                self._unprepare(slot)
                if lane in self._lanes and self._lanes[lane].token == token:
                    self._forget(lane, slot)
        coming: defaultdict[LaneId, list[SlotToLoad]] = defaultdict(list)
        for slot, move in wanted.items():
            if slot not in self._prepared and not self._is_being_rewritten(slot):
                coming[move.target].append(self._entry(slot))
        for lane, entries in coming.items():
            status = self._lanes.get(lane)
            if status is not None and status.token is not None and self._send(lane, Prepare(tuple(entries))):
                self._prepared.update({entry.slot: (lane, status.token, None) for entry in entries})
                status.asked.append({entry.slot for entry in entries})

    def _is_being_rewritten(self, slot: SlotId) -> bool:
        """Tell whether a snapshot of the slot is under way: the files of now might go before they are read."""
        if slot in self._handoffs or not self._slots.resident[slot]:
            return True
        work = self._lanes[int(self._slots.lane[slot])].work
        return work is not None and slot in work.snapshot_slots

    def _copy_of(self, slot: SlotId) -> Epoch | None:
        """Return the version of the copy that the slot's next lane has loaded ahead and can bring up to date.

        A snapshot that is newer than the copy has taken the changes in between with it: then the copy is of no use.
        """
        lane, token, version = self._prepared.get(slot, (-1, "", None))
        if version is None or slot not in self._moves or self._moves[slot][0].target != lane:
            return None
        if self._lanes[lane].token != token:
            return None
        snapshot = self.checkpoint.recover().sources(slot).snapshot
        return version if snapshot is None or snapshot.version <= version else None

    def _forget(self, lane: LaneId, slot: SlotId) -> None:
        """Call off a slot: what the lane answers to what it was told before does not count for it any more.

        Else a slot that is to come here again would be taken for loaded while the lane still has it as it was.
        """
        for slots in self._lanes[lane].asked:
            slots.discard(slot)
        self._send(lane, Forget((slot,)))

    def _unprepare(self, slot: SlotId) -> None:
        self._prepared.pop(slot, None)
        self.controller.unprepared(slot)

    def _acknowledge(self, slot: SlotId, event: Event) -> None:
        if slot in self._moves:
            move, epoch = self._moves[slot]
            if event is Event.INSTALLED:
                del self._moves[slot]
            wish = self.controller.acknowledge(Ack(move.slot, epoch, event, self.clock()))
            self._wishes += [wish] if wish else []

    # --- work ----------------------------------------------------------------------------------------------------

    def _give_work(self, lane: LaneId) -> None:
        status = self._lanes[lane]
        if status.token is None or status.work is not None:
            return
        work = self._next_work(lane)
        if work is not None and self._send(lane, work):
            status.work = work

    def _next_work(self, lane: LaneId) -> Work | None:
        """Return what a lane is to fold next: the next epoch (or a few small ones), and some of what is behind."""
        status = self._lanes[lane]
        pending = self.checkpoint.pending
        if not pending:
            return None
        last = self._last_epoch(lane)
        slots, since, until = self._ways(lane, last)
        advances = _grouped(slots, since, until)
        new = [epoch for epoch in pending if status.epoch < epoch <= last]
        if not advances and (not new or self._is_loading(lane)):
            return None
        epochs = [epoch for epoch in pending if epoch in new or any(a.since < epoch <= a.version for a in advances)]
        inputs = tuple(
            EpochInput.of(pending[epoch], self._parts(epoch, lane, slots[(since < epoch) & (epoch <= until)]))
            for epoch in epochs
        )
        due = tuple(self._due_snapshots(slots))
        hot = self.hot_spots.to_ask((slot for advance in advances for slot in advance.slots), last)
        return Work(max(last, *epochs), advances, inputs, due, hot)

    def _due_snapshots(self, slots: IntArray) -> list[SlotId]:
        """Return which slots a lane is to write out; none of which a copy is made ahead, it needs the changes since."""
        if self._prepared:
            slots = slots[~np.isin(slots, list(self._prepared))]
        return self.checkpoint.due_snapshots(slots, len(self._lanes))

    def _ways(self, lane: LaneId, last: Epoch) -> tuple[IntArray, IntArray, IntArray]:
        """Return the slots that get further by the lane's next work, ascending, from where, and to which version."""
        served = np.flatnonzero((self._slots.lane == lane) & self._slots.resident & ~self._slots.leaving)
        since, limits = self.checkpoint.slot_versions[served], np.full(served.size, last)
        for slot, (_, epoch) in self._moves.items():
            limits[served == slot] = min(last, epoch - 1)
        pending = np.array(list(self.checkpoint.pending), dtype=np.int64)
        first = np.searchsorted(pending, since, side="right")
        end = np.searchsorted(pending, limits, side="right")
        behind = np.searchsorted(pending, np.minimum(limits, self._lanes[lane].epoch), side="right") - first
        end = np.where(behind > _CATCH_UP, first + _CATCH_UP, end)
        moving = end > first
        return served[moving], since[moving], pending[end[moving] - 1]

    def _last_epoch(self, lane: LaneId) -> Epoch:
        """Return up to where a lane goes next: one epoch further, or several that are small for it together."""
        status = self._lanes[lane]
        rows, last = 0.0, status.epoch
        for epoch, record in self.checkpoint.pending.items():
            if epoch <= status.epoch:
                continue
            rows += record.rows_of(lane)
            if last > status.epoch and (not status.rows_per_s or rows / status.rows_per_s > _TOGETHER_S):
                break
            last = epoch
        return last

    def _parts(self, epoch: Epoch, lane: LaneId, slots: IntArray) -> tuple[BlockPart, ...]:
        """Return the rows of one epoch that belong to slots which pass it, wherever they were routed to."""
        record = self.checkpoint.pending[epoch]
        wanted = np.zeros(record.owner_of.size, dtype=bool)
        wanted[slots] = True
        foreign = bool((record.owner_of[slots] != lane).any())
        everything = ((block, segment) for block in record.blocks for segment in block.segments)
        parts = []
        for block, segment in everything if foreign else record.by_lane.get(lane, ()):
            there = np.array(segment.slots, dtype=np.int64)
            chosen = there[wanted[there]]
            if chosen.size:
                every = chosen.size == there.size
                parts.append(BlockPart(block.file, segment, None if every else tuple(chosen.tolist())))
        return tuple(parts)

    def _is_loading(self, lane: LaneId) -> bool:
        """Tell whether a lane has yet to load slots of its own: epochs wait for these, not for slots that move here."""
        coming = (self._slots.lane == lane) & ~self._slots.resident
        coming[list(self._moves)] = False
        return bool(coming.any())

    def _take_in(self, done: Done, work: Work) -> None:
        """Note what an answer says: each part of its cost belongs to the epoch that was folded, however late."""
        status = self._lanes[done.commit.lane]
        rows, busy_s = sum(load.rows for load in done.loads), sum(load.busy_s for load in done.loads)
        if rows and busy_s:
            status.rows_per_s = rows / busy_s
        self.on_done(done)
        self.hot_spots.heard(work.epoch, done.hot_keys)
        newer = [load for load in done.loads if load.epoch > status.epoch]
        status.spare_s += done.idle_s
        for load in done.loads:
            if load.epoch in status.costs:
                status.costs[load.epoch].parts.append(load)
            else:
                status.spare_s += load.busy_s  # of a window that is not used
        if newer and newer[0].epoch in status.costs:
            status.costs[newer[0].epoch].idle_s = self._waited_s(status, sum(load.busy_s for load in newer))
        if newer:
            status.epoch, status.spare_s = work.epoch, 0.0

    def _waited_s(self, status: _Lane, busy_s: float) -> float:
        """Return how long a lane had time to spare before its work of `busy_s`, since slots were loaded last.

        The first epoch after a move begins when the move has ended, but lanes have waited for it from before: that is
        no part of a window without moves (AF-A26). The same goes for the loss of a lane.
        """
        return min(status.spare_s, max(0.0, self.clock() - busy_s - self._loaded_s))

    def _report(self) -> None:
        """Report the epochs that lanes are through with, all slots of theirs: so each has its whole cost, once.

        A slot that moves is not waited for: the windows of until then are not used (AF-A26).
        """
        versions = self.checkpoint.slot_versions
        staying = np.ones(versions.size, dtype=bool)
        staying[list(self._moves)] = False
        pending: IntArray | None = None
        for lane, status in self._lanes.items():
            if status.work is None:  # one without slots may have been at an older epoch while all others took this one
                status.epoch = max(status.epoch, self.checkpoint.frontier)
            passed = int(versions[staying & (self._slots.lane == lane)].min(initial=status.epoch))
            over = [epoch for epoch in status.costs if epoch <= passed]
            if over and pending is None:
                pending = self.pending_rows()
            for epoch in over:
                report = _load_report(lane, epoch, status.costs.pop(epoch), pending * (self._slots.lane == lane))
                wish = self.controller.report(report)
                self._wishes += [wish] if wish else []

    def pending_rows(self) -> IntArray:
        """Return for each slot the rows of accepted epochs that it has not folded, wherever they were routed to."""
        versions = self.checkpoint.slot_versions
        pending = np.zeros(versions.size, dtype=np.int64)
        for epoch, record in self.checkpoint.pending.items():
            pending += np.where(versions < epoch, record.slot_rows, 0)
        return pending

    def _send(self, lane: LaneId, message: ToLane) -> bool:
        token = self._lanes[lane].token
        return token is not None and self.sender.send(lane, token, message)


def _grouped(slots: IntArray, since: IntArray, until: IntArray) -> tuple[Advance, ...]:
    """Return the slots that advance, those with the same way together."""
    if slots.size and (since == since[0]).all() and (until == until[0]).all():
        return (Advance(int(since[0]), int(until[0]), tuple(slots.tolist())),)
    ways: defaultdict[tuple[Epoch, Epoch], list[SlotId]] = defaultdict(list)
    for slot, *way in zip(slots.tolist(), since.tolist(), until.tolist(), strict=True):
        ways[way[0], way[1]].append(slot)
    return tuple(Advance(*way, tuple(slots)) for way, slots in sorted(ways.items()))


def _load_report(lane: LaneId, epoch: Epoch, cost: _Cost, pending: IntArray) -> LoadReport:
    """Return what a lane reports of an epoch: of a slot that is in several parts the sum, and the newest size.

    `pending` are the rows that wait for the lane, by slot: of later epochs, since it is through with this one.
    """

    def column(name: str) -> npt.NDArray[Any]:
        return np.array([value for part in cost.parts for value in getattr(part.load, name)])

    listed = column("slots").astype(np.int64)
    slots = np.union1d(listed, np.flatnonzero(pending))
    where = np.searchsorted(slots, listed)
    sizes = np.zeros(slots.size, dtype=np.int64)
    sizes[where] = column("state_bytes")
    records, busy_s = (np.bincount(where, column(name), slots.size) for name in ("records", "busy_s"))
    worked_s, crowded_s = (sum(getattr(part, name) for part in cost.parts) for name in ("busy_s", "crowded_s"))
    idle_s = cost.idle_s if cost.idle_s or worked_s else _INSTANT_S
    lane_load = LaneLoad(lane, idle_s, idle_s + worked_s, queue=int(pending.sum()), crowded_s=crowded_s)
    loads = SlotLoads.of(records, busy_s, sizes, pending[slots])
    return LoadReport(epoch, lane_load, slots, loads, all_served=True)
