"""Random plans on many lanes: what overlaps, what waits and for whom, and that everything ends, whatever is lost.

The balancer alone, with lanes that say what the machine lets them say. `test_move_machine` shows that no row is lost.
"""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from evenflow.control import Ack, Balancer, BalancerOptions, LaneWish
from evenflow.control.fitting import fitted
from evenflow.control.journal import PhaseChanged, StepWaits
from evenflow.migration import STRATEGIES, Event, MoveLife, Phase, strategy_named
from evenflow.migration.protocol import TRANSITIONS
from evenflow.model import LaneId, LaneLoad, LoadReport, LoadView, Move, SlotId, SlotLoads
from tests.strategies import runs

SLOTS, LANES, MOST_LANES = 12, 6, 8

some_lane = st.integers(0, MOST_LANES - 1)
some_slots = st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=3, unique=True)


class Eager:
    """A policy that moves the slot with most records of whatever it is shown to the last lane there."""

    takes_parts = True

    def propose(self, view: LoadView) -> list[Move]:
        slot = int(view.last.slots.records.argmax())
        source, target = int(view.table.owners[slot]), view.table.lanes[-1]
        return [Move(slot, source, target)] if source != target else []


def lanes_of(moves: tuple[Move, ...] | list[Move]) -> set[LaneId]:
    return {lane for move in moves for lane in (move.source, move.target)}


class OverlapMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(strategy=st.sampled_from(sorted(STRATEGIES)), policy=st.booleans(), patience=st.sampled_from([1, 8]))
    def start(self, strategy: str, policy: bool, patience: int) -> None:
        options = BalancerOptions(patience=patience, min_lanes=1, max_lanes=MOST_LANES)
        asked = Eager() if policy else _Still()
        self.balancer = Balancer(runs(SLOTS, LANES), asked, strategy_named(strategy), options)
        self.at = -1
        self.gone: set[LaneId] = set()

    # --- what happens ----------------------------------------------------------------------------------------------

    @rule(reports=st.booleans())
    def epoch(self, reports: bool) -> None:
        self.at += 1
        before = self.balancer.in_flight
        plans = self.plans_of(before)
        moves = self.balancer.next_epoch(self.at).moves
        own = tuple(move for move in moves if not move.reason.endswith("is gone"))
        busy = {life.move.target for life in before}
        busy |= {life.move.source for life in before if life.phase is Phase.ANNOUNCED}
        assert busy.isdisjoint(lanes_of(own)), "a lane in the way makes a step wait"
        begun = self.plans_of(tuple(MoveLife(move, Phase.ANNOUNCED, self.at) for move in own))
        assert plans.isdisjoint(begun), "a plan has one step under way"
        self.check_that_nothing_waits_for_an_unrelated_lane()
        if reports:
            self.report()

    def report(self) -> None:
        table = self.balancer.table
        for lane in table.lanes:
            slots = table.slots_of(lane)
            counts = (slots * 7 + self.at) % 11
            loads = SlotLoads.of(counts, busy_s=counts * 0.01, state_bytes=np.full(slots.size, 9 << 20))
            self.act_on(self.balancer.report(LoadReport(self.at, LaneLoad(lane), slots, loads)))

    @rule(
        which=st.integers(0, 20),
        event=st.sampled_from([Event.HANDED_OFF, Event.INSTALLED, Event.INSTALLED, Event.HANDOFF_DAMAGED]),
    )
    def a_lane_says(self, which: int, event: Event) -> None:
        in_flight = self.balancer.in_flight
        if in_flight:
            life = in_flight[which % len(in_flight)]
            self.act_on(self.balancer.acknowledge(Ack(life.move.slot, life.epoch or 0, event)))

    @rule(slots=some_slots, lane=some_lane, wait=st.integers(0, 3))
    def request(self, slots: list[SlotId], lane: LaneId, wait: int) -> None:
        table = self.balancer.table
        moves = [Move(slot, int(table.owners[slot]), lane) for slot in slots if table.owners[slot] != lane]
        may_take = lane in table.lanes and lane not in self.balancer.draining
        if may_take and self.gone.isdisjoint(lanes_of(moves) | {lane}):
            self.balancer.request(moves, not_before=self.at + wait if wait else 0)

    @rule(lane=some_lane)
    def lose(self, lane: LaneId) -> None:
        if lane in self.balancer.table.lanes:
            self.balancer.lane_lost(lane)

    @rule(lane=some_lane)
    def leave_for_good_or_come_back(self, lane: LaneId) -> None:
        if lane in self.gone:
            self.gone.remove(lane)
            self.balancer.lane_back(lane)
        elif lane in self.balancer.table.lanes and len({*self.balancer.table.lanes} - self.gone) > 1:
            self.gone.add(lane)
            self.balancer.lane_lost(lane)
            self.balancer.lane_gone(lane)

    @rule(count=st.integers(1, MOST_LANES))
    def resize(self, count: int) -> None:
        if self.balancer.draining or self.balancer.adoption_waits:
            return
        table = self.balancer.table
        lanes = [*table.lanes[:count]]
        new = [lane for lane in range(MOST_LANES) if lane not in {*table.lanes, *self.gone}]
        lanes += new[: max(0, count - len(lanes))]
        if len(lanes) > len(table.lanes):
            self.balancer.lanes_changed(lanes)
        self.act_on(self.balancer.resize(fitted(table, lanes)))

    @rule()
    def restart(self) -> None:
        self.check_the_journal()
        old = self.balancer
        self.balancer = Balancer.restored(old.state, old.policy, old.strategy, old.options)
        for lane in self.gone:
            self.balancer.lane_gone(lane)

    def act_on(self, wish: LaneWish | None) -> None:
        """Do as the engine does: what is to stop stops at once."""
        if wish is not None:
            self.balancer.lanes_changed(lane for lane in self.balancer.table.lanes if lane not in wish.retire)

    # --- what must hold ----------------------------------------------------------------------------------------------

    def plans_of(self, lives: tuple[MoveLife, ...]) -> set[int]:
        """Return the plans that moves belong to, by the journal; what a restart has left belongs to none."""
        told = {(life.move, life.epoch or 0) for life in lives}
        newest = {
            (entry.move, entry.epoch): entry.plan
            for entry in self.balancer.journal.of(PhaseChanged)
            if entry.event is Event.ANNOUNCE
        }
        return {newest[key] for key in told if key in newest}

    def check_that_nothing_waits_for_an_unrelated_lane(self) -> None:
        """A move alone on its lanes, planned or under way, cannot still wait, unless for its epoch or its own plan."""
        due = [move for step in self.due_steps() for move in step]
        under_way = lanes_of([life.move for life in self.balancer.in_flight])
        for step in self.due_steps():
            others = lanes_of([move for move in due if move not in step])
            assert not under_way.isdisjoint(lanes_of(step)) or not others.isdisjoint(lanes_of(step))

    def due_steps(self) -> list[tuple[Move, ...]]:
        """Return the next steps of plans that have none under way and whose epoch has come."""
        moving = self.balancer._moving
        steps = moving.queue.next_steps(self.at)
        return [step.moves for step in steps if step.plan not in moving.under_way.plans]

    @invariant()
    def no_slot_is_in_two_moves_and_each_leads_where_the_table_says(self) -> None:
        lives = self.balancer.in_flight
        assert len({life.move.slot for life in lives}) == len(lives)
        assert all(self.balancer.table.owners[life.move.slot] == life.move.target for life in lives)
        assert all(life.phase.is_in_flight for life in lives)

    @invariant()
    def planned_moves_of_a_slot_follow_each_other(self) -> None:
        where = dict(enumerate(self.balancer.table.owners.tolist()))
        for move in self.balancer.planned:
            assert where[move.slot] == move.source
            where[move.slot] = move.target

    def teardown(self) -> None:
        """Lanes do their part from now on: every plan ends, phases were legal, and waits were told of once."""
        if not hasattr(self, "balancer"):
            return
        self.balancer.set_policy(_Still())
        for _ in range(5 + len(self.balancer.planned)):
            self.epoch(reports=False)
            for life in self.balancer.in_flight:
                self.act_on(self.balancer.acknowledge(Ack(life.move.slot, life.epoch or 0, Event.INSTALLED)))
        assert self.balancer.in_flight == ()
        assert self.balancer.planned == ()
        assert self.gone.isdisjoint(self.balancer.table.lanes)
        self.check_the_journal()

    def check_the_journal(self) -> None:
        journal = self.balancer.journal
        for entry in journal.of(PhaseChanged):
            assert TRANSITIONS[entry.before, entry.event] is entry.after
        waits = [(entry.epoch, entry.plan) for entry in journal.of(StepWaits) if entry.why.startswith("waits")]
        assert len(set(waits)) == len(waits), "at most once per plan and epoch"


class _Still:
    """A policy that moves nothing."""

    def propose(self, view: LoadView) -> list[Move]:  # noqa: ARG002 - the interface
        return []


def test_plans_overlap_without_getting_into_each_others_way() -> None:
    run_state_machine_as_test(
        OverlapMachine,
        settings=settings(
            max_examples=300,
            stateful_step_count=50,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
