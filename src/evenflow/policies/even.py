"""evenflow's own policy: even busy time for the fewest bytes, and only where that pays.

*What is balanced*: the busy time that what came for each slot needs, not its record count. On a lane that had no idle
time left, what was not served counts as well, for the lane would have served it if it could; what had piled up before
counts little, for it is there only once. Where an epoch is reported once all of it is served (`LoadWindow.all_served`),
its own cost is all there is to know: what waits is in the windows to come, and counted here as well it would send slots
after whichever lane happens to be last. Lanes may differ in speed (`speeds`).

*How*: the packing with the lowest maximum found, and of all that come within 0.2 % of it the one that is cheapest to
move (`packing`): each slot costs its lanes the time to send and receive it, and keeps its own records waiting for as
long, the more the busier it is. When state is heavy, coarser goals are weighed too: each plan is worth the busy seconds
it takes off the busiest lane, over `horizon_windows`, less the seconds that the lane with most to send and receive
spends on that; the best plan wins.

*How far*: rows that come an epoch at a time each wait for all that their lane has to do in it, so only the lowest
maximum will do. Where records come one by one, nobody waits for a lane that is idle now and then, but records wait for
every slot that moves. There lanes that are busy for less than `calm` of their time need not be more even than
`min_gain`; and while it is not known whether a skew lasts (it has not been there for 12 windows), the busiest lane is
only made calm, with few moves, unless it is far from even; be its slots hot or the lane itself slow. Where a lane has
no time left and nobody can say how much more is held back, all is evened out. Where all lanes stop for a move, only a
lane that is not calm is worth one.

*In which order*: slots of the busiest lane first, the busiest of them first; where a strategy takes moves as they come,
the first of them help most.

*Why it comes to rest*: a plan must lower the maximum by at least `min_gain`, and by more than the windows' own
noise explains, so on a steady load only finitely many plans can follow each other. Windows that tell the same story
are averaged, so a small lasting imbalance is seen in time; the first one that tells another counts alone.

*Memory first*: a lane that holds more state than its budget gives some away before anything else (`relief`).

*What moving cannot cure*: a slot that alone needs more than an even lane's share is named. Its lane is cleared of all
else if that wins a twentieth of the lane's time; else many slots would move for what nobody notices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from evenflow.errors import InputError
from evenflow.model import LoadView, Move
from evenflow.model.slots import FloatArray, IntArray
from evenflow.policies.base import Proposal
from evenflow.policies.demand import demand_is_unknown, full_lanes, needed_s, piled_up_s, span_s
from evenflow.policies.packing import Packing, Problem, pack, stay
from evenflow.policies.relief import relieving_moves
from evenflow.policies.speeds import Speeds

_BESIDE_HOT = 0.05  # of its lane's time that clearing the lane of a slot which no move can cure must win, at least
_LASTING = 12  # windows that tell the same story: half of what the balancer keeps by default
_FAR_FROM_EVEN = 1.5  # times the even share; where lanes wait for each other, idle time is no sign of calm
_COARSER = (0.05, 0.1, 0.2, 0.5)  # goals above the best maximum that are weighed when state is heavy
_CHEAP = 0.1  # moves that cost less than this share of their gain are not worth haggling over
_SIGMAS = 5.0  # what counts as more than noise; lanes are many and windows follow each other for ever
_SPREAD_TO_SIGMA = 2.0 / (0.6933 * 2**0.5)  # from |a - b| / (a + b) of the middle half to the deviation of a / mean

_NO_MOVE_HELPS = "the busiest lane has a slot that alone exceeds an even share, and little else to do: no move helps"
_EVEN = "the lanes are even, but for noise"


@dataclass(frozen=True, slots=True)
class Even:
    """Balance busy time with the fewest bytes moved. Every option has a default that needs no tuning."""

    name: ClassVar[str] = "even"
    paper: ClassVar[str] = "evenflow"
    summary: ClassVar[str] = "even busy time, fewest bytes, only where it pays; the default"
    takes_parts: ClassVar[bool] = True

    tolerance: float = 0.002
    min_gain: float = 0.02
    horizon_windows: float = 100.0
    calm: float = 0.8

    def __post_init__(self) -> None:
        """Refuse shares that are none, and a horizon in the past."""
        for option in ("tolerance", "min_gain", "calm"):
            if not 0 <= getattr(self, option) < 1:
                raise InputError(f"even: {option} is a share from 0 to below 1, got {getattr(self, option)}")
        if not self.horizon_windows > 0:
            raise InputError(f"even: horizon_windows must be above 0, got {self.horizon_windows}")

    def propose(self, view: LoadView) -> Proposal:
        """Propose the plan that is worth most, or none."""
        speeds = _learnt(view)
        slowed = _slowed_now(view, speeds)
        recent = _recent(view, newest_only=bool((slowed > 1).any()))
        relief = relieving_moves(view, recent.busy_s)
        if relief:  # what lies on disk first; busy time is looked at again when all have room
            note = "lanes hold more state than their memory takes"
            return Proposal(relief, memory=speeds, on_their_own=relief, note=note)
        problem = _problem(view, speeds, recent, slowed)
        hot = _not_curable(problem)
        present = stay(problem)
        # What one slot alone needs stays whatever moves, and all others of its lane would have to leave for the rest.
        share = max(self.min_gain, _BESIDE_HOT) if hot else self.min_gain
        least = max(share * present.maximum, recent.noise_of(present))
        if present.maximum - problem.lower_bound <= least:  # no plan can gain enough: none is looked for
            return Proposal(not_curable=hot, memory=speeds, note=_NO_MOVE_HELPS if hot else _EVEN)
        goal = self._goal(view, problem, recent)
        if goal is None:
            return Proposal(not_curable=hot, memory=speeds, note="no lane is so busy that anyone waits for it")
        plan = self._worth_most(view, problem, least, goal)
        gain = present.maximum - plan.maximum
        if gain <= least:
            note = _NO_MOVE_HELPS if hot else "no plan beats the present table by more than noise or minimum gain"
            return Proposal(not_curable=hot, memory=speeds, note=note)
        cost = plan.moving_s(view.move_cost)
        if gain * self.horizon_windows <= cost:
            note = (
                f"moving would take {cost:.3g} s and win {gain:.3g} s per window: "
                f"not worth it within {self.horizon_windows:g} windows"
            )
            return Proposal(not_curable=hot, memory=speeds, note=note)
        note = (
            f"busiest lane from {present.maximum:.3g} s to {plan.maximum:.3g} s per window "
            f"(no plan can go below {problem.lower_bound:.3g} s)"
        )
        moves = _moves(view, plan)
        alone = _of_use_alone(view, plan, moves)
        return Proposal(moves, not_curable=hot, memory=speeds, on_their_own=alone, note=note)

    def _goal(self, view: LoadView, problem: Problem, recent: _Recent) -> float | None:
        """Return the busy time that the busiest lane may have after the moves; None if it is well as it is."""
        if view.whole_epochs:
            return 0.0
        present, even_enough = stay(problem).maximum, (1 + self.min_gain) * problem.lower_bound
        calm_s = self.calm * span_s(view.last)
        if view.move_cost.stops_all:
            return calm_s if present > calm_s else None
        if demand_is_unknown(view):
            return 0.0
        bearable = min(calm_s, even_enough if recent.lasts else _FAR_FROM_EVEN * problem.lower_bound)
        if present <= bearable:
            return None
        return bearable if present > calm_s else min(calm_s, even_enough)

    def _finest(self, view: LoadView, problem: Problem, least: float, goal: float) -> Packing:
        """Return the most even plan that is asked for.

        Where even the best misses a goal, but leaves lanes calm, what is within `min_gain` of it will do: below that
        slots would be moved about to fit the noise of their measurements.
        """
        finest = pack(problem, self.tolerance, goal)
        if goal == 0.0 or finest.maximum <= goal or stay(problem).maximum - finest.maximum <= least:
            return finest
        enough = min(self.calm * span_s(view.last), (1 + self.min_gain) * finest.maximum)
        return pack(problem, self.tolerance, enough) if enough > finest.maximum else finest

    def _worth_most(self, view: LoadView, problem: Problem, least: float, goal: float) -> Packing:
        """Return the best plan; coarser, cheaper ones are looked at only when moving is not cheap anyway.

        They gain less, too: where the finest does not gain the `least` there must be, none of them does.
        """
        before = stay(problem).maximum

        def worth(plan: Packing) -> float:
            return (before - plan.maximum) * self.horizon_windows - plan.moving_s(view.move_cost)

        finest = self._finest(view, problem, least, goal)
        if (
            before - finest.maximum <= least
            or worth(finest) >= (1 - _CHEAP) * (before - finest.maximum) * self.horizon_windows
        ):
            return finest
        coarser = [pack(problem, self.tolerance, finest.maximum * (1 + above)) for above in _COARSER]
        return max([finest, *coarser], key=worth)


def _learnt(view: LoadView) -> Speeds:
    """Return what is known of the lanes' speeds, with the newest window (at the first call: all windows) added."""
    if isinstance(view.memory, Speeds) and view.memory.cost.size == view.table.slots:
        return view.memory.after(view.last, view.table)
    speeds = Speeds.unknown(view.table)
    for window in view.windows:
        speeds = speeds.after(window, view.table)
    return speeds


