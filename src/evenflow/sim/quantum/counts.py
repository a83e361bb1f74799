"""Running sums of what came and what was served, per slot, and how idle lanes were."""

from __future__ import annotations

import numpy as np

from evenflow.model.slots import FloatArray, IntArray


class Counts:
    """Records count from the start of the run; busy and idle seconds from the last report."""

    def __init__(self, slots: int, lanes: int) -> None:
        """Start at zero."""
        self.arrived, self.served, self.busy_s = np.zeros(slots), np.zeros(slots), np.zeros(slots)
        self.idle_s = np.zeros(lanes)

    @property
    def waiting(self) -> FloatArray:
        """What has come to each slot and was not served yet."""
        return np.maximum(0.0, self.arrived - self.served)

    def grow(self, lanes: int) -> None:
        """Make room for lanes up to number `lanes` - 1."""
        self.idle_s = np.append(self.idle_s, np.zeros(max(0, lanes - self.idle_s.size)))

    def reported(self) -> None:
        """Begin the next report."""
        self.busy_s[:] = 0.0
        self.idle_s[:] = 0.0


def sum_by(where: IntArray, values: FloatArray, length: int) -> FloatArray:
    """Add up `values` by the index in `where`."""
    return np.bincount(where, weights=values, minlength=length).astype(np.float64, copy=False)
