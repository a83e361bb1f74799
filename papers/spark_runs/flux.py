"""FX-E1 to E4 on Spark, scaled: four lanes, a stream that is always ahead of them, external load by slow lanes.

`max_lag` is the transient skew buffer: the epochs by which the other lanes may be ahead of a slow one. Lock-step is
Exchange: all wait for the slowest at every epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from evenflow.model import RoutingTable
from evenflow.model.slots import FloatArray
from evenflow.plot.picture import Panel, Picture, Series
from evenflow.policies import policy_named
from papers.experiment import Check, Outcome, Settings
from papers.flux.cluster import LOADED_SPEED, evenly_spread, self_similar
from papers.flux.rounds import Rounds, round_model
from papers.spark_runs.rules import (
    ABOVE,
    AGAINST_LOCK_STEP,
    AS_THE_PAIR_RULE,
    CROSSING,
    CROSSING_LOADED,
    FALLS,
    FELT,
    GROWING_BUFFER,
    NO_BUFFER,
    RECOVERS,
    SLOTS_LEFT,
    SMOOTH,
    STATIC_STAYS,
    STEADY_AGAIN,
    THRASHES,
)
from papers.spark_runs.run import SparkRun, SparkScenario, decide_by, limited, run_on_spark, warm_spark
from papers.spark_runs.slow import SlowSpan

_LANES = 4
_CAPACITY = 1_000.0
_FULL = _LANES * _CAPACITY  # rows per second that the lanes' limits add up to: what shares are shares of
_FILE_S = 0.2
_AHEAD = 3.0  # times as much comes in as the lanes serve: an epoch is one file, 0.6 s of their work
_EPOCH_S = _FILE_S * _AHEAD
_SLACK = 1  # epochs by which a lane may lag behind; what is under way when slots move delays the next round
_COARSE = 8  # slots per lane: few rounds to the end
_BEGIN_S = 2.0  # not counted: the first epochs fill the lanes
_MISMEASURED = "the rate is not measured right"
_BUSY_MACHINE = "other work on the machine makes epochs longer, and lanes wait for them"
_AT_ONCE = {"settle_windows": 0, "warm_up_windows": 1}


def _scenario(seconds: float, settings: Settings, slots_per_lane: int = 16, **changes: Any) -> SparkScenario:
    plain = SparkScenario(
        lanes=_LANES,
        slots=_LANES * slots_per_lane,
        capacity=_CAPACITY,
        rate=_AHEAD * _LANES * _CAPACITY,
        seconds=seconds,
        strategy="sudden",
        max_lag=_SLACK,
        seed=settings.seed,
        balancer=_AT_ONCE,
        slow_speed=LOADED_SPEED,
        file_s=_FILE_S,
        files_per_epoch=1,
    )
    return replace(plain, **changes)


def _arms(arms: Sequence[SparkScenario], settings: Settings) -> list[SparkRun]:
    runs = []
    with warm_spark(_LANES, arms[0]) as spark:
        for at, arm in enumerate(arms):
            runs.append(run_on_spark(spark, arm))
            settings.progress((at + 1) / len(arms))
    return runs


def _note(scenario: SparkScenario, unloaded: float) -> str:
    """Return what every result has to say about itself; `unloaded` is the share served without external load."""
    return (
        f"{limited(scenario)} More comes in than lanes serve: throughput is theirs. Shares are of what the lanes' "
        f"limits add up to; without external load they served {unloaded:.0%} of it: keys do not fall on lanes quite "
        f"evenly, the others wait for the fullest, and an epoch costs something. That is no measure to divide by: "
        f"balancing evens out the keys too, and would come out above what the lanes can do. The paper has 32 machines; "
        f"a slow one of {scenario.lanes} weighs more: the limit with one slow is {_limit(1):.1%}, not 98.2 %."
    )


def _limit(slow: int) -> float:
    """Return the share of the full rate that lanes could serve with so many slow ones, if nobody waited."""
    return 1 - (1 - LOADED_SPEED) * slow / _LANES


# --- FX-E1: the transient skew buffer -------------------------------------------------------------------------------

_VISIT_S = 2.0


def run_e1(settings: Settings) -> Outcome:
    """FX-E1: load visits the lanes in turn; throughput by `max_lag`, and in lock-step with as many rows under way."""
    seconds = 12.0 if settings.quick else 18.0
    lags = [0, 2, 6] if settings.quick else [0, 1, 2, 4, 8]
    compared = [lag for lag in lags[1:] if lag <= (2 if settings.quick else 4)]  # longer epochs are too few to measure
    visits = [SlowSpan(at % _LANES, at * _VISIT_S, (at + 1) * _VISIT_S) for at in range(10 * _LANES)]
    unloaded = _scenario(12.0, settings, max_lag=8)
    buffered = [_scenario(seconds, settings, slow=visits, max_lag=lag) for lag in lags]
    in_step = [_scenario(seconds, settings, slow=visits, max_lag=0, files_per_epoch=lag + 1) for lag in compared]
    *runs, steady = _arms([*buffered, *in_step, unloaded], settings)
    unloaded_share, rest = steady.pace(_BEGIN_S) / _FULL, [run.rate(_BEGIN_S) / _FULL for run in runs]
    flux = rest[: len(lags)]
    exchange = [flux[0], *rest[len(lags) :]]
    checks = buffer_checks(lags, flux, compared, exchange)
    rows = _EPOCH_S * _LANES * _CAPACITY
    panel = Panel(
        "Effect of short-term imbalances",
        "rows that may be under way",
        "share of what the lanes' limits add up to",
        (
            Series("lanes on their own (max_lag)", [rows * (lag + 1) for lag in lags], flux),
            Series("lock-step, longer epochs", [rows * (lag + 1) for lag in [0, *compared]], exchange),
            Series("limit: nobody waits", [rows, rows * (lags[-1] + 1)], [_limit(1)] * 2),
        ),
    )
    data = {"max_lag": lags, "flux": flux, "lock_step": exchange, "unloaded": unloaded_share, "limit": _limit(1)}
    return Outcome(
        checks, Picture([panel], columns=1), data, _note(buffered[0], unloaded_share), seeds=(settings.seed,)
    )


def buffer_checks(
    lags: Sequence[int], flux: Sequence[float], compared: Sequence[int], exchange: Sequence[float]
) -> tuple[Check, ...]:
    """Compare shares of the full rate by `max_lag`, and in lock-step with the space of 0 and of `compared`."""
    equal = [flux[lags.index(lag)] for lag in compared]
    possible = flux[-1] <= _limit(1) + ABOVE
    return (
        NO_BUFFER.check(
            (flux[0],),
            "about half of the unloaded rate",
            f"{flux[0]:.0%} in lock-step",
            "an epoch is a good part of a visit: when the load passes on within one, its two lanes share the delay",
        ),
        GROWING_BUFFER.check(
            (flux, _limit(1)),
            f"approaches it; the limit here is {_limit(1):.0%}",
            ", ".join(f"max_lag {lag}: {rate:.0%}" for lag, rate in zip(lags, flux, strict=True)),
            _BUSY_MACHINE if possible else f"above what the lanes can do: {_MISMEASURED}",
        ),
        AGAINST_LOCK_STEP.check(
            (equal, exchange[1:], _limit(1)),
            "Flux quickly beats Exchange",
            (
                ", ".join(
                    f"{lag + 1} epochs: {f:.0%} / {e:.0%}"
                    for lag, f, e in zip(compared, equal, exchange[1:], strict=True)
                )
            ),
            "an epoch longer than a visit evens out the visits by itself",
        ),
    )


# --- FX-E2: reaction --------------------------------------------------------------------------------------------------

_LOAD_FROM_S = 4.0


def run_e2(settings: Settings) -> Outcome:
    """FX-E2: one lane turns slow."""
    slots_per_lane = 8 if settings.quick else 16
    load = [SlowSpan(0, _LOAD_FROM_S)]
    plain = _scenario(12.0, settings, slots_per_lane)
    arms = [
        replace(plain, seconds=16.0 if settings.quick else 24.0, slow=load),
        replace(plain, seconds=28.0 if settings.quick else 60.0, slow=load, actions=[decide_by("flux-load")]),
        plain,
    ]
    static, balancing, unloaded = _arms(arms, settings)
    found = Reaction.of(static, balancing, 4.0 if settings.quick else 10.0)
    model = round_model(slots_per_lane, [0], _LANES)
    names = ("no lane slow", "one slow, no balancing", "one slow, balancing")
    panel = Panel(
        "Balancing processing load",
        "time (s)",
        "throughput (rows/s)",
        [
            Series(name, *(values.tolist() for values in by_second(run)))
            for name, run in zip(names, (unloaded, static, balancing), strict=True)
        ],
        marks=((_LOAD_FROM_S, "load"), (found.felt_s, "felt")),
    )
    data = {
        **{name: run.as_dict() for name, run in zip(names, (unloaded, static, balancing), strict=True)},
        "left": found.left,
        "round_model": {"left": model.left, "rate": model.rate},
        "felt_s": found.felt_s,
        "steady_s": found.steady_s,
    }
    note = _note(balancing.scenario, unloaded.pace(_BEGIN_S) / _FULL)
    return Outcome(reaction_checks(found, model), Picture([panel], columns=1), data, note, seeds=(settings.seed,))


def by_second(run: SparkRun) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the seconds that all lanes have something to say on, and the rows served in each."""
    edges = np.arange(0.0, max(2.0, np.floor(run.done_s[-1].min()) + 1))
    return edges[1:], run.served(edges)


