"""GZ-F1, named as future work: look for a change of the stream in its histograms, and balance only then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from evenflow.model import LoadView
from evenflow.model.slots import IntArray
from evenflow.policies import Policy, Proposal, proposal_of


@dataclass(frozen=True, slots=True)
class OnChange:
    """Ask another policy only if the newest histogram is not of the stream that it balanced last.

    Two histograms differ if their chi-square statistic is more than `sigmas` deviations above what chance gives. After
    a change, windows before it are not shown to the policy.
    """

    name: ClassVar[str] = "on-change"

    policy: Policy
    sigmas: float = 6.0

    def propose(self, view: LoadView) -> Proposal:
        """Compare, and let the policy decide if there is something new."""
        newest = view.last.slots.records
        seen: _Seen | None = view.memory
        if seen is not None and not self.differ(newest, seen.histogram):
            return Proposal(memory=seen, note="the stream has not changed since the last balancing")
        shown = view.windows if seen is None else view.windows[-1:]
        proposal = proposal_of(self.policy, replace(view, windows=shown, memory=None))
        return replace(proposal, memory=_Seen(newest))

    def differ(self, one: IntArray, other: IntArray) -> bool:
        """Say whether two histograms come from different streams; how many tuples they hold does not matter."""
        excess = chi_square_excess(one, other)
        return excess > self.sigmas


@dataclass(frozen=True, slots=True)
class _Seen:
    histogram: Any  # of the window that was balanced last


def chi_square_excess(one: IntArray, other: IntArray) -> float:
    """Return the two-sample chi-square statistic in deviations above its mean, both for equal streams."""
    either = (one + other) > 0
    a, b = one[either].astype(np.float64), other[either].astype(np.float64)
    freedom = a.size - 1
    if freedom < 1 or not a.any() or not b.any():
        return 0.0
    scale = np.sqrt(b.sum() / a.sum())
    statistic = float((np.square(a * scale - b / scale) / (a + b)).sum())
    return (statistic - freedom) / float(np.sqrt(2 * freedom))
