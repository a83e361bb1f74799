"""What lanes do besides serving: extracting, installing, reading and writing state, one after the other.

Chores go before records: a lane is single threaded and its disk is synchronous (FX 5.2, 6.3).
"""

from __future__ import annotations

import numpy as np

from evenflow.model import LaneId
from evenflow.model.slots import FloatArray

_ROUNDING_S = 1e-12  # chores are sums of floats


class Chores:
    """Seconds of work that each lane has been given and has done, in order."""

    def __init__(self, lanes: int) -> None:
        """Start with nothing to do."""
        self.given_s = np.zeros(lanes)
        self.done_s = np.zeros(lanes)
        self._all_done = True

    def grow(self, lanes: int) -> None:
        """Make room for lanes up to number `lanes` - 1."""
        more = np.zeros(max(0, lanes - self.given_s.size))
        self.given_s, self.done_s = np.append(self.given_s, more), np.append(self.done_s, more)

    def give(self, lane: LaneId, seconds: float) -> float:
        """Add a chore; return the mark at which it is done."""
        self.given_s[lane] += seconds
        self._all_done = False
        return float(self.given_s[lane])

    def is_done(self, lane: LaneId, mark: float) -> bool:
        """Whether the lane has got as far as `mark`."""
        return bool(self.done_s[lane] >= mark - _ROUNDING_S)

    def work(self, budget_s: FloatArray) -> FloatArray:
        """Let each lane do chores for at most its budget; return the seconds used."""
        if self._all_done:
            return np.zeros_like(budget_s)
        used = np.minimum(self.given_s - self.done_s, budget_s)
        self.done_s = self.done_s + used
        close = self.given_s - self.done_s < _ROUNDING_S
        self.done_s[close] = self.given_s[close]
        self._all_done = bool(close.all())
        return used
