"""Bids by the clock: which lanes are hot, and how hot, changes at given moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from evenflow.model.slots import IntArray
from evenflow.workloads.bids import BidFeed


@dataclass(frozen=True, slots=True)
class HotPhase:
    """From `start_s` on, `share` of the rows are for keys of the `hot` lanes (by the first table), if any is hot."""

    start_s: float = 0.0
    hot: tuple[int, ...] = ()
    share: float = 0.0
    rate: float = 1.0  # times the stream's rows per second


@dataclass
class PhasedFeed(BidFeed):
    """A feed of bids whose hot keys change; `by_lane` are the keys of each lane, `phases` are by rising start."""

    by_lane: Sequence[IntArray] = ()
    phases: Sequence[HotPhase] = field(default_factory=lambda: (HotPhase(),))

    def phase_at(self, at_s: float) -> HotPhase:
        """Return the phase that holds."""
        return [phase for phase in self.phases if phase.start_s <= at_s][-1]

    def bids(self, number: int) -> IntArray:
        """Return the auctions of file `number`: the same for the same seed."""
        phase = self.phase_at(number * self.file_s)
        rng = np.random.default_rng((self.seed, number))
        per_file = self.file_s * self.rows_per_second * phase.rate
        rows = round((number + 1) * per_file) - round(number * per_file)
        everything = np.concatenate(self.by_lane)
        if not phase.hot:
            return rng.choice(everything, rows).astype(np.int64)
        hot = np.concatenate([self.by_lane[lane] for lane in phase.hot])
        cold = np.concatenate([keys for lane, keys in enumerate(self.by_lane) if lane not in phase.hot])
        chosen = np.where(rng.random(rows) < phase.share, rng.choice(hot, rows), rng.choice(cold, rows))
        return chosen.astype(np.int64)
