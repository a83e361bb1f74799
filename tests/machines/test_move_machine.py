"""Random failures against the real balancer: no update is lost or applied twice, whatever dies and whenever.

A tiny engine plays the lanes. Rows are (epoch, number), a slot's state is the list of its rows, so that a row that
is lost, applied twice or out of order can be seen. The oracle is a plain dict that gets every row at once.

::

                     next_epoch(e): moves                        Ack(slot, t, ...), reports:
      ┌─────────────┐ ──────────────────▶ ┌──────────────────┐   kept back, lost, repeated,
      │ Balancer    │                     │ Engine           │   in any order
      │ (the real   │ ◀────────────────── │  log[e]   rows   │   ┌──────┐
      │  one)       │       the mail      │  routes[e] table │ ─▶│ mail │
      └─────────────┘                     └──────────────────┘   └──────┘
            ▲ state at the epoch's record     │         ▲
            └── restart                       ▼         │ rebuild: snapshot + log
                                       lane 0, 1, ...  store[slot]  (durable)
                                       slot -> (version, rows)
                                         │        ▲
             source: after epoch t - 1   ▼        │ target: install at version t - 1
                                       handoffs[slot, t]  (durable, may be damaged)

A lane folds the epochs that were routed to it, one after the other. At the first that was not, it lets the slot go
as a handoff. A lane that should have a slot and has not (it died, or its move is RECOVERING) rebuilds it from the
store and the log, which need no one's help.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from evenflow.control import Ack, Balancer, BalancerOptions, BalancerState
from evenflow.migration import STRATEGIES, Event, MoveLife, Phase, QueuedStep, strategy_named
from evenflow.model import Epoch, LaneId, LaneLoad, LoadReport, LoadView, Move, RoutingTable, SlotId, SlotLoads
from tests.strategies import runs

SLOTS = 3  # few, so that things happen to the same one
LANES = 4  # two pairs that have nothing to do with each other

Row: TypeAlias = tuple[Epoch, int]

some_slot = st.integers(0, SLOTS - 1)
some_lane = st.integers(0, LANES)  # one more than there are at first
some_fate = st.sampled_from(["arrives", "arrives", "arrives", "arrives twice", "is lost"])


@dataclass(frozen=True, slots=True)
class Held:
    """A slot's state: all rows of the epochs up to `version`."""

    version: Epoch = -1
    rows: tuple[Row, ...] = ()


@dataclass
class Engine:
    """The lanes, the network and the disk. Only the lanes' memory can be lost."""

    lanes: dict[LaneId, dict[SlotId, Held]]
    log: list[dict[SlotId, tuple[Row, ...]]] = field(default_factory=list)
    routes: list[RoutingTable] = field(default_factory=list)
    store: dict[SlotId, Held] = field(default_factory=dict)
    handoffs: dict[tuple[SlotId, Epoch], Held | None] = field(default_factory=dict)
    installed: set[tuple[SlotId, Epoch]] = field(default_factory=set)  # what really happened, for the invariants
    mail: list[Ack] = field(default_factory=list)
    reports: list[LoadReport] = field(default_factory=list)

    def accept(self, rows: dict[SlotId, tuple[Row, ...]], table: RoutingTable) -> None:
        """Log one more epoch; from here on it survives everything."""
        self.log.append(rows)
        self.routes.append(table)

    def fold(self, lane: LaneId, slot: SlotId) -> None:
        """Let a lane do the next thing to a slot that it holds: fold one epoch, or let go."""
        held = self.lanes[lane].get(slot)
        if held is None or held.version + 1 == len(self.log):
            return
        epoch = held.version + 1
        if self.routes[epoch].owners[slot] == lane:
            self.lanes[lane][slot] = Held(epoch, held.rows + self.log[epoch].get(slot, ()))
        else:
            del self.lanes[lane][slot]
            self.handoffs.setdefault((slot, epoch), held)
            self.say(slot, epoch, Event.HANDED_OFF)

    def receive(self, life: MoveLife) -> None:
        """Let the target of a move do its part: install the handoff, or rebuild if there is none to wait for."""
        slot, epoch, mine = life.move.slot, life.epoch or 0, self.lanes[life.move.target]
        if slot not in mine or mine[slot].version < epoch - 1:
            if life.phase is Phase.RECOVERING:
                mine[slot] = self.rebuilt(slot, epoch - 1)
            elif (slot, epoch) not in self.handoffs:
                return
            elif (handoff := self.handoffs[slot, epoch]) is None:
                self.say(slot, epoch, Event.HANDOFF_DAMAGED)
                return
            else:
                mine[slot] = handoff
        self.installed.add((slot, epoch))
        self.say(slot, epoch, Event.INSTALLED)

    def let_go(self, life: MoveLife) -> None:
        """Let the source of a move do its part: say again that it has let go, or come back if it died before."""
        slot, epoch = life.move.slot, life.epoch or 0
        if (slot, epoch) in self.handoffs:
            self.say(slot, epoch, Event.HANDED_OFF)
        elif life.phase is Phase.ANNOUNCED:
            self.own(life.move.source, slot, epoch - 1)

    def own(self, lane: LaneId, slot: SlotId, epoch: Epoch) -> None:
        """Let a lane that serves a slot in `epoch` have it: if it died since it got it, it rebuilds it."""
        if slot not in self.lanes[lane]:
            since = epoch
            while since > 0 and self.routes[since - 1].owners[slot] == lane:
                since -= 1
            self.lanes[lane][slot] = self.rebuilt(slot, since - 1)

    def commit(self, lane: LaneId) -> None:
        """Make a lane's state durable; only progress counts."""
        for slot, held in self.lanes[lane].items():
            if held.version > self.store.get(slot, Held()).version:
                self.store[slot] = held

    def say(self, slot: SlotId, epoch: Epoch, event: Event) -> None:
        ack = Ack(slot, epoch, event)
        if ack not in self.mail:
            self.mail.append(ack)

    def rebuilt(self, slot: SlotId, up_to: Epoch) -> Held:
        """Return the slot from its snapshot and the log, up to an epoch or further."""
        held = self.store.get(slot, Held())
        for epoch in range(held.version + 1, up_to + 1):
            held = Held(epoch, held.rows + self.log[epoch].get(slot, ()))
        return held

    def report(self, lane: LaneId, epoch: Epoch) -> LoadReport:
        slots = self.routes[epoch].slots_of(lane)
        counts = [len(self.log[epoch].get(int(slot), ())) for slot in slots]
        return LoadReport(
            epoch, LaneLoad(lane), slots, SlotLoads.of(np.array(counts, dtype=np.int64), state_bytes=counts)
        )


