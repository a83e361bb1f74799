"""AutoFlow's experiments (AF-E1 to E12) on Spark: the same scenarios, compressed in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evenflow.model.balance import spread
from evenflow.model.slots import FloatArray
from evenflow.plot.picture import Panel, Picture, Series
from evenflow.policies import policy_named
from papers.autoflow.changing import spike, wandering
from papers.autoflow.fixed import CASES
from papers.autoflow.scenario import Scenario
from papers.experiment import Check, Outcome, Settings
from papers.spark_runs.rules import (
    GAP_CLOSED,
    GREATLY_REDUCED,
    HOT_LATENCY,
    HOT_THROUGHPUT,
    MORE_FINISHED,
    MOST_RELIEVED,
    OTHER_LATENCY,
    REDUCED,
    RELIEVED,
    SLOWEST_EASED,
    SMALLER_GAIN,
    SOME_RELIEVED,
)
from papers.spark_runs.run import SparkRun, SparkScenario, limited, local_spark, run_on_spark
from papers.spark_runs.workload import HotPhase

_SECONDS, _QUICK_SECONDS = 30.0, 12.0
_EPOCH_S = 0.5
_UNBOUNDED = 10_000  # epochs a lane may lag behind: the others must not feel it
_EPISODE_S, _WINDOW_S = 15.0, 2.0
_BUSY_MACHINE = "epochs are longer where other work shares the machine; lanes then wait for rows, or rows for epochs"


def _on_spark(scenario: Scenario, settings: Settings, *, balancing: bool) -> SparkScenario:
    """Return an arm, with its whole course compressed into some seconds."""
    seconds = _QUICK_SECONDS if settings.quick else _SECONDS
    pace = seconds / scenario.duration_s
    phases = [HotPhase(phase.start_s * pace, phase.hot, phase.share) for phase in scenario.phases]
    window = max(1, round(scenario.window_s * pace / _EPOCH_S))
    return SparkScenario(
        lanes=scenario.reducers,
        slots=scenario.reducers * scenario.slots_per_reducer,
        capacity=scenario.capacity,
        rate=scenario.rate,
        seconds=seconds,
        phases=phases,
        policy=policy_named("autoflow", factor=scenario.factor) if balancing else "static",
        strategy="sudden",
        max_lag=4 if balancing else _UNBOUNDED,
        keys=scenario.reducers * scenario.slots_per_reducer * scenario.keys_per_slot,
        seed=settings.seed,
        balancer={"window_epochs": window, "settle_windows": 0, "warm_up_windows": 1},
    )


def _arms(arms: Sequence[SparkScenario], settings: Settings) -> list[SparkRun]:
    runs = []
    with local_spark(max(arm.lanes for arm in arms)) as spark:
        for at, arm in enumerate(arms):
            runs.append(run_on_spark(spark, arm))
            settings.progress((at + 1) / len(arms))
    return runs


# --- skew that stays (E1 to E8) -------------------------------------------------------------------------------------


def off(case: str) -> Callable[[Settings], Outcome]:
    """Return the run of an experiment without balancing."""

    def run(settings: Settings) -> Outcome:
        scenario = CASES[case].scenario
        (found,) = _arms([_on_spark(scenario, settings, balancing=False)], settings)
        hot = list(scenario.phases[0].hot)
        cold = [lane for lane in range(scenario.reducers) if lane not in hot]
        return Outcome(
            _off_checks(found, scenario, hot, cold),
            _picture([found]),
            _data([found]),
            limited(found.scenario),
            (settings.seed,),
        )

    return run


def _off_checks(found: SparkRun, scenario: Scenario, hot: list[int], cold: list[int]) -> tuple[Check, ...]:
    slopes = _slopes(found)
    expected = scenario.phases[0].share * scenario.rate / len(hot) / scenario.capacity - 1
    rates = found.throughput()
    steep = float(slopes[hot].mean())
    return (
        HOT_LATENCY.check(
            (steep, expected),
            f"increasingly high; computed {expected:.2f} s per second",
            f"rises by {steep:.2f} s per second",
            _BUSY_MACHINE,
        ),
        OTHER_LATENCY.check(
            (slopes[cold].max(), steep), "(flat)", f"rises by {slopes[cold].max():.2f} s per second", _BUSY_MACHINE
        ),
        HOT_THROUGHPUT.check(
            (rates[hot].min(), rates[cold].max(), scenario.capacity),
            "obviously higher on the hot ones, which are at their capacity",
            f"{rates[hot].mean():.0f} (limit {scenario.capacity}) against {rates[cold].mean():.0f} rows/s",
            "writing and committing an epoch takes a hot lane some of its time",
        ),
    )


def on(case: str) -> Callable[[Settings], Outcome]:
    """Return the run of an experiment with balancing, next to one without."""

    def run(settings: Settings) -> Outcome:
        scenario = CASES[case].scenario
        arms = [_on_spark(scenario, settings, balancing=balancing) for balancing in (False, True)]
        without, found = _arms(arms, settings)
        return Outcome(
            _on_checks(without, found, scenario),
            _picture([without, found]),
            _data([without, found]),
            limited(found.scenario),
            (settings.seed,),
        )

    return run


def _on_checks(without: SparkRun, found: SparkRun, scenario: Scenario) -> tuple[Check, ...]:
    seconds = found.scenario.seconds
    late = found.rows[-max(2, len(found.epochs) // 4) :].sum(axis=0)
    early = found.rows[: max(1, len(found.epochs) // 4)].sum(axis=0)
    gap_first, gap_last = spread(early), spread(late)
    ends = float(np.median(_worst(found)[-3:])), float(np.median(_worst(without)[-3:]))
    done = found.rows.sum(), without.rows.sum()
    return (
        GAP_CLOSED.check(
            (gap_last, gap_first, scenario.factor),
            f"data-skewness is alleviated: below the factor, {scenario.factor}",
            f"{gap_last:.2f}, from {gap_first:.2f} at first; {len(found.moves)} slots moved",
            (
                "Algorithm 3 moves once per window, and an epoch in which slots settle is no part of one: the run ends "
                "before its last migration is felt"
            ),
        ),
        MORE_FINISHED.check(
            (done[0], done[1]),
            "the problem is solved",
            f"{done[0]:,.0f} against {done[1]:,.0f} in {seconds:g} s",
            (
                f"rows of the last {ends[0]:.1f} s are still on their way at the end: no more than "
                f"{found.scenario.rate * (seconds - ends[0]):,.0f} can be finished"
            ),
        ),
        SLOWEST_EASED.check(
            (ends[0], ends[1]),
            "the problem is solved",
            f"{ends[0]:.1f} s against {ends[1]:.1f} s (of the last epochs that were finished)",
            (
                "a backlog from before the first move is still draining when the run ends; off, only the few epochs "
                "that the hot lane has come to are counted"
            ),
        ),
    )


# --- loads that change (E9 to E12) ----------------------------------------------------------------------------------


def spikes(settings: Settings) -> Outcome:
    """AF-E9: a spike of 20 s of 90, off and with a small window."""
    without, found = _pair(spike(20.0, 2.0), settings)
    gain = _gain(without, found)
    checks = (
        GREATLY_REDUCED.check(
            (gain,),
            "greatly reduced",
            f"{gain:.0%} less ({found.mean_latency_s():.2f} s against {without.mean_latency_s():.2f} s)",
            _before_spike(without, found),
        ),
    )
    return Outcome(
        checks, _picture([without, found]), _data([without, found]), limited(found.scenario), (settings.seed,)
    )


def short_spikes(settings: Settings) -> Outcome:
    """AF-E10: a spike of half the length; the gain must be there and smaller."""
    arms = [
        _on_spark(scenario, settings, balancing=balancing)
        for scenario in (spike(10.0, 1.0), spike(20.0, 2.0))
        for balancing in (False, True)
    ]
    without, found, long_off, long_on = _arms(arms, settings)
    short, long = _gain(without, found), _gain(long_off, long_on)
    checks = (
        REDUCED.check(
            (short,),
            "only relaxed to some extent",
            f"{short:.0%} less ({found.mean_latency_s():.2f} s against {without.mean_latency_s():.2f} s)",
            _before_spike(without, found),
        ),
        SMALLER_GAIN.check((short, long), "smaller", f"{short:.0%} against {long:.0%}", _BUSY_MACHINE),
    )
    runs = [without, found, long_off, long_on]
    return Outcome(checks, _picture(runs[:2]), _data(runs), limited(found.scenario), (settings.seed,))


def wanderer(share: float) -> Callable[[Settings], Outcome]:
    """Return the run of a hotspot that wanders from lane to lane (AF-E11, E12)."""

    def run(settings: Settings) -> Outcome:
        scenario = wandering(share, [0, 1, 2, 0, 1, 2], _EPISODE_S, _WINDOW_S)
        without, found = _pair(scenario, settings)
        episodes = _episodes(without, found)
        relieved = sum(now <= RELIEVED * was for was, now in episodes)
        worse = sum(now > was for was, now in episodes)
        gain, most = _gain(without, found), share < 0.6  # noqa: PLR2004 - 50 % against 80 %
        checks = (
            (MOST_RELIEVED if most else SOME_RELIEVED).check(
                (relieved, len(episodes)),
                "all but one" if most else "some fixed, some remain",
                f"{relieved} of {len(episodes)} episodes; {worse} made worse",
                "a hotspot stays a few seconds here: epochs, windows and moves take as long",
            ),
            REDUCED.check(
                (gain,), "reduced", f"{gain:.0%} less", "slots that were moved to relieve one hotspot feed the next"
            ),
        )
        data = {**_data([without, found]), "episodes": episodes}
        return Outcome(checks, _picture([without, found]), data, limited(found.scenario), (settings.seed,))

    return run


def _pair(scenario: Scenario, settings: Settings) -> list[SparkRun]:
    return _arms([_on_spark(scenario, settings, balancing=balancing) for balancing in (False, True)], settings)


def _episodes(without: SparkRun, found: SparkRun) -> list[tuple[float, float]]:
    """Return the mean latency of the rows that came in each phase, off and on; phases not finished off are left out."""
    starts = [phase.start_s for phase in found.scenario.phases]
    ends = [*starts[1:], found.scenario.seconds]
    pairs = []
    for start, end in zip(starts, ends, strict=True):
        was, now = (run.mean_latency_s(start, end) for run in (without, found))
        if np.isfinite(was) and np.isfinite(now):
            pairs.append((was, now))
    return pairs


# --- figures --------------------------------------------------------------------------------------------------------


def _slopes(run: SparkRun) -> FloatArray:
    """Return how fast each lane's latency rises with the time at which rows come."""
    return np.array([np.polyfit(run.arrived_s, column, 1)[0] for column in run.lane_latency_s.T])