@dataclass(frozen=True)
class Reaction:
    """What is read off two runs; rates as shares of what the lanes' limits add up to, times from the beginning."""

    static: float
    balanced: float
    felt_s: float
    steady_s: float
    left: int
    moves: int

    @classmethod
    def of(cls, static: SparkRun, balancing: SparkRun, last_s: float) -> Reaction:
        """Read them off; `last_s` is how long at the end counts as the end."""
        full = balancing.scenario.lanes * balancing.scenario.capacity
        end_s = float(balancing.finished_s[-1])
        level = balancing.rate(end_s - last_s)
        times, rows = by_second(balancing)
        _, falling = by_second(static)
        # Halfway between what the others can do and what all do once they wait for the slow lane.
        low = (_limit(1) + LOADED_SPEED) / 2 * full
        fallen = np.flatnonzero((np.arange(falling.size) >= _LOAD_FROM_S) & (falling < low))
        felt = float(fallen[0] + 1) if fallen.size else float("inf")
        smooth = np.convolve(rows, np.ones(3) / 3, "same")[1:-1]  # an epoch is most of a second
        unsteady = np.flatnonzero(smooth < 0.9 * level)
        steady = float(times[unsteady[-1] + 1]) if unsteady.size else 0.0
        if steady > end_s - last_s:  # the end is what it is compared with
            steady = float("inf")
        left = sum((move["source"] == 0) - (move["target"] == 0) for move in balancing.moves)
        stuck = static.rate(felt if np.isfinite(felt) else _LOAD_FROM_S)
        return cls(stuck / full, level / full, felt, steady, left, len(balancing.moves))


