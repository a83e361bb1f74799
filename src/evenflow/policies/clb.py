"""Guo and Zhou's correlation-based balancing: now and then, cut the slots into sets that fit m windows.

`Clb` is Algorithm 2. It splits sets until there is one per lane; each time the slot with the largest weight
omega stays and the slots correlated with it leave together. Readings: correlated is a *correlation
coefficient* of at least theta (GZ-A12, A13), and above 0, so that a slot of constant load is correlated
with none; omega adds up covariances (A15) and is computed afresh for the two sets touched (A16); the first
split makes set 2 (A14); where no pair is correlated, the heaviest set is cut by load, longest first (A17).
It looks at covariance only, is blind to mean load, and keeps together what it parts from the pivot: it can
be worse than random placement. That is the paper's result and is kept (A18, A19).

`ClbMoment` mends that: the imbalance over m windows is, up to a constant, the sum over all sets of E[N^2],
so the cut is taken on second moments E[X_i X_j] instead, greedily in descending load (A18, A19).

Both cut without looking at the present owners; then sets and lanes are matched so that most state stays
(A21). The same history thus gives the same sets and, the second time, no move. They act on the first call
and then on every `period`-th, over the newest `history` windows: two parameters (A31).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np

from evenflow.errors import InputError, PolicyError
from evenflow.model import LoadView, RoutingTable
from evenflow.model.slots import BoolArray, FloatArray, IntArray
from evenflow.policies.assignment import best_assignment
from evenflow.policies.base import Proposal

MAX_SLOTS = 8_192

_ROWS = 1_024  # rows of the correlation matrix held at a time: 64 MB at MAX_SLOTS
_ROUNDING = 1e-12  # sums that should be equal may differ by that share
_EXACT = 2.0**39  # times MAX_SLOTS is below 2^53: whole numbers that a float keeps apart

Partition: TypeAlias = Callable[[FloatArray, int], IntArray]
"""From the load series (one row per slot) and a number of sets to the set of each slot."""


@dataclass(frozen=True, slots=True)
class Clb:
    """Part the slots whose loads rise and fall together, as Algorithm 2 does it."""

    name: ClassVar[str] = "clb"
    paper: ClassVar[str] = "Stateful load balancing (Guo, Zhou)"
    summary: ClassVar[str] = "parts correlated slots every 24 windows; blind to mean load, as in the paper"

    history: int = 24
    period: int = 24
    theta: float = 0.5

    def __post_init__(self) -> None:
        """Refuse a threshold that is no correlation coefficient, and empty histories and periods."""
        _refuse_bad_spans(self.name, self.history, self.period)
        if not 0 <= self.theta < 1:
            raise InputError(f"clb: theta is a correlation coefficient, 0 <= theta < 1, got {self.theta}")

    def propose(self, view: LoadView) -> Proposal:
        """Apply Algorithm 2 to the newest windows, if it is time."""
        return _periodic(self, view, lambda series, count: correlation_sets(series, count, self.theta))


@dataclass(frozen=True, slots=True)
class ClbMoment:
    """Cut the slots into sets of least E[N^2], greedily: CLB with the objective that its paper states."""

    name: ClassVar[str] = "clb-moment"
    paper: ClassVar[str] = "Stateful load balancing (Guo, Zhou), with the cut on second moments"
    summary: ClassVar[str] = "parts slots that are heavy at the same time (second moments), every 24 windows"

    history: int = 24
    period: int = 24

    def __post_init__(self) -> None:
        """Refuse empty histories and periods."""
        _refuse_bad_spans(self.name, self.history, self.period)

    def propose(self, view: LoadView) -> Proposal:
        """Cut by second moments of the newest windows, if it is time."""
        return _periodic(self, view, moment_sets)


def correlation_sets(series: FloatArray, count: int, theta: float) -> IntArray:
    """Return Algorithm 2's set of each slot: `count` sets, none empty; with fewer slots, one per slot."""
    pairs = _Pairs.of(series, theta)
    loads = series.mean(axis=1)
    sets = np.zeros(len(series), dtype=np.int64)
    omega = pairs.weights(np.arange(len(series)))
    for new in range(1, min(count, len(series))):
        pivot = int((omega >= omega.max() * (1 - _ROUNDING)).argmax())  # the lowest number of equals
        moved = pairs.correlated(pivot, np.flatnonzero(sets == sets[pivot]))
        if not moved.size:
            moved = _lighter_half(sets, loads)
        split = int(sets[moved[0]])
        sets[moved] = new
        for touched in (split, new):
            members = np.flatnonzero(sets == touched)
            omega[members] = pairs.weights(members)
    return sets


