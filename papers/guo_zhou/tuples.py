"""Tuple level: every tuple queues at its lane, first come, first served; arrays in, arrays out.

Cheaper than events by orders of magnitude, for questions that need each tuple's latency but no protocol.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenflow.errors import InputError
from evenflow.model.slots import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class PauseCost:
    """What it takes to hand state over while its input waits: a fixed time, and a time per unit of state."""

    base_s: float
    per_state_s: float

    def seconds(self, moved: float) -> float:
        """Return how long handing over `moved` units takes; nothing moved takes no time."""
        return self.base_s + self.per_state_s * moved if moved > 0 else 0.0


def served_at(
    ready: FloatArray, lane: IntArray, free_at: FloatArray, service_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return when each tuple is done, and when each lane is free then.

    `ready` says when a tuple can be served at the earliest, in the order in which they queue; `free_at` when each lane
    has finished what came before. The k-th tuple of a lane ends at s (k + 1) + max over j <= k of (ready_j - s j).
    """
    if ready.shape != lane.shape:
        raise InputError(f"each tuple needs a lane: {ready.size} tuples, {lane.size} lanes given")
    done = np.empty(ready.size)
    free = free_at.copy()
    by_lane = np.argsort(lane, kind="stable")
    bounds = np.searchsorted(lane[by_lane], np.arange(free.size + 1))
    for one in range(free.size):
        mine = by_lane[bounds[one] : bounds[one + 1]]
        if not mine.size:
            continue
        work = service_s * np.arange(mine.size)
        latest = np.maximum.accumulate(ready[mine] - work)
        done[mine] = np.maximum(latest, free[one]) + work + service_s
        free[one] = done[mine[-1]]
    return done, free


def held_back(due: FloatArray, held: BoolArray, until_s: float) -> tuple[FloatArray, IntArray]:
    """Return when each tuple is ready if those `held` wait until `until_s`, and the order in which all queue then.

    Tuples that wait are replayed in their order; between tuples ready at once the earlier comes first.
    """
    ready = np.where(held, np.maximum(due, until_s), due)
    order = np.lexsort((due, ready))
    return ready, order


def two_choices(substream: IntArray, candidates: IntArray, lanes: int) -> IntArray:
    """Return the lane of each tuple by partial key grouping: the one of its two candidates that got fewer so far.

    `candidates` has two lanes per substream (GZ-M7). A substream is then on both, and its partial states are merged.
    """
    given = [0] * lanes
    pairs = candidates.tolist()
    chosen = np.empty(substream.size, dtype=np.int64)
    for at, one in enumerate(substream.tolist()):
        first, second = pairs[one]
        lane = first if given[first] <= given[second] else second
        given[lane] += 1
        chosen[at] = lane
    return chosen
