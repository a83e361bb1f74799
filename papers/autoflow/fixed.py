"""Skew that stays as it is (Fig. 5): off, a hot reducer falls behind; on, the gap is closed (AF-E1 to E8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from evenflow.model.balance import spread
from evenflow.model.slots import FloatArray
from evenflow.plot.picture import Panel, Picture, Series
from papers.autoflow.rules import (
    BACKLOG,
    ENDS_EVEN,
    FIRST_MIGRATION,
    HOT_THROUGHPUT,
    LAST_S,
    LATENCY_RISES,
    OFF,
    ON,
    OTHERS_FLAT,
    SHARES,
    SLIGHT_SPIKES,
    SOLVED,
)
from papers.autoflow.scenario import Scenario, fixed_skew
from papers.autoflow.simulated import ScenarioRun, simulate
from papers.autoflow.sweeps import sweep
from papers.experiment import Check, Experiment, Outcome, Settings
from papers.messages.loop import SECOND
from papers.verdicts import median_range

QUICK_SCALE, QUICK_SCALE_LONG = 0.2, 0.1
"""Quick runs have slower reducers and as much less input: the same times and shares. Long runs more so."""
_LONG_S = 100
_TRACE_POINTS = 0.5  # percentage points


@dataclass(frozen=True, slots=True)
class Case:
    """A pair of panels off and on; `trace` are the shares, in percent, at first, after one window and in the end."""

    scenario: Scenario
    trace: tuple[tuple[float, ...], ...]
    windows: int

    @property
    def hot(self) -> int:
        """How many reducers are hot."""
        return len(self.scenario.phases[0].hot)


CASES = {
    "3/50": Case(fixed_skew("50 % on one of 3", 3, 1, 0.5), ((50, 25, 25), (37.5, 37.5, 25), (31.2, 37.5, 31.2)), 2),
    "3/80": Case(fixed_skew("80 % on one of 3", 3, 1, 0.8, 150), ((80, 10, 10), (45, 45, 10), (30, 35, 35)), 3),
    "5/60": Case(
        fixed_skew("60 % on two of 5", 5, 2, 0.6),
        ((30, 30, 13.3, 13.3, 13.3), (22.5, 30, 20.8, 13.3, 13.3), (18.8, 20.6, 20.8, 20.8, 19.0)),
        4,
    ),
    "5/80": Case(
        fixed_skew("80 % on two of 5", 5, 2, 0.8, 180),
        ((40, 40, 6.7, 6.7, 6.7), (25, 40, 21.7, 6.7, 6.7), (17.5, 20, 21.7, 21.7, 19.2)),
        4,
    ),
}


def _scaled(scenario: Scenario, settings: Settings) -> Scenario:
    scale = QUICK_SCALE if scenario.duration_s < _LONG_S else QUICK_SCALE_LONG
    return scenario.scaled(scale) if settings.quick else scenario


def seeds_of(settings: Settings) -> tuple[int, ...]:
    """Return the seeds of the repetitions; few, for loads are even and seeds change the order of records only."""
    return tuple(settings.seeds(full=5, quick=1))


def _runs(scenario: Scenario, settings: Settings) -> list[ScenarioRun]:
    seeds = seeds_of(settings)
    runs = []
    for at, seed in enumerate(seeds):
        runs.append(simulate(_scaled(scenario, settings), seed))
        settings.progress((at + 1) / len(seeds))
    return runs


# --- off -------------------------------------------------------------------------------------------------------------


def expected_slope(scenario: Scenario) -> float:
    """How fast the backlog of a hot reducer grows, in records per second: its share of the rate less its capacity."""
    phase = scenario.phases[0]
    return phase.share * scenario.rate / len(phase.hot) - scenario.capacity


def backlog_slope(run: ScenarioRun, reducer: int) -> float:
    """Return the slope of a straight line through the backlog of a reducer while records come in."""
    stream, result = run.result.stream, run.result
    mine = result.served_by == reducer
    times = np.arange(1, run.scenario.duration_s) * SECOND
    come = np.searchsorted(stream.due[mine], times)
    gone = np.searchsorted(np.sort(result.served_at[mine]), times)
    return float(np.polyfit(times / SECOND, come - gone, 1)[0])


def _off(case: Case, settings: Settings) -> Outcome:
    scenario = case.scenario.off()
    if case.scenario.duration_s > CASES["3/50"].scenario.duration_s:
        scenario = fixed_skew(scenario.name, scenario.reducers, case.hot, scenario.phases[0].share).off()
    runs = _runs(scenario, settings)
    return Outcome(_off_checks(case, runs), _picture(runs[0]), _off_data(runs), _note(settings), seeds_of(settings))


def _off_checks(case: Case, runs: Sequence[ScenarioRun]) -> tuple[Check, ...]:
    scenario = runs[0].scenario
    hot, cold = range(case.hot), range(case.hot, scenario.reducers)
    expected = expected_slope(scenario)
    slopes = [backlog_slope(run, reducer) for run in runs for reducer in hot]
    others = [abs(backlog_slope(run, reducer)) for run in runs for reducer in cold]
    latency = [float(np.polyfit(*run.latency_samples(reducer), 1)[0]) for run in runs for reducer in hot]
    rates = _rates(runs[0])
    return (
        BACKLOG.check(
            (float(np.median(slopes)), expected),
            f"grows without bound; computed {expected:.0f} records/s",
            f"{median_range(slopes, '{:.0f}'.format)} records/s",
            "its share of the input less what it can serve",
        ),
        LATENCY_RISES.check(
            (min(latency),), "increasingly high", f"rises by {median_range(latency)} s per second", "it does not rise"
        ),
        HOT_THROUGHPUT.check(
            (rates[list(hot)].min(), rates[list(cold)].max(), scenario.capacity),
            "obviously higher on the hot ones",
            f"{rates[list(hot)].mean():.0f} against {rates[list(cold)].mean():.0f} records/s",
            "a hot reducer is not at its capacity",
        ),
        OTHERS_FLAT.check(
            (max(others), scenario.capacity), "(flat)", f"at most {max(others):.2g} records/s", "it grows"
        ),
    )


def _rates(run: ScenarioRun) -> FloatArray:
    """Return the records per second that each reducer served while records came in."""
    end = run.scenario.duration_s * SECOND
    served = run.result.served_by[run.result.served_at <= end]
    return np.bincount(served, minlength=run.scenario.reducers) / run.scenario.duration_s


def _off_data(runs: Sequence[ScenarioRun]) -> dict[str, Any]:
    return {"scenario": runs[0].scenario.name, "records": len(runs[0].result.stream), "seeds": len(runs)}


# --- on --------------------------------------------------------------------------------------------------------------


def measured_trace(run: ScenarioRun) -> list[FloatArray]:
    """Return the shares that the reducers served before the first and after each migration, in percent."""
    times = [0.0, *run.migrations_s, float(run.scenario.duration_s)]
    settle = run.scenario.control_period_s
    return [run.shares(start + settle, end) for start, end in pairwise(times)]


def as_expected(shares: FloatArray, expected: Sequence[float], hot: int) -> bool:
    """Whether shares are those expected, up to the order of reducers that were alike at first."""
    parts = (slice(None, hot), slice(hot, None))
    return all(
        np.allclose(np.sort(shares[part]), np.sort(np.array(expected)[part]), atol=_TRACE_POINTS) for part in parts
    )


def _on(case: Case, settings: Settings) -> Outcome:
    runs = _runs(case.scenario, settings)
    scenario = runs[0].scenario
    off = simulate(scenario.off(), settings.seed)
    even = simulate(_scaled(fixed_skew("even", scenario.reducers, 0, 0.0, 30), settings).off(), settings.seed)
    traces = [measured_trace(run) for run in runs]
    checks = (*_trace_checks(case, runs, traces), *_latency_checks(runs, off, even))
    data = {"shares": [[shares.round(2).tolist() for shares in trace] for trace in traces], **_off_data(runs)}
    data["migrations_s"] = [run.migrations_s for run in runs]
    if case is CASES["3/50"] and not settings.quick:
        data["other parameters"] = sweep(case.scenario, settings.seed)
    return Outcome(checks, _picture(runs[0], off), data, _note(settings), seeds_of(settings))


def _trace_checks(case: Case, runs: Sequence[ScenarioRun], traces: Sequence[list[FloatArray]]) -> tuple[Check, ...]:
    start, first, end = case.trace
    right = [
        len(trace) == case.windows + 1
        and all(as_expected(trace[at], wanted, case.hot) for at, wanted in ((0, start), (1, first), (-1, end)))
        for trace in traces
    ]
    spreads, factor = [spread(trace[-1]) for trace in traces], runs[0].scenario.factor
    firsts = [run.migrations_s[0] for run in runs if run.migrations_s]
    window = runs[0].scenario.window_s
    return (
        SHARES.check(
            (right, spreads, factor),
            (
                f"computed from Algorithm 3: {case.windows} migrations, "
                f"{_percent(start)} to {_percent(first)} to {_percent(end)}"
            ),
            (
                f"{len(traces[0]) - 1} migrations, {' to '.join(_percent(shares) for shares in traces[0])}; "
                f"{sum(right)} of {len(right)} runs as computed"
            ),
            "counts that differ by a few records decide which slots fit into half the gap",
        ),
        ENDS_EVEN.check(
            (spreads, factor),
            "data-skewness is alleviated",
            f"{median_range(spreads, '{:.2f}'.format)}, the factor is 0.2",
            "above the factor",
        ),
        FIRST_MIGRATION.check(
            (firsts, window),
            "from the first window of metrics",
            f"announced at {median_range(firsts, '{:.1f}'.format)} s, windows are of {window:.0f} s",
            "a hot reducer reports a window only when it has served it: its backlog delays the metrics",
        ),
    )


def _latency_checks(runs: Sequence[ScenarioRun], off: ScenarioRun, even: ScenarioRun) -> tuple[Check, ...]:
    end = float(runs[0].scenario.duration_s)
    level = float(np.quantile(even.latency(LAST_S), 0.99))
    last = [float(np.quantile(run.latency(end - LAST_S), 0.99)) for run in runs]
    without = float(np.quantile(off.latency(end - LAST_S), 0.99))
    waits = [wait for run in runs for wait in _waits(run)]
    shortest, longest = min(waits), max(waits)
    return (
        SOLVED.check(
            (max(last), level, without),
            "the problem is solved",
            f"{median_range(last)} s; {level:.3g} s with an even load, {without:.3g} s without balancing",
            "at 80 % load the backlog from before the last migration drains slowly: it is shrinking, not gone",
        ),
        SLIGHT_SPIKES.check(
            (shortest, longest),
            "a slight spike at each migration",
            f"records of moved slots wait {shortest:.2f} to {longest:.2f} s for their state",
            "the sender lets go at the barrier, behind all it has not served: the wait is its backlog, not slight",
        ),
    )


def _waits(run: ScenarioRun) -> list[float]:
    """Return for each migration how long the first of its slots' records had to wait for the state."""
    waits: dict[float, float] = {}
    for trace in run.result.trace.moves.values():
        announced = trace.announced / SECOND
        waits[announced] = max(waits.get(announced, 0.0), (trace.installed - trace.announced) / SECOND)
    return list(waits.values()) or [0.0]


