"""What waits for the lanes, as cohorts: the records that came in one step. Each lane serves the oldest first.

Records are counted as real numbers: a cohort is served in proportion, so that a step costs a few array operations
however many records there are. A cohort keeps only slots with something left. When very many cohorts wait,
old ones are joined: latencies of what waited long become coarser, by at most a twentieth of themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from evenflow.model.slots import FloatArray, IntArray
from evenflow.sim.quantum.counts import sum_by

_ALL = 1.0 - 1e-12  # a share this close to 1 is 1: nothing is left but rounding
_MOST_COHORTS = 256
_COARSE = 0.1  # cohorts that are joined span at most this share of the time they have waited
NOBODY = -1  # the lane of records that cannot be served now


@dataclass
class Cohort:
    """Records that came between two moments: how many are left of each slot, and which lane may serve them."""

    step: int
    since_s: float
    until_s: float
    slots: IntArray
    left: FloatArray
    server: IntArray | None = None
    need_s: FloatArray | None = None

    @property
    def middle_s(self) -> float:
        """When half of it had come."""
        return (self.since_s + self.until_s) / 2


Servers = Callable[[Cohort], IntArray]


@dataclass(frozen=True, slots=True)
class Portion:
    """What lanes served of one cohort: records by slot, and by lane with the latency of their middle."""

    cohort: Cohort
    slots: IntArray
    server: IntArray
    records: FloatArray
    lanes: IntArray
    by_lane: FloatArray
    latency_s: FloatArray

    def only(self, records: FloatArray) -> Portion:
        """Return the same with fewer records of some slots."""
        by_lane = sum_by(self.server + 1, records, int(self.lanes.max(initial=0)) + 2)[1:]
        return replace(self, records=records, by_lane=by_lane[self.lanes])


@dataclass
class Backlog:
    """The cohorts that wait, oldest first. `cost_s` is seconds of an ordinary lane per record of each slot."""

    cost_s: FloatArray
    cohorts: list[Cohort] = field(default_factory=list)

    def add(self, step: int, since_s: float, until_s: float, slots: IntArray, records: FloatArray) -> None:
        """Put a new cohort at the end."""
        if slots.size:
            self.cohorts.append(Cohort(step, since_s, until_s, slots, records))

    def reassign(self) -> None:
        """Forget who serves what: owners, or what may be served, have changed."""
        for cohort in self.cohorts:
            cohort.server = cohort.need_s = None

    def waiting(self, slots: int) -> FloatArray:
        """Add up what is left of each slot."""
        total = np.zeros(slots)
        for cohort in self.cohorts:
            total[cohort.slots] += cohort.left
        return total

    def serve(
        self, budget_s: FloatArray, began_s: FloatArray, slow: FloatArray, servers: Servers
    ) -> tuple[list[Portion], FloatArray]:
        """Let each lane work for its budget, from `began_s` on; return what was served and the seconds used."""
        lanes = budget_s.size
        if not self.cohorts:
            return [], np.zeros(lanes)
        needs = self._needs(lanes, servers) * slow
        ends = np.cumsum(needs, axis=0)
        begins = ends - needs
        share = np.divide(budget_s - begins, needs, out=np.zeros_like(needs), where=needs > 0)
        np.clip(share, 0.0, 1.0, out=share)
        share[share >= _ALL] = 1.0
        served = []
        for at in np.flatnonzero(share.any(axis=1)).tolist():
            middle = began_s + begins[at] + share[at] * needs[at] / 2
            served.append(_take(self.cohorts[at], share[at], middle, slow))
        self.cohorts = [cohort for cohort in self.cohorts if cohort.slots.size]
        return served, np.minimum(np.maximum(budget_s, 0.0), ends[-1])

    def join_old(self) -> None:
        """Join neighbours that are old for their length, once there are very many; only while no boundary matters."""
        if len(self.cohorts) <= _MOST_COHORTS:
            return
        now_s = self.cohorts[-1].until_s
        kept = [self.cohorts[0]]
        for cohort in self.cohorts[1:]:
            if cohort.until_s - kept[-1].since_s <= _COARSE * (now_s - cohort.until_s):
                kept[-1] = _joined(kept[-1], cohort)
            else:
                kept.append(cohort)
        self.cohorts = kept

    def _needs(self, lanes: int, servers: Servers) -> FloatArray:
        """Return the seconds that each cohort (row) needs of each lane (column), at ordinary speed."""
        rows: list[FloatArray] = []
        for cohort in self.cohorts:
            if cohort.server is None:
                cohort.server = servers(cohort)
            if cohort.need_s is None or cohort.need_s.size != lanes:
                work = cohort.left * self.cost_s[cohort.slots]
                cohort.need_s = sum_by(cohort.server + 1, work, lanes + 1)[1:]
            rows.append(cohort.need_s)
        return np.stack(rows)


def _take(cohort: Cohort, share: FloatArray, middle_s: FloatArray, slow: FloatArray) -> Portion:
    """Take `share` of what each lane has in the cohort out of it."""
    if cohort.server is None or cohort.need_s is None:
        raise AssertionError("a cohort is served after its needs were added up")
    lanes = share.size
    by_slot = np.append(share, 0.0)[cohort.server]  # NOBODY is the last entry
    taken = cohort.left * by_slot
    cohort.left = cohort.left - taken
    used = cohort.need_s * share
    cohort.need_s = np.where(share == 1.0, 0.0, cohort.need_s - used)
    slots = cohort.slots
    by_lane = sum_by(cohort.server + 1, taken, lanes + 1)[1:]
    at = np.flatnonzero(by_lane)
    service = used[at] * slow[at] / by_lane[at]
    latency = np.maximum(middle_s[at] - cohort.middle_s, service)
    portion = Portion(cohort, slots, cohort.server, taken, at, by_lane[at], latency)
    _compact(cohort)
    return portion


def _compact(cohort: Cohort) -> None:
    """Keep only slots with something left, once they are the lesser half."""
    left = np.count_nonzero(cohort.left)
    if 2 * left <= cohort.slots.size and cohort.server is not None:
        keep = np.flatnonzero(cohort.left)
        cohort.slots, cohort.left, cohort.server = cohort.slots[keep], cohort.left[keep], cohort.server[keep]


def _joined(older: Cohort, newer: Cohort) -> Cohort:
    slots, where = np.unique(np.concatenate([older.slots, newer.slots]), return_inverse=True)
    left = sum_by(where, np.concatenate([older.left, newer.left]), slots.size)
    return Cohort(newer.step, older.since_s, newer.until_s, slots, left)