class Restless:
    """A policy that always finds something to move: the busiest slot to the next lane, another one after it."""

    takes_parts = True

    def propose(self, view: LoadView) -> list[Move]:
        records = view.last.slots.records
        slots = {int(records.argmax()), int(records.sum()) % view.table.slots}
        owners = {slot: int(view.table.owners[slot]) for slot in slots}
        lanes = view.table.lanes
        moves = [Move(slot, lane, lanes[(lanes.index(lane) + 1) % len(lanes)]) for slot, lane in owners.items()]
        return [move for move in moves if move.source != move.target]


class MoveMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(strategy=st.sampled_from(sorted(STRATEGIES)), limit=st.sampled_from([None, 0]))
    def start(self, strategy: str, limit: int | None) -> None:
        table = runs(SLOTS, LANES)
        self.strategy, self.policy = strategy_named(strategy), Restless()
        self.options = BalancerOptions(patience=2, max_bytes_in_flight=limit)
        self.balancer = Balancer(table, self.policy, self.strategy, self.options)
        self.saved: BalancerState = self.balancer.state
        self.engine = Engine({lane: {} for lane in table.lanes})
        for slot, lane in enumerate(table.owners.tolist()):
            self.engine.lanes[lane][slot] = Held()
        self.oracle: defaultdict[SlotId, list[Row]] = defaultdict(list)
        self.owners: list[LaneId] = table.owners.tolist()  # the fold of what was announced
        self.announced: set[tuple[SlotId, Epoch]] = set()
        self.gone: set[LaneId] = set()

    # --- the stream ----------------------------------------------------------------------------------------------

    @rule(
        batches=st.lists(st.lists(st.tuples(some_slot, st.integers(0, 9)), max_size=4), min_size=1, max_size=3),
        awake=st.sets(some_lane),
        arriving=st.sampled_from(["nothing", "reports", "letters", "reports and letters"]),
    )
    def stream(self, batches: list[list[tuple[SlotId, int]]], awake: set[LaneId], arriving: str) -> None:
        """Some epochs in which all goes well, as far as it goes."""
        for batch in batches:
            self.epoch(batch)
            self.run_lanes(sorted(awake), folds=3, durable=False)
            while self.engine.reports and "reports" in arriving:
                self.balancer.report(self.engine.reports.pop(0))
            while self.engine.mail and "letters" in arriving:
                self.balancer.acknowledge(self.engine.mail.pop(0))

    def epoch(self, numbers: list[tuple[SlotId, int]]) -> None:
        """A batch arrives: control message, epoch record, rows."""
        epoch = len(self.engine.log)
        before = self.balancer.in_flight
        message = self.balancer.next_epoch(epoch)
        self.check_that_nothing_is_in_the_way(before, message.moves)
        self.announced -= {(life.move.slot, life.epoch or 0) for life in before if life.move.target in self.gone}
        for move in message.moves:
            assert self.owners[move.slot] == move.source, "a move must begin where the slot is"
            self.owners[move.slot] = move.target
            self.announced.add((move.slot, epoch))
        rows: defaultdict[SlotId, tuple[Row, ...]] = defaultdict(tuple)
        for slot, number in numbers:
            rows[slot] += ((epoch, number),)
            self.oracle[slot].append((epoch, number))
        self.engine.accept(dict(rows), self.balancer.table)
        self.saved = self.balancer.state
        self.engine.reports += [self.engine.report(lane, epoch) for lane in self.balancer.table.lanes]

    @rule(lanes=st.lists(some_lane, min_size=1, max_size=4), folds=st.integers(0, 4), durable=st.booleans())
    def run_lanes(self, lanes: list[LaneId], folds: int, durable: bool) -> None:
        for lane in lanes:
            if lane in self.engine.lanes and lane not in self.gone:
                self.run_lane(lane, folds)
                if durable:
                    self.engine.commit(lane)

    def run_lane(self, lane: LaneId, folds: int) -> None:
        """A lane gets some time: it does its part in the moves, has what it owns, and folds some epochs."""
        in_flight = self.balancer.in_flight
        for life in in_flight:
            if lane == life.move.target:
                self.engine.receive(life)
            elif lane == life.move.source:
                self.engine.let_go(life)
        for slot in set(self.balancer.table.slots_of(lane).tolist()) - {life.move.slot for life in in_flight}:
            self.engine.own(lane, slot, len(self.engine.log) - 1)
        for slot in range(SLOTS):
            for _ in range(folds):
                self.engine.fold(lane, slot)

    # --- the mail ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.engine.mail)
    @rule(letters=st.lists(st.tuples(st.integers(0, 9), some_fate), min_size=1, max_size=4))
    def post(self, letters: list[tuple[int, str]]) -> None:
        """Any letter may come next. One that arrives twice may do so much later."""
        for at, fate in letters[: len(self.engine.mail)]:
            letter = self.engine.mail.pop(at % len(self.engine.mail))
            if fate == "arrives twice":
                self.engine.mail.append(letter)
            if fate != "is lost":
                self.balancer.acknowledge(letter)

    @precondition(lambda self: self.engine.reports)
    @rule(count=st.integers(1, 8), newest=st.booleans(), fate=some_fate)
    def post_reports(self, count: int, newest: bool, fate: str) -> None:
        for _ in range(min(count, len(self.engine.reports))):
            report = self.engine.reports.pop(-1 if newest else 0)
            for _ in range({"arrives": 1, "arrives twice": 2, "is lost": 0}[fate]):
                self.balancer.report(report)

    # --- by hand -------------------------------------------------------------------------------------------------

    @rule(slot=some_slot, lane=some_lane, wait=st.integers(0, 2), back=st.booleans())
    def request(self, slot: SlotId, lane: LaneId, wait: int, back: bool) -> None:
        """Ask for a move, and perhaps back again; often it is the second one of a slot, or supersedes a plan."""
        here, when = int(self.balancer.table.owners[slot]), len(self.engine.log) + wait
        if lane in self.balancer.table.lanes and lane != here and self.gone.isdisjoint((lane, here)):
            plan = [QueuedStep((Move(slot, here, lane),), when), QueuedStep((Move(slot, lane, here),), when)]
            self.balancer.queue(plan if back else plan[:1])

    # --- failures ------------------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(
            [
                "lane",
                "source",
                "target",
                "both",
                "handoff",
                "balancer",
                "balancer's newest words",
                "lanes",
                "for good",
            ]
        ),
        lane=some_lane,
    )
    def fail(self, what: str, lane: LaneId) -> None:
        """One rule for all failures, so that they do not crowd out the rest."""
        moves = [life.move for life in self.balancer.in_flight]
        if what == "lane":
            self.crash(lane)
        elif what == "handoff":
            self.damage()
        elif what.startswith("balancer"):
            self.restart(self.balancer.state if what == "balancer" else self.saved)
        elif what == "lanes":
            self.change_lanes()
        elif what == "for good":
            self.leave_for_good(lane) if lane not in self.gone else self.come_back(lane)
        elif moves:
            for dead in (moves[0].source,) * (what != "target") + (moves[0].target,) * (what != "source"):
                self.crash(dead)

    def crash(self, lane: LaneId) -> None:
        """A lane's process dies and comes back empty; its letters may still be on the way."""
        if lane in self.engine.lanes:
            self.engine.lanes[lane].clear()
            self.balancer.lane_lost(lane)

    def damage(self) -> None:
        """Handoffs on their way cannot be read any more."""
        for life in self.balancer.in_flight:
            if (life.move.slot, life.epoch or 0) in self.engine.handoffs:
                self.engine.handoffs[life.move.slot, life.epoch or 0] = None

    def restart(self, state: BalancerState) -> None:
        """The balancer dies; what it left is as old as the last epoch record, at most."""
        self.balancer = Balancer.restored(state, self.policy, self.strategy, self.options)
        for lane in self.gone:
            self.balancer.lane_gone(lane)  # the engine finds out again

    def change_lanes(self) -> None:
        """One more lane comes; it goes once it owns nothing, even if it has not handed off all it had."""
        if LANES in self.gone or self.gone >= {*self.balancer.table.lanes} - {LANES}:
            return  # nobody lets the last lane go that is there
        lanes = {*self.balancer.table.lanes, LANES}
        if LANES not in self.engine.lanes:
            self.engine.lanes[LANES] = {}
        elif LANES not in self.balancer.table.owners:
            del self.engine.lanes[LANES]
            lanes.remove(LANES)
        self.balancer.lanes_changed(lanes)
        self.saved = self.balancer.state

    def leave_for_good(self, lane: LaneId) -> None:
        """A lane dies and does not come back, as far as anyone knows; its letters may still be on the way."""
        if lane in self.balancer.table.lanes and len(self.balancer.table.lanes) > len(self.gone) + 1:
            self.crash(lane)
            self.gone.add(lane)
            self.balancer.lane_gone(lane)

    def come_back(self, lane: LaneId) -> None:
        """It was there after all, or another process took its place; it is empty."""
        self.gone.remove(lane)
        self.balancer.lane_back(lane)
        self.saved = self.balancer.state

    # --- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def the_table_is_the_fold_of_the_announced_moves(self) -> None:
        assert self.balancer.table.owners.tolist() == self.owners

    @invariant()
    def every_copy_of_a_slot_is_what_the_oracle_had_then(self) -> None:
        """So nothing is lost, nothing applied twice, and all is in order: in memory, on the way and on disk."""
        copies = [(slot, held) for lane in self.engine.lanes.values() for slot, held in lane.items()]
        copies += self.engine.store.items()
        copies += [(slot, held) for (slot, _), held in self.engine.handoffs.items() if held is not None]
        for slot, held in copies:
            assert list(held.rows) == [row for row in self.oracle[slot] if row[0] <= held.version]

    @invariant()
    def no_two_lanes_can_serve_the_same_epoch_of_a_slot(self) -> None:
        epochs = len(self.engine.log)
        for slot in range(SLOTS):
            serving = [
                lane
                for lane, held in self.engine.lanes.items()
                if slot in held
                and all(
                    self.engine.routes[epoch].owners[slot] == lane for epoch in range(held[slot].version + 1, epochs)
                )
                and self.owners[slot] == lane
            ]
            assert len(serving) <= 1

    @invariant()
    def the_balancer_believes_only_what_has_happened(self) -> None:
        in_flight = {(life.move.slot, life.epoch or 0): life.phase for life in self.balancer.in_flight}
        assert self.announced - in_flight.keys() <= self.engine.installed
        assert all(key in self.engine.handoffs for key, phase in in_flight.items() if phase is Phase.IN_TRANSIT)

    @staticmethod
    def check_that_nothing_is_in_the_way(before: tuple[MoveLife, ...], moves: tuple[Move, ...]) -> None:
        """No lane of a new step has a part in a move under way, and no slot is in two moves.

        But for slots of lanes that are gone, which wait for nothing, and may have been on their way there.
        """
        moves = tuple(move for move in moves if not move.reason.endswith("is gone"))
        busy = {life.move.target for life in before}
        busy |= {life.move.source for life in before if life.phase is Phase.ANNOUNCED}
        assert busy.isdisjoint(lane for move in moves for lane in (move.source, move.target))
        slots = [life.move.slot for life in before] + [move.slot for move in moves]
        assert len(set(slots)) == len(slots)

    @invariant()
    def what_is_in_flight_is_told_and_not_settled(self) -> None:
        assert all(life.phase.is_in_flight for life in self.balancer.in_flight)

    def teardown(self) -> None:
        """Failures stop: every move settles, plans are carried out, every slot is where and what it should be."""
        if not hasattr(self, "balancer"):  # Hypothesis gave up before the start
            return
        for _ in range(2 + len(self.balancer.planned)):
            self.epoch([])
            for _ in range(3):
                for lane in self.engine.lanes.keys() - self.gone:
                    self.run_lane(lane, folds=len(self.engine.log))
                while self.engine.mail:
                    self.balancer.acknowledge(self.engine.mail.pop())
            assert self.balancer.in_flight == ()
        assert self.balancer.planned == ()
        for slot, lane in enumerate(self.owners):
            assert self.engine.lanes[lane][slot] == Held(len(self.engine.log) - 1, tuple(self.oracle[slot]))


def test_no_update_is_lost_or_applied_twice_whatever_fails() -> None:
    run_state_machine_as_test(
        MoveMachine,
        settings=settings(
            max_examples=400,
            stateful_step_count=50,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
