"""How fast each lane is, learnt from slots that changed their lane and from lanes that changed their pace.

A record that costs much may lie in a costly slot or on a slow lane; one window cannot tell the two apart. What
can be told: a slot that costs more per record on its new lane than on its old one (the lanes differ), and all
slots of a lane getting dearer at once while others do not, two windows in a row (the lane has slowed down). Until there
is such evidence, lanes count as equally fast; what only the newest window says (`just_now`) is for those who must not
wait.

A lane whose core is taken by other work says so itself (`crowded_s`); that is no cost of its slots. It counts when it
lasts for two windows, since a lane that only works now and then often does so when all others do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenflow.model import LoadWindow, RoutingTable
from evenflow.model.slots import BoolArray, FloatArray, IntArray, LaneId
from evenflow.model.values import ArrayValue

_NEWEST = 0.1  # the weight of the newest window in what is usual
_WITNESSES = 3  # slots that must agree before a lane's speed is believed to differ
_DEADBAND = np.log(1.1)  # differences below 10 % are not worth knowing
_CROWDED = np.log(1.25)  # less than that comes and goes with what the lanes themselves do
_SIGMAS = 3.0
_MAD_TO_SIGMA = 1.4826  # median absolute deviation to standard deviation, normal errors


@dataclass(frozen=True, eq=False)
class Speeds(ArrayValue):
    """What is known so far: per slot the log of its usual cost per record and where that was; per lane its slowness.

    Costs are NaN for slots never seen at work; `slowness` is a log, 0 for a lane as fast as the middle one. `drift`:
    how far each lane's slots strayed from their usual costs in the newest window; believed when the next one agrees.
    `crowding`: per lane the log of how much longer all takes there for lack of a core, in the newest window and in the
    one before.
    """

    cost: FloatArray
    seen_on: IntArray
    slowness: tuple[tuple[LaneId, float], ...]
    drift: tuple[tuple[LaneId, float], ...] = ()
    crowding: tuple[tuple[LaneId, tuple[float, float]], ...] = ()

    @classmethod
    def unknown(cls, table: RoutingTable) -> Speeds:
        """Return the state of knowing nothing: all lanes alike."""
        return cls(np.full(table.slots, np.nan), table.owners, ())

    def in_costs(self, table: RoutingTable, windows: int = 1) -> FloatArray:
        """Return how many times dearer records were on each lane of `table` than on the middle one, lately.

        That is the lane's slowness, and in the newest of the `windows` what may be no more than a bad moment of it.
        """
        known = dict(self.slowness)
        slow: FloatArray = np.exp([known.get(lane, 0.0) for lane in table.lanes])
        return slow * ((windows - 1 + self.just_now(table)) / windows)

    def just_now(self, table: RoutingTable) -> FloatArray:
        """Return how many times dearer than usual records were on each lane in the newest window, not yet believed."""
        strayed = dict(self.drift)
        newest: FloatArray = np.exp([strayed.get(lane, 0.0) for lane in table.lanes])
        return newest

    def factors(self, table: RoutingTable) -> FloatArray:
        """Return how many times slower than the middle each lane of `table` is, with the cores it has to share."""
        known, crowding = dict(self.slowness), dict(self.crowding)
        lasting = np.array([min(crowding.get(lane, (0.0, 0.0))) for lane in table.lanes])
        more = lasting - lasting.min()
        return np.exp([known.get(lane, 0.0) for lane in table.lanes] + np.where(more > _CROWDED, more, 0.0))

    def after(self, window: LoadWindow, table: RoutingTable) -> Speeds:
        """Return what is known after one more window, served under `table`."""
        loads = window.slots
        at_work = (loads.records > 0) & (loads.busy_s > 0)
        now = np.full(table.slots, np.nan)
        now[at_work] = np.log(loads.busy_s[at_work] / loads.records[at_work])
        known = dict(self.slowness)
        stayed = (self.seen_on == table.owners) & ~np.isnan(now - self.cost)
        own = _by_lane(now - self.cost, stayed, table)
        # What all lanes have in common is no lane's doing: costs are kept as if it had not happened.
        common = float(np.median([np.median(values) for values in own.values()])) if own else 0.0
        now -= common
        change = now - self.cost
        drift = {lane: _believed(values - common) for lane, values in own.items()}
        lasting = {}
        for lane, before in self.drift:
            lasting[lane] = _agreed(before, drift.get(lane, 0.0))
            known[lane] = known.get(lane, 0.0) + lasting[lane]
        self._compare_lanes(known, change, table)
        cost = np.where(np.isnan(now), self.cost, now)
        cost[stayed] = (self.cost + self._usual(change, drift, lasting, table))[stayed]
        seen_on = np.where(np.isnan(now), self.seen_on, table.owners)
        slowness = tuple(sorted((lane, known.get(lane, 0.0)) for lane in table.lanes))
        pending = tuple((lane, 0.0 if lasting.get(lane) else value) for lane, value in sorted(drift.items()))
        return Speeds(cost, seen_on, slowness, pending, self._crowding_with(window))

    def _usual(
        self, change: FloatArray, drift: dict[LaneId, float], lasting: dict[LaneId, float], table: RoutingTable
    ) -> FloatArray:
        """Return by how much each slot's usual cost is to be corrected: a little, or by all that its lane has changed.

        What has only just strayed corrects nothing, or a lane that turned slow would be what is usual by and by.
        """
        moved = np.array([lasting.get(lane, 0.0) for lane in table.lanes])[table.lane_positions()]
        strays = np.array([drift.get(lane, 0.0) != 0 for lane in table.lanes])[table.lane_positions()]
        return np.where(strays, moved, _NEWEST * change)

    def _crowding_with(self, window: LoadWindow) -> tuple[tuple[LaneId, tuple[float, float]], ...]:
        """Add how much longer all takes on each lane that could use its core for a part of the window only.

        A lane that did its epochs ahead of time spent less than the window on them, and could have rested for the rest.
        """
        before = dict(self.crowding)
        span_s = window.lane_column("window_s").max()
        longer = -np.log(np.clip(1.0 - window.lane_column("crowded_s") / span_s, 0.01, 1.0))
        return tuple(
            (lane, (now, before.get(lane, (0.0, 0.0))[0]))
            for lane, now in zip(window.lane_ids, longer.tolist(), strict=True)
        )

    def _compare_lanes(self, known: dict[LaneId, float], change: FloatArray, table: RoutingTable) -> None:
        """Slots that changed lane tell how the two lanes compare."""
        moved = np.flatnonzero((self.seen_on != table.owners) & ~np.isnan(change))
        pairs = np.stack([self.seen_on[moved], table.owners[moved]], axis=1)
        for source, target in np.unique(pairs, axis=0).tolist():
            witnesses = moved[(pairs[:, 0] == source) & (pairs[:, 1] == target)]
            expected = known.get(target, 0.0) - known.get(source, 0.0)
            if witnesses.size >= _WITNESSES:
                error = _believed(change[witnesses] - expected)
                known[target] = known.get(target, 0.0) + error / 2
                known[source] = known.get(source, 0.0) - error / 2


def _by_lane(change: FloatArray, stayed: BoolArray, table: RoutingTable) -> dict[LaneId, FloatArray]:
    """Return the changes of slots that stayed, lane by lane, where there are enough of them."""
    there = np.flatnonzero(stayed)
    there = there[np.argsort(table.owners[there], kind="stable")]
    lanes, starts = np.unique(table.owners[there], return_index=True)
    own = zip(lanes.tolist(), np.split(change[there], starts[1:]), strict=False)
    return {lane: values for lane, values in own if values.size >= _WITNESSES}


def _believed(deviations: FloatArray) -> float:
    """Return the median deviation if it stands clear of its own noise, else 0."""
    middle = float(np.median(deviations))
    spread = float(np.median(np.abs(deviations - middle))) * _MAD_TO_SIGMA
    noise = _SIGMAS * spread / np.sqrt(deviations.size)
    return middle if abs(middle) > max(_DEADBAND, noise) else 0.0


def _agreed(before: float, now: float) -> float:
    """Return the smaller of two deviations if they point the same way, else 0."""
    return min(before, now, key=abs) if before * now > 0 else 0.0
