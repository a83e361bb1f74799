"""What a lane folds next: the next epoch, or a few small ones, and some of what its units are behind with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from evenflow.engine.flow import Flow
from evenflow.engine.inputs import EpochIndex
from evenflow.engine.lanes import Lane
from evenflow.engine.units import Place, Units
from evenflow.lane.messages import Work
from evenflow.model import Epoch, LaneId, SlotId
from evenflow.model.slots import IntArray
from evenflow.state import Advance

_CATCH_UP = 2  # epochs that a unit that is behind takes per work, so that the others need not wait for it
_TOGETHER_S = 0.05  # epochs that take a lane less than this together are folded in one go

# Of the units that a work takes up to an epoch: those to write out whole, and those whose hottest key is asked for.
Extras = Callable[[IntArray, Epoch], tuple[tuple[SlotId, ...], tuple[SlotId, ...]]]


@dataclass(frozen=True)
class Planner:
    """Plans from where units are, how far they have come, and what is there to be folded."""

    units: Units
    inputs: Mapping[Epoch, EpochIndex]
    versions: Callable[[], IntArray]  # committed, of each unit
    extras: Extras
    flow: Flow

    def next_work(self, lane: LaneId, status: Lane) -> Work | None:
        """Return what a lane is to fold next; None if there is nothing, or it has to load what is its own first."""
        inputs = self.inputs
        last = _last_epoch(lane, status, inputs)
        served = self.units.at(lane, Place.RESIDENT)
        pending = np.fromiter(inputs, np.int64, len(inputs))
        since = self.versions()[served]
        limits = np.minimum(np.minimum(self.units.limits(served), self.flow.limits(served)), last)
        until = _until(since, limits, self.flow.reached(served, since, status.epoch), pending)
        moving = until > since
        served, since, until = served[moving], since[moving], until[moving]
        new = {epoch for epoch in inputs if status.epoch < epoch <= last}
        if not served.size and (not new or self.units.is_loading(lane)):
            return None
        epochs = [epoch for epoch in inputs if epoch in new or ((since < epoch) & (epoch <= until)).any()]
        taken = tuple(inputs[epoch].input_of(served[(since < epoch) & (epoch <= until)]) for epoch in epochs)
        snapshots, hot = self.extras(served, last)
        return Work(max(last, *epochs), _grouped(served, since, until), taken, snapshots, hot)


def _last_epoch(lane: LaneId, status: Lane, inputs: Mapping[Epoch, EpochIndex]) -> Epoch:
    """Return up to where a lane goes next: one epoch further, or several that are small for it together."""
    rows, last = 0.0, status.epoch
    for epoch, index in inputs.items():
        if epoch <= status.epoch:
            continue
        rows += index.rows_of[lane]
        if last > status.epoch and (not status.rows_per_s or rows / status.rows_per_s > _TOGETHER_S):
            break
        last = epoch
    return last


def _until(since: IntArray, limits: IntArray, reached: IntArray, pending: IntArray) -> IntArray:
    """Return the version to which each unit gets; one that is behind what its lane has reached comes nearer only."""
    first = np.searchsorted(pending, since, side="right")
    end = np.searchsorted(pending, limits, side="right")
    behind = np.searchsorted(pending, np.minimum(limits, reached), side="right") - first
    end = np.where(behind > _CATCH_UP, first + _CATCH_UP, end)
    until = since.copy()
    further = end > first
    until[further] = pending[end[further] - 1]
    return until


def _grouped(units: IntArray, since: IntArray, until: IntArray) -> tuple[Advance, ...]:
    """Return the units, those with the same way together."""
    order = np.lexsort((units, until, since))
    ways = np.stack([since[order], until[order]])
    starts = [0, *(np.flatnonzero((np.diff(ways) != 0).any(axis=0)) + 1).tolist(), units.size]
    return tuple(
        Advance(int(ways[0, low]), int(ways[1, low]), tuple(units[order[low:high]].tolist()))
        for low, high in pairwise(starts)
        if low < high
    )