@dataclass(frozen=True, slots=True)
class _Recent:
    """The busy time of each slot lately, in so many windows that tell the same story.

    And how far that of each strays by chance, as a share of itself.
    """

    busy_s: FloatArray
    windows: int
    noise: FloatArray

    @property
    def lasts(self) -> bool:
        """Whether it has been the same story for long enough to go on."""
        return self.windows >= _LASTING

    def noise_of(self, present: Packing) -> float:
        """Return how far the busiest lane may stray by chance."""
        top = int(present.load.argmax())
        strays = self.noise[present.members(top)] * present.contributions(top)
        return float(_SIGMAS * np.sqrt(np.square(strays).sum()))


def _slowed_now(view: LoadView, speeds: Speeds) -> FloatArray:
    """Return how many times slower than usual each lane was just now, where that has to be acted on before it lasts.

    Where records come one by one, a lane without time left is a new overload, be its slots hot or the lane slow. Rows
    that come an epoch at a time wait anyway, and one window may be no more than a bad moment.
    """
    acute = np.zeros(len(view.table.lanes), bool) if view.whole_epochs else full_lanes(view.last)
    return np.where(acute, np.maximum(1.0, speeds.just_now(view.table)), 1.0)


def _recent(view: LoadView, *, newest_only: bool) -> _Recent:
    """Average the newest windows, back to the first that differs from the newest by more than noise."""
    busy = _to_scale(needed_s(view))
    noise = _noise_of_slots(_relative_noise(busy), view.last.slots.records)
    newest = view.lane_sums(busy[-1])
    margin = _SIGMAS * np.sqrt(2.0 * view.lane_sums(np.square(noise * busy[-1])))
    alike = 1
    while not newest_only and alike < len(busy) and (np.abs(view.lane_sums(busy[-1 - alike]) - newest) <= margin).all():
        alike += 1
    return _Recent(np.mean(busy[-alike:], axis=0), alike, noise / np.sqrt(alike))


