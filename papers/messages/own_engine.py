"""evenflow's own engine on the records of the papers' protocols, to compare with: the real one, in virtual time.

`evenflow.sim.engine_run` plays the lanes; here they fold the records of a stream, and the checker that watches the
papers' protocols watches them too. Records reach lanes an epoch at a time. A lane folds its part of an epoch in one go,
slot by slot; a record is served when its turn in that is over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from evenflow.control import Balancer
from evenflow.lane.messages import Work
from evenflow.migration.strategies import QueuedStep, Sudden
from evenflow.model import Epoch, LaneId, Move, SlotId
from evenflow.model.slots import IntArray
from evenflow.policies.static import Static
from evenflow.sim.engine_run import Piece, PlayedQuery, Prices, SlotState, Watcher
from evenflow.state import EpochRecord
from papers.messages.checker import NOBODY
from papers.messages.decider import Script
from papers.messages.lane import BYTES_PER_KEY
from papers.messages.loop import SECOND, drawn_delays
from papers.messages.plant import Plant
from papers.messages.run import Result
from papers.messages.stream import RecordStream
from papers.messages.world import MoveTrace, World, whole_state

Parts: TypeAlias = dict[tuple[Epoch, SlotId], list[int]]
"""The records of each epoch and slot."""

_STUCK = 200  # epochs without any record served, after which a run is taken for stuck


@dataclass
class _Records:
    """The source: what is due by the end of an epoch is the epoch's."""

    world: World
    parts: Parts
    _taken: int = 0

    def take(self, epoch: Epoch, since_s: float, until_s: float) -> IntArray:  # noqa: ARG002 - the interface
        """Return how many records of each slot have become due."""
        stream = self.world.stream
        upto = int(np.searchsorted(stream.due, round(until_s * SECOND), side="left"))
        for record in range(self._taken, upto):
            self.world.epoch_of[record] = epoch
            self.parts.setdefault((epoch, self.world.slot_of[record]), []).append(record)
        rows: IntArray = np.bincount(stream.slot[self._taken : upto], minlength=stream.slots)
        self._taken = upto
        return rows


@dataclass
class _Folding:
    """The calculation: the plant's fold, record by record."""

    world: World
    parts: Parts

    def seconds(self, slot: SlotId, rows: int) -> float:  # noqa: ARG002 - the interface
        """Return the time it takes."""
        return rows * self.world.plant.service / SECOND

    def fold(self, piece: Piece, state: SlotState) -> SlotState:
        """Fold records one after the other, and tell the checker."""
        world, records, new = self.world, self.parts[piece.epoch, piece.slot], SlotState()
        each_s = (piece.until_s - piece.since_s) / len(records)
        for at, record in enumerate(records, 1):
            key = world.key_of[record]
            before = new[key] if key in new else state.get(key, world.fold.initial)
            new[key] = world.fold.step(before, world.value_of[record])
            world.checker.served(record, piece.lane, round((piece.since_s + at * each_s) * SECOND))
        return new

    def size(self, slot: SlotId, state: SlotState) -> int:  # noqa: ARG002 - the interface
        """Return the bytes of a state."""
        return len(state) * BYTES_PER_KEY


