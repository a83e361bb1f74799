"""Loads that change: a spike of 20 and of 10 seconds (Fig. 6), hotspots that wander (Fig. 7) (AF-E9 to E12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenflow.plot.picture import Panel, Picture, Series
from papers.autoflow import rules
from papers.autoflow.fixed import QUICK_SCALE, seeds_of
from papers.autoflow.rules import (
    AREA_REDUCED,
    GREATLY,
    MOST_RELIEVED,
    PEAK_REDUCED,
    SHORT_IMPROVED,
    SHORT_LESS,
    SMALL_BEATS_LARGE,
    SOME_RELIEVED,
    TOTAL_LESS,
    WORSE_THAN_HALF,
)
from papers.autoflow.scenario import Phase, Scenario
from papers.autoflow.simulated import ScenarioRun, simulate, stream_of
from papers.experiment import Experiment, Outcome, Settings
from papers.messages.loop import SECOND
from papers.verdicts import median_range

DELAY_S = 0.25
"""How long a control message and a load report take each: the paper blames these delays for Fig. 6 d."""
SPIKE_AT_S = 20.0
LARGE_WINDOW_S = 5.0
EPISODE_S, TURN_S = 15.0, 30.0
"""How long a hotspot stays in AF-E11, and a reducer's turn in AF-E12: ours, the paper gives neither."""
_BIN_S = 0.5
_TURNS = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Arms:
    """One seed's runs of the same records: off, with a large window, and with the small one."""

    off: ScenarioRun
    large: ScenarioRun
    small: ScenarioRun

    @property
    def gain(self) -> float:
        """What share of the area under the latency the small window takes away."""
        return 1.0 - self.small.area / self.off.area

    @property
    def peak_gain(self) -> float:
        """What share of the peak it takes away."""
        return 1.0 - float(self.small.result.latency_s.max() / self.off.result.latency_s.max())


def spike(length_s: float, window_s: float) -> Scenario:
    """Return an even load in which half of the records go to one of 3 reducers for `length_s`."""
    phases = (Phase(0.0), Phase(SPIKE_AT_S, (0,), 0.5), Phase(SPIKE_AT_S + length_s))
    return Scenario(f"spike of {length_s:.0f} s", 3, phases, control_period_s=0.5, window_s=window_s, delay_s=DELAY_S)


def wandering(share: float, hot: Sequence[int], episode_s: float, window_s: float) -> Scenario:
    """Return a load with a hotspot at every moment: `hot` are the reducers in turn, one per episode."""
    phases = tuple(Phase(at * episode_s, (reducer,), share) for at, reducer in enumerate(hot))
    return Scenario(
        f"{100 * share:.0f} % hotspot that wanders",
        3,
        phases,
        round(episode_s * len(hot)),
        control_period_s=0.5,
        window_s=window_s,
        delay_s=DELAY_S,
    )


def _arms(scenario: Scenario, seed: int, quick: bool) -> Arms:  # noqa: FBT001 - the setting
    chosen = scenario.scaled(QUICK_SCALE) if quick else scenario
    records = stream_of(chosen, seed)
    large = replace(chosen, name=f"{chosen.name}, window {LARGE_WINDOW_S:.0f} s", window_s=LARGE_WINDOW_S)
    off, wide, narrow = (simulate(arm, seed, stream=records) for arm in (chosen.off(), large, chosen))
    return Arms(off, wide, narrow)


def _gain(scenario: Scenario, seed: int, quick: bool) -> float:  # noqa: FBT001 - the setting
    """Return what share of the area under the latency balancing takes away."""
    chosen = scenario.scaled(QUICK_SCALE) if quick else scenario
    records = stream_of(chosen, seed)
    off, on = (simulate(arm, seed, stream=records) for arm in (chosen.off(), chosen))
    return 1.0 - on.area / off.area


def _all_arms(scenario: Scenario, settings: Settings) -> list[Arms]:
    seeds = seeds_of(settings)
    arms = []
    for at, seed in enumerate(seeds):
        arms.append(_arms(scenario, seed, settings.quick))
        settings.progress((at + 1) / len(seeds))
    return arms