def _to_scale(busy: Sequence[FloatArray]) -> list[FloatArray]:
    """Return all windows as if they had been as long and as full as the newest: epochs differ in size.

    The usual factor between two windows is the median over the slots, which a few hot ones do not move.
    """
    newest, scaled = busy[-1], []
    for older in busy:
        both = (older > 0) & (newest > 0)
        factor = float(np.median(newest[both] / older[both])) if both.any() else 1.0
        scaled.append(older * factor)
    return scaled


def _relative_noise(busy: Sequence[FloatArray]) -> float:
    """Return the standard deviation of a usual slot's busy time, relative to it, from windows that follow each other.

    The mean of the middle half is blind to the few slots that really changed, which is what the policy is there for.
    """
    spreads = []
    for older, newer in pairwise(busy):
        both = (older > 0) & (newer > 0)
        if both.any():
            spreads.append(_middling(np.abs(newer - older)[both] / (newer + older)[both]))
    return float(np.median(spreads)) * _SPREAD_TO_SIGMA if spreads else 0.0


def _middling(values: FloatArray) -> float:
    """Return the mean of the middle half. Unlike the median it is as fine for values that come in few steps."""
    quarter = values.size // 4
    return float(np.sort(values)[quarter : values.size - quarter].mean())


def _noise_of_slots(usual: float, records: IntArray) -> FloatArray:
    """Return the relative noise of each slot, where that of a usual one is known.

    The number of records that happen to come strays by its square root, so by a smaller share where more come. What a
    usual slot strays beyond that is another kind of noise, which large slots have as well.
    """
    at_work = records > 0
    if usual == 0.0 or not at_work.any():
        return np.full(records.size, usual)
    middle = float(np.median(records[at_work]))
    chance = min(usual**2, 1.0 / middle)
    scale = np.where(at_work, middle / np.maximum(records, 1), 1.0)
    noise: FloatArray = np.sqrt(usual**2 - chance + chance * scale)
    return noise


