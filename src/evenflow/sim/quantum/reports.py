"""Load reports: what each lane tells the controller at the end of an epoch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evenflow.model import Epoch, LaneLoad, LoadReport, RoutingTable, SlotLoads
from evenflow.model.slots import FloatArray, IntArray
from evenflow.sim.quantum.counts import Counts
from evenflow.sim.quantum.placement import Placement

_ROUNDING = 1e-6  # records: sums of parts of cohorts


class Reporter:
    """Turns running sums into reports. Parts of a record are reported once they have become a whole one."""

    def __init__(self, counts: Counts, placement: Placement, sizes: FloatArray) -> None:
        """Start with nothing reported."""
        self.counts, self.placement = counts, placement
        self._sizes = np.round(sizes).astype(np.int64)
        self._reported = np.zeros(sizes.size, np.int64)
        self._order: IntArray = np.zeros(0, np.int64)
        self._cuts: IntArray = np.zeros(0, np.int64)
        self._for: RoutingTable | None = None

    def reports(
        self, epoch: Epoch, span_s: float, table: RoutingTable, budgets: FloatArray | None
    ) -> Iterator[LoadReport]:
        """Yield a report for each lane of `table`; `budgets` is each lane's memory, if that is limited."""
        self._sort(table)
        order, counts = self._order, self.counts
        whole = np.floor(counts.served + _ROUNDING).astype(np.int64)
        records, self._reported = (whole - self._reported)[order], whole
        pending = np.floor(counts.waiting[order] + _ROUNDING).astype(np.int64)
        busy, sizes, spilled = counts.busy_s[order], self._sizes[order], self.placement.spilled[order]
        for at, lane in enumerate(table.lanes):
            part = slice(int(self._cuts[at]), int(self._cuts[at + 1]))
            budget = None if budgets is None or np.isinf(budgets[lane]) else int(budgets[lane])
            idle = min(span_s, max(0.0, float(counts.idle_s[lane])))
            loads = SlotLoads(records[part], busy[part], sizes[part], pending[part], spilled[part])
            yield LoadReport(epoch, LaneLoad(lane, idle, span_s, budget, int(pending[part].sum())), order[part], loads)

    def _sort(self, table: RoutingTable) -> None:
        """Sort the slots by lane, once per table."""
        if self._for is table:
            return
        where = table.lane_positions()
        self._order = np.argsort(where, kind="stable")
        self._cuts = np.searchsorted(where[self._order], np.arange(len(table.lanes) + 1))
        self._for = table
