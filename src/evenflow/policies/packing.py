"""Packing slots onto lanes: the lowest maximum load, and the cheapest moves that reach it. Arrays only.

Minimising the maximum load is NP-hard (with equal lanes already), and so is moving for the lowest price. What is done:

1. *shed*: lanes above a goal give up slots, those with most work for their price first (or simply the biggest first);
2. *place*: what was given up goes, biggest first, to the lane with most room below the goal;
3. *polish*: the most loaded lane gives a slot, or swaps one, as long as that lowers the pair's maximum;
4. *take back*, *exchange*: moves that the reached maximum does not need are undone or replaced by cheaper ones.

Small problems are tried from several goals, the best result wins; a large one gets one goal and a bounded
number of steps, so that the whole costs O(n log n). `benchmarks/policies.py` compares the result with the exact
optimum.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from evenflow.model import MoveCost
from evenflow.model.slots import FloatArray, IntArray

_SMALL = 1 << 12  # slots x lanes up to which several goals are tried
_GOALS = (1.0, 1.02, 1.05, 1.1, 1.2)  # tried in small problems, in units of the lower bound
_GOAL = 1.005  # the one goal of a large problem
_PARTNERS = 8  # lanes that the most loaded one may give to, or swap with, in one polishing step
_POLISH_STEPS = 256
_CLOSE = 1.002  # within this factor of the lower bound, polishing has nothing left to gain
_TAKEN_BACK = 2048  # moves looked at when taking back what is not needed
_REFINED = 3  # packings for which cheaper exchanges are sought
_SLACK = 1.0 + 1e-9  # rounding: loads are sums of floats


@dataclass(frozen=True)
class Problem:
    """What has to be packed: entry i of `work`, `size`, `home` is slot i, of `slowness`, `room` lane i.

    A slot of `work` w costs w * slowness[l] on lane l; `room` is how many bytes more a lane may take.
    `price` is what moving a slot costs, in any unit; its bytes if not given.
    """

    work: FloatArray
    size: FloatArray
    home: IntArray
    slowness: FloatArray
    room: FloatArray
    price: FloatArray | None = None

    @cached_property
    def prices(self) -> FloatArray:
        """What moving each slot costs."""
        return self.size if self.price is None else self.price

    @cached_property
    def fluid_bound(self) -> float:
        """The load of every lane if work could be cut at will."""
        return float(self.work.sum() / (1.0 / self.slowness).sum())

    @cached_property
    def lower_bound(self) -> float:
        """No packing has a smaller maximum: the fluid bound, or the biggest slot on the fastest lane."""
        return max(self.fluid_bound, float(self.work.max() * self.slowness.min()))

    @property
    def is_small(self) -> bool:
        """Whether several starts are affordable."""
        return self.work.size * self.slowness.size <= _SMALL


@dataclass
class Packing:
    """A lane for each slot, with the loads and free bytes that follow; changed in place by the steps below."""

    problem: Problem
    lane: IntArray
    load: FloatArray = field(init=False)
    room: FloatArray = field(init=False)
    _members: dict[int, IntArray] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Add up the loads."""
        problem, lanes = self.problem, self.problem.slowness.size
        self.load = np.bincount(self.lane, weights=problem.work, minlength=lanes) * problem.slowness
        came = np.bincount(self.lane, weights=problem.size, minlength=lanes)
        left = np.bincount(problem.home, weights=problem.size, minlength=lanes)
        self.room = problem.room - came + left

    def put(self, slot: int, target: int) -> None:
        """Move one slot."""
        source, work = self.lane[slot], self.problem.work[slot]
        self.load[source] -= work * self.problem.slowness[source]
        self.load[target] += work * self.problem.slowness[target]
        self.room[source] += self.problem.size[slot]
        self.room[target] -= self.problem.size[slot]
        self._members[int(source)] = self.members(source)[self.members(source) != slot]
        self._members[target] = np.append(self.members(target), slot)
        self.lane[slot] = target

    def members(self, lane: int) -> IntArray:
        """Return the slots of one lane; all lanes are listed once, at the first call."""
        if not self._members:
            order = np.argsort(self.lane, kind="stable")
            ends = np.searchsorted(self.lane[order], np.arange(self.load.size + 1))
            self._members = {at: order[ends[at] : ends[at + 1]] for at in range(self.load.size)}
        return self._members[int(lane)]

    def contributions(self, lane: int) -> FloatArray:
        """Return what each slot of one lane adds to its load."""
        added: FloatArray = self.problem.work[self.members(lane)] * self.problem.slowness[lane]
        return added

    @property
    def maximum(self) -> float:
        """The load of the most loaded lane."""
        return float(self.load.max())

    @property
    def moved(self) -> IntArray:
        """The slots that are not at home."""
        return np.flatnonzero(self.lane != self.problem.home)

    @property
    def moved_bytes(self) -> float:
        """The bytes of all slots that are not at home."""
        return float(self.problem.size[self.moved].sum())

    @property
    def price(self) -> float:
        """What it costs to move all slots that are not at home."""
        return float(self.problem.prices[self.moved].sum())

    def moving_s(self, cost: MoveCost) -> float:
        """Return how long the lane with most to send and receive is occupied with it; lanes work side by side."""
        moved, lanes = self.moved, self.problem.slowness.size
        each = cost.seconds_per_byte * self.problem.size[moved] + cost.seconds_per_move
        sent = np.bincount(self.problem.home[moved], weights=each, minlength=lanes)
        received = np.bincount(self.lane[moved], weights=each, minlength=lanes)
        return float((sent + received).max())