def reaction_checks(found: Reaction, model: Rounds, max_lag: int = _SLACK) -> tuple[Check, ...]:
    """Compare with the paper, and with the pair rule on these lanes without chance."""
    slack_s = (max_lag + 1) * _EPOCH_S / (1 - LOADED_SPEED)  # until the others are so many epochs ahead
    after_s = found.felt_s - _LOAD_FROM_S
    took_s = found.steady_s - found.felt_s
    possible = found.balanced <= _limit(1) + ABOVE
    return (
        FELT.check(
            (after_s, slack_s, _EPOCH_S),
            f"4 s after it came; {max_lag + 1} epochs under way here: computed {slack_s:.1f} s",
            f"{after_s:.0f} s after it came (by the second)",
            _BUSY_MACHINE,
        ),
        FALLS.check(
            (found.static,),
            "falls and stays (head-of-line blocking: 43 %)",
            f"{found.static:.0%} of full",
            _BUSY_MACHINE,
        ),
        RECOVERS.check(
            (found.balanced, model.rate, found.static, _limit(1)),
            f"83 % of full or more on 32 machines; the same rule without chance on these: {model.rate:.0%}",
            f"{found.balanced:.0%} of full",
            (
                "the run ends before the moves do, or chance stops the rule earlier"
                if possible
                else f"above what the lanes can do, {_limit(1):.0%}: {_MISMEASURED}"
            ),
        ),
        SLOTS_LEFT.check(
            (found.left, model.left),
            f"32 of 64; the same rule without chance on these lanes: {model.left}",
            f"{found.left}, with {found.moves} moves in all ({model.moves} there)",
            "windows are an epoch long: utilisations stray, and a pair more or less passes the threshold",
        ),
        STEADY_AGAIN.check(
            (took_s,),
            "9 s",
            f"{took_s:.0f} s" if np.isfinite(took_s) else "not within the run",
            "a round takes some epochs: one to measure, one to move with, and what is under way",
        ),
    )


# --- FX-E3: graceful degradation --------------------------------------------------------------------------------------