def _e9(settings: Settings) -> Outcome:
    arms = _all_arms(spike(20.0, 2.0), settings)
    gains, peaks = [one.gain for one in arms], [one.peak_gain for one in arms]
    large = [1.0 - one.large.area / one.off.area for one in arms]
    checks = (
        AREA_REDUCED.check(
            (min(gains),),
            "greatly reduced by a small window",
            f"{_shares(gains)} less than off; a window of 5 s takes {_shares(large)}",
            "less than half of it is taken away",
        ),
        PEAK_REDUCED.check(
            (min(peaks),),
            "greatly reduced by a small window",
            f"{_shares(peaks)} less than off",
            "less than half of it is taken away",
        ),
        SMALL_BEATS_LARGE.check(
            (gains, large),
            "better with a smaller window",
            f"{_shares(gains)} against {_shares(large)} of the area",
            "the larger window is no worse",
        ),
    )
    return Outcome(checks, _picture(arms[0]), _data(arms), _note(settings), seeds_of(settings))


def _e10(settings: Settings) -> Outcome:
    arms = _all_arms(spike(10.0, 1.0), settings)
    gains = [one.gain for one in arms]
    before = [_gain(spike(20.0, 2.0), seed, settings.quick) for seed in seeds_of(settings)]
    peaks = [one.peak_gain for one in arms]
    by_delay = _by_delay(settings)
    checks = (
        SHORT_IMPROVED.check(
            (min(gains),),
            "relaxed to some extent",
            f"{_shares(gains)} of the area and {_shares(peaks)} of the peak taken away{_said(by_delay)}",
            "there is none",
        ),
        SHORT_LESS.check(
            (gains, before),
            "smaller: only to some extent",
            f"{_shares(gains)} against {_shares(before)} of the area",
            "it is not smaller",
        ),
    )
    data = {**_data(arms), "gain on 20 s": before, "gain by delay": by_delay}
    return Outcome(checks, _picture(arms[0]), data, _note(settings), seeds_of(settings))


def _by_delay(settings: Settings) -> dict[str, float]:
    """Return the gain on 10 s for other delays of metrics and control messages: the cause that the paper names."""
    gains = {}
    for delay in (2.0,) if settings.quick else (0.0, 1.0, 2.0):
        gains[f"{delay:g} s"] = _gain(replace(spike(10.0, 1.0), delay_s=delay), settings.seed, settings.quick)
    return gains


def _said(by_delay: dict[str, float]) -> str:
    return "; " + ", ".join(f"with delays of {delay} {100 * gain:.0f} %" for delay, gain in by_delay.items())


# --- hotspots that wander -------------------------------------------------------------------------------------------


def episodes(arms: Arms) -> list[tuple[float, float]]:
    """Return the mean latency of the records due in each episode, off and on."""
    found = []
    for phase, end in arms.small.scenario.ends():
        off, on = (float(run.latency(phase.start_s, end).mean()) for run in (arms.off, arms.small))
        found.append((off, on))
    return found


def _wandering(arms: Sequence[Arms]) -> tuple[int, int, int, list[list[tuple[float, float]]]]:
    """Return how many episodes were relieved, how many made worse, and how many there were."""
    found = [episodes(one) for one in arms]
    flat = [pair for one in found for pair in one]
    relieved = sum(on <= GREATLY * off for off, on in flat)
    worse = sum(on > off for off, on in flat)
    return relieved, worse, len(flat), found


def _e11(settings: Settings) -> Outcome:
    rng = np.random.default_rng(settings.seed)
    hot = [0]
    while len(hot) < 6:  # noqa: PLR2004 - 90 s of episodes
        hot.append(int(rng.choice([reducer for reducer in range(3) if reducer != hot[-1]])))
    arms = _all_arms(wandering(0.5, hot, EPISODE_S, 2.0), settings)
    relieved, worse, total, found = _wandering(arms)
    checks = (
        MOST_RELIEVED.check(
            (relieved, total, len(arms)),
            "all but one",
            f"{relieved} of {total} episodes; {worse} made worse",
            "a hotspot that stays 15 s is over soon after the window that shows it; the slots it moved are cold then",
        ),
        _total_check(arms),
    )
    return Outcome(
        checks, _picture(arms[0]), {"episodes": found, "hot": hot, **_data(arms)}, _note(settings), seeds_of(settings)
    )


