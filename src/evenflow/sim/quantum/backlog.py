"""What waits for the lanes, as cohorts: the records that came in one step. Each lane serves the oldest first.

Records are counted as real numbers: a cohort is served in proportion, so that a step costs a few array operations
however many records there are. A cohort keeps only slots with something left. When very many cohorts wait,
old ones are joined: latencies of what waited long become coarser, by at most a twentieth of themselves.

All cohorts that are served in a step are handled together: their entries stand one after the other in flat arrays,
and `row` tells of each entry which cohort it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from evenflow.model.slots import FloatArray, IntArray
from evenflow.sim.quantum.counts import sum_by

_ALL = 1.0 - 1e-12  # a share this close to 1 is 1: nothing is left but rounding
_COARSE = 0.1  # cohorts that are joined span at most this share of the time they have waited
NOBODY = 0  # the server of records that cannot be served now; the others are the number of a lane plus 1


@dataclass
class Cohort:
    """Records that came between two moments: how many are left of each slot, and who may serve them."""

    step: int
    since_s: float
    until_s: float
    slots: IntArray
    left: FloatArray
    server: IntArray | None = None

    @property
    def middle_s(self) -> float:
        """When half of it had come."""
        return (self.since_s + self.until_s) / 2


Servers = Callable[[IntArray, IntArray | int], IntArray]
"""From slots, and the steps in which their records came, to who may serve them."""


@dataclass(frozen=True, slots=True)
class Portion:
    """What lanes served in one go, cohort by cohort: records by slot, and by lane with the latency of their middle.

    Entry i of `slots`, `server` and `records` is of cohort `row[i]`, entry i of `lanes`, `by_lane` and `latency_s`
    of cohort `lane_row[i]`. All of it is of one class: `important` or not.
    """

    cohorts: Sequence[Cohort]
    row: IntArray
    slots: IntArray
    server: IntArray
    records: FloatArray
    lane_row: IntArray
    lanes: IntArray
    by_lane: FloatArray
    latency_s: FloatArray
    important: bool = False

    def only(self, records: FloatArray) -> Portion:
        """Return the same with fewer records of some slots."""
        lanes = max(int(self.server.max(initial=0)), int(self.lanes.max(initial=-1)) + 1)
        by_lane = _by_row_and_lane(self.row, self.server, records, (len(self.cohorts), lanes))
        return replace(self, records=records, by_lane=by_lane[self.lane_row, self.lanes])


@dataclass
class Backlog:
    """The cohorts that wait, oldest first, not many more than `most`.

    `cost_s` is seconds of an ordinary lane per record of each slot.
    """

    cost_s: FloatArray
    most: int = 256
    important: bool = False
    cohorts: list[Cohort] = field(default_factory=list)
    _need_s: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))  # by cohort and lane, at ordinary speed

    def add(self, step: int, since_s: float, until_s: float, slots: IntArray, records: FloatArray) -> None:
        """Put a new cohort at the end."""
        if slots.size:
            self.cohorts.append(Cohort(step, since_s, until_s, slots, records))

    def reassign(self) -> None:
        """Forget who serves what: owners, or what may be served, have changed."""
        for cohort in self.cohorts:
            cohort.server = None

    def waiting(self, slots: int) -> FloatArray:
        """Add up what is left of each slot."""
        total = np.zeros(slots)
        for cohort in self.cohorts:
            total[cohort.slots] += cohort.left
        return total

    def drop(self, share: FloatArray) -> None:
        """Let a share of what waits go, of each slot; what stays keeps its order."""
        for cohort in self.cohorts:
            cohort.left = cohort.left * (1.0 - share[cohort.slots])
        self.cohorts = [cohort for cohort in self.cohorts if cohort.left.any()]
        self._need_s = np.zeros((0, self._need_s.shape[1]))  # to be added up anew
        self.reassign()

    def serve(
        self, budget_s: FloatArray, began_s: FloatArray, slow: FloatArray, servers: Servers
    ) -> tuple[Portion | None, FloatArray]:
        """Let each lane work for its budget, from `began_s` on; return what was served and the seconds used."""
        lanes = budget_s.size
        if not self.cohorts:
            return None, np.zeros(lanes)
        self._add_up(lanes, servers)
        needs = self._need_s * slow
        ends = needs.cumsum(axis=0)
        begins = ends - needs
        share = np.divide(budget_s - begins, needs, out=np.zeros(needs.shape), where=needs > 0)
        share = np.minimum(np.maximum(share, 0.0), 1.0)
        share[share >= _ALL] = 1.0
        used_s = np.minimum(np.maximum(budget_s, 0.0), ends[-1])
        rows = np.flatnonzero(share.any(axis=1))
        if not rows.size:
            return None, used_s
        share = share[rows]
        middle_s = began_s + begins[rows] + share * needs[rows] / 2
        return self._take(rows.tolist(), share, middle_s, slow), used_s

    def join_old(self) -> None:
        """Join neighbours that are old for their length; only while no boundary matters."""
        now_s = self.cohorts[-1].until_s
        kept, rows = [self.cohorts[0]], [0]
        for row, cohort in enumerate(self.cohorts[1:], start=1):
            if cohort.until_s - kept[-1].since_s <= _COARSE * (now_s - cohort.until_s):
                kept[-1] = _joined(kept[-1], cohort)
            else:
                kept.append(cohort)
                rows.append(row)
        self.cohorts, self._need_s = kept, self._need_s[[row for row in rows if row < len(self._need_s)]]

    def _add_up(self, lanes: int, servers: Servers) -> None:
        """Find out who serves the cohorts of which that is not known, and the seconds they need of each lane."""
        if self._need_s.shape[1] != lanes:
            self.reassign()
        if self._need_s.shape != (len(self.cohorts), lanes):
            known, self._need_s = self._need_s, np.zeros((len(self.cohorts), lanes))
            if known.shape[1] == lanes:
                self._need_s[: len(known)] = known  # new cohorts are at the end
        new = [row for row, cohort in enumerate(self.cohorts) if cohort.server is None]
        if not new:
            return
        cohorts = [self.cohorts[row] for row in new]
        row, slots, left = _flat(cohorts)
        steps = cohorts[0].step if len(cohorts) == 1 else np.array([cohort.step for cohort in cohorts])[row]
        server = servers(slots, steps)
        self._need_s[new] = _by_row_and_lane(row, server, left * self.cost_s[slots], (len(cohorts), lanes))
        for cohort, part in zip(cohorts, _parts(cohorts), strict=True):
            cohort.server = server[part]

    def _take(self, rows: list[int], share: FloatArray, middle_s: FloatArray, slow: FloatArray) -> Portion:
        """Take `share` of what each lane has in the cohorts `rows` out of them."""
        cohorts = [self.cohorts[row] for row in rows]
        row, slots, left = _flat(cohorts)
        server = _flat_servers(cohorts)
        by_server = np.zeros((share.shape[0], share.shape[1] + 1))  # the first column is NOBODY's
        by_server[:, 1:] = share
        taken = left * by_server[row, server]
        need_s = self._need_s[rows]
        used_s = need_s * share
        self._need_s[rows] = np.where(share == 1.0, 0.0, need_s - used_s)
        by_lane = _by_row_and_lane(row, server, taken, share.shape)
        some = by_lane != 0.0
        at, lanes = some.nonzero()
        records = by_lane[some]
        service_s = (used_s * slow)[some] / records
        came_s = np.array([cohort.middle_s for cohort in cohorts])
        latency_s = np.maximum(middle_s[some] - came_s[at], service_s)
        self._put_back(rows, cohorts, left - taken)
        return Portion(cohorts, row, slots, server, taken, at, lanes, records, latency_s, self.important)

    def _put_back(self, rows: list[int], cohorts: list[Cohort], left: FloatArray) -> None:
        """Put back what is `left` of cohorts; one without anything left is gone."""
        gone = set()
        for row, cohort, part in zip(rows, cohorts, _parts(cohorts), strict=True):
            cohort.left = left[part]
            some = np.count_nonzero(cohort.left)
            if not some:
                gone.add(row)
            elif 2 * some <= cohort.slots.size:
                _compact(cohort)
        if gone:
            kept = [row for row in range(len(self.cohorts)) if row not in gone]
            self.cohorts, self._need_s = [self.cohorts[row] for row in kept], self._need_s[kept]


def _compact(cohort: Cohort) -> None:
    """Keep only slots with something left."""
    keep = cohort.left.nonzero()[0]
    cohort.slots, cohort.left = cohort.slots[keep], cohort.left[keep]
    if cohort.server is not None:
        cohort.server = cohort.server[keep]


def _flat(cohorts: Sequence[Cohort]) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the entries of all cohorts one after the other: the row of each, its slot, and what is left of it."""
    if len(cohorts) == 1:
        only = cohorts[0]
        return np.zeros(only.slots.size, np.int64), only.slots, only.left
    row = np.repeat(np.arange(len(cohorts)), [cohort.slots.size for cohort in cohorts])
    slots = np.concatenate([cohort.slots for cohort in cohorts])
    return row, slots, np.concatenate([cohort.left for cohort in cohorts])