def run_e3(settings: Settings) -> Outcome:
    """FX-E3: more and more lanes are slow."""
    counts = [0, 1, 2, 4] if settings.quick else [0, 1, 2, 3, 4]
    slow = [[SlowSpan(lane) for lane in evenly_spread(count, _LANES)] for count in counts]
    short, long = (9.0, 22.0) if settings.quick else (12.0, 36.0)
    arms = [
        *(_scenario(short, settings, _COARSE, slow=spans) for spans in slow),
        *(_scenario(long, settings, _COARSE, slow=spans, actions=[decide_by("flux-load")]) for spans in slow),
    ]
    runs = _arms(arms, settings)
    static = [run.rate(_BEGIN_S) / _FULL for run in runs[: len(counts)]]
    balanced = [run.rate(float(run.finished_s[-1]) / 2) / _FULL for run in runs[len(counts) :]]
    model = [round_model(_COARSE, evenly_spread(count, _LANES), _LANES).rate for count in counts]
    panel = Panel(
        "Graceful degradation",
        f"lanes with external load, of {_LANES}",
        "steady throughput (rows/s)",
        (
            Series("ideal", counts, [_FULL * _limit(count) for count in counts]),
            Series("balancing", counts, [_FULL * share for share in balanced]),
            Series("pair rule without chance", counts, [_FULL * share for share in model], kind="points"),
            Series("no balancing", counts, [_FULL * share for share in static]),
        ),
    )
    data = {
        "slow_lanes": counts,
        "full_rows_per_s": _FULL,
        "static": static,
        "balanced": balanced,
        "round_model": model,
        "moves": [len(run.moves) for run in runs[len(counts) :]],
    }
    checks = degradation_checks(counts, static, balanced, model)
    note = _note(arms[-1], runs[0].pace(_BEGIN_S) / _FULL)
    return Outcome(checks, Picture([panel], columns=1), data, note, seeds=(settings.seed,))


def degradation_checks(
    counts: Sequence[int], static: Sequence[float], balanced: Sequence[float], model: Sequence[float]
) -> tuple[Check, ...]:
    """Compare shares of the full rate by the number of slow lanes."""
    falls = all(later <= earlier + 0.05 for earlier, later in pairwise(balanced))
    straight = float(np.corrcoef(counts, balanced)[0, 1] ** 2)
    missed = max(abs(ours - there) / there for ours, there in zip(balanced, model, strict=True))
    return (
        STATIC_STAYS.check(
            (static[1:],),
            "the whole stage at the slow machine's rate (43 %)",
            ", ".join(f"k={count}: {share:.0%}" for count, share in zip(counts, static, strict=True)),
            _BUSY_MACHINE,
        ),
        SMOOTH.check(
            (balanced, straight),
            "smooth, linear degradation",
            f"{', '.join(f'k={k}: {share:.0%}' for k, share in zip(counts, balanced, strict=True))}; R2 {straight:.2f}",
            "the curve bends" if falls else "some k does worse than the one after it",
        ),
        AS_THE_PAIR_RULE.check(
            (missed,),
            ", ".join(f"k={count}: {share:.0%}" for count, share in zip(counts, model, strict=True)),
            f"off by up to {missed:.0%}",
            (
                "keys do not fall on lanes quite evenly, the others wait for the fullest, and an epoch costs "
                "something; or rounds were still going on in the half of the run that is measured"
            ),
        ),
    )


# --- FX-E4: thrashing -------------------------------------------------------------------------------------------------

_FINE = 64  # slots per lane, as in the paper: too many to shed all of them from the hottest lane
_FEW_ROWS = 100.0  # per second and lane: so many that chance decides in a window of an epoch, and not in longer ones
_KEYS_PER_SLOT = 4
# A partition of the paper takes 30 ms (800 KB at 250 Mb/s, FX-P2 and P8), three times its shortest collection time. The
# shortest here is an epoch, in which the hottest lane works 0.65 s.
_MOVE_S = 2.0
_AFTER_A_LOOK = (
    "All this was set after a look at outcomes: with half as many slots, shorter runs and lanes that stood still while "
    "a slot left them, what a round cost was more than it could bring in before the end."
)


