"""Where `even` is not as good as the best policy, and why: what both did there, run again and looked at closely."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from itertools import product
from typing import Any

import numpy as np

from evenflow.control.journal import Decided, PhaseChanged, Refusal, Refused
from evenflow.migration.strategies import Sudden
from evenflow.policies import DEFAULT_POLICY, POLICIES
from evenflow.sim.quantum import Way
from papers.cross.loads import LOADS
from papers.cross.table import Measured, Table, all_combinations, cluster_of, spread

CLOSE = 1.1  # as good as the best, but for noise
LEAST_S = 0.05  # latencies below a quarter of the simulator's step are all alike
_MORE = 1.5  # times: what is a reason must be seen clearly


class Reason(Enum):
    """Why another policy has a lower p99; each holds by a condition on the figures of both (`_HOLDS`)."""

    CHANCE = "as good in most seeds"
    NO_USE = "moving does not pay"
    STOPS = "taken for load"
    CAUTION = "stops less"
    LONG_PLAN = "long plan"
    LATE = "starts later"


@dataclass(frozen=True, slots=True)
class Place:
    """A way to hand over, a strategy and a load."""

    handover: str
    strategy: str
    load: str

    def __str__(self) -> str:
        """Name it."""
        return f"{self.handover}, {self.strategy}, {self.load}"


@dataclass(frozen=True, slots=True)
class Conduct:
    """What a policy did in one run.

    `moves`: how many slots changed hands. `stopped_s`: how long no lane served anything. `longest_s`: how long the
    longest plan took from its decision to its last move; the balancer decides nothing else meanwhile. `first_s`: when
    the first move began after the load became what it is; infinite if none did. `put_off`: how many plans were carried
    out in part, so that lanes could work before the next stop.
    """

    p99_s: float
    moves: float
    stopped_s: float
    longest_s: float
    first_s: float
    put_off: float = 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where `even` stands at a place: its p99 and the lowest, floored, and whose that is."""

    place: Place
    best: str
    even_s: float
    best_s: float

    @property
    def times(self) -> float:
        """How many times the lowest p99 that of `even` is."""
        return self.even_s / self.best_s


@dataclass(frozen=True, slots=True)
class Miss:
    """A place where `even` is not as good as the best: medians of what both did, in how many seeds it is, and why."""

    stands: Standing
    even: Conduct
    other: Conduct
    as_good: int
    seeds: int
    reasons: tuple[Reason, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **asdict(self.stands.place),
            "best": self.stands.best,
            "times": round(self.stands.times, 3),
            "as_good": self.as_good,
            "seeds": self.seeds,
            "even": _written(self.even),
            "other": _written(self.other),
            "reasons": [reason.value for reason in self.reasons],
        }


def _written(conduct: Conduct) -> dict[str, float | None]:
    """Return the figures for JSON; what never happened is None."""
    return {name: None if np.isinf(value) else value for name, value in asdict(conduct).items()}


def middle(cell: Sequence[Measured], measure: str) -> float:
    """Return the median over the seeds; not a number if the cell was not run."""
    return float(np.median([getattr(one, measure) for one in cell])) if cell else float("nan")


def standings(table: Table) -> list[Standing]:
    """Return where `even` stands at each place where all policies were run."""
    places = [Place(way, strategy, load) for (way, strategy), load in product(all_combinations(), LOADS)]
    return [standing(table, place) for place in places if all(_key(policy, place) in table for policy in POLICIES)]


def standing(table: Table, place: Place) -> Standing:
    """Return where `even` stands at `place`."""
    best = min(POLICIES, key=lambda policy: (_level(table, policy, place), _moved_mb(table, policy, place)))
    return Standing(place, best, _level(table, DEFAULT_POLICY, place), _level(table, best, place))


def _level(table: Table, policy: str, place: Place) -> float:
    """Return the p99 latency; what the simulator cannot tell apart is the same. Not a number if it was not run."""
    return float(np.maximum(LEAST_S, middle(table.get(_key(policy, place), ()), "p99_s")))


def _moved_mb(table: Table, policy: str, place: Place) -> float:
    return middle(table.get(_key(policy, place), ()), "moved_mb")


