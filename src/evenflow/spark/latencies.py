"""How long rows took from their arrival to their commit: the newest, in columns that are made once and never grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenflow.model import Epoch

_KEPT = 20_000
_EPOCHS = 8  # of which at least there is room for all that is known
_LEVELS = (50, 95, 99)


class Latencies:
    """A ring of latencies, each with its epoch and with the number of rows that had it."""

    def __init__(self, kept: int | None = None) -> None:
        """Make room for `kept` of them."""
        self._kept = kept or _KEPT
        self._epochs = np.full(self._kept, -1, np.int64)
        self._latency_s = np.zeros(self._kept)
        self._rows = np.zeros(self._kept)
        self._next = 0

    def add(self, epoch: Epoch, now: float, arrivals: Sequence[tuple[float, float]], share: float, lanes: int) -> None:
        """Take in that a lane, one of `lanes`, has its share of an epoch's rows done, which arrived as is said.

        Of more arrivals than there is room for, some are taken, evenly.
        """
        at_s, rows = np.array(arrivals, dtype=np.float64).T
        most = max(1, self._kept // (_EPOCHS * max(1, lanes)))
        if at_s.size > most:
            picked = np.linspace(0, at_s.size - 1, most).astype(np.int64)
            at_s, rows = at_s[picked], rows[picked] * (rows.sum() / rows[picked].sum())
        places = (self._next + np.arange(at_s.size)) % self._kept
        self._epochs[places] = epoch
        self._latency_s[places] = now - at_s
        self._rows[places] = np.maximum(1.0, rows * share)
        self._next = int(places[-1] + 1) % self._kept

    def percentiles(self, first: Epoch, last: Epoch | None) -> dict[str, float]:
        """Return percentiles over the epochs from `first` to `last`; empty if none is remembered."""
        inside = self._epochs >= max(0, first)
        if last is not None:
            inside &= self._epochs <= last
        chosen = np.flatnonzero(inside)
        if not chosen.size:
            return {}
        values, weights = self._latency_s[chosen], self._rows[chosen]
        order = np.argsort(values)
        share = np.cumsum(weights[order]) / weights.sum()
        ranks = np.minimum(values.size - 1, np.searchsorted(share, np.array(_LEVELS) / 100))
        found = dict(zip((f"p{level}_s" for level in _LEVELS), values[order][ranks].tolist(), strict=True))
        return {**found, "max_s": float(values.max())}
