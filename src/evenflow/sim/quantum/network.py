"""The network while state moves: what each transfer gets of the links, in bytes per second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenflow.errors import InputError
from evenflow.model.slots import FloatArray, IntArray

UNLIMITED = float("inf")


@dataclass(frozen=True, slots=True)
class Network:
    """Limits for state on the move, in bytes per second; `latency_s` is what each transfer takes at least.

    `point_to_point` bounds each pair of lanes, `cross_section` all transfers together (FX-P2).
    """

    point_to_point: float = UNLIMITED
    cross_section: float = UNLIMITED
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse links that let nothing through."""
        if not (self.point_to_point > 0 and self.cross_section > 0 and self.latency_s >= 0):
            raise InputError(f"network: bandwidths must be above 0 and the latency not negative, got {self}")

    def rates(self, sources: IntArray, targets: IntArray) -> FloatArray:
        """Return the bytes per second of each transfer: a pair's link is shared evenly, then the cross section."""
        if sources.size == 0:
            return np.zeros(0)
        pairs = sources * (int(targets.max()) + 1) + targets
        _, which, count = np.unique(pairs, return_inverse=True, return_counts=True)
        wanted = self.point_to_point / count[which]
        return _evenly(wanted.astype(np.float64), self.cross_section)


def _evenly(wanted: FloatArray, total: float) -> FloatArray:
    """Share `total` among those who want `wanted`: nobody more than he wants, the others alike."""
    if wanted.sum() <= total:
        return wanted
    order = np.sort(wanted)
    left = total - np.concatenate([[0.0], np.cumsum(order)[:-1]])
    level = left / np.arange(wanted.size, 0, -1)
    tops = np.flatnonzero(order >= level)
    if not tops.size:  # all get what they want but for rounding: the two sums above add up in another order
        return wanted
    shares: FloatArray = np.minimum(wanted, level[tops[0]])
    return shares
