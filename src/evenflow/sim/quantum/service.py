"""Lanes at work in a step: chores first, then input that was spooled, then what waits, oldest first."""

from __future__ import annotations

import numpy as np

from evenflow.model.slots import FloatArray
from evenflow.sim.quantum.backlog import Backlog, Portion
from evenflow.sim.quantum.counts import Counts, sum_by
from evenflow.sim.quantum.lanes import Chores
from evenflow.sim.quantum.placement import Placement
from evenflow.sim.quantum.timeline import Recorder


class Service:
    """What waits for lanes and what they do about it.

    `spool_s` is the price of putting a record of a spilled slot on disk; None leaves it waiting. What is on disk
    is in `spool`, and goes first once its slot is in memory again (FX 6.1).
    """

    def __init__(self, cost_s: FloatArray, spool_s: float | None, placement: Placement, chores: Chores) -> None:
        """Start with nothing waiting."""
        self.placement, self.chores = placement, chores
        self.cost_s, self.spool_s = cost_s, spool_s
        self.backlog, self.spool = Backlog(cost_s), Backlog(cost_s)
        self.spooled = np.zeros(cost_s.size)

    def reassign(self) -> None:
        """Owners, or what is in memory, have changed."""
        if self.spool_s is not None:
            self.backlog.cost_s = np.where(self.placement.spilled, self.spool_s, self.cost_s)
        self.backlog.reassign()
        self.spool.reassign()
        self.placement.changed = False

    def join_old(self) -> None:
        """Keep the number of cohorts in bounds."""
        self.spool.join_old()
        if not self.placement.has_boundaries:
            self.backlog.join_old()

    def waiting(self) -> FloatArray:
        """Return what waits for each slot, counted in the queues themselves."""
        return self.backlog.waiting(self.cost_s.size) + self.spool.waiting(self.cost_s.size)

    def work(self, now_s: float, span_s: float, slow: FloatArray, *, paused: bool) -> tuple[list[Portion], FloatArray]:
        """Let lanes work for a step; return what was served, and the seconds each lane was busy."""
        chores = self.chores.work(np.full(slow.size, span_s))
        if paused:
            return [], chores
        served: list[Portion] = []
        used = chores.copy()
        if self.spool.cohorts:
            served, on_spool = self.spool.serve(span_s - used, now_s + used, slow, self.placement.servers)
            for portion in served:
                self.spooled[portion.slots] -= portion.records
            used += on_spool
        fresh = self.placement.servers if self.spool_s is None else self.placement.takers
        portions, on_fresh = self.backlog.serve(span_s - used, now_s + used, slow, fresh)
        return served + [self._put_aside(portion) for portion in portions], used + on_fresh

    def _put_aside(self, portion: Portion) -> Portion:
        """Spool the part of a portion whose slots are on disk; return the rest, which was served."""
        aside = self.placement.spilled[portion.slots] & (portion.records > 0)
        if self.spool_s is None or not aside.any():
            return portion
        slots, records, cohort = portion.slots[aside], portion.records[aside], portion.cohort
        self.spool.add(cohort.step, cohort.since_s, cohort.until_s, slots, records)
        self.spooled[slots] += records
        kept = np.where(aside, 0.0, portion.records)
        return portion.only(kept)


def book(portions: list[Portion], counts: Counts, recorder: Recorder, cost_s: FloatArray, slow: FloatArray) -> None:
    """Count what was served, by slot and by lane."""
    for portion in portions:
        counts.served[portion.slots] += portion.records
        counts.busy_s[portion.slots] += portion.records * cost_s[portion.slots] * np.append(slow, 0.0)[portion.server]
        recorder.served(portion.lanes, portion.by_lane, portion.latency_s)


def in_connections(counts: Counts, service: Service, lanes: int) -> FloatArray:
    """Return the records in the connections of each lane: what it has not taken in yet."""
    placement = service.placement
    return np.maximum(0.0, sum_by(placement.holder, counts.waiting - service.spooled, lanes))
