"""Lanes at work in a step: chores first, then spooled input, then what waits: the important first, oldest first."""

from __future__ import annotations

import numpy as np

from evenflow.model.slots import BoolArray, FloatArray
from evenflow.sim.quantum.backlog import Backlog, Portion
from evenflow.sim.quantum.counts import Counts, sum_by
from evenflow.sim.quantum.lanes import Chores
from evenflow.sim.quantum.placement import Placement
from evenflow.sim.quantum.timeline import Recorder


class Service:
    """What waits for lanes and what they do about it.

    `spool_s` is the price of putting a record of a spilled slot on disk; None leaves it waiting. What is on disk
    is in `spool`, and goes first once its slot is in memory again (FX 6.1). `queues` are served one after the other:
    one queue for all slots, or first that of the `important` ones (FX-F4). A slot is in one queue for good, which
    keeps its order.
    """

    def __init__(
        self,
        cost_s: FloatArray,
        spool_s: float | None,
        placement: Placement,
        chores: Chores,
        important: BoolArray | None = None,
    ) -> None:
        """Start with nothing waiting."""
        self.placement, self.chores = placement, chores
        self.cost_s, self.spool_s, self.important = cost_s, spool_s, important
        self.queues, self.spool = [Backlog(cost_s)], Backlog(cost_s, most=64)
        if important is not None:
            self.queues.insert(0, Backlog(cost_s, important=True))
        self.spooled = np.zeros(cost_s.size)

    def add(self, step: int, since_s: float, until_s: float, records: FloatArray) -> None:
        """Put what came in a step, by slot, behind what waits."""
        there = records != 0.0
        mine = (there,) if self.important is None else (there & self.important, there & ~self.important)
        for queue, chosen in zip(self.queues, mine, strict=True):
            slots = chosen.nonzero()[0]
            queue.add(step, since_s, until_s, slots, records[slots])

    def drop(self, share: FloatArray) -> None:
        """Let a share of what waits for each slot go."""
        for queue in self.queues:
            queue.drop(share)

    def reassign(self) -> None:
        """Owners, or what is in memory, have changed."""
        self.placement.settle()
        for queue in self.queues:
            if self.spool_s is not None:
                queue.cost_s = np.where(self.placement.spilled, self.spool_s, self.cost_s)
            queue.reassign()
        self.spool.reassign()

    def join_old(self) -> None:
        """Keep the number of cohorts in bounds, unless a boundary says who serves which of them."""
        many = [queue for queue in (self.spool, *self.queues) if len(queue.cohorts) > queue.most]
        if many and not self.placement.has_boundaries:
            for queue in many:
                queue.join_old()

    def waiting(self) -> FloatArray:
        """Return what waits for each slot, counted in the queues themselves."""
        slots = self.cost_s.size
        total: FloatArray = np.sum([queue.waiting(slots) for queue in (*self.queues, self.spool)], axis=0)
        return total

    def work(self, now_s: float, span_s: float, slow: FloatArray, *, paused: bool) -> tuple[list[Portion], FloatArray]:
        """Let lanes work for a step; return what was served, and the seconds each lane was busy."""
        chores = self.chores.work(np.full(slow.size, span_s))
        if paused:
            return [], chores
        used, portions = chores.copy(), []
        if self.spool.cohorts:
            old, on_spool = self.spool.serve(span_s - used, now_s + used, slow, self.placement.servers)
            if old is not None:
                np.subtract.at(self.spooled, old.slots, old.records)
                portions.append(old)
            used += on_spool
        fresh = self.placement.servers if self.spool_s is None else self.placement.takers
        for queue in self.queues:
            new, on_fresh = queue.serve(span_s - used, now_s + used, slow, fresh)
            if new is not None:
                portions.append(new if self.spool_s is None else self._put_aside(new))
            used += on_fresh
        return portions, used

    def _put_aside(self, portion: Portion) -> Portion:
        """Spool the part of a portion whose slots are on disk; return the rest, which was served."""
        aside = self.placement.spilled[portion.slots] & (portion.records > 0)
        if not aside.any():
            return portion
        row, slots, records = portion.row[aside], portion.slots[aside], portion.records[aside]
        for at, cohort in enumerate(portion.cohorts):
            here = row == at
            self.spool.add(cohort.step, cohort.since_s, cohort.until_s, slots[here], records[here])
        np.add.at(self.spooled, slots, records)
        return portion.only(np.where(aside, 0.0, portion.records))


def book(portions: list[Portion], counts: Counts, recorder: Recorder, cost_s: FloatArray, slow: FloatArray) -> None:
    """Count what was served, by slot and by lane."""
    by_server = np.append(0.0, slow)
    for portion in portions:
        busy_s = portion.records * cost_s[portion.slots] * by_server[portion.server]
        np.add.at(counts.served, portion.slots, portion.records)  # a slot may be there once per cohort
        np.add.at(counts.busy_s, portion.slots, busy_s)
        recorder.served(portion.lanes, portion.by_lane, portion.latency_s, important=portion.important)


def in_connections(counts: Counts, service: Service, lanes: int) -> FloatArray:
    """Return the records in the connections of each lane: what it has not taken in yet."""
    placement = service.placement
    return np.maximum(0.0, sum_by(placement.holder, counts.waiting - service.spooled, lanes))