def find_misses(table: Table, seeds: Sequence[int], processes: int) -> list[Miss]:
    """Return the places where `even` is not within 10 % of the lowest p99, with what it and the best did there."""
    found = [one for one in standings(table) if one.times > CLOSE]
    jobs = [(policy, one.place, seed) for one in found for policy in (DEFAULT_POLICY, one.best) for seed in seeds]
    done = iter(list(spread(_conduct, jobs, processes)))
    misses = []
    for one in found:
        ours, theirs = ([next(done) for _ in seeds] for _ in range(2))
        misses.append(_miss(one, ours, theirs, table))
    return misses


def _miss(stands: Standing, ours: Sequence[Conduct], theirs: Sequence[Conduct], table: Table) -> Miss:
    pairs = zip(ours, theirs, strict=True)
    as_good = sum(max(LEAST_S, our.p99_s) <= CLOSE * max(LEAST_S, their.p99_s) for our, their in pairs)
    miss = Miss(stands, _medians(ours), _medians(theirs), as_good, len(ours))
    return replace(miss, reasons=tuple(reason for reason, holds in _HOLDS.items() if holds(miss, table)))


def _medians(conducts: Sequence[Conduct]) -> Conduct:
    return Conduct(*(float(np.median([getattr(one, name) for one in conducts])) for name in Conduct.__slots__))


def conduct(policy: str, place: Place, seed: int) -> Conduct:
    """Run a policy at `place` and watch it."""
    cluster = cluster_of(policy, Way(place.handover), place.strategy, place.load, seed)
    scenario = cluster.scenario
    stopped, served = 0, 0.0
    for _ in range(scenario.steps):
        cluster.step()
        now = float(cluster.counts.served.sum())
        stopped += now == served
        served = now
    timeline = cluster.timeline()
    longest, began, first, put_off = 0, 0, float("inf"), 0
    for entry in timeline.journal:
        if isinstance(entry, Decided) and entry.moves:
            began = entry.epoch
            at_s = (began + 1) * scenario.epoch_s  # the control message that follows
            if at_s >= LOADS[place.load].since_s:
                first = min(first, at_s)
        elif isinstance(entry, Refused) and entry.refusal is Refusal.LANES_WOULD_STOP:
            put_off += 1
        elif isinstance(entry, PhaseChanged):
            longest = max(longest, entry.epoch - began)
    return Conduct(
        p99_s=timeline.latency_s(0.99),
        moves=float(timeline.moves.sum()),
        stopped_s=stopped * scenario.step_s,
        longest_s=longest * scenario.epoch_s,
        first_s=first,
        put_off=put_off,
    )


def _conduct(job: tuple[str, Place, int]) -> Conduct:
    return conduct(*job)


def _key(policy: str, place: Place) -> tuple[str, str, str, str]:
    return policy, place.handover, place.strategy, place.load


def _by_chance(miss: Miss, _: Table) -> bool:
    return 2 * miss.as_good > miss.seeds


def _no_use(miss: Miss, table: Table) -> bool:
    """Whether a policy that moves nothing is as good as the best."""
    return _level(table, "static", miss.stands.place) <= CLOSE * miss.stands.best_s


def _stops_look_like_load(miss: Miss, table: Table) -> bool:
    """Whether all lanes are stopped, and `even` moves far more than where only the slots that move have to wait."""
    place = miss.stands.place
    usual = _moved_mb(table, DEFAULT_POLICY, replace(place, handover=Way.AT_ONCE.value))
    return miss.even.stopped_s > 0 and _moved_mb(table, DEFAULT_POLICY, place) > _MORE * usual


def _stops_less(miss: Miss, _: Table) -> bool:
    """Whether plans were carried out in part, and all lanes stopped for less time than by the other policy."""
    return miss.even.put_off > 0 and miss.even.stopped_s < miss.other.stopped_s


def _long_plan(miss: Miss, table: Table) -> bool:
    """Whether the longest plan takes far longer than the other's, and `even` itself is far better in one step."""
    sudden = _level(table, DEFAULT_POLICY, replace(miss.stands.place, strategy=Sudden.name))
    return miss.even.longest_s > _MORE * miss.other.longest_s and miss.stands.even_s > _MORE * sudden


def _late(miss: Miss, _: Table) -> bool:
    return miss.even.first_s > miss.other.first_s


_HOLDS: Mapping[Reason, Callable[[Miss, Table], bool]] = {
    Reason.CHANCE: _by_chance,
    Reason.NO_USE: _no_use,
    Reason.STOPS: _stops_look_like_load,
    Reason.CAUTION: _stops_less,
    Reason.LONG_PLAN: _long_plan,
    Reason.LATE: _late,
}
