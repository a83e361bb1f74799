"""The loop of the quantum level: records come, lanes serve, moves go on, lanes report, the balancer decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evenflow.control import Ack, Balancer, BalancerOptions, LaneWish
from evenflow.errors import EvenflowError, InputError
from evenflow.migration import Event, Strategy, strategy_named
from evenflow.migration.strategies import DEFAULT_STRATEGY
from evenflow.model import LoadView
from evenflow.model.slots import BoolArray, FloatArray
from evenflow.policies import Policy, Proposal, proposal_of
from evenflow.policies.base import policy_name
from evenflow.sim.quantum.admission import Queues
from evenflow.sim.quantum.counts import Counts, sum_by
from evenflow.sim.quantum.flow import Producers
from evenflow.sim.quantum.handover import Handovers, Way
from evenflow.sim.quantum.lanes import Chores
from evenflow.sim.quantum.memory import Spiller
from evenflow.sim.quantum.placement import Placement
from evenflow.sim.quantum.reports import Reporter
from evenflow.sim.quantum.scenario import Scenario
from evenflow.sim.quantum.service import Service, book, in_connections
from evenflow.sim.quantum.timeline import Recorder, Timeline

_ROUNDING = 1e-6  # records are sums of parts of cohorts: relative error allowed


class ConservationError(EvenflowError):
    """Records were lost or made up, or a slot has two owners: a defect of the simulator."""


def simulate(
    scenario: Scenario,
    policy: Policy,
    strategy: Strategy | None = None,
    options: BalancerOptions | None = None,
    seed: int = 1,
) -> Timeline:
    """Run `scenario` under `policy`; the same seed gives the same timeline."""
    cluster = cluster_under(scenario, policy, strategy, options, seed)
    for _ in range(scenario.steps):
        cluster.step()
    return cluster.timeline()


def cluster_under(
    scenario: Scenario, policy: Policy, strategy: Strategy | None, options: BalancerOptions | None, seed: int
) -> Cluster:
    """Return the cluster of `scenario` at time 0, with a balancer of its own that asks `policy`."""
    chosen = strategy or strategy_named(DEFAULT_STRATEGY)
    asked = Listening(policy) if scenario.stretch else policy
    brakes = options or BalancerOptions()
    stops_all = brakes.move_cost.stops_all or scenario.handover.way is Way.PAUSE_ALL
    cost = replace(brakes.move_cost, stops_all=stops_all)
    balancer = Balancer(scenario.first_table, asked, chosen, replace(brakes, move_cost=cost))
    return Cluster(scenario, balancer, np.random.default_rng(seed))


class Listening:
    """A policy that asks another one, and remembers how long that wants to collect before the next call."""

    def __init__(self, policy: Policy) -> None:
        """Ask `policy`."""
        self.policy, self.name = policy, policy_name(policy)
        self.collect_s: float | None = None

    def propose(self, view: LoadView) -> Proposal:
        """Pass on the proposal."""
        proposal = proposal_of(self.policy, view)
        self.collect_s = proposal.collect_s
        return proposal


class Cluster:
    """A cluster in virtual time. `step` brings it one quantum further."""

    def __init__(self, scenario: Scenario, balancer: Balancer, rng: np.random.Generator) -> None:
        """Start at time 0 with empty queues."""
        self.scenario, self.balancer, self.rng = scenario, balancer, rng
        self.at = 0
        slots, numbers = scenario.slots, max(balancer.table.lanes) + 1
        self.cost_s, self.sizes = scenario.per_slot("seconds_per_record"), scenario.per_slot("state_bytes")
        self.placement = Placement(balancer.table)
        self.chores = Chores(numbers)
        memory, self.important = scenario.memory, scenario.important_slots
        spool_s = memory.spool_s if memory else None
        self.service = Service(self.cost_s, spool_s, self.placement, self.chores, self.important)
        self.spiller = Spiller(memory, self.placement, self.chores, self.sizes) if memory else None
        flow = scenario.flow
        if flow and flow.river and policy_name(balancer.policy) != "static":
            raise InputError(
                f"river sends records wherever there is room, which leaves policy {policy_name(balancer.policy)!r} "
                "nothing to move; choose 'static'"
            )
        self.producers = Producers(flow, slots, numbers, rng) if flow else None
        self.handovers = Handovers(scenario.handover, scenario.network, self.placement, self.chores, self.sizes)
        self.counts = Counts(slots, numbers)
        self.reporter = Reporter(self.counts, self.placement, self.sizes)
        row_s = scenario.epoch_s * scenario.row_epochs
        self.recorder = Recorder(row_s, numbers, classed=self.important is not None)
        self._starting: list[tuple[float, int]] = []
        self._epoch, self._epoch_began = -1, 0
        self._epoch_ended = True

    @property
    def now_s(self) -> float:
        """The virtual time at the start of the step."""
        return self.at * self.scenario.step_s

    @property
    def lane_numbers(self) -> int:
        """One more than the highest lane number there has been."""
        return int(self.chores.given_s.size)

    def step(self, offered: FloatArray | None = None) -> None:
        """Go one step; `offered` records come to each slot in it, instead of those of the scenario's arrivals."""
        scenario = self.scenario
        if self._epoch_ended:
            self._start_lanes()
        slow = 1.0 / scenario.speeds.at(self.now_s, self.lane_numbers)
        if self._epoch_ended:
            self._begin_epoch(slow)
        if self.spiller:
            self.spiller.step(self.now_s, scenario.step_s, self.service.spooled, self.lane_numbers)
        if self.placement.changed:
            self.service.reassign()
        self._take_in(offered)
        self._serve(slow)
        self.at += 1
        self._hear(self.handovers.advance(scenario.step_s, self.now_s, self.counts.served, slow))
        self.service.join_old()
        if self._epoch_is_over():
            self._end_epoch()
        if self.at % (scenario.epoch_steps * scenario.row_epochs) == 0:
            self._end_row()

    def add_lanes(self, count: int) -> None:
        """Start more lanes by hand; they are there once they have started, and empty until a policy moves slots."""
        self._grant(LaneWish(add=count))

    def timeline(self) -> Timeline:
        """Return what has happened so far, in whole rows."""
        self.check()
        return self.recorder.timeline(self.balancer.table, self.balancer.journal, self.handovers.merge_bytes, 0.0)

    def check(self) -> None:
        """Raise unless what came equals what was served plus what waits, for each slot, and owners agree."""
        waits = self.service.waiting()
        arrived, served = self.counts.arrived, self.counts.served
        wrong = np.abs(arrived - served - waits) > _ROUNDING * (1.0 + arrived)
        if wrong.any():
            slot = int(np.flatnonzero(wrong)[0])
            raise ConservationError(
                f"slot {slot}: {arrived[slot]} records came, {served[slot]} were served, {waits[slot]} wait"
            )
        if self.important is not None:
            self._check_important(self.important)
        if not np.array_equal(self.placement.owner, self.balancer.table.owners):
            raise ConservationError("the routing table and the cluster disagree on who owns a slot")

    def _check_important(self, important: BoolArray) -> None:
        """Raise unless the books by class and those by slot agree."""
        for what in ("arrived", "served"):
            by_slot = float(getattr(self.counts, what)[important].sum())
            by_class = getattr(self.recorder, f"important_{what}")
            if abs(by_slot - by_class) > _ROUNDING * (1.0 + by_slot):
                raise ConservationError(f"important slots: {by_slot} records {what} by slot, {by_class} by class")

    # --- one step ------------------------------------------------------------------------------------------------

    def _begin_epoch(self, slow: FloatArray) -> None:
        self._epoch += 1
        self._epoch_began, self._epoch_ended = self.at, False
        message = self.balancer.next_epoch(self._epoch, self.now_s)
        if not message.moves:
            return
        self.recorder.moved(len(message.moves), 0)
        if self.spiller:
            for move in message.moves:
                self.spiller.leave(move.slot)
        acks = self.handovers.begin(message.moves, self._epoch, self.at, self.counts, slow)
        self._hear([Ack(ack.slot, ack.epoch, ack.event, self.now_s) for ack in acks])

    def _take_in(self, offered: FloatArray | None) -> None:
        """Let the records of this step arrive."""
        scenario = self.scenario
        rates = scenario.arrivals.rates(self.now_s)
        if self.producers:
            stalled, total = self.placement.absent, rates.sum()
            shares = rates / total if total > 0 else rates
            records = self.producers.fill(shares, self.placement.owner, stalled, scenario.step_s)
            refused = 0.0
        else:
            if offered is None:
                expected = rates * scenario.step_s
                offered = self.rng.poisson(expected).astype(np.float64) if scenario.poisson else expected
            records, refused = self._admit(offered)
        self.counts.arrived += records
        self.service.add(self.at, self.now_s, self.now_s + scenario.step_s, records)
        self.recorder.came(float(records.sum()), refused)

    def _admit(self, offered: FloatArray) -> tuple[FloatArray, float]:
        """Return what is let in, and how much was refused."""
        limit, important = self.scenario.queue_records, self.important
        records = offered if limit is None else self._find_room(offered, limit)
        if important is not None:
            came = float(records[important].sum())
            self.recorder.important_came(came, float(offered[important].sum()) - came)
        return records, 0.0 if records is offered else float(offered.sum() - records.sum())

    def _find_room(self, offered: FloatArray, limit: float) -> FloatArray:
        """Return what finds room in its lane's queue; what waits in the place of something important has to go."""
        queues = Queues(self.counts.waiting, self.placement.owner, self.lane_numbers, limit)
        if self.important is None:
            return queues.admit(offered)
        may_go = ~self.important & ~self.placement.draining  # a drain ends after a number of records
        records, share = queues.admit_by_class(offered, self.important, may_go)
        if share.any():
            going = queues.waiting * share
            self.service.drop(share)
            self.counts.arrived -= going
            self.recorder.came(-float(going.sum()), float(going.sum()))  # refused after all
        return records

    def _by_lane(self, per_slot: FloatArray) -> FloatArray:
        """Add up a column by owner; entry i is lane number i."""
        return sum_by(self.placement.owner, per_slot, self.lane_numbers)

    def _serve(self, slow: FloatArray) -> None:
        """Let lanes work for a step."""
        span_s = self.scenario.step_s
        portions, busy = self.service.work(self.now_s, span_s, slow, paused=self.handovers.pauses_all)
        book(portions, self.counts, self.recorder, self.cost_s, slow)
        idle = span_s - busy
        self.counts.idle_s += idle
        self.recorder.worked(busy, idle)
        if self.producers:
            self.producers.taken(in_connections(self.counts, self.service, self.lane_numbers))

    def _hear(self, acks: list[Ack]) -> None:
        for ack in acks:
            if ack.event is Event.INSTALLED:
                self.recorder.moved(0, 1)
                if self.spiller:
                    self.spiller.arrive(ack.slot)
            self._grant(self.balancer.acknowledge(ack))

    def _epoch_is_over(self) -> bool:
        """An epoch has its length; a stretched one is as long as the policy collects, or moves are under way."""
        scenario, length = self.scenario, self.at - self._epoch_began
        if length < scenario.epoch_steps:
            return False
        if not scenario.stretch:
            return True
        wanted_s = getattr(self.balancer.policy, "collect_s", None) or 0.0
        return not self.handovers.under_way and length * scenario.step_s >= wanted_s - _ROUNDING * scenario.step_s

    def _end_epoch(self) -> None:
        """Report."""
        scenario, table = self.scenario, self.balancer.table
        span_s = (self.at - self._epoch_began) * scenario.step_s
        self._epoch_ended = True
        budgets = self.spiller.budgets(self.now_s, self.lane_numbers) if self.spiller else None
        self._grant(self.balancer.report_all(self.reporter.load(self._epoch, span_s, table, budgets)))
        self.counts.reported()

    def _end_row(self) -> None:
        """Check the books and close the row."""
        self.check()
        backlog = self._by_lane(self.counts.waiting)
        lanes, spilled = self.balancer.table.lanes, int(self.placement.spilled.sum())
        self.recorder.end_row(self.now_s, backlog, self.handovers.bytes_moved, lanes, spilled)

    # --- lanes that come and go ----------------------------------------------------------------------------------

    def _grant(self, wish: LaneWish | None) -> None:
        """Do what the balancer asks for: new lanes take a while to start, idle ones stop at once."""
        if wish is None:
            return
        if wish.add:
            self._starting.append((self.now_s + self.scenario.lane_start_s, wish.add))
        if wish.retire:
            self.balancer.lanes_changed([lane for lane in self.balancer.table.lanes if lane not in wish.retire])

    def _start_lanes(self) -> None:
        due = [count for at_s, count in self._starting if at_s <= self.now_s + 1e-9]
        if not due:
            return
        self._starting = [entry for entry in self._starting if entry[0] > self.now_s + 1e-9]
        lanes = list(self.balancer.table.lanes)
        for _ in range(sum(due)):
            lanes.append(lanes[-1] + 1)
        numbers = max(self.lane_numbers, lanes[-1] + 1)
        self.chores.grow(numbers)
        self.recorder.grow(numbers)
        self.counts.grow(numbers)
        if self.producers:
            self.producers.grow(numbers)
        self.service.reassign()
        self.balancer.lanes_changed(lanes)
