"""Bids by the clock: which lanes are hot and how hot, or how much each slot gets, changes at given moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from evenflow.model.slots import FloatArray, IntArray
from evenflow.workloads.bids import BidFeed

SlotShares: TypeAlias = Callable[[int], FloatArray]
"""From the number of a file to how much of it each slot gets; they need not add up to 1."""


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

    def rows_of(self, number: int) -> int:
        """Return the rows of file `number`."""
        per_file = self.file_s * self.rows_per_second * self.phase_at(number * self.file_s).rate
        return round((number + 1) * per_file) - round(number * per_file)

    def came_at_s(self, rows: FloatArray) -> FloatArray:
        """Return when so many rows had come, in seconds from the first; later ones come at the last moment."""
        counts = [0]
        while counts[-1] < (rows.max() if rows.size else 0) and len(counts) <= self.rows_written:
            counts.append(counts[-1] + self.rows_of(len(counts) - 1))
        found: FloatArray = np.interp(rows, counts, self.file_s * np.arange(len(counts)))
        return found

    def histograms(self) -> IntArray:
        """Return the rows of each slot in each file that was written; nothing where slots are not known."""
        return np.zeros((0, 0), dtype=np.int64)

    def slot_keys(self) -> IntArray:
        """Return how many keys each slot has; nothing where slots are not known."""
        return np.zeros(0, dtype=np.int64)

    def bids(self, number: int) -> IntArray:
        """Return the auctions of file `number`: the same for the same seed."""
        phase = self.phase_at(number * self.file_s)
        rng = np.random.default_rng((self.seed, number))
        rows = self.rows_of(number)
        everything = np.concatenate(self.by_lane)
        if not phase.hot:
            return rng.choice(everything, rows).astype(np.int64)
        hot = np.concatenate([self.by_lane[lane] for lane in phase.hot])
        cold = np.concatenate([keys for lane, keys in enumerate(self.by_lane) if lane not in phase.hot])
        chosen = np.where(rng.random(rows) < phase.share, rng.choice(hot, rows), rng.choice(cold, rows))
        return chosen.astype(np.int64)


@dataclass
class SharedFeed(PhasedFeed):
    """A feed in which each slot gets its share of a file, evenly over its keys; `slots` is the slot of each key."""

    slots: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    shares: SlotShares = field(default=lambda _number: np.ones(1))

    @classmethod
    def of(cls, feed: PhasedFeed, slots: IntArray, shares: SlotShares) -> SharedFeed:
        """Return the same feed, with shares."""
        return cls(
            feed.folder,
            feed.auctions,
            feed.share,
            feed.rows_per_second,
            feed.seed,
            feed.file_s,
            by_lane=feed.by_lane,
            phases=feed.phases,
            slots=slots,
            shares=shares,
        )

    def bids(self, number: int) -> IntArray:
        """Return the auctions of file `number`: the same for the same seed."""
        shares = self.shares(number)
        weights = (shares / np.maximum(1, self.slot_keys(shares.size)))[self.slots]
        rng = np.random.default_rng((self.seed, number))
        return rng.choice(self.slots.size, self.rows_of(number), p=weights / weights.sum()).astype(np.int64)

    def slot_keys(self, least: int = 0) -> IntArray:
        """Return how many keys each slot has."""
        return np.bincount(self.slots, minlength=least)

    def histograms(self) -> IntArray:
        """Return the rows of each slot in each file that was written."""
        width = self.shares(0).size
        found: list[IntArray] = []
        written = 0
        while written < self.rows_written:
            found.append(np.bincount(self.slots[self.bids(len(found))], minlength=width))
            written += int(found[-1].sum())
        return np.array(found)