def moment_sets(series: FloatArray, count: int) -> IntArray:
    """Return the set of each slot: in descending load, each goes where it adds least to the sum of E[N^2].

    A slot X adds 2 E[X N] + E[X^2] to a set of load N. The last term is the same everywhere, and N is the
    sum of the set's series, so one product with the sums of all sets compares them. An empty set costs
    nothing more and wins ties, hence none stays empty.
    """
    sets = np.zeros(len(series), dtype=np.int64)
    sums, sizes = np.zeros((count, series.shape[1])), np.zeros(count, dtype=np.int64)
    for slot in np.argsort(-series.sum(axis=1), kind="stable").tolist():
        best = int(np.lexsort((sizes, sums @ series[slot]))[0])
        sets[slot] = best
        sums[best] += series[slot]
        sizes[best] += 1
    return sets


def owners_of_sets(sets: IntArray, table: RoutingTable, state_bytes: IntArray) -> IntArray:
    """Return each slot's owner when sets get the lanes that keep most state, then most slots, in place."""
    lanes = len(table.lanes)
    cell = sets * lanes + table.lane_positions()
    common_slots = np.bincount(cell, minlength=lanes * lanes)
    common_bytes = np.bincount(cell, weights=state_bytes, minlength=lanes * lanes)
    scale = min(1.0, _EXACT / max(1.0, float(common_bytes.sum())))
    common = np.floor(common_bytes * scale) * (table.slots + 1) + common_slots
    lane_of_set = best_assignment(common.reshape(lanes, lanes))
    return np.array(table.lanes)[lane_of_set][sets]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The correlation of all pairs of slots, a part at a time: the whole matrix may not fit into memory."""

    unit: FloatArray  # one row per slot; the product of two rows is their correlation coefficient
    deviation: FloatArray
    theta: float

    @classmethod
    def of(cls, series: FloatArray, theta: float) -> _Pairs:
        centred = series - series.mean(axis=1, keepdims=True)
        deviation = np.sqrt(np.mean(centred**2, axis=1))
        length = deviation * np.sqrt(series.shape[1])
        unit = np.divide(centred, length[:, None], out=np.zeros_like(centred), where=length[:, None] > 0)
        return cls(unit, deviation, max(theta - _ROUNDING, _ROUNDING))

    def correlated(self, pivot: int, members: IntArray) -> IntArray:
        """Return those of `members` that are correlated with `pivot`, itself not among them."""
        close: BoolArray = self.unit[members] @ self.unit[pivot] >= self.theta
        correlated: IntArray = members[close & (members != pivot)]
        return correlated

    def weights(self, members: IntArray) -> FloatArray:
        """Return omega of each slot of a set: the sum of its covariances with those it is correlated with."""
        unit, deviation = self.unit[members], self.deviation[members]
        omega = np.empty(members.size)
        for start in range(0, members.size, _ROWS):
            rows = slice(start, start + _ROWS)
            correlation = unit[rows] @ unit.T
            correlation[correlation < self.theta] = 0
            np.fill_diagonal(correlation[:, start:], 0)
            omega[rows] = deviation[rows] * (correlation @ deviation)
        return omega


def _lighter_half(sets: IntArray, loads: FloatArray) -> IntArray:
    """Cut the heaviest set of at least two slots in two, longest first; return the part that leaves it."""
    weight = np.where(np.bincount(sets) > 1, np.bincount(sets, weights=loads), -1)
    members = np.flatnonzero(sets == weight.argmax())
    stays, leaves = (0.0, 0), (0.0, 0)  # load and number of slots: the number deals out idle slots
    leaving = []
    for slot in members[np.argsort(-loads[members], kind="stable")].tolist():
        if leaves < stays:
            leaving.append(slot)
            leaves = leaves[0] + loads[slot], leaves[1] + 1
        else:
            stays = stays[0] + loads[slot], stays[1] + 1
    return np.array(leaving)


def _periodic(policy: Clb | ClbMoment, view: LoadView, partition: Partition) -> Proposal:
    """Count the windows in `memory`; every `period`-th time cut the slots and give each set its lane."""
    slots = view.table.slots
    if slots > MAX_SLOTS:
        raise PolicyError(
            f"policy {policy.name} weighs all pairs of slots and takes up to {MAX_SLOTS:,} slots, "
            f"got {slots:,}; use 'even' or 'elb' instead"
        )
    windows = policy.period if view.memory is None else view.memory + 1
    if windows < policy.period:
        return Proposal(memory=windows, note=f"window {windows} of {policy.period} since the last balancing")
    series = np.stack([window.slots.records for window in view.windows[-policy.history :]], axis=1)
    if not series.any():
        return Proposal(memory=view.memory, note="there is no load to balance")
    sets = partition(series.astype(np.float64), len(view.table.lanes))
    owners = owners_of_sets(sets, view.table, view.last.slots.state_bytes)
    reason = f"the {len(view.table.lanes)} sets that fit the last {series.shape[1]} windows"
    moves = view.table.difference(RoutingTable(owners, view.table.lanes))
    return Proposal(tuple(replace(move, reason=reason) for move in moves), memory=0, note=reason)


def _refuse_bad_spans(who: str, history: int, period: int) -> None:
    if history < 1:
        raise InputError(f"{who}: history must be at least 1 window, got {history}")
    if period < 1:
        raise InputError(f"{who}: period must be at least 1 window, got {period}")
