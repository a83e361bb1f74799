"""GZ-E3 and E4: imbalance against state movement, for the paper's four algorithms and for all policies."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from evenflow.model.slots import IntArray
from evenflow.plot.picture import Panel, Picture, Series
from evenflow.policies import POLICIES, starting_table
from papers.experiment import Check, Experiment, Outcome, Settings
from papers.guo_zhou.histograms import Trace, policy_with_seed, run_policy
from papers.guo_zhou.rules import AMORTISED, FRONT, MOVED, MOVEMENT_ORDER, ORDER, RANGE_EXISTS, SIZE
from papers.guo_zhou.rules import E3 as E3_RULE
from papers.guo_zhou.rules import E4 as E4_RULE
from papers.guo_zhou.streams import HISTORY, SUBSTREAMS, WINDOWS, Words
from papers.verdicts import ascending, median_range

LANES = 10
PER_WINDOW = 6033.0  # tweets per minute (GZ-P8)
FOUR = ("clb", "elb", "pkg", "uhlb")

_PUBLISHED = {"clb": (6.1e4, 5133.7), "elb": (5.1e4, 1806.8), "pkg": (3.1e4, 1018.8), "uhlb": (2.9e4, 770.4)}
_PUBLISHED_MOVED = {"clb": 48.4, "elb": 14.5, "pkg": 21.2, "uhlb": 24.2}
_PUBLISHED_AMORTISED = 1.6
_RANGES = (0.2, 0.4, 0.6, 0.8, 0.95)  # (u - v) / 2 in shares of the mean load


def stand_in(seed: int, windows: int = WINDOWS) -> IntArray:
    """Return the histograms of the stand-in for the Twitter stream."""
    return Words().windows(HISTORY + windows, PER_WINDOW, np.random.default_rng((seed, 3)))


def trace(policy: str, seed: int, windows: int, **options: object) -> Trace:
    """Run `policy` over the stand-in, 10 lanes."""
    chosen = policy_with_seed(policy, seed, **options)
    return run_policy(chosen, stand_in(seed, windows), starting_table(chosen, SUBSTREAMS, range(LANES)), HISTORY)


def traces(policies: Iterable[str], settings: Settings) -> dict[str, list[Trace]]:
    """Run each policy with each seed."""
    windows = WINDOWS // 3 if settings.quick else WINDOWS
    names, seeds = list(policies), settings.seeds()
    found: dict[str, list[Trace]] = {name: [] for name in names}
    for at, name in enumerate(names):
        found[name] = [trace(name, seed, windows) for seed in seeds]
        settings.progress((at + 1) / (len(names) + 1))
    return found


def run_e3(settings: Settings) -> Outcome:
    """Mean and standard deviation of var(L)."""
    found = traces([*FOUR, "uhlb-fresh", "clb-moment", "static", "even"], settings)
    mean = {name: [float(one.variance.mean()) for one in runs] for name, runs in found.items()}
    deviation = {name: [float(one.variance.std()) for one in runs] for name, runs in found.items()}
    ranges = _elb_ranges(settings)
    checks = [
        *(_order_check("mean", 0, mean), _order_check("standard deviation", 1, deviation)),
        *(mean_check(name, mean[name]) for name in FOUR),
        *(deviation_check(name, deviation[name], mean[name]) for name in FOUR),
        _range_check(ranges, mean),
    ]
    windows = range(1, len(found["clb"][0].variance) + 1)
    picture = Picture(
        [
            Panel(
                "Load imbalance over time, n = 10 (first seed)",
                "statistic window (1 min each)",
                "var(L) (tuples²)",
                [Series(name, windows, runs[0].variance.tolist()) for name, runs in found.items()],
                log_y=True,
            ),
            Panel(
                "ELB that sheds only outside [v, u]",
                "(u - v) / 2 in shares of the mean load",
                "mean of var(L) (tuples²)",
                [
                    Series(
                        "elb, only_outside_range", list(_RANGES), [float(np.median(ranges[half])) for half in _RANGES]
                    ),
                    *(
                        Series(name, list(_RANGES), [float(np.median(mean[name]))] * len(_RANGES))
                        for name in ("pkg", "uhlb")
                    ),
                ],
                log_y=True,
            ),
        ]
    )
    data = {"mean": mean, "sd": deviation, "elb_ranges": {str(half): values for half, values in ranges.items()}}
    note = f"{_STAND_IN} Seeds: {len(_range_seeds(settings))} for the ranges of ELB, all for the rest."
    return Outcome(tuple(checks), picture, data, note, seeds=tuple(settings.seeds()))


_STAND_IN = (
    "The Twitter data is not available: the stand-in has words of a Zipf 1.0 vocabulary of 100,000 with a daily wave, "
    "hashed to 100 substreams, 6,033 per window."
)


def _order_check(what: str, column: int, ours: dict[str, list[float]]) -> Check:
    """Check the order UHLB <= PKG <= ELB <= CLB."""
    middle = {name: float(np.median(ours[name])) for name in FOUR}
    published = " <= ".join(f"{name} {_PUBLISHED[name][column]:.3g}" for name in ("uhlb", "pkg", "elb", "clb"))
    return ORDER.check(
        (*(middle[name] for name in ("uhlb", "pkg", "elb", "clb")),),
        published,
        " <= ".join(f"{name} {middle[name]:.3g}" for name in sorted(FOUR, key=middle.__getitem__)),
        why_out_of_order(middle),
        f"order of the {what} of var(L)",
    )


def why_out_of_order(middle: dict[str, float]) -> str:
    """Return why the order UHLB <= PKG <= ELB <= CLB does not come out, by what comes out instead."""
    parts = []
    if middle["elb"] < max(middle["pkg"], middle["uhlb"]):
        parts.append(
            "ELB with the bounds of GZ-P9 sheds every window down to the mean and ends more even than hashing; the "
            "published ELB was looser, and its bounds are not given"
        )
    if middle["uhlb"] > middle["pkg"]:
        parts.append(
            "UHLB has one hash function for all substreams, PKG a choice for each of them; when the published UHLB "
            "draws another one is not given (GZ-A32)"
        )
    if middle["clb"] < max(middle.values()):
        parts.append("CLB does not come last: its few cuts fit this stream by chance")
    else:
        parts.append("CLB comes last here too: its cut is blind to mean load (GZ-A18)")
    return ". ".join(parts)


def mean_check(name: str, mean: list[float]) -> Check:
    """Compare the mean imbalance, a value for each seed, with Table 1."""
    published = _PUBLISHED[name][0]
    return SIZE.check(
        (float(np.median(mean)), published),
        f"{published:.3g}",
        median_range(mean),
        (
            "another stream; the published deviations of a lane, 28 to 41 % of the mean load, are about what a single "
            "random hash function gives on 100 substreams (`uhlb-fresh`) or no balancing at all (`static`)"
        ),
        f"{name}: mean of var(L)",
    )


def deviation_check(name: str, deviation: list[float], mean: list[float]) -> Check:
    """Compare how much the imbalance differs from window to window with Table 1."""
    published_mean, published = _PUBLISHED[name]
    return SIZE.check(
        (float(np.median(deviation)), published),
        f"{published:.4g}",
        median_range(deviation),
        (
            f"another stream; in shares of the mean of var(L) it is {published / published_mean:.0%} published and "
            f"{float(np.median(deviation)) / float(np.median(mean)):.0%} here"
        ),
        f"{name}: standard deviation of var(L)",
    )


def _elb_ranges(settings: Settings) -> dict[float, list[float]]:
    """Return ELB's mean imbalance for wider and wider ranges, where only lanes outside of them shed (GZ-A8)."""
    share = PER_WINDOW / LANES
    windows = WINDOWS // 3 if settings.quick else WINDOWS
    seeds = _range_seeds(settings)
    return {
        half: [float(trace("elb", seed, windows, **_bounds(share, half)).variance.mean()) for seed in seeds]
        for half in _RANGES
    }


