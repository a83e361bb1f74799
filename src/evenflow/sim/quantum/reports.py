"""Load reports: what all lanes tell the balancer at the end of an epoch, in one piece."""

from __future__ import annotations

import numpy as np

from evenflow.model import Epoch, LaneLoad, LoadWindow, RoutingTable, SlotLoads
from evenflow.model.slots import FloatArray, IntArray
from evenflow.sim.quantum.counts import Counts, sum_by
from evenflow.sim.quantum.placement import Placement

_ROUNDING = 1e-6  # records: sums of parts of cohorts


class Reporter:
    """Turns running sums into reports. Parts of a record are reported once they have become a whole one."""

    def __init__(self, counts: Counts, placement: Placement, sizes: FloatArray) -> None:
        """Start with nothing reported."""
        self.counts, self.placement = counts, placement
        self._sizes = np.round(sizes).astype(np.int64)
        self._reported = np.zeros(sizes.size, np.int64)
        self._where: IntArray = np.zeros(0, np.int64)
        self._for: RoutingTable | None = None

    def load(self, epoch: Epoch, span_s: float, table: RoutingTable, budgets: FloatArray | None) -> LoadWindow:
        """Return the load of an epoch under `table`; `budgets` is each lane's memory, if that is limited."""
        counts = self.counts
        whole = np.floor(counts.served + _ROUNDING).astype(np.int64)
        records, self._reported = whole - self._reported, whole
        pending = np.floor(counts.waiting + _ROUNDING).astype(np.int64)
        loads = SlotLoads(records, counts.busy_s, self._sizes, pending, self.placement.spilled)
        queues = sum_by(self._positions(table), pending.astype(np.float64), len(table.lanes)).tolist()
        idle = np.minimum(span_s, np.maximum(0.0, counts.idle_s)).tolist()
        budget = [None] * len(idle) if budgets is None else [None if np.isinf(one) else int(one) for one in budgets]
        lanes = [
            LaneLoad(lane, idle[lane], span_s, budget[lane], int(queues[at])) for at, lane in enumerate(table.lanes)
        ]
        return LoadWindow(loads, tuple(lanes), (epoch, epoch))

    def _positions(self, table: RoutingTable) -> IntArray:
        """Return where the lane of each slot stands in the table; looked up once per table."""
        if self._for is not table:
            self._where, self._for = table.lane_positions(), table
        return self._where