def _flat_servers(cohorts: Sequence[Cohort]) -> IntArray:
    """Return who serves the entries of all cohorts."""
    known = [cohort.server for cohort in cohorts if cohort.server is not None]
    if len(known) < len(cohorts):
        raise AssertionError("a cohort is served after its needs were added up")
    return known[0] if len(known) == 1 else np.concatenate(known)


def _parts(cohorts: Sequence[Cohort]) -> list[slice]:
    """Return where each cohort's entries are in the flat arrays."""
    parts, begin = [], 0
    for cohort in cohorts:
        parts.append(slice(begin, begin + cohort.slots.size))
        begin += cohort.slots.size
    return parts


def _by_row_and_lane(row: IntArray, server: IntArray, values: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Add up `values` by row and lane, less what nobody serves; `shape` is the number of rows and of lanes."""
    rows, width = shape[0], shape[1] + 1
    where = server if rows == 1 else row * width + server
    return sum_by(where, values, rows * width).reshape(rows, width)[:, 1:]


def _joined(older: Cohort, newer: Cohort) -> Cohort:
    slots, where = np.unique(np.concatenate([older.slots, newer.slots]), return_inverse=True)
    left = sum_by(where, np.concatenate([older.left, newer.left]), slots.size)
    return Cohort(newer.step, older.since_s, newer.until_s, slots, left)