def _range_seeds(settings: Settings) -> range:
    return settings.seeds(full=5, quick=2)


def _bounds(share: float, half: float) -> dict[str, object]:
    """Return ELB's options for a range around an even share, with the number of lanes kept."""
    return {
        "lower": share * (1 - half),
        "upper": share * (1 + half),
        "min_lanes": LANES,
        "max_lanes": LANES,
        "only_outside_range": True,
    }


def _range_check(ranges: dict[float, list[float]], mean: dict[str, list[float]]) -> Check:
    """Look for a range with which the published order comes out."""
    below, above = max(float(np.median(mean[name])) for name in ("pkg", "uhlb")), float(np.median(mean["clb"]))
    fits = [half for half, values in ranges.items() if below < float(np.median(values)) < above]
    return RANGE_EXISTS.check(
        (fits,),
        "imbalance is relaxed to a range",
        f"(u-v)/2 = {', '.join(f'{half:g}' for half in fits)} of the mean" if fits else "none of those tried",
        "ELB is more even than PKG or UHLB with every range tried",
    )


def run_e4(settings: Settings) -> Outcome:
    """State movement, and both objectives side by side for every policy."""
    found = traces(POLICIES, settings)
    per_balancing = {name: [100 * one.moved_when_balanced for one in runs] for name, runs in found.items()}
    amortised = {name: [100 * float(one.moved.mean()) for one in runs] for name, runs in found.items()}
    mean = {name: [float(one.variance.mean()) for one in runs] for name, runs in found.items()}
    middle = {name: float(np.median(values)) for name, values in per_balancing.items()}
    clb = float(np.median(amortised["clb"]))
    front = _front({name: (float(np.median(amortised[name])), float(np.median(mean[name]))) for name in found})
    checks = (
        *(_moved_check(name, per_balancing[name]) for name in FOUR),
        AMORTISED.check(
            (clb, _PUBLISHED_AMORTISED), f"{_PUBLISHED_AMORTISED}", median_range(amortised["clb"]), "another stream"
        ),
        movement_order_check(clb, middle),
        FRONT.check((front,), "the two objectives conflict", ", ".join(front), "one policy is best in both"),
    )
    data = {"per_balancing": per_balancing, "amortised": amortised, "mean": mean, "front": front}
    return Outcome(checks, _e4_picture(found, amortised, mean), data, _STAND_IN, seeds=tuple(settings.seeds()))