def _e12(settings: Settings) -> Outcome:
    arms = _all_arms(wandering(0.8, _TURNS, TURN_S, 1.0), settings)
    relieved, worse, total, found = _wandering(arms)
    mean, half = float(np.mean([one.off.result.latency_s.mean() for one in arms])), _mean_of_half(settings)
    checks = (
        SOME_RELIEVED.check(
            (relieved, total),
            "some fixed, some remain",
            f"{relieved} of {total} episodes; {worse} made worse",
            "every hotspot is relieved, or none: the paper sees both",
        ),
        _total_check(arms),
        WORSE_THAN_HALF.check(
            (mean, half), "far worse than Fig. 7 a", f"mean latency off {mean:.2f} s", "it is not worse"
        ),
    )
    short = _gain(wandering(0.8, _TURNS * 2, EPISODE_S, 1.0), settings.seed, quick=True)
    data = {"episodes": found, "gain with turns of 15 s": short, **_data(arms)}
    note = f"{_note(settings)}; with turns of 15 s instead of 30 the area changes by {-100 * short:+.0f} %"
    return Outcome(checks, _picture(arms[0]), data, note, seeds_of(settings))


def _mean_of_half(settings: Settings) -> float:
    half = simulate(wandering(0.5, _TURNS, TURN_S, 1.0).off().scaled(QUICK_SCALE), settings.seed)
    return float(half.result.latency_s.mean())


def _total_check(arms: Sequence[Arms]) -> Any:
    gains = [one.gain for one in arms]
    return TOTAL_LESS.check(
        (min(gains),), "reduced", f"{_shares(gains)} less than off", "not below the arm without balancing"
    )


# --- all ------------------------------------------------------------------------------------------------------------


def _shares(values: Sequence[float]) -> str:
    return median_range([100 * value for value in values], "{:.0f} %".format)


def _data(arms: Sequence[Arms]) -> dict[str, Any]:
    return {
        "gain": [one.gain for one in arms],
        "peak gain": [one.peak_gain for one in arms],
        "area off": [one.off.area for one in arms],
        "moves": [len(one.small.result.trace.moves) for one in arms],
    }


def _note(settings: Settings) -> str:
    quick = f"quick: reducers of {1000 * QUICK_SCALE:.0f} records/s; " if settings.quick else ""
    return f"{quick}control messages and load reports take {DELAY_S} s each; length and strength of a spike are ours"


def _picture(arms: Arms) -> Picture:
    """Draw the highest latency of every half second, all arms in one panel and the small window by itself."""
    small = arms.small.scenario
    series = [
        _highest("off", arms.off),
        _highest(f"window {LARGE_WINDOW_S:g} s", arms.large),
        _highest(f"window {small.window_s:g} s", arms.small),
    ]
    marks = [(time, "migration") for time in arms.small.migrations_s]
    return Picture(
        (
            Panel("highest latency per 0.5 s", "time (s)", "latency (s)", series),
            Panel(f"window {small.window_s:g} s", "time (s)", "latency (s)", series[2:], marks=marks),
        )
    )


def _highest(label: str, run: ScenarioRun) -> Series:
    bins = np.arange(0.0, run.scenario.duration_s, _BIN_S)
    at = np.minimum((run.result.stream.due / SECOND / _BIN_S).astype(int), bins.size - 1)
    highest = np.zeros(bins.size)
    np.maximum.at(highest, at, run.result.latency_s)
    return Series(label, bins.tolist(), highest.round(4).tolist())


E9 = Experiment("AF-E9", "Fig. 6 a, b", "A spike of 20 s", rules.E9, _e9)
E10 = Experiment("AF-E10", "Fig. 6 c, d", "A spike of 10 s", rules.E10, _e10)
E11 = Experiment("AF-E11", "Fig. 7 a, b", "50 % hotspot that changes its place", rules.E11, _e11)
E12 = Experiment("AF-E12", "Fig. 7 c, d", "80 % hotspot, each reducer in turn", rules.E12, _e12)
