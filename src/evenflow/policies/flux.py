"""Flux's three repartitioning policies: by utilisation (5.3), by memory (6.2), and the hybrid of both (6.4).

All three sort the lanes, pair them from the ends inwards and move at most one slot per pair and round, so
that no lane takes part in two moves. The median of an odd number of lanes has no partner (FX-A7).

Readings: excess memory is what is available less what is used (FX-A1); a receiver whose own rate is unknown
gets the mean rate of all lanes (A3); an idle receiver makes the ratio infinite, which passes (A4); imbalance
is the ratio max / min of the pair, and to reduce it means strictly (A5); the first pair that fails the test
ends the round (A6); by memory a move must lower the difference by at least the slot's size (A12), in-memory
slots go first (A13); the collection time may be bounded from above (A17). Slots without records, or without
state, stay.

The estimates of 5.3 take all records of a lane to cost the same. Where they do not, the load policies may
send a slot to and fro for ever; nothing in the paper stops them but the collection time and the thresholds.

The answer to a call holds the collection time of the *next* window, while the moves of that call are still to
come: the move phase that sets it is the one before, the newest that has been measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenflow.errors import InputError
from evenflow.model import LoadView, Move, SlotId
from evenflow.model.balance import utilisation_ratio
from evenflow.model.slots import BoolArray, FloatArray, IntArray
from evenflow.policies.base import Proposal

_PAPER = "Flux (Shah et al.)"

# Estimates are products of quotients: what is "less" or "more" by rounding alone is neither. Without this
# margin a slot that exactly fills the gap of a pair would go to and fro for ever.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Collection:
    """What the policies remember: how long they asked to collect the last time."""

    delta_s: float


@dataclass(frozen=True, slots=True)
class FluxLoad:
    """Pair the most with the least utilised lanes; move the biggest slot that evens out the pair."""

    name: ClassVar[str] = "flux-load"
    paper: ClassVar[str] = _PAPER
    summary: ClassVar[str] = "lanes paired by utilisation, one slot per pair and round"

    th_imb: float = 1.2
    th_util: float = 0.9
    delta_min_s: float = 0.01
    delta_max_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse thresholds that no pair can meet and times that no clock gives."""
        _refuse_bad_thresholds(self.name, self.th_imb, self.th_util)
        _refuse_bad_times(self.name, self.delta_min_s, self.delta_max_s)

    def propose(self, view: LoadView) -> Proposal:
        """Apply section 5.3 to the newest window."""
        delta = _next_delta(view, self.delta_min_s, self.delta_max_s)
        return _by_load(view, delta, self.th_imb, self.th_util)


@dataclass(frozen=True, slots=True)
class FluxMemory:
    """Pair the lanes with least and most memory to spare; move the biggest slot that evens out the pair."""

    name: ClassVar[str] = "flux-memory"
    paper: ClassVar[str] = _PAPER
    summary: ClassVar[str] = "lanes paired by excess memory, one slot per pair and round"

    delta_min_s: float = 0.01
    delta_max_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse times that no clock gives."""
        _refuse_bad_times(self.name, self.delta_min_s, self.delta_max_s)

    def propose(self, view: LoadView) -> Proposal:
        """Apply section 6.2 to the newest window."""
        return _by_memory(view, _next_delta(view, self.delta_min_s, self.delta_max_s))


@dataclass(frozen=True, slots=True)
class FluxHybrid:
    """Balance memory while anything is spilled, else utilisation, but never beyond the receiver's memory.

    Spilled slots without any memory budget give the memory policy nothing to compare: then it is utilisation.
    """

    name: ClassVar[str] = "flux-hybrid"
    paper: ClassVar[str] = _PAPER
    summary: ClassVar[str] = "by memory while a slot is spilled, else by utilisation within free memory"

    th_imb: float = 1.2
    th_util: float = 0.9
    delta_min_s: float = 0.01
    delta_max_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse thresholds that no pair can meet and times that no clock gives."""
        _refuse_bad_thresholds(self.name, self.th_imb, self.th_util)
        _refuse_bad_times(self.name, self.delta_min_s, self.delta_max_s)

    def propose(self, view: LoadView) -> Proposal:
        """Apply section 6.4 to the newest window."""
        delta = _next_delta(view, self.delta_min_s, self.delta_max_s)
        excess = _excess(view)
        if view.last.slots.spilled.any() and np.isfinite(excess).any():
            return _by_memory(view, delta)
        return _by_load(view, delta, self.th_imb, self.th_util, free=excess)


