"""Moves on their way: the old owner drains, extracts, the network carries, the new owner installs.

::

    announced ── drain ── extract ── transfer ── install ── settled
                   │         │                      │
      only "at the timestamp"└── HANDED_OFF         └── INSTALLED, said to the balancer

*At the timestamp*: the old owner first serves what came before the boundary. *At once*: it stops where it is and
what waits goes along. *Pause all*: as at once, and no lane serves anything until all is settled (Guo and Zhou).
*Forward and merge*: the new owner starts a partial state of its own, what waits is forwarded, the parts are merged
when the run is over (DPA); for mergeable operators only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from evenflow.control import Ack
from evenflow.errors import InputError
from evenflow.migration import Event
from evenflow.model import Epoch, LaneId, Move, SlotId
from evenflow.model.slots import FloatArray
from evenflow.sim.quantum.counts import Counts
from evenflow.sim.quantum.lanes import Chores
from evenflow.sim.quantum.network import Network
from evenflow.sim.quantum.placement import Placement

_ROUNDING = 1e-6  # records: sums of parts of cohorts


class Way(Enum):
    """How a slot changes hands."""

    AT_TIMESTAMP = "at the timestamp"
    AT_ONCE = "at once"
    PAUSE_ALL = "pause all"
    FORWARD_MERGE = "forward and merge"


@dataclass(frozen=True, slots=True)
class Handover:
    """The way, and what it costs: seconds of the lane per byte to extract and to install, and per move.

    `forward_s` is what the old owner pays per waiting record that it passes on (forward and merge only). With `streams`
    the new owner installs while the old one extracts: both are kept from serving at the same time (LR 3).
    """

    way: Way = Way.AT_TIMESTAMP
    extract_s_per_byte: float = 0.0
    install_s_per_byte: float = 0.0
    extract_s: float = 0.0
    install_s: float = 0.0
    forward_s: float = 0.0
    streams: bool = False

    def __post_init__(self) -> None:
        """Refuse negative costs."""
        costs = (self.extract_s_per_byte, self.install_s_per_byte, self.extract_s, self.install_s, self.forward_s)
        if min(costs) < 0:
            raise InputError(f"handover: costs must not be negative, got {self}")


@dataclass(slots=True)
class _Job:
    """One move on its way; `mark` is the records to be served before it, or the chore to be done."""

    move: Move
    epoch: Epoch
    size: float
    mark: float = 0.0
    left: float = 0.0
    wait_s: float = 0.0
    install_mark: float | None = None  # where the new owner installs while the old one extracts


class Handovers:
    """All moves on their way."""

    def __init__(
        self, handover: Handover, network: Network, placement: Placement, chores: Chores, sizes: FloatArray
    ) -> None:
        """Start with none."""
        self.handover, self.network = handover, network
        self.placement, self.chores, self.sizes = placement, chores, sizes
        self.bytes_moved = 0.0
        self.moved = 0
        self.partials: set[tuple[SlotId, LaneId]] = set()
        self._draining: list[_Job] = []
        self._extracting: dict[LaneId, deque[_Job]] = {}
        self._travelling: list[_Job] = []
        self._installing: dict[LaneId, deque[_Job]] = {}

    @property
    def under_way(self) -> bool:
        """Whether any slot is between two lanes."""
        return bool(self._draining or self._extracting or self._travelling or self._installing)

    @property
    def pauses_all(self) -> bool:
        """Whether no lane may serve now."""
        return self.handover.way is Way.PAUSE_ALL and self.under_way

    @property
    def merge_bytes(self) -> float:
        """What is left to merge in the end: all partial states but those at the present owners."""
        owner = self.placement.owner
        return float(sum(self.sizes[slot] for slot, lane in self.partials if owner[slot] != lane))

    def begin(self, moves: Sequence[Move], epoch: Epoch, step: int, counts: Counts, slow: FloatArray) -> list[Ack]:
        """Start moves that take effect at this step."""
        way = self.handover.way
        acks = []
        for move in moves:
            self.moved += 1
            slot = move.slot
            waiting = float(counts.arrived[slot] - counts.served[slot])
            if way is Way.FORWARD_MERGE:
                self.chores.give(move.source, waiting * self.handover.forward_s * slow[move.source])
                self.partials |= {(slot, move.source), (slot, move.target)}
                self.placement.route(slot, move.target, drain_before=None, absent=False)
                acks += [Ack(slot, epoch, Event.HANDED_OFF), Ack(slot, epoch, Event.INSTALLED)]
                continue
            drains = way is Way.AT_TIMESTAMP and waiting > _ROUNDING
            job = _Job(move, epoch, float(self.sizes[slot]), mark=float(counts.arrived[slot]))
            self.placement.route(slot, move.target, drain_before=step if drains else None, absent=True)
            if drains:
                self._draining.append(job)
            else:
                self._extract(job, slow)
        return acks

    def advance(self, span_s: float, now_s: float, served: FloatArray, slow: FloatArray) -> list[Ack]:
        """Bring all moves as far as they get in a step that ends at `now_s`; return what lanes say of them."""
        acks: list[Ack] = []
        if not self.under_way:
            return acks
        self._end_draining(served, slow)
        for job in self._done(self._extracting):
            acks.append(Ack(job.move.slot, job.epoch, Event.HANDED_OFF, now_s))
            job.left, job.wait_s = job.size, self.network.latency_s
            self.bytes_moved += job.size
            self._travelling.append(job)
        for job in self._carry(span_s):
            if job.install_mark is None:
                job.install_mark = self._install(job, slow)
            job.mark = job.install_mark
            self._installing.setdefault(job.move.target, deque()).append(job)
        for job in self._done(self._installing):
            self.placement.arrived(job.move.slot)
            acks.append(Ack(job.move.slot, job.epoch, Event.INSTALLED, now_s))
        return acks

    def _end_draining(self, served: FloatArray, slow: FloatArray) -> None:
        waiting = []
        for job in self._draining:
            if served[job.move.slot] < job.mark - _ROUNDING:
                waiting.append(job)
                continue
            self.placement.drained(job.move.slot)
            self._extract(job, slow)
        self._draining = waiting

    def _extract(self, job: _Job, slow: FloatArray) -> None:
        source, cost = job.move.source, self.handover.extract_s + job.size * self.handover.extract_s_per_byte
        job.mark = self.chores.give(source, cost * float(slow[source]))
        self._extracting.setdefault(source, deque()).append(job)
        if self.handover.streams:
            job.install_mark = self._install(job, slow)

    def _install(self, job: _Job, slow: FloatArray) -> float:
        """Give the new owner its part of the work; return the mark at which it is done."""
        target, cost = job.move.target, self.handover.install_s + job.size * self.handover.install_s_per_byte
        return self.chores.give(target, cost * float(slow[target]))

    def _done(self, queues: dict[LaneId, deque[_Job]]) -> Iterator[_Job]:
        """Take out the jobs whose chore is done."""
        for lane in list(queues):
            jobs = queues[lane]
            while jobs and self.chores.is_done(lane, jobs[0].mark):
                yield jobs.popleft()
            if not jobs:
                del queues[lane]

    def _carry(self, span_s: float) -> list[_Job]:
        """Send what the links let through in a step; return what has arrived."""
        if not self._travelling:
            return []
        sources = np.array([job.move.source for job in self._travelling])
        targets = np.array([job.move.target for job in self._travelling])
        rates = self.network.rates(sources, targets)
        for job, rate in zip(self._travelling, rates.tolist(), strict=True):
            usable = max(0.0, span_s - job.wait_s)
            job.wait_s = max(0.0, job.wait_s - span_s)
            job.left -= rate * usable if usable else 0.0
        there = [job for job in self._travelling if job.left <= 0 and job.wait_s <= 0]
        self._travelling = [job for job in self._travelling if job.left > 0 or job.wait_s > 0]
        return there
