"""More rounds, wall time, and how much repetitions differ (DP-E4, E5, E6)."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np

from evenflow.plot.picture import Panel, Picture, Series
from papers.dpa.protocol.forwarding import DpaOptions
from papers.dpa.rules import (
    CAN_HURT_DOUBLING,
    CORRELATED,
    MORE_ROUNDS_HELP,
    NEVER_HURT_HALVING,
    SMALL_VARIANCE,
)
from papers.dpa.rules import E4 as E4_RULE
from papers.dpa.rules import E5 as E5_RULE
from papers.dpa.rules import E6 as E6_RULE
from papers.dpa.workloads import METHODS, ORDERS, WORKLOADS, Counted, count_letters
from papers.experiment import Experiment, Outcome, Settings

ROUNDS = range(6)
REPETITIONS = 3
Curve: TypeAlias = list[float]


def _sweep(ties: tuple[int, ...]) -> dict[tuple[str, str], list[Counted]]:
    """Return the runs with 0 to 5 rounds per reducer, for each method and workload."""
    return {
        (method, name): [
            count_letters(items, method, {"rounds_per_lane": rounds}, DpaOptions(ties=ties)) for rounds in ROUNDS
        ]
        for method in METHODS
        for name, items in WORKLOADS.items()
    }


def _rises(curve: Curve) -> bool:
    """Whether a further round after the first made S worse."""
    return any(after > before + 1e-9 for before, after in pairwise(curve[1:]))


def _e4(settings: Settings) -> Outcome:
    orders = ORDERS[::8] if settings.quick else ORDERS
    curves = [{cell: [run.skew for run in runs] for cell, runs in _sweep(ties).items()} for ties in orders]
    first = curves[0]
    helped = {
        name: sum(any(min(one[method, name][2:]) < one[method, name][1] - 1e-9 for method in METHODS) for one in curves)
        for name in WORKLOADS
    }
    in_order = sum(
        any(min(first[method, name][2:]) < first[method, name][1] - 1e-9 for method in METHODS) for name in WORKLOADS
    )
    hurt = {
        method: [name for name in WORKLOADS if any(_rises(one[method, name]) for one in curves)] for method in METHODS
    }
    worse_than_one = [
        name for name in WORKLOADS if any(one["halving", name][-1] > one["halving", name][1] + 1e-9 for one in curves)
    ]
    shares = ", ".join(f"{name} {count}/{len(curves)}" for name, count in helped.items())
    checks = (
        MORE_ROUNDS_HELP.check(
            (in_order, len(WORKLOADS)),
            "in all workloads",
            f"in {in_order} of {len(WORKLOADS)} (orders of ties in which it does: {shares})",
            "WL2: even from the start for halving, and doubling's disturbance is not undone; the paper sees recovery",
        ),
        NEVER_HURT_HALVING.check(
            (hurt["halving"], worse_than_one),
            "never",
            (
                f"S rises after round 1 on {', '.join(hurt['halving']) or 'no workload'}; "
                f"worse after 5 rounds than after 1 on {', '.join(worse_than_one) or 'none'}"
            ),
            "a later round can undo a little of an earlier one; never so much that one round would have been better",
        ),
        CAN_HURT_DOUBLING.check(
            (hurt["doubling"],),
            "they can",
            f"S rises after round 1 on {', '.join(hurt['doubling']) or 'no workload'}",
            "no workload shows it",
        ),
    )
    data = {f"{name} {method}": first[method, name] for method in METHODS for name in WORKLOADS}
    return Outcome(
        checks, _curves_picture(curves), {"S by rounds": data, "orders": len(orders)}, seeds=(settings.seed,)
    )


def _curves_picture(curves: list[dict[tuple[str, str], Curve]]) -> Picture:
    panels = []
    for name in WORKLOADS:
        series = []
        for method in METHODS:
            values = np.array([one[method, name] for one in curves])
            low, high = values.min(axis=0).tolist(), values.max(axis=0).tolist()
            series.append(Series(method, list(ROUNDS), curves[0][method, name], "line", low, high))
        panels.append(Panel(name, "rounds per reducer, at most", "S", series))
    return Picture(panels, columns=3)


def _e5(settings: Settings) -> Outcome:
    orders = ORDERS[:1] if settings.quick else ORDERS[::4]
    runs = {cell: found for ties in orders for cell, found in _numbered(_sweep(ties), ties).items()}
    skews = np.array([run.skew for found in runs.values() for run in found])
    walls = np.array([run.wall_s for found in runs.values() for run in found])
    coefficient = float(np.corrcoef(skews, walls)[0, 1])
    check = CORRELATED.check(
        (coefficient,),
        "highly (inversely) correlated; read as positively, since a straggler takes time (DP-A5)",
        f"r = {coefficient:+.2f} over {skews.size} runs",
        "a hot key that wanders (WL3) lowers S but no time: its items are served one after the other (DP-A17)",
    )
    series = tuple(
        Series(
            method,
            [run.skew for (of, *_), found in runs.items() if of == method for run in found],
            [run.wall_s for (of, *_), found in runs.items() if of == method for run in found],
            "points",
        )
        for method in METHODS
    )
    picture = Picture((Panel("every workload, 0 to 5 rounds", "S", "wall time (s)", series),), columns=1)
    return Outcome(
        (check,), picture, {"r": coefficient, "S": skews.tolist(), "wall_s": walls.tolist()}, seeds=(settings.seed,)
    )


def _numbered(
    sweep: dict[tuple[str, str], list[Counted]], ties: tuple[int, ...]
) -> dict[tuple[str, str, tuple[int, ...]], list[Counted]]:
    return {(*cell, ties): found for cell, found in sweep.items()}


def _e6(settings: Settings) -> Outcome:
    rng = np.random.default_rng(settings.seed)
    variances: dict[str, float] = {}
    spread: dict[str, Curve] = {}
    for method in METHODS:
        for name, items in WORKLOADS.items():
            values = []
            for _ in range(REPETITIONS):
                options = DpaOptions(
                    ties=tuple(rng.permutation(4).tolist()), data_jitter=20_000, seed=int(rng.integers(1 << 30))
                )
                values.append(count_letters(items, method, {"rounds_per_lane": 1}, options).skew)
            spread[f"{name} {method}"] = values
            variances[f"{name} {method}"] = float(np.var(values))
    worst = max(variances.values())
    check = SMALL_VARIANCE.check(
        (worst,),
        "very small (no number given)",
        f"at most {worst:.4f}, median {np.median(list(variances.values())):.4f}",
        "the order of ties and the arrival of items decide which reducer reports first",
    )
    names = list(variances)
    series = (Series("variance of S", names, list(variances.values()), "bars"),)
    picture = Picture((Panel("one round, 3 repetitions", "workload and method", "variance of S", series),), columns=1)
    return Outcome((check,), picture, {"S": spread, "variance": variances}, seeds=(settings.seed,))


E4 = Experiment("DP-E4", "Fig. 3", "S against the number of rounds", E4_RULE, _e4)
E5 = Experiment("DP-E5", "section 6.1, omitted", "Wall time and S", E5_RULE, _e5)
E6 = Experiment("DP-E6", "section 6.1, omitted", "Variance of three repetitions", E6_RULE, _e6)