def _problem(view: LoadView, speeds: Speeds, recent: _Recent, slowed: FloatArray) -> Problem:
    """State the packing problem: busy seconds on a middling lane, bytes, present lanes, free memory."""
    home = view.table.lane_positions()
    state = view.last.slots.state_bytes.astype(np.float64)
    budget = view.last.lane_column("memory_budget")
    held = view.lane_sums(state)
    # While a slot is sent its lanes do nothing else, and its own records wait: those that come, of each second `share`.
    transit_s = view.move_cost.seconds_per_byte * state + view.move_cost.seconds_per_move
    share = recent.busy_s / span_s(view.last)
    waiting_s = piled_up_s(view, float(recent.busy_s.sum()), _LASTING)
    return Problem(
        work=(recent.busy_s + waiting_s) / speeds.in_costs(view.table, recent.windows)[home],
        size=state,
        home=home,
        slowness=speeds.factors(view.table) * slowed,
        room=np.where(np.isinf(budget), np.inf, np.maximum(0.0, budget - held)),
        price=transit_s * (1 + share),
    )


def _not_curable(problem: Problem) -> tuple[int, ...]:
    """Return the slots that no lane can hold within an even share."""
    alone = problem.work * problem.slowness.min()
    even_share = problem.fluid_bound
    if even_share <= 0 or problem.slowness.size == 1:
        return ()
    return tuple(np.flatnonzero(alone > even_share * (1 + 1e-9)).tolist())


def _of_use_alone(view: LoadView, plan: Packing, moves: Sequence[Move]) -> tuple[Move, ...]:
    """Return the moves from lanes that have too much to lanes that give nothing away.

    Each of them takes load from a lane above the plan's maximum to one that ends below it, whatever else is done. Where
    slots change places, or are passed on, one alone may make things worse, to be undone the next time.
    """
    load = dict(zip(view.table.lanes, stay(plan.problem).load.tolist(), strict=True))
    give = {move.source for move in moves}
    return tuple(move for move in moves if load[move.source] > plan.maximum and move.target not in give)


def _moves(view: LoadView, plan: Packing) -> tuple[Move, ...]:
    problem, lanes = plan.problem, view.table.lanes
    even_share, needed = problem.fluid_bound, stay(problem).load
    reasons = [
        f"lane {lane} needed {load:.3g} s, {even_share:.3g} s would be even"
        for lane, load in zip(lanes, needed, strict=True)
    ]
    moved = plan.moved[np.lexsort((-problem.work[plan.moved], -needed[problem.home[plan.moved]]))]
    pairs = zip(moved.tolist(), problem.home[moved].tolist(), plan.lane[moved].tolist(), strict=True)
    return tuple(Move(slot, lanes[source], lanes[target], reasons[source]) for slot, source, target in pairs)