def stay(problem: Problem) -> Packing:
    """Return the packing in which nothing moves."""
    return Packing(problem, problem.home.copy())


def pack(problem: Problem, tolerance: float, goal: float = 0.0) -> Packing:
    """Return a packing whose maximum is within `tolerance` of the best one found, for the lowest price.

    A maximum of `goal` is good enough; there is no need to go below it.
    """
    found = list(_candidates(problem, goal))
    limit = max(goal, min(packing.maximum for packing in found) * (1.0 + tolerance))
    good = [take_back(packing, limit) for packing in found if packing.maximum <= limit * _SLACK]
    good.sort(key=lambda packing: (packing.price, packing.maximum))
    refined = [exchange(packing, limit) for packing in good[:_REFINED]] if problem.is_small else good
    return min(refined, key=lambda packing: (packing.price, packing.maximum))


def _candidates(problem: Problem, goal: float) -> Iterator[Packing]:
    """Yield good packings, one for a large problem, about a dozen for a small one."""
    bound, present = problem.lower_bound, stay(problem)
    if not problem.is_small:
        yield polish(shed_and_place(problem, max(goal, bound * _GOAL), cheapest_first=True), goal)
        return
    wanted = [*(bound * factor for factor in _GOALS), goal]
    goals = [level for level in wanted if bound <= level < present.maximum] or [bound]
    yield polish(present, goal)
    yield polish(repack(problem), goal)
    for level in goals:
        for cheapest_first in (True, False):
            yield polish(shed_and_place(problem, level, cheapest_first=cheapest_first), goal)


def shed_and_place(problem: Problem, goal: float, *, cheapest_first: bool) -> Packing:
    """Return the packing in which lanes above `goal` gave slots to lanes below it."""
    packing = stay(problem)
    slots = _to_shed(packing, goal, cheapest_first=cheapest_first)
    heap = [
        (-float((goal - load) / slow), lane)
        for lane, (load, slow) in enumerate(zip(packing.load, problem.slowness, strict=True))
        if load < goal
    ]
    heapq.heapify(heap)
    work, size, room = problem.work, problem.size, packing.room
    targets = problem.home.copy()
    for slot in slots[np.argsort(-work[slots], kind="stable")].tolist():
        if not heap:
            break
        free, lane = heap[0]
        if size[slot] > room[lane]:
            continue  # it stays; polishing may still find it a place
        room[lane] -= size[slot]
        targets[slot] = lane
        heapq.heapreplace(heap, (free + float(work[slot]), lane))
    return Packing(problem, targets)


def repack(problem: Problem) -> Packing:
    """Return the packing that ignores where slots are now: biggest first, each where it ends lowest."""
    load = np.zeros(problem.slowness.size)
    room = Packing(problem, problem.home).room + np.bincount(problem.home, problem.size, problem.slowness.size)
    lanes = problem.home.copy()
    for slot in np.argsort(-problem.work, kind="stable").tolist():
        ends = load + problem.work[slot] * problem.slowness
        ends[problem.size[slot] > room] = np.inf
        ends[problem.home[slot]] /= _SLACK  # among equals, home
        lane = int(ends.argmin())
        lanes[slot] = lane
        load[lane] += problem.work[slot] * problem.slowness[lane]
        room[lane] -= problem.size[slot]
    return Packing(problem, lanes)


def _to_shed(packing: Packing, goal: float, *, cheapest_first: bool) -> IntArray:
    """Return for each lane above `goal` slots that together hold about what is too much there."""
    problem = packing.problem
    excess = np.maximum(0.0, packing.load - goal) / problem.slowness
    home, work = problem.home, problem.work
    # A slot of more than twice the excess would leave a deeper hole than the hill it removes.
    able = np.flatnonzero((work > 0) & (work <= 2 * excess[home]))
    price = problem.prices[able] / work[able] if cheapest_first else -work[able]
    able = able[np.lexsort((-work[able], price, home[able]))]
    lanes, starts = np.unique(home[able], return_index=True)
    before = np.cumsum(work[able]) - work[able]
    offset = np.zeros(problem.slowness.size)
    offset[lanes] = before[starts]
    return able[before - offset[home[able]] < excess[home[able]]]


