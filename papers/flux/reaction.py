"""FX-E2 (Fig. 7): how fast balancing reacts. FX-E3 (Fig. 8): how it degrades with the number of slow machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from evenflow.plot.picture import Panel, Picture, Series
from evenflow.sim.quantum import Timeline
from papers.experiment import Check, Experiment, Outcome, Settings
from papers.flux.cluster import (
    FULL_RATE,
    LOADED_SPEED,
    MACHINES,
    SERVICE_S,
    SKEW_BUFFER,
    Setup,
    evenly_spread,
    external,
    load_run,
    run,
)
from papers.flux.readings import first_below, level, per_second, rounded, steady_from
from papers.flux.rounds import round_model
from papers.flux.rules import (
    AS_THE_PAIR_RULE,
    FALLS,
    FELT,
    LINEAR,
    PARTITIONS_LEFT,
    RECOVERS,
    STATIC_STAYS,
    STEADY_AGAIN,
    WITHOUT_CHANCE,
)
from papers.flux.rules import E2 as E2_RULE
from papers.flux.rules import E3 as E3_RULE
from papers.verdicts import median_range

_LOAD_FROM_S = 1.0
_LAST_S = 5.0


@dataclass(frozen=True)
class Balanced:
    """What is read off one run with balancing: share of the full rate, partitions net gone from machine 0, moves."""

    rate: float
    left: int
    moves: int

    @classmethod
    def of(cls, timeline: Timeline, setup: Setup) -> Balanced:
        """Read it off."""
        left = setup.partitions - int((timeline.table.owners == 0).sum())
        return cls(level(timeline, _LAST_S) / FULL_RATE, left, int(timeline.moves.sum()))


def balanced_checks(
    drawn: Sequence[Balanced], certain: Balanced, static: float, *, cut_short: bool = False
) -> tuple[Check, ...]:
    """Compare rate and partitions: of the drawn runs together, and of the one without chance."""
    early = "the run ends before the moves do"
    model = round_model(Setup().partitions, [0], MACHINES)
    rate = float(np.median([one.rate for one in drawn]))
    left, moves = (float(np.median(values)) for values in ([one.left for one in drawn], [one.moves for one in drawn]))
    return (
        RECOVERS.check(
            (rate, static),
            "at least 83 % of full (1/1.2)",
            median_range([one.rate for one in drawn], "{:.1%}".format),
            early if cut_short else "the thresholds stop it earlier",
        ),
        PARTITIONS_LEFT.check(
            (left, moves),
            "32 off the slow machine",
            (
                f"{median_range([one.left for one in drawn], '{:.0f}'.format)} left it, "
                f"{median_range([one.moves for one in drawn], '{:.0f}'.format)} moves in all"
            ),
            (
                early
                if cut_short
                else "utilisations in windows this short stray by chance: more pairs pass the threshold, also of "
                "machines that are alike, and it ends nearer to evenness than the threshold asks for"
            ),
        ),
        WITHOUT_CHANCE.check(
            (certain.rate, static, certain.left, certain.moves),
            (
                f"32 off the slow machine, at least 83 %; computed round by round: {model.left}, {model.moves} moves "
                f"in all, {model.rate:.1%}"
            ),
            f"{certain.left} left it, {certain.moves} moves in all, {certain.rate:.1%} of full",
            (
                early
                if cut_short
                else "in each round the machine that got a partition in the one before is next in order, and passes "
                "one on"
            ),
        ),
    )


def _run_e2(settings: Settings) -> Outcome:
    setup = Setup(duration_s=26 if settings.quick else 40, step_s=0.02 if settings.quick else 0.01)
    shortest_s = 0.05 if settings.quick else 0.01  # windows are longer than this anyway while partitions move
    slow = external([0], _LOAD_FROM_S)
    shorter = replace(setup, duration_s=16) if settings.quick else setup
    unloaded = run(load_run(shorter), seed=settings.seed)
    static = run(load_run(shorter, speeds=slow), seed=settings.seed)
    certain = run(
        load_run(replace(setup, drawn=False), speeds=slow), "flux-load", settings.seed, delta_min_s=shortest_s
    )
    seeds = settings.seeds(full=5, quick=1)
    drawn = [run(load_run(setup, speeds=slow), "flux-load", seed, delta_min_s=shortest_s) for seed in seeds]
    felt = first_below(static, 0.9 * FULL_RATE, _LOAD_FROM_S)
    static_end = level(static, _LAST_S) / FULL_RATE
    balanced, without_chance = [Balanced.of(one, setup) for one in drawn], Balanced.of(certain, setup)
    steady = float(np.median([steady_from(one, _LAST_S, 0.93, np.inf) for one in drawn])) - felt
    checks = (
        FELT.check(
            (felt,),
            "t = 5 s, 4 s after it came",
            f"t = {felt:.0f} s",
            (
                f"the buffers of all producers hold {MACHINES * SKEW_BUFFER:,} tuples, and "
                f"{(1 - LOADED_SPEED) / SERVICE_S:,.0f} more come per second than the slow machine serves: that lasts "
                f"{MACHINES * SKEW_BUFFER * SERVICE_S / (1 - LOADED_SPEED):.1f} s"
            ),
        ),
        FALLS.check(
            (static_end,),
            "falls and stays (head-of-line blocking: 43 %)",
            f"{static_end:.1%} of full",
            "blocking is not complete",
        ),
        *balanced_checks(balanced, without_chance, static_end, cut_short=settings.quick),
        STEADY_AGAIN.check(
            (steady, 9),
            "9 s",
            f"{steady:.0f} s" if np.isfinite(steady) else "not within the run",
            "a round takes as long as draining the in-flight tuples of the slow machine and one transfer, twice",
        ),
    )
    panel = Panel(
        "Balancing processing load",
        "time (s)",
        "throughput (tuples/s)",
        (
            per_second("no machine slow", unloaded),
            per_second("one slow, balancing", drawn[0]),
            per_second("one slow, balancing, without chance", certain),
            per_second("one slow, no balancing", static),
        ),
        marks=((_LOAD_FROM_S, "load"), (felt, "felt")),
    )
    data: dict[str, Any] = {
        "unloaded": rounded(unloaded.throughput),
        "static": rounded(static.throughput),
        "balancing": [rounded(one.throughput) for one in drawn],
        "balancing_certain": rounded(certain.throughput),
        "moves": [one.moves for one in balanced],
        "moves_certain": without_chance.moves,
        "left_slow_machine": [one.left for one in balanced],
        "left_slow_machine_certain": without_chance.left,
        "moves_per_second_certain": certain.moves.tolist(),
    }
    return Outcome(
        checks, Picture([panel], columns=1), data, f"{setup.duration_s:g} s of 32 machines", seeds=tuple(seeds)
    )


def _run_e3(settings: Settings) -> Outcome:
    counts = [0, 1, 8, 16, 32] if settings.quick else [0, 1, 2, 4, 8, 16, 24, 32]
    # The size of the buffer has no part in a steady state, only in how long it takes.
    setup = Setup(
        duration_s=14 if settings.quick else 60,
        step_s=0.02 if settings.quick else 0.01,
        skew_buffer=128 if settings.quick else SKEW_BUFFER,
    )
    last_s = 4 if settings.quick else 10
    static, balanced, moves = [], [], []
    for count in counts:
        slow = external(evenly_spread(count, MACHINES))
        short = replace(setup, duration_s=8 if settings.quick else 20)
        static.append(level(run(load_run(short, speeds=slow), seed=settings.seed), 4))
        timeline = run(
            load_run(setup, speeds=slow), "flux-load", settings.seed, delta_min_s=0.05 if settings.quick else 0.01
        )
        balanced.append(level(timeline, last_s))
        moves.append(int(timeline.moves.sum()))
    shares = np.array(static[1:]) / FULL_RATE
    falls = all(later <= earlier + 0.02 * FULL_RATE for earlier, later in pairwise(balanced))
    straight = float(np.corrcoef(counts, balanced)[0, 1] ** 2)
    model = [
        FULL_RATE * round_model(setup.partitions, evenly_spread(count, MACHINES), MACHINES).rate for count in counts
    ]
    off = max((ours / there - 1 for ours, there in zip(balanced, model, strict=True)), key=abs)
    ideal = [FULL_RATE * (1 - 0.57 * count / MACHINES) for count in counts]
    checks = (
        STATIC_STAYS.check(
            (shares,),
            "the whole stage at the slow machine's rate (43 %)",
            f"{shares.min():.1%} to {shares.max():.1%} for k = 1 to 32",
            "blocking is not complete",
        ),
        LINEAR.check(
            ([rate / FULL_RATE for rate in balanced], straight),
            "smooth, linear degradation",
            f"{', '.join(f'k={k}: {rate:.3g}' for k, rate in zip(counts, balanced, strict=True))}; R2 = {straight:.3f}",
            "the curve bends" if falls else "some k does worse than the one after it",
        ),
        AS_THE_PAIR_RULE.check(
            (off,),
            "computed: " + ", ".join(f"k={k}: {rate:.3g}" for k, rate in zip(counts, model, strict=True)),
            f"off by up to {off:+.0%}",
            (
                "in short windows chance lets more pairs pass the threshold than the mean would: it ends nearer the "
                "ideal"
                if off > 0
                else "the run ends before the moves do"
            ),
        ),
    )
    panel = Panel(
        "Graceful degradation",
        "machines with external load",
        "steady throughput (tuples/s)",
        (
            Series("ideal", counts, ideal),
            Series("balancing", counts, balanced),
            Series("pair rule without chance", counts, model, kind="points"),
            Series("no balancing", counts, static),
        ),
    )
    data = {
        "slow_machines": counts,
        "static": static,
        "balanced": balanced,
        "moves": moves,
        "ideal": ideal,
        "pair_rule": model,
        "r2": straight,
    }
    return Outcome(checks, Picture([panel], columns=1), data, seeds=(settings.seed,))


E2 = Experiment("FX-E2", "Fig. 7", "Reaction to load on one machine", E2_RULE, _run_e2)
E3 = Experiment("FX-E3", "Fig. 8", "Graceful degradation", E3_RULE, _run_e3)
