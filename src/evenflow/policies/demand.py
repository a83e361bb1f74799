"""What slots need: the busy time of what came, of what waits, and whether that can be seen at all."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from evenflow.model import LoadView, LoadWindow
from evenflow.model.slots import BoolArray, FloatArray

_SATURATED = 0.05  # a lane idle for less than this share of the window had more to do than it could


def span_s(window: LoadWindow) -> float:
    """Return how long the window was."""
    return float(window.lane_column("window_s").max())


def full_lanes(window: LoadWindow) -> BoolArray:
    """Tell of each lane whether it had no time left."""
    saturated: BoolArray = window.lane_column("idle_s") < _SATURATED * window.lane_column("window_s")
    return saturated


def demand_is_unknown(view: LoadView) -> bool:
    """Whether a lane had no time left and it cannot be seen how much more it should have done.

    What waits upstream, held back, nobody counts: a queue that is full does not grow.
    """
    saturated = full_lanes(view.last)
    if view.last.all_served or not saturated.any():
        return False
    if not any(window.slots.pending.any() for window in view.windows):
        return True
    waiting = view.lane_sums(view.last.slots.pending)
    before = view.lane_sums(view.windows[-2].slots.pending) if len(view.windows) > 1 else np.zeros(waiting.size)
    return bool((saturated & (waiting > 0) & (waiting <= before)).any())


def needed_s(view: LoadView) -> list[FloatArray]:
    """Return the busy seconds that what came in each window needs.

    That is what was served; with what came and was not, on lanes that had no time left for it; and without what had
    piled up before: a lane that works that off is not taken for one that gets too much. Where windows do not follow
    each other, nobody knows when it piled up; where there is but one, all of it came just now.
    """
    if len(view.windows) == 1:
        return [_needed_in(view, view.last, None)]
    later = [_needed_in(view, window, before) for before, window in pairwise(view.windows)]
    return [view.windows[0].slots.busy_s, *later]


def _needed_in(view: LoadView, window: LoadWindow, before: LoadWindow | None) -> FloatArray:
    loads = window.slots
    nothing_waits = not loads.pending.any() and (before is None or not before.slots.pending.any())
    if window.all_served or nothing_waits:
        return loads.busy_s
    grown = loads.pending.astype(np.float64)
    known = ~loads.spilled  # a record of a slot on disk waits for memory, not for the lane's time
    if before is not None:
        grown -= before.slots.pending
        known &= ~before.slots.spilled & (window.epochs[0] == before.epochs[1] + 1)
    saturated = np.zeros(grown.size, dtype=bool)  # of lanes that were others then, nobody knows
    if window.lane_ids == view.table.lanes:
        saturated = full_lanes(window)[view.table.lane_positions()]
    grown = np.where(known & (saturated | (grown < 0)), grown, 0.0)
    return np.maximum(0.0, loads.busy_s + grown * _cost_s(view, window))


def piled_up_s(view: LoadView, coming_s: float, windows: int) -> FloatArray:
    """Return the busy seconds per window that what waits takes, on lanes without time for it, if spread over `windows`.

    It is there once, and in no hurry: to even it out to the last record would be to move slots for ever. And it takes
    no more than what lanes have to spare besides what comes (`coming_s`); where they have nothing to spare, none of it
    is worked off wherever it is.
    """
    loads = view.last.slots
    counts = full_lanes(view.last)[view.table.lane_positions()] & ~loads.spilled
    if view.last.all_served or len(view.windows) == 1 or not (counts & (loads.pending > 0)).any():
        return np.zeros(loads.pending.size)
    waiting_s: FloatArray = np.where(counts, loads.pending, 0) * _cost_s(view, view.last)
    total_s = float(waiting_s.sum())
    if total_s == 0.0:  # its lanes have served nothing: nobody knows what it costs
        return waiting_s
    spare_s = max(0.0, len(view.table.lanes) * span_s(view.last) - coming_s)
    return waiting_s * min(1.0 / windows, spare_s / total_s)


def _cost_s(view: LoadView, window: LoadWindow) -> FloatArray:
    """Return what a record of each slot costs; one without any costs what is usual on its lane."""
    loads, home, lanes = window.slots, view.table.lane_positions(), len(view.table.lanes)
    lane_records = np.maximum(1.0, np.bincount(home, loads.records, lanes))
    usual = (np.bincount(home, loads.busy_s, lanes) / lane_records)[home]
    cost: FloatArray = np.where(loads.records > 0, loads.busy_s / np.maximum(1, loads.records), usual)
    return cost