# -- by utilisation (5.3) ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class _Rates:
    """What the estimates start from: utilisation and records of each lane, in the order of the lanes."""

    used: FloatArray
    records: FloatArray

    @property
    def mean(self) -> float:
        """The mean utilisation: what each lane would carry if all were even."""
        return float(self.used.mean())

    @property
    def per_record(self) -> float:
        """The utilisation that one record costs, all lanes taken together."""
        total = float(self.records.sum())
        return float(self.used.sum()) / total if total > 0 else 0.0

    def without(self, donor: int, counts: IntArray) -> FloatArray:
        """Estimate the donor's utilisation without slots of `counts` records, each taken alone."""
        estimate: FloatArray = self.used[donor] * (1.0 - counts / self.records[donor])
        return estimate

    def including(self, receiver: int, counts: IntArray) -> FloatArray:
        """Estimate the receiver's utilisation with slots of `counts` records added, each taken alone."""
        used, served = float(self.used[receiver]), float(self.records[receiver])
        # A lane that served nothing, or took no time for it, has no rate of its own to go by (FX-A3).
        cost = used / served if used > 0 and served > 0 else self.per_record
        estimate: FloatArray = used + cost * counts.astype(np.float64)
        return estimate


def _by_load(
    view: LoadView, delta: Collection, th_imb: float, th_util: float, free: FloatArray | None = None
) -> Proposal:
    """Return one round of section 5.3; `free` bounds the state that each lane may receive."""
    rates = _Rates(view.last.lane_column("utilisation"), view.lane_sums(view.last.slots.records))
    lanes, moves, not_curable = view.table.lanes, [], []
    for donor, receiver in _pairs(-rates.used):
        high, low = float(rates.used[donor]), float(rates.used[receiver])
        if high < rates.mean or utilisation_ratio([high, low]) < th_imb or low > th_util:
            break
        slots = _busy_slots(view, donor)
        helpful = _evens_out(view, rates, slots, donor, receiver)
        if free is not None:
            helpful &= view.last.slots.state_bytes[slots] <= free[receiver]
        if helpful.any():
            slot = int(slots[helpful.argmax()])
            reason = f"lane {lanes[donor]} is {high:.0%} utilised, lane {lanes[receiver]} {low:.0%}"
            moves.append(Move(slot, lanes[donor], lanes[receiver], reason))
        else:
            not_curable += _too_hot(view, rates, slots[:1], donor)
    note = f"{len(moves)} of {len(lanes) // 2} pairs of lanes move a slot to even out their utilisation"
    return Proposal(tuple(moves), not_curable=tuple(not_curable), memory=delta, collect_s=delta.delta_s, note=note)


def _busy_slots(view: LoadView, lane: int) -> IntArray:
    """Return the slots of a lane that served anything, most records first."""
    counts = view.last.slots.records
    ordered = np.array(view.biggest_first(view.table.lanes[lane], counts), dtype=np.int64)
    return ordered[counts[ordered] > 0]


def _evens_out(view: LoadView, rates: _Rates, slots: IntArray, donor: int, receiver: int) -> BoolArray:
    """Tell of each slot whether its move would lower the ratio of the pair and leave the receiver its limit.

    An infinite ratio is lowered by any finite one. It stays infinite, and the slot where it is, if the slot
    is all that the donor has: then the two lanes would only swap roles.
    """
    counts = view.last.slots.records[slots]
    high, low = rates.without(donor, counts), rates.including(receiver, counts)
    before = utilisation_ratio([rates.used[donor], rates.used[receiver]])
    after = _ratios(high, low)
    return (after < before * (1.0 - _ROUNDING)) & (low <= 1.0 + _ROUNDING)


