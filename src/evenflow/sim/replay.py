"""A recorded query again, under another policy: what came stays as it was, who serves it is decided anew.

From the windows of a saved journal: a slot's arrivals in a window are the records it was served and what more of them
waited at its end than at the one before. Where an epoch is reported once all of it is served, as on Spark, its records
are what arrived, as fast as they came for lanes that were not behind: a lane that fell behind does so again. A slot's
price per record is its busy time over its records, in all windows; its state is what it held last. Lanes, and the
routing at the start, are those of the first window. Time that is in no window (one is dropped when a move completes in
it) is left out. Lanes are taken to be equally fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenflow.control.window_json import WindowFile
from evenflow.errors import InputError
from evenflow.model import LoadWindow
from evenflow.model.balance import max_over_mean
from evenflow.model.slots import FloatArray
from evenflow.sim.quantum import Handover, Scenario, Way

_STEPS_PER_EPOCH = 10


@dataclass(frozen=True, eq=False)
class Recorded:
    """Arrivals as they were: `per_s[i]` are the rates per slot until `ends_s[i]`; after the last the stream is over."""

    ends_s: FloatArray
    per_s: FloatArray

    def rates(self, at_s: float) -> FloatArray:
        """Return the rates of the window that holds the moment."""
        at = int(np.searchsorted(self.ends_s, at_s + 1e-9, side="right"))
        rates: FloatArray = self.per_s[at] if at < self.ends_s.size else np.zeros(self.per_s.shape[1])
        return rates


@dataclass(frozen=True, slots=True)
class Recording:
    """What a journal tells: a scenario to run again, and how even the lanes were then, window by window."""

    scenario: Scenario
    ends_s: FloatArray
    imbalance: FloatArray


def recording_of(file: WindowFile, way: Way = Way.AT_ONCE, move_s_per_byte: float = 1e-8) -> Recording:
    """Return the recording; windows must all be of the lanes of the first."""
    windows, table = file.windows, file.first_table or file.table
    if table.slots != file.table.slots:
        raise InputError(
            f"replay: the first window lists {table.slots} slots, the newest {file.table.slots}; list all in each"
        )
    for at, window in enumerate(windows):
        if window.lane_ids != table.lanes:
            raise InputError(
                f"replay: window {at} has lanes {list(window.lane_ids)}, the first {list(table.lanes)}; "
                f"a recording with lanes that come and go cannot be replayed"
            )
    spans = np.array([_span_s(window) for window in windows])
    records = np.array([window.slots.records for window in windows], dtype=np.float64)
    waiting = np.array([window.slots.pending for window in windows], dtype=np.float64)
    came = np.maximum(0.0, records + np.diff(waiting, axis=0, prepend=waiting[:1]))
    whole = np.array([window.all_served for window in windows])
    came[whole] = records[whole]
    if not came.any():
        raise InputError("replay: no records in any window; there is nothing to replay")
    ends = np.cumsum(spans)
    epoch_s = float(np.median(spans))
    scenario = Scenario(
        lanes=len(table.lanes),
        slots=table.slots,
        arrivals=Recorded(ends, came / spans[:, None]),
        seconds_per_record=_cost_s(file),
        state_bytes=windows[-1].slots.state_bytes.astype(np.float64),
        duration_s=float(ends[-1]),
        step_s=epoch_s / _STEPS_PER_EPOCH,
        epoch_steps=_STEPS_PER_EPOCH,
        handover=Handover(way, move_s_per_byte, move_s_per_byte, 1e-3, 1e-3),
        poisson=False,
        table=table,
    )
    busy = [[lane.window_s - lane.idle_s for lane in window.lanes] for window in windows]
    return Recording(scenario, ends, np.array([max_over_mean(one) for one in busy]))


def _span_s(window: LoadWindow) -> float:
    """Return in which time came what came in a window.

    Where lanes have spans of their own, one that waits for nobody but the source tells; those behind take longer.
    """
    level = [lane.window_s for lane in window.lanes if lane.idle_s > 0 and lane.queue == 0]
    if window.all_served and level:
        return max(level)
    return max(lane.window_s for lane in window.lanes)


def _cost_s(file: WindowFile) -> FloatArray:
    """Return the seconds per record of each slot; slots without records cost what the others do on average."""
    busy = np.sum([window.slots.busy_s for window in file.windows], axis=0)
    records = np.sum([window.slots.records for window in file.windows], axis=0).astype(np.float64)
    mean = busy.sum() / max(1.0, records.sum())
    if mean <= 0:
        raise InputError("replay: the windows tell no busy time; give busy_s per slot or idle_s per lane")
    cost: FloatArray = np.divide(busy, records, out=np.full(busy.size, mean), where=(records > 0) & (busy > 0))
    return cost
