"""What is read off a run: levels, and the moments at which something is felt, over, or steady."""

from __future__ import annotations

import numpy as np

from evenflow.model.slots import FloatArray
from evenflow.plot.picture import Series
from evenflow.sim.quantum import Timeline


def level(timeline: Timeline, last_s: float) -> float:
    """Return the mean throughput of the last seconds."""
    rows = timeline.rows(float(timeline.time_s[-1]) - last_s)
    return float(timeline.throughput[rows].mean())


def first_below(timeline: Timeline, bound: float, since_s: float = 0.0) -> float:
    """Return the end of the first row after `since_s` with a throughput below `bound`, infinity if there is none."""
    rows = timeline.rows(since_s)
    found = rows[timeline.throughput[rows] < bound]
    return float(timeline.time_s[found[0]]) if found.size else float("inf")


def from_then_on(timeline: Timeline, low: float, high: float = float("inf")) -> float:
    """Return from when on the throughput stays between two bounds, infinity if it does not in the end."""
    inside = (timeline.throughput >= low) & (timeline.throughput <= high)
    outside = np.flatnonzero(~inside)
    if outside.size and outside[-1] == inside.size - 1:
        return float("inf")
    return float(timeline.time_s[outside[-1]]) if outside.size else 0.0


def steady_from(timeline: Timeline, last_s: float, low: float = 0.95, high: float = 1.05) -> float:
    """Return from when on the throughput stays between shares of its final level, that of the last seconds.

    Infinity if it does so only within those seconds: they are what it is compared with.
    """
    final = level(timeline, last_s)
    since_s = from_then_on(timeline, low * final, high * final)
    return since_s if since_s <= float(timeline.time_s[-1]) - last_s else float("inf")


def in_memory_from(timeline: Timeline) -> float:
    """Return from when on nothing is on disk, infinity if something is in the end."""
    some = np.flatnonzero(timeline.spilled)
    if some.size and some[-1] == timeline.spilled.size - 1:
        return float("inf")
    return float(timeline.time_s[some[-1]]) if some.size else 0.0


def per_second(label: str, timeline: Timeline) -> Series:
    """Return the throughput over time, as in the paper's figures."""
    return Series(label, timeline.time_s.tolist(), timeline.throughput.tolist())


def latency_per_second(label: str, timeline: Timeline) -> Series:
    """Return the mean latency over time; rows without any record are left out."""
    some = np.isfinite(timeline.latency_mean_s)
    return Series(label, timeline.time_s[some].tolist(), timeline.latency_mean_s[some].tolist())


def rounded(values: FloatArray, digits: int = 4) -> list[float]:
    """Return numbers as they are stored in results: a few significant digits."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, dtype=np.float64).tolist()]