def _worst(run: SparkRun) -> FloatArray:
    worst: FloatArray = run.lane_latency_s.max(axis=1)
    return worst


def _gain(without: SparkRun, found: SparkRun) -> float:
    """Return the share of the latency that balancing takes away, over the rows that both have finished."""
    until = min(float(run.arrived_s[-1]) for run in (without, found))
    was, now = (run.mean_latency_s(0.0, until + 1e-9) for run in (without, found))
    return 1.0 - now / was


def _before_spike(without: SparkRun, found: SparkRun) -> str:
    """Say how much of the latency is there without a spike, and differs between two runs without one."""
    starts_s = found.scenario.phases[1].start_s
    off_s, on_s = (run.mean_latency_s(0.0, starts_s) for run in (without, found))
    added_s = without.mean_latency_s() - off_s
    return (
        f"before the spike rows take {off_s:.2f} s off and {on_s:.2f} s on, an epoch and its bookkeeping, which no "
        f"balancing takes away and which is not the same in any two runs; the spike adds {added_s:.2f} s to the mean"
    )


def _data(runs: Sequence[SparkRun]) -> dict[str, Any]:
    return {name: run.as_dict() for name, run in zip(("off", "on", "long off", "long on"), runs, strict=False)}


def _picture(runs: Sequence[SparkRun]) -> Picture:
    panels = []
    for name, run in zip(("off", "on"), runs, strict=False):
        lanes = range(run.scenario.lanes)
        latency = [
            Series(f"lane {lane}", run.arrived_s.round(3).tolist(), run.lane_latency_s[:, lane].round(3).tolist())
            for lane in lanes
        ]
        marks = [(time_s, "moves") for time_s in run.move_times_s]
        panels.append(Panel(f"{name}: latency", "rows that came at (s)", "latency (s)", latency, marks=marks))
        served = [
            Series(
                f"lane {lane}", run.done_s[:, lane].round(3).tolist(), np.cumsum(run.rows[:, lane]).tolist(), "steps"
            )
            for lane in lanes
        ]
        panels.append(Panel(f"{name}: rows served", "time (s)", "rows, in all", served, marks=marks))
    return Picture(panels)
