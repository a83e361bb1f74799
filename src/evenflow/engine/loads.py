"""What epochs have cost, lane by lane: each part belongs to the epoch that was folded, however late it comes.

A lane reports an epoch once all its units have passed it, so each report holds the whole cost, once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from evenflow.engine.lanes import Lane
from evenflow.engine.units import Units
from evenflow.lane.messages import Done, EpochLoad
from evenflow.model import Epoch, LaneId, LaneLoad, LoadReport, SlotLoads
from evenflow.model.slots import IntArray

_INSTANT_S = 1e-9  # the span of a lane that has neither worked nor waited


@dataclass
class _Cost:
    """What an epoch has cost a lane so far; units that are behind add their part when they pass it."""

    parts: list[EpochLoad] = field(default_factory=list)
    idle_s: float = 0.0
    waited_until_s: float = -math.inf  # all lanes waited for units to be loaded, before the epoch was accepted


@dataclass
class _Account:
    """What a lane has not reported: by epoch, oldest first."""

    costs: dict[Epoch, _Cost] = field(default_factory=dict)
    loaded_s: float = -math.inf  # when it loaded units of its own last
    spare_s: float = 0.0  # since the last new epoch: it waited, or took units through epochs that are reported already


class LoadAccounts:
    """The costs of all lanes, until they are reported."""

    def __init__(self) -> None:
        """Owe nothing."""
        self._accounts: defaultdict[LaneId, _Account] = defaultdict(_Account)
        self._loaded_s = -math.inf  # when any lane did last

    def accepted(self, epoch: Epoch, lanes: Iterable[LaneId]) -> None:
        """An epoch is there: these lanes will report it."""
        for lane in lanes:
            self._accounts[lane].costs[epoch] = _Cost(waited_until_s=self._loaded_s)

    def remove(self, lane: LaneId) -> None:
        """Forget a lane."""
        self._accounts.pop(lane, None)

    def loaded(self, lane: LaneId, now_s: float) -> None:
        """A lane has loaded units that nobody had served, for a move or after a loss: that wait is no idleness."""
        self._accounts[lane].loaded_s = self._loaded_s = now_s

    def worked(self, done: Done, reached: Epoch, now_s: float) -> None:
        """Take in what an answer has cost; `reached` is the last epoch that its lane had taken up before.

        The first epoch after a move begins when the move has ended, but lanes have waited for it from before: that is
        no part of a window without moves (AF-A26). The same goes for the loss of a lane. Who had the epoch before units
        were loaded elsewhere did not wait for that: its time to spare is its own.
        """
        account = self._accounts[done.commit.lane]
        account.spare_s += done.idle_s
        for load in done.loads:
            if load.epoch in account.costs:
                account.costs[load.epoch].parts.append(load)
            else:
                account.spare_s += load.busy_s  # of a window that is not used
        newer = [load for load in done.loads if load.epoch > reached]
        if newer and newer[0].epoch in account.costs:
            busy_s = sum(load.busy_s for load in newer)
            cost = account.costs[newer[0].epoch]
            loaded_s = max(account.loaded_s, cost.waited_until_s)
            cost.idle_s = min(account.spare_s, max(0.0, now_s - busy_s - loaded_s))
        if newer:
            account.spare_s = 0.0

    def reports(
        self, lanes: Iterable[tuple[LaneId, Lane]], units: Units, versions: IntArray, pending: IntArray
    ) -> Iterator[LoadReport]:
        """Yield what lanes report now: the epochs that all units of theirs have passed.

        A unit that moves is not waited for: the windows of until then are not used (AF-A26). `pending` are the rows
        that wait, by unit.
        """
        for lane, status in lanes:
            costs = self._accounts[lane].costs
            if not costs:
                continue
            mine = units.of(lane)
            passed = int(versions[mine[~units.are_moving(mine)]].min(initial=status.epoch))
            for epoch in [epoch for epoch in costs if epoch <= passed]:
                yield _load_report(lane, epoch, costs.pop(epoch), mine, pending[mine])


def _load_report(lane: LaneId, epoch: Epoch, cost: _Cost, mine: IntArray, pending: IntArray) -> LoadReport:
    """Return what a lane reports of an epoch: of a unit that is in several parts the sum, and the newest size.

    `pending` are the rows that wait for the lane's units `mine`: of later epochs, since it is through with this one.
    """

    def column(name: str) -> npt.NDArray[Any]:
        return np.array([value for part in cost.parts for value in getattr(part.load, name)])

    listed = column("slots").astype(np.int64)
    waiting = pending > 0
    units = np.union1d(listed, mine[waiting])
    where = np.searchsorted(units, listed)
    sizes, waits = np.zeros(units.size, dtype=np.int64), np.zeros(units.size, dtype=np.int64)
    sizes[where] = column("state_bytes")
    waits[np.searchsorted(units, mine[waiting])] = pending[waiting]
    records, busy_s = (np.bincount(where, column(name), units.size) for name in ("records", "busy_s"))
    worked_s, crowded_s = (sum(getattr(part, name) for part in cost.parts) for name in ("busy_s", "crowded_s"))
    idle_s = cost.idle_s if cost.idle_s or worked_s else _INSTANT_S
    lane_load = LaneLoad(lane, idle_s, idle_s + worked_s, queue=int(pending.sum()), crowded_s=crowded_s)
    return LoadReport(epoch, lane_load, units, SlotLoads.of(records, busy_s, sizes, waits), all_served=True)