def polish(packing: Packing, goal: float = 0.0) -> Packing:
    """Lower the maximum to `goal` by single moves and swaps away from the most loaded lane, or until none helps."""
    problem = packing.problem
    enough = max(goal, problem.lower_bound * _CLOSE)
    partners_allowed = _PARTNERS if problem.is_small else 2
    for _ in range(_POLISH_STEPS):
        top = int(packing.load.argmax())
        if packing.load[top] <= enough:
            break
        partners = [lane for lane in np.argsort(packing.load)[:partners_allowed].tolist() if lane != top]
        given = packing.members(top)
        if given.size == 0 or not partners:
            break
        change = _best_change(packing, top, given, partners)
        if change is None:
            break
        slot, target, back = change
        packing.put(slot, target)
        if back is not None:
            packing.put(back, top)
    return packing


def _best_change(
    packing: Packing, top: int, given: IntArray, partners: list[int]
) -> tuple[int, int, int | None] | None:
    """Return (slot, lane it goes to, slot that comes back or None) for the lowest maximum of the two lanes."""
    work, size, slow = packing.problem.work, packing.problem.size, packing.problem.slowness
    load, room = packing.load, packing.room
    best, found = load[top] / _SLACK, None
    for lane in partners:
        taken = packing.members(lane)
        back_work, back_size = np.append(work[taken], 0.0), np.append(size[taken], 0.0)
        order = np.argsort(back_work, kind="stable")
        # The maximum of the two is lowest when this much work changes sides; the nearest two swaps will do.
        ideal = (load[top] - load[lane]) / (slow[top] + slow[lane])
        after = np.searchsorted(back_work[order], work[given] - ideal)
        near = order[np.clip(np.stack([after - 1, after], axis=1), 0, taken.size)]
        delta = work[given][:, None] - back_work[near]
        grows = size[given][:, None] - back_size[near]
        worst = np.maximum(load[top] - delta * slow[top], load[lane] + delta * slow[lane])
        worst[(grows > room[lane]) | (-grows > room[top])] = np.inf
        row, column = np.unravel_index(int(worst.argmin()), worst.shape)
        if worst[row, column] < best:
            best = worst[row, column]
            back = int(near[row, column])
            found = (int(given[row]), lane, int(taken[back]) if back < taken.size else None)
    return found


def take_back(packing: Packing, limit: float) -> Packing:
    """Send slots home, the dearest first, as long as no lane exceeds `limit`."""
    problem, limit = packing.problem, limit * _SLACK
    for slot in _away(packing)[:_TAKEN_BACK]:
        home = int(problem.home[slot])
        fits = packing.load[home] + problem.work[slot] * problem.slowness[home] <= limit
        if fits and problem.size[slot] <= packing.room[home]:
            packing.put(slot, home)
    return packing


def exchange(packing: Packing, limit: float) -> Packing:
    """Send slots home by moving a cheaper one in their stead, as long as no lane exceeds `limit`."""
    away = _away(packing)
    while away:
        slot = away.pop(0)
        found = _cheaper(packing, slot, limit * _SLACK)
        if found is not None:
            other, target = found
            packing.put(slot, int(packing.problem.home[slot]))
            packing.put(other, target)
            # Room has opened elsewhere: look at all that is away once more.
            away = _away(take_back(packing, limit))
    return packing


def _away(packing: Packing) -> list[int]:
    """Return the slots that are not at home, the dearest first."""
    moved = packing.moved
    return [int(slot) for slot in moved[np.argsort(-packing.problem.prices[moved], kind="stable")]]


def _cheaper(packing: Packing, slot: int, limit: float) -> tuple[int, int] | None:
    """Return a slot to move instead of `slot`, and where to, so that `slot` can go home for less."""
    problem = packing.problem
    work, size, slow, home = problem.work, problem.size, problem.slowness, int(problem.home[slot])
    load, room = packing.load.copy(), packing.room.copy()
    load[packing.lane[slot]] -= work[slot] * slow[packing.lane[slot]]
    room[packing.lane[slot]] += size[slot]
    load[home] += work[slot] * slow[home]
    room[home] -= size[slot]
    if np.count_nonzero(load > limit) > 1:
        return None
    others = packing.members(home)
    if others.size == 0:
        return None
    fits = load[None, :] + work[others][:, None] * slow[None, :] <= limit
    fits &= size[others][:, None] <= room[None, :]
    fits &= ((load[home] - work[others] * slow[home] <= limit) & (room[home] + size[others] >= 0))[:, None]
    fits[:, home] = False
    was_home = problem.home[others] == home
    goes_home = np.arange(slow.size)[None, :] == problem.home[others][:, None]
    each = problem.prices[others][:, None]
    price = np.where(was_home[:, None], each, np.where(goes_home, -each, 0.0))
    price = np.where(fits, price, np.inf)
    row, column = np.unravel_index(int(price.argmin()), price.shape)
    return (int(others[row]), int(column)) if price[row, column] < problem.prices[slot] else None
