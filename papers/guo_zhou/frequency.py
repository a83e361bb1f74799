"""GZ-E8: how often to balance; and GZ-F1: only when the stream has changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenflow.model import RoutingTable
from evenflow.model.slots import IntArray
from evenflow.plot.picture import Panel, Picture, Series
from evenflow.policies import Policy, policy_named
from papers.experiment import Check, Experiment, Outcome, Settings
from papers.guo_zhou.change import OnChange
from papers.guo_zhou.histograms import Trace, run_policy
from papers.guo_zhou.latency import pause_cost
from papers.guo_zhou.rules import E8 as RULE
from papers.guo_zhou.rules import FEWER_MOVES, INTERIOR, MOVEMENT_FALLS, ONE_BALANCING
from papers.guo_zhou.streams import HISTORY, SUBSTREAMS, phased_rates, poisson_windows, zipf_shares
from papers.guo_zhou.tuple_runs import SERVICE_S, Stage, TupleRun
from papers.verdicts import median_range

PERIODS = (1, 2, 4, 8, 16, 32, 64)
QUICK_PERIODS = (1, 8, 64)

_LANES = 10
_LOAD = 0.8
_WINDOWS = 128
_DAY = 160.0  # windows: slow enough to learn from 4 windows, fast enough to be out of date after 64
_HISTORY = 4
_CHANGE_AT = 60
_CHANGE_WINDOWS = 120


def throughput(policy: str, period: int, seed: int, window_s: float) -> tuple[float, float]:
    """Return 1 / mean latency, and the share of the state moved per window, balancing every `period` windows."""
    random = np.random.default_rng((seed, 8))
    rates = phased_rates(_WINDOWS, _DAY, random)
    chosen = policy_named(policy, period=period, history=_HISTORY)
    run = TupleRun(chosen, RoutingTable.even(SUBSTREAMS, _LANES), random, pause_cost(window_s))
    run.free_at = np.zeros(_LANES)
    result = run.stage(Stage(_LANES, rates, _LOAD * _LANES / SERVICE_S, window_s))
    return 1.0 / float(result.latency_s.mean()), float(result.moved_share.mean())


def run_e8(settings: Settings) -> Outcome:
    """Sweep 1/f for CLB as printed and for clb-moment; then balance on change only."""
    window_s = 0.25 if settings.quick else 2.0
    periods = QUICK_PERIODS if settings.quick else PERIODS
    seeds = settings.seeds(full=5, quick=1)
    found: dict[str, dict[int, list[tuple[float, float]]]] = {"clb": {}, "clb-moment": {}}
    for at, period in enumerate(periods):
        for policy, rows in found.items():
            rows[period] = [throughput(policy, period, seed, window_s) for seed in seeds]
        settings.progress((at + 1) / len(periods))
    rate = {policy: [[one[0] for one in rows[period]] for period in periods] for policy, rows in found.items()}
    moved = {
        policy: [float(np.median([one[1] for one in rows[period]])) for period in periods]
        for policy, rows in found.items()
    }
    changes = {name: [_one_change(policy, seed) for seed in settings.seeds()] for name, policy in _watched().items()}
    checks = (
        *(_interior_check(policy, periods, rate[policy]) for policy in found),
        MOVEMENT_FALLS.check(
            (moved["clb"], moved["clb-moment"]),
            "amortised",
            "; ".join(f"{policy} {values[0]:.1%} to {values[-1]:.2%}" for policy, values in moved.items()),
            "not at every step: chance decides which cut is taken",
        ),
        *_change_checks(changes),
    )
    data = {"periods": periods, "throughput": rate, "moved": moved, "one_change": _plain(changes)}
    note = f"{_NOTE} Seeds: {len(seeds)} for the sweep of f, all for the stream that changes once."
    every = tuple(sorted({*seeds, *settings.seeds()}))
    return Outcome(checks, _picture(periods, rate, changes), data, note, seeds=every)


_NOTE = (
    "10 lanes at 80 % load; substreams swing by 90 % over 160 windows, in four phases; pause-configure-resume; CLB "
    "looks back 4 windows."
)


def _interior_check(policy: str, periods: Sequence[int], rate: list[list[float]]) -> Check:
    middle = [float(np.median(values)) for values in rate]
    best = int(np.argmax(middle))
    return INTERIOR.check(
        (middle,),
        "carefully choose f",
        f"best at 1/f = {periods[best]}: " + ", ".join(f"{value:.3g}" for value in middle) + " per s",
        (
            "the cut as printed is so uneven that a lane is overloaded whatever f: throughput is low everywhere"
            if policy == "clb"
            else "pauses never outweigh a stale assignment, or the other way round"
        ),
        f"{policy}: throughput (1 / mean latency) is best at an interior 1/f",
    )


def _watched() -> dict[str, Policy]:
    eager = policy_named("elb")
    return {"elb, every window": eager, "elb, on change": OnChange(eager)}


def one_change(seed: int) -> IntArray:
    """Return the histograms of a stream that changes once: other substreams become the heavy ones."""
    random = np.random.default_rng((seed, 9))
    shares = [random.permutation(zipf_shares(0.7)) for _ in range(2)]
    before = poisson_windows(shares[0], HISTORY + _CHANGE_AT, 6000, random)
    return np.concatenate([before, poisson_windows(shares[1], _CHANGE_WINDOWS - _CHANGE_AT, 6000, random)])


def _one_change(policy: Policy, seed: int) -> Trace:
    return run_policy(policy, one_change(seed), RoutingTable.even(SUBSTREAMS, _LANES), HISTORY)


def _change_checks(changes: dict[str, list[Trace]]) -> tuple[Check, ...]:
    eager, watched = changes["elb, every window"], changes["elb, on change"]
    after = [(np.flatnonzero(one.moved[1:]) + 1).tolist() for one in watched]
    prompt = [balancings == [_CHANGE_AT + 1] for balancings in after]
    even = [float(one.variance.mean() / other.variance.mean()) for one, other in zip(watched, eager, strict=True)]
    moved = [float(one.moved.sum() / other.moved.sum()) for one, other in zip(watched, eager, strict=True)]
    return (
        ONE_BALANCING.check(
            (prompt,), "future work", f"in {sum(prompt)} of {len(prompt)} seeds", "chance looked like a change"
        ),
        FEWER_MOVES.check(
            (float(np.median(moved)), float(np.median(even))),
            "fewer moves at equal imbalance",
            f"moved {median_range(moved, '{:.0%}'.format)}, imbalance {median_range(even, '{:.2f}'.format)} times",
            (
                "fewer moves, but one decision on one noisy window is not improved upon later"
                if float(np.median(moved)) < 1
                else "no fewer moves: chance looked like a change, too often"
            ),
        ),
    )


def _plain(changes: dict[str, list[Trace]]) -> dict[str, dict[str, list[float]]]:
    return {
        name: {
            "balancings": [float(one.balancings) for one in runs],
            "moved": [float(one.moved.sum()) for one in runs],
            "mean_variance": [float(one.variance.mean()) for one in runs],
        }
        for name, runs in changes.items()
    }


def _picture(periods: Sequence[int], rate: dict[str, list[list[float]]], changes: dict[str, list[Trace]]) -> Picture:
    windows = range(1, _CHANGE_WINDOWS + 1)
    return Picture(
        [
            Panel(
                "Throughput by balancing frequency",
                "windows between balancings (1/f)",
                "1 / mean latency (1/s)",
                [
                    Series(
                        policy,
                        periods,
                        [float(np.median(one)) for one in values],
                        low=[min(one) for one in values],
                        high=[max(one) for one in values],
                    )
                    for policy, values in rate.items()
                ],
                log_x=True,
                log_y=True,
            ),
            Panel(
                "A stream that changes once (first seed)",
                "statistic window",
                "state moved so far (% of all state)",
                [
                    Series(name, windows, (100 * np.cumsum(runs[0].moved)).tolist(), "steps")
                    for name, runs in changes.items()
                ],
                marks=[(_CHANGE_AT + 1.0, "change")],
            ),
        ]
    )


E8 = Experiment("GZ-E8", "5.2, end", "How often to balance; balancing when the stream changes", RULE, run_e8)