def run_e4(settings: Settings) -> Outcome:
    """FX-E4: 80/20 over the slots, and the shortest collection time."""
    deltas = [0.01, 8.0] if settings.quick else [0.01, 4.0, 10.0]
    seconds = 26.0 if settings.quick else 60.0
    slots = _FINE * _LANES
    shares = np.random.default_rng(settings.seed).permutation(self_similar(slots))
    hottest = int(RoutingTable.even(slots, _LANES).owners[int(shares.argmax())])
    plain = _scenario(
        seconds,
        settings,
        _FINE,
        capacity=_FEW_ROWS,
        rate=5 * _FEW_ROWS,
        keys=_KEYS_PER_SLOT * slots,
        arrival_s=_MOVE_S,
        shares=lambda _number: shares,
    )
    cases = {"unloaded": plain, "loaded": replace(plain, slow=(SlowSpan(hottest, _BEGIN_S),))}
    arms = []
    for case in cases.values():
        arms.append(replace(case, seconds=min(seconds, 20.0)))
        arms += [replace(case, actions=[decide_by(policy_named("flux-load", delta_min_s=delta))]) for delta in deltas]
    runs = _arms(arms, settings)
    rates = [run.rate(float(run.finished_s[-1]) / 2) for run in runs]
    static = {"unloaded": rates[0], "loaded": rates[len(deltas) + 1]}
    swept = {"unloaded": rates[1 : len(deltas) + 1], "loaded": rates[len(deltas) + 2 :]}
    panels = [
        Panel(
            f"80/20, {'no external load' if name == 'unloaded' else 'the hottest lane loaded'}",
            "delta_min (s)",
            "throughput of the second half (rows/s)",
            (
                Series("flux-load", deltas, swept[name]),
                Series("static", deltas, [static[name]] * len(deltas)),
                Series("static, no load", deltas, [static["unloaded"]] * len(deltas)),
            ),
            log_x=True,
        )
        for name in cases
    ]
    moves = [len(run.moves) for run in runs]
    hottest_share = float(runs[0].histograms.sum(axis=0).max() / runs[0].histograms.sum())
    data = {
        "delta_min_s": deltas,
        "static": static,
        "flux_load": swept,
        "moves": {"unloaded": moves[1 : len(deltas) + 1], "loaded": moves[len(deltas) + 2 :]},
        "move_times_s": [run.move_times_s for run in runs],
        "moves_of_the_hottest_slot": [sum(move["slot"] == shares.argmax() for move in run.moves) for run in runs],
        "hottest_share": hottest_share,
    }
    note = (
        f"{limited(cases['loaded'])} The proportions are the paper's as far as they can be: {_FINE} slots per lane, "
        f"{seconds:g} s (60 there), and a move of three times the shortest collection time, which is an epoch here. "
        f"The paper moves state in the background; here a slot leaves at once, and its new lane, the least utilised of "
        f"all, serves nothing until it has come. The hottest slot has {hottest_share:.0%} of the rows (self-similar "
        f"80/20 over {slots} slots). {_AFTER_A_LOOK}"
    )
    return Outcome(thrashing_checks(deltas, static, swept), Picture(panels), data, note, seeds=(settings.seed,))


def crossing(deltas: Sequence[float], rates: Sequence[float], bound: float) -> float:
    """Return the delta_min from which on all rates are above `bound`, infinity if none."""
    above = float("inf")
    for delta, rate in zip(reversed(deltas), reversed(rates), strict=True):
        if rate <= bound:
            break
        above = delta
    return above


def thrashing_checks(
    deltas: Sequence[float], static: Mapping[str, float], swept: Mapping[str, Sequence[float]]
) -> tuple[Check, ...]:
    """Compare rates by delta_min with those without balancing."""
    worst = swept["unloaded"][0] / static["unloaded"]
    plain, loaded = (crossing(deltas, swept[name], static["unloaded"]) for name in ("unloaded", "loaded"))
    ratios = {
        name: ", ".join(
            f"{delta:g} s: {rate / static['unloaded']:.0%}" for delta, rate in zip(deltas, rates, strict=True)
        )
        for name, rates in swept.items()
    }
    few_lanes = (
        "one pair of four lanes moves at a time, a round takes seconds, and the hottest slot's lane has dozens of "
        "others to shed: what is left to gain comes slowly"
    )
    return (
        THRASHES.check(
            (worst,),
            "half of the static rate: thrashing (a negative result)",
            f"{worst:.0%} of static",
            "with four lanes chance takes the hottest slot to another lane in few rounds: most moves are of small ones",
        ),
        CROSSING.check((plain, deltas[0]), "from 250 ms on, 25 times the shortest", ratios["unloaded"], few_lanes),
        CROSSING_LOADED.check(
            (loaded, plain, max(swept["loaded"]), static["unloaded"], static["loaded"]),
            "from 150 ms on, earlier than without load",
            ratios["loaded"],
            few_lanes,
        ),
    )