def movement_order_check(clb: float, middle: dict[str, float]) -> Check:
    """CLB, amortised, moves less than ELB, and ELB than PKG and UHLB; if only the last three, the shape holds."""
    three = ascending([middle["elb"], middle["pkg"], middle["uhlb"]])
    why = (
        "ELB <= PKG <= UHLB holds, but CLB's amortised share is not below ELB's: with the bounds of GZ-P9 ELB has only "
        f"noise to correct after the first windows, and moves {middle['elb'] / _PUBLISHED_MOVED['elb']:.2g} times as "
        "much as published"
        if three
        else "ELB <= PKG <= UHLB does not hold: when UHLB replaces its function (GZ-A32) and how PKG's movement is "
        "counted (GZ-A33) is not given"
    )
    return MOVEMENT_ORDER.check(
        (clb, *(middle[name] for name in ("elb", "pkg", "uhlb"))),
        "CLB amortised 1.6 << ELB 14.5 < PKG 21.2 < UHLB 24.2",
        f"CLB amortised {clb:.3g}, ELB {middle['elb']:.3g}, PKG {middle['pkg']:.3g}, UHLB {middle['uhlb']:.3g}",
        why,
    )


def _moved_check(name: str, ours: list[float]) -> Check:
    whys = {
        "clb": "another stream",
        "elb": "with the bounds of GZ-P9 only noise is left to correct after the first windows",
        "pkg": "another stream; counted as substreams whose less loaded candidate changed (GZ-A33)",
        "uhlb": "a new hash function moves (n-1)/n of the state by construction; 24.2 % is possible only if it is not "
        "replaced in most windows, and the paper does not say when it is (GZ-A32)",
    }
    published = _PUBLISHED_MOVED[name]
    return MOVED.check(
        (float(np.median(ours)), published),
        f"{published:g}",
        median_range(ours),
        whys[name],
        f"{name}: state moved per balancing (%)",
    )


def _front(points: dict[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points that no other point beats in both coordinates, by the first."""
    best = [
        name
        for name, (x, y) in points.items()
        if not any(u <= x and v <= y and (u, v) != (x, y) for u, v in points.values())
    ]
    return sorted(best, key=points.__getitem__)


def _e4_picture(
    found: dict[str, list[Trace]], amortised: dict[str, list[float]], mean: dict[str, list[float]]
) -> Picture:
    windows = range(1, len(found["elb"][0].moved) + 1)
    least = 1e-3  # what moved nothing is drawn at the left edge of the logarithmic axis
    return Picture(
        [
            Panel(
                "State movements over time, n = 10 (first seed)",
                "statistic window (1 min each)",
                "state moved (%)",
                [Series(name, windows, (100 * found[name][0].moved).tolist()) for name in ("elb", "pkg", "uhlb")],
            ),
            Panel(
                "Both objectives, all policies (left edge: nothing moved)",
                "state moved per window (%)",
                "mean of var(L) (tuples²)",
                [
                    Series(
                        name,
                        [max(least, float(np.median(amortised[name])))],
                        [float(np.median(mean[name]))],
                        "points",
                        [min(mean[name])],
                        [max(mean[name])],
                    )
                    for name in found
                ],
                log_x=True,
                log_y=True,
            ),
        ]
    )


E3 = Experiment("GZ-E3", "Table 1, Fig. 3", "Load imbalance of CLB, ELB, PKG and UHLB", E3_RULE, run_e3)
E4 = Experiment(
    "GZ-E4", "Fig. 4", "State movement of CLB, ELB, PKG and UHLB; both objectives for all policies", E4_RULE, run_e4
)