def _ratios(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return max / min of each pair: infinite if only one of them has work, 1 if none has."""
    high, low = np.maximum(one, other), np.minimum(one, other)
    unequal = np.where(high > 0, np.inf, 1.0)
    # (1 - N/T) of a lane's only slot is zero up to rounding, of either sign
    idle = low <= _ROUNDING * high
    return np.divide(high, low, out=unequal, where=~idle)


def _too_hot(view: LoadView, rates: _Rates, hottest: IntArray, donor: int) -> list[SlotId]:
    """Return the donor's hottest slot if it alone is why the donor cannot be relieved.

    The rule: the pair passed the threshold test, no slot of the donor helps, and the hottest one by itself
    uses more of its lane than the mean utilisation, which is what a lane should carry. A smaller slot that
    finds no place is a matter of granularity or of this receiver, and another round may place it.
    """
    counts = view.last.slots.records[hottest]
    alone = rates.used[donor] - rates.without(donor, counts)
    return [int(slot) for slot in hottest[alone > rates.mean * (1.0 + _ROUNDING)]]


# -- by memory (6.2) -----------------------------------------------------------------------------------------


def _excess(view: LoadView) -> FloatArray:
    """Return the bytes each lane can still take: negative if it holds too much, infinite without a budget."""
    return view.last.lane_column("memory_budget") - view.lane_sums(view.last.slots.state_bytes)


def _by_memory(view: LoadView, delta: Collection) -> Proposal:
    """Return one round of section 6.2."""
    excess = _excess(view)
    if np.isinf(excess).all():
        return Proposal(memory=delta, collect_s=delta.delta_s, note="no lane has a memory budget to balance")
    lanes, moves = view.table.lanes, []
    for donor, receiver in _pairs(excess):
        less, more = float(excess[donor]), float(excess[receiver])
        slots = _movable_first(view, donor)
        helpful = slots[_lowers_difference(view.last.slots.state_bytes[slots], less, more)]
        if helpful.size == 0:
            break
        source, target = lanes[donor], lanes[receiver]
        reason = f"excess memory: {_bytes(less)} on lane {source}, {_bytes(more)} on lane {target}"
        moves.append(Move(int(helpful[0]), source, target, reason))
    note = f"{len(moves)} of {len(lanes) // 2} pairs of lanes move a slot to even out their memory"
    return Proposal(tuple(moves), not_curable=_too_large(view), memory=delta, collect_s=delta.delta_s, note=note)


def _movable_first(view: LoadView, lane: int) -> IntArray:
    """Return the slots of a lane that hold anything: in-memory ones first, the biggest first (FX-A13)."""
    sizes, spilled = view.last.slots.state_bytes, view.last.slots.spilled
    slots = view.table.slots_of(view.table.lanes[lane])
    slots = slots[sizes[slots] > 0]
    return slots[np.lexsort((slots, -sizes[slots], spilled[slots]))]


def _lowers_difference(sizes: IntArray, less: float, more: float) -> BoolArray:
    """Tell of each size whether its move brings the two excesses closer by at least itself (FX-A12).

    A lane without a budget needs no relief, and what it receives leaves the difference infinite: it takes
    anything, but only while the donor holds more than its own budget.
    """
    if math.isinf(more):
        return np.full(sizes.shape, not math.isinf(less) and less < 0)
    gap = more - less
    closer: BoolArray = gap - np.abs(gap - 2 * sizes) >= sizes
    return closer


def _too_large(view: LoadView) -> tuple[SlotId, ...]:
    """Return the slots whose state is larger than the budget of any lane."""
    largest = view.last.lane_column("memory_budget").max()
    return tuple(np.flatnonzero(view.last.slots.state_bytes > largest).tolist())


def _bytes(count: float) -> str:
    return "no end" if math.isinf(count) else f"{count:,.0f} bytes"


# -- what they share -----------------------------------------------------------------------------------------


def _pairs(order_by: FloatArray) -> Iterator[tuple[int, int]]:
    """Yield (donor, receiver) from the ends inwards, lowest first; among equals the lower number first."""
    order = np.argsort(order_by, kind="stable").tolist()
    half = len(order) // 2
    return zip(order[:half], reversed(order), strict=False)  # the middle one, if any, has no partner


def _next_delta(view: LoadView, shortest: float, longest: float | None) -> Collection:
    """Return the next collection time: as long as the last move phase, half the last time if there was none.

    Whether anything moved is read from the clock, not from what was proposed: the balancer may have refused
    it all. At first there is no last time, which ends in the shortest.
    """
    last = view.memory.delta_s if isinstance(view.memory, Collection) else shortest
    wanted = view.last_move_s if view.last_move_s > 0 else last / 2
    return Collection(max(shortest, wanted if longest is None else min(wanted, longest)))


def _refuse_bad_thresholds(who: str, th_imb: float, th_util: float) -> None:
    if not 1 <= th_imb < math.inf:
        raise InputError(f"{who}: th_imb is a ratio of at least 1, got {th_imb}")
    if not 0 <= th_util <= 1:
        raise InputError(f"{who}: th_util is a utilisation from 0 to 1, got {th_util}")


def _refuse_bad_times(who: str, shortest: float, longest: float | None) -> None:
    if not 0 < shortest < math.inf:
        raise InputError(f"{who}: delta_min_s must be above 0, got {shortest}")
    if longest is not None and not shortest <= longest < math.inf:
        raise InputError(f"{who}: delta_max_s must be at least delta_min_s ({shortest}), got {longest}")