@dataclass
class _Seen(Watcher):
    """What is seen on the way: who holds what, the moves, and the records that had to wait for one."""

    world: World
    parts: Parts
    _owners: dict[Epoch, tuple[LaneId, ...]] = field(default_factory=dict)
    _reached: defaultdict[LaneId, Epoch] = field(default_factory=lambda: defaultdict(lambda: -1))
    _moves: dict[SlotId, MoveTrace] = field(default_factory=dict)

    def accepted(self, record: EpochRecord, since_s: float, until_s: float) -> None:  # noqa: ARG002 - the interface
        """An epoch's moves are announced."""
        self._owners[record.epoch] = record.owners
        self.world.checker.table_in_force(record.epoch, record.owners)
        for slot, source, target in record.moves:
            move = MoveTrace(Move(slot, source, target), record.epoch, round(until_s * SECOND))
            self._moves[slot] = self.world.trace.moves[slot, record.epoch] = move

    def told(self, lane: LaneId, work: Work) -> None:
        """A lane takes up epochs; records of it that are not in the work wait for the state of their slot."""
        for each in work.inputs:
            if each.epoch <= self._reached[lane]:
                continue
            self._reached[lane] = each.epoch
            there = {slot for part in each.parts for slot in (part.slots or part.segment.slots)}
            for slot, owner in enumerate(self._owners[each.epoch]):
                left_out = self.parts.get((each.epoch, slot), ()) if owner == lane and slot not in there else ()
                if left_out:
                    self.world.trace.held_by_lane[slot] += len(left_out)

    def released(self, lane: LaneId, versions: Mapping[SlotId, Epoch], size: int, now_s: float) -> None:  # noqa: ARG002
        """State is on its way; what its lane has not folded of older epochs goes along, as references."""
        trace = self.world.trace
        for slot, version in versions.items():
            self.world.checker.released(slot, lane)
            move = self._moves[slot]
            move.handed_off = round(now_s * SECOND)
            trace.messages["state"] += 1
            waiting = (len(self.parts.get((epoch, slot), ())) for epoch in range(version + 1, move.epoch))
            trace.messages["reference"] += sum(waiting)

    def adopted(self, lane: LaneId, slots: Sequence[SlotId], now_s: float) -> None:
        """A lane holds slots."""
        for slot in slots:
            self.world.checker.installed(slot, lane)
            if slot in self._moves:
                self._moves[slot].installed = round(now_s * SECOND)


@dataclass
class EngineRun:
    """A query, wired and ready."""

    world: World
    query: PlayedQuery
    _left: int = -1
    _idle: int = 0

    def goes_on(self) -> bool:
        """Tell whether there is anything left to do; asked before each epoch, it notices a run that is stuck."""
        world = self.world
        due = world.due and self.query.now_s * SECOND <= world.due[-1]
        self._idle = 0 if due or world.checker.remaining != self._left else self._idle + 1
        self._left = world.checker.remaining
        return not world.over and self._idle <= _STUCK

    def run(self) -> Result:
        """Run to the end and check everything."""
        world, query = self.world, self.query
        query.goes_on = self.goes_on
        query.start()
        query.run()
        states = [{slot: held.state for slot, held in lane.held.items()} for lane in query.lanes.values()]
        state = whole_state(states, None)
        world.checker.require(state, world.fold)
        served_at, served_by = world.checker.columns()
        owners = tuple(query.balancer.table.owners.tolist())
        checker, events = world.checker, query.agenda.events
        return Result(world.stream, served_at, served_by, state, world.trace, owners, events, checker.overtaken)


def engine_run(
    stream: RecordStream,
    plant: Plant,
    decider: Balancer | Script | None = None,
    *,
    at_once: bool = True,
    max_lag: int | None = None,
) -> EngineRun:
    """Wire a query. What a script says is asked for by hand: a move waits for those that are in its way."""
    world, parts = World(stream, plant), Parts()
    world.checker.holder = [NOBODY] * stream.slots
    balancer = decider if isinstance(decider, Balancer) else Balancer(plant.table, Static(), Sudden())
    if isinstance(decider, Script) and decider.moves:
        balancer.queue([QueuedStep(tuple(moves), epoch) for epoch, moves in sorted(decider.moves.items())])
    timing = plant.timing
    delays = drawn_delays(world.rng, *timing.data)
    query = PlayedQuery(
        balancer,
        _Records(world, parts),
        _Folding(world, parts),
        plant.period / SECOND,
        "at once" if at_once else "at the timestamp",
        max_lag,
        Prices(
            extract_s_per_byte=timing.hand_over_per_key / BYTES_PER_KEY / SECOND,
            transfer_s=timing.transfer / SECOND,
            transfer_s_per_byte=timing.transfer_per_key / BYTES_PER_KEY / SECOND,
        ),
        delay_s=lambda: next(delays) / SECOND,
        watcher=_Seen(world, parts),
    )
    return EngineRun(world, query)
