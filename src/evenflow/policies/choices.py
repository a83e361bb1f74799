"""Guo and Zhou's two baselines: placement by hash functions, with a choice between several.

`Pkg` is partial key grouping at the grain of slots: each slot has two candidate lanes, and lives on the one
with less load. Readings: the candidates are distinct, as section 1.1 says; slots are placed in descending
load; the owner stays where both are equal; an idle slot stays, since without records a window gives it no
owner (GZ-A33). The original splits a key over both lanes and merges; here a slot has one owner, and what
moves is counted.

`Uhlb` places all slots by one member of the 2-universal family h(x) = ((a x + b) mod p) mod n (GZ-M8). One
random member does not balance, and a new one moves nearly everything, so there are two variants (A32):
`Uhlb` draws k and takes the best if it is a good deal better than the present table, `UhlbFresh` takes a
new one every time.

Random numbers come from `seed` and a counter in `memory`. `Uhlb` counts the functions it has taken, not its
calls: it does not try its luck again and again, so that on a load that does not change its first refusal is
final.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from evenflow.errors import InputError
from evenflow.model import LoadView, Move, RoutingTable
from evenflow.model.balance import variance
from evenflow.model.slots import IntArray
from evenflow.policies.base import Proposal

PRIME = 2**31 - 1  # above any number of slots, and a x + b still fits into 64 bits


@dataclass(frozen=True, slots=True)
class Pkg:
    """Give each slot two candidate lanes by hash, and of these the less loaded one."""

    name: ClassVar[str] = "pkg"
    paper: ClassVar[str] = "Partial key grouping (Nasir et al.), baseline of Guo and Zhou"
    summary: ClassVar[str] = "two candidate lanes per slot by hash, the less loaded one is taken"

    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a seed that numpy does not take."""
        _refuse_bad_seed(self.name, self.seed)

    def propose(self, view: LoadView) -> Proposal:
        """Place the slots of the newest window, heaviest first."""
        loads = view.last.slots.records
        lanes = len(view.table.lanes)
        if lanes == 1:
            return Proposal(note="with one lane there is no choice")
        pairs = candidates(view.table.slots, lanes, self.seed).tolist()
        places = view.table.lane_positions().copy()
        lane_loads = [0] * lanes
        for slot in np.argsort(-loads, kind="stable")[: np.count_nonzero(loads)].tolist():
            owner = places[slot]
            places[slot] = min(pairs[slot], key=lambda lane: (lane_loads[lane], lane != owner))
            lane_loads[places[slot]] += int(loads[slot])
        return Proposal(_moves_to(view, places, "the less loaded of the slot's two candidates"))


@dataclass(frozen=True, slots=True)
class Uhlb:
    """Draw some universal hash functions, and take the best if it is much better than the present table."""

    name: ClassVar[str] = "uhlb"
    paper: ClassVar[str] = "Universal hashing, baseline of Guo and Zhou"
    summary: ClassVar[str] = "the best of 16 random hash functions, if it is better than the present table"

    draws: int = 16
    min_gain: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse to draw nothing, and a gain that is no share."""
        if self.draws < 1:
            raise InputError(f"uhlb: draws must be at least 1 hash function, got {self.draws}")
        if not 0 <= self.min_gain <= 1:
            raise InputError(f"uhlb: min_gain is a share of the variance from 0 to 1, got {self.min_gain}")
        _refuse_bad_seed(self.name, self.seed)

    def propose(self, view: LoadView) -> Proposal:
        """Compare the drawn functions with the present table, by variance over the lanes."""
        taken = view.memory or 0
        lanes = len(view.table.lanes)
        loads = view.last.slots.records
        drawn = draw_hashes(view.table.slots, lanes, self.draws, (self.seed, taken))
        spreads = [variance(np.bincount(places, weights=loads, minlength=lanes)) for places in drawn]
        best = int(np.argmin(spreads))
        before, after = variance(view.lane_sums(loads)), spreads[best]
        if after >= before or after > (1 - self.min_gain) * before:
            return Proposal(memory=taken, note=f"none of {self.draws} hash functions is much better")
        reason = f"a hash function with variance {after:.4g} instead of {before:.4g}"
        return Proposal(_moves_to(view, drawn[best], reason), memory=taken + 1, note=reason)


@dataclass(frozen=True, slots=True)
class UhlbFresh:
    """Take a new random hash function every time, whatever the load."""

    name: ClassVar[str] = "uhlb-fresh"
    paper: ClassVar[str] = "Universal hashing, baseline of Guo and Zhou"
    summary: ClassVar[str] = "a new random hash function every time; never stops moving, a yardstick only"

    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a seed that numpy does not take."""
        _refuse_bad_seed(self.name, self.seed)

    def propose(self, view: LoadView) -> Proposal:
        """Place all slots by the next member of the family."""
        calls = view.memory or 0
        places = draw_hashes(view.table.slots, len(view.table.lanes), 1, (self.seed, calls))[0]
        return Proposal(_moves_to(view, places, "a new hash function"), memory=calls + 1)


def universal_hash(a: IntArray, b: IntArray, slots: int, lanes: int, prime: int = PRIME) -> IntArray:
    """Return ((a x + b) mod p) mod n of every slot x; one row per pair 1 <= a < p, 0 <= b < p."""
    return (a[:, None] * np.arange(slots) + b[:, None]) % prime % lanes


def draw_hashes(slots: int, lanes: int, count: int, seed: tuple[int, ...]) -> IntArray:
    """Return the places of all slots under `count` random members of the family, one per row."""
    random = np.random.default_rng(seed)
    return universal_hash(random.integers(1, PRIME, count), random.integers(0, PRIME, count), slots, lanes)


def candidates(slots: int, lanes: int, seed: int) -> IntArray:
    """Return two distinct places of every slot, one row each: a hash, and a second over the lanes left."""
    first = draw_hashes(slots, lanes, 1, (seed, 0))[0]
    step = draw_hashes(slots, lanes - 1, 1, (seed, 1))[0]
    return np.stack([first, (first + 1 + step) % lanes], axis=1)


def _moves_to(view: LoadView, places: IntArray, reason: str) -> tuple[Move, ...]:
    """Return the moves that bring every slot to its place, a position in the table's lanes."""
    wanted = RoutingTable(np.array(view.table.lanes)[places], view.table.lanes)
    return tuple(replace(move, reason=reason) for move in view.table.difference(wanted))


def _refuse_bad_seed(who: str, seed: int) -> None:
    if seed < 0:
        raise InputError(f"{who}: seed must be 0 or more, got {seed}")