def _percent(shares: Sequence[float] | FloatArray) -> str:
    return "/".join(f"{share:.1f}".removesuffix(".0") for share in shares)


# --- both ------------------------------------------------------------------------------------------------------------


def _note(settings: Settings) -> str:
    quick = "quick: reducers of 100 or 200 records/s and as much less input; " if settings.quick else ""
    return f"{quick}AF-P5: reducers of 1000 records/s, input 80 % of what all can serve"


def _picture(run: ScenarioRun, off: ScenarioRun | None = None) -> Picture:
    marks = [(time, "migration") for time in run.migrations_s]
    reducers = range(run.scenario.reducers)
    latency = [Series(f"reducer {at}", *_lists(run.latency_samples(at))) for at in reducers]
    if off is not None:
        times, values = off.latency_samples(0)
        shown = times <= run.scenario.duration_s
        latency.append(Series("reducer 0, off", *_lists((times[shown], values[shown]))))
    rates = [Series(f"reducer {at}", *_lists(run.throughput_samples(at)), kind="steps") for at in reducers]
    return Picture(
        (
            Panel(
                "latency, every 100th record", "time (s)", "latency (s)", latency, marks=marks, log_y=off is not None
            ),
            Panel("throughput, every 1000 records", "time (s)", "records/s", rates, marks=marks),
        )
    )


def _lists(pair: tuple[FloatArray, FloatArray]) -> tuple[list[float], list[float]]:
    return pair[0].round(3).tolist(), pair[1].round(4).tolist()


def _pair(off: tuple[str, str], on: tuple[str, str], name: str) -> tuple[Experiment, Experiment]:
    case = CASES[name]
    title = case.scenario.name
    return (
        Experiment(off[0], off[1], f"{title} reducers, balancing off", OFF, lambda settings: _off(case, settings)),
        Experiment(on[0], on[1], f"{title} reducers, balancing on", ON, lambda settings: _on(case, settings)),
    )


E1, E2 = _pair(("AF-E1", "Fig. 5 a, b"), ("AF-E2", "Fig. 5 c, d"), "3/50")
E3, E4 = _pair(("AF-E3", "Fig. 5 e, f"), ("AF-E4", "Fig. 5 g, h"), "3/80")
E5, E6 = _pair(("AF-E5", "Fig. 5 i, j"), ("AF-E6", "Fig. 5 k, l"), "5/60")
E7, E8 = _pair(("AF-E7", "Fig. 5 m, n"), ("AF-E8", "Fig. 5 o"), "5/80")
