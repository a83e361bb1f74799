"""LR-E1 to E3 on Spark, scaled: fewer keys and bins, slower transfers, so that pauses are of the same length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from evenflow.model import RoutingTable
from evenflow.plot.picture import Panel, Picture, Series
from evenflow.spark import Query
from papers.experiment import Check, Outcome, Settings
from papers.reconfiguration.migrations import spread_out
from papers.reconfiguration.rules import BATCHED_LOWER, NO_EARLIER
from papers.spark_runs.rules import BATCHED_BELOW, BINS_MOVED, PEAK_FACTOR, STEPS
from papers.spark_runs.run import SparkRun, SparkScenario, limited, local_spark, run_on_spark
from papers.spark_runs.workload import HotPhase

_BUSY_MACHINE = "an epoch under other work on the machine takes as long as the pause that is to be seen"


@dataclass(frozen=True)
class Scaled:
    """A migration on Spark; a moved key costs its two lanes `1 / keys_per_second` seconds each, one after the other."""

    before: int
    after: int
    bins: int
    keys: int
    keys_per_second: float
    capacity: float
    rate: float
    start_s: float
    seconds: float
    phases: tuple[HotPhase, ...] = (HotPhase(),)

    @property
    def tables(self) -> tuple[RoutingTable, RoutingTable]:
        """Where bins are before and after."""
        return spread_out(self.bins, self.before, self.after)

    def arm(self, strategy: str, seed: int) -> SparkScenario:
        """Return the run with one strategy."""
        first, then = self.tables
        moves = [(move.slot, move.target) for move in first.difference(then)]
        return SparkScenario(
            lanes=self.after,
            slots=self.bins,
            capacity=self.capacity,
            rate=self.rate,
            seconds=self.seconds,
            phases=self.phases,
            strategy=strategy,
            handover="at the timestamp",
            max_lag=8,
            keys=self.keys,
            seed=seed,
            first_table=first,
            actions=((self.start_s, partial(_migrate, moves=moves)),),
            keys_per_second=self.keys_per_second,
        )


def _migrate(query: Query, moves: Sequence[tuple[int, int]]) -> None:
    query.rebalance(list(moves))


@dataclass(frozen=True)
class Migrated:
    """A run and what the migration did in it."""

    strategy: str
    scaled: Scaled
    run: SparkRun

    @property
    def steps(self) -> int:
        """The epochs with which bins moved."""
        return len({move["epoch"] for move in self.run.moves})

    @property
    def moved(self) -> int:
        """The bins that moved."""
        return len(self.run.moves)

    @property
    def peak_s(self) -> float:
        """The highest latency of rows that came after the migration began, or waited for it."""
        late = self.run.finished_s > self.scaled.start_s
        return float(np.nanmax(self.run.latency_max_s[late]))

    @property
    def normal_s(self) -> float:
        """The usual highest latency of an epoch before the migration."""
        early = self.run.finished_s <= self.scaled.start_s
        values = self.run.latency_max_s[early] if early.any() else self.run.latency_max_s[:2]
        return float(np.nanmedian(values))

    @property
    def stable_after_s(self) -> float:
        """From the migration until latencies stay under twice the usual; NaN if they do not."""
        after = np.flatnonzero(self.run.finished_s > self.scaled.start_s)
        high = after[self.run.latency_max_s[after] > 2 * self.normal_s]
        if high.size == 0:
            return 0.0
        if high[-1] == after[-1]:
            return float("nan")
        return float(self.run.finished_s[high[-1]] - self.scaled.start_s)


def _size(settings: Settings, before: int, after: int) -> Scaled:
    """Return a migration whose sudden form pauses each pair of lanes for some seconds."""
    if settings.quick:
        return Scaled(before, after, 16 if after == 2 else 32, 4_000 * before, 1_500, 5_000, 1_000, 3.0, 14.0)  # noqa: PLR2004
    return Scaled(before, after, 32 if after == 2 else 64, 20_000 * before, 5_000, 10_000, 4_000, 8.0, 40.0)  # noqa: PLR2004


def _arms(scaled: Scaled, strategies: Sequence[str], settings: Settings) -> list[Migrated]:
    found = []
    with local_spark(scaled.after) as spark:
        for at, strategy in enumerate(strategies):
            found.append(Migrated(strategy, scaled, run_on_spark(spark, scaled.arm(strategy, settings.seed))))
            settings.progress((at + 1) / len(strategies))
    return found


def run_e1(settings: Settings) -> Outcome:
    """LR-E1: one lane to two."""
    arms = _arms(_size(settings, 1, 2), ("sudden", "fluid"), settings)
    return _outcome(_peaks(*arms), arms)


def run_e2(settings: Settings) -> Outcome:
    """LR-E2: four lanes to eight (quick: two to four)."""
    before = 2 if settings.quick else 4
    scaled = _size(settings, before, 2 * before)
    arms = _arms(scaled, ("sudden", "fluid", "batched"), settings)
    sudden, fluid, batched = arms
    half = scaled.bins // 2
    wanted = [1, half, half // before]
    steps = [arm.steps for arm in arms]
    checks = (
        *_peaks(sudden, fluid),
        STEPS.check(
            (steps, wanted),
            f"one; one per bin that moves: {half}; {before} pairs at a time: {wanted[2]}",
            ", ".join(map(str, steps)),
            "the run ended before the last step",
        ),
        BATCHED_BELOW.check(
            (batched.peak_s, sudden.peak_s),
            "the latency of fluid",
            f"{batched.peak_s:.1f} s against {sudden.peak_s:.1f} s",
            _BUSY_MACHINE,
        ),
    )
    return _outcome(checks, arms)


def run_e3(settings: Settings) -> Outcome:
    """LR-E3: a square wave that the old lanes carry only half of the time."""
    before = 2 if settings.quick else 4
    plain = _size(settings, before, 2 * before)
    capacity = 1_000.0
    wave = tuple(HotPhase(float(at), rate=0.62 if at % 2 == 0 else 1.38) for at in range(int(plain.seconds)))
    scaled = replace(plain, capacity=capacity, rate=1.08 * capacity * before, phases=wave, keys=2_000 * before)
    arms = _arms(replace(scaled, keys_per_second=plain.keys_per_second / 3), ("sudden", "batched"), settings)
    sudden, batched = arms
    checks = (
        BATCHED_LOWER.check(
            (batched.peak_s, sudden.peak_s),
            "batched keeps lower latencies",
            f"{batched.peak_s:.1f} s against {sudden.peak_s:.1f} s",
            "the old lanes stay overloaded while bins wait for their turn",
        ),
        stability_check(batched.stable_after_s, sudden.stable_after_s),
    )
    return _outcome(checks, arms)


def stability_check(batched_s: float, sudden_s: float) -> Check:
    """Compare when latencies are stable; NaN is not within the run."""
    ours = [
        f"after {took_s:.1f} s" if np.isfinite(took_s) else "not within the run" for took_s in (batched_s, sudden_s)
    ]
    return NO_EARLIER.check(
        (batched_s, sudden_s),
        "the faster stabilisation does not occur (a negative result)",
        f"batched {ours[0]}, sudden {ours[1]}",
        "neither is stable within the run" if np.isnan(batched_s) else "here it does occur",
    )


def _peaks(sudden: Migrated, fluid: Migrated) -> tuple[Check, ...]:
    ratio = sudden.peak_s / fluid.peak_s
    half = sudden.scaled.bins // 2
    return (
        BINS_MOVED.check(
            (sudden.moved, fluid.moved, half),
            f"{half} each: the same keys",
            f"{sudden.moved}, {fluid.moved}",
            "the run ended before the last step",
        ),
        PEAK_FACTOR.check(
            (ratio,),
            "a factor of 200 where a step takes 20 ms; here a step takes an epoch at least",
            f"{sudden.peak_s:.1f} s over {fluid.peak_s:.1f} s, a factor of {ratio:.1f}",
            _BUSY_MACHINE,
        ),
    )


def _outcome(checks: tuple[Check, ...], arms: Sequence[Migrated]) -> Outcome:
    scaled = arms[0].scaled
    panel = Panel(
        f"{scaled.before} lanes to {scaled.after}",
        "elapsed (s)",
        "latency, maximum per epoch (s)",
        [Series(arm.strategy, arm.run.finished_s.tolist(), arm.run.latency_max_s.tolist()) for arm in arms],
        log_y=True,
        marks=[(scaled.start_s, "migration")],
    )
    data: dict[str, Any] = {
        arm.strategy: {
            **arm.run.as_dict(),
            "peak_s": arm.peak_s,
            "normal_s": arm.normal_s,
            "stable_after_s": arm.stable_after_s,
            "steps": arm.steps,
        }
        for arm in arms
    }
    scenario = arms[0].run.scenario
    return Outcome(checks, Picture([panel], columns=1), data, limited(scenario), seeds=(scenario.seed,))
