"""The cross table as an experiment: what is checked, what is drawn, and in which form the numbers are kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from evenflow.migration import DEFAULT_STRATEGY
from evenflow.plot.picture import Heat, Panel, Picture
from evenflow.policies import DEFAULT_POLICY, POLICIES
from evenflow.sim.quantum import Way
from papers.cross.loads import LOADS, USED
from papers.cross.misses import (
    CLOSE,
    LEAST_S,
    Miss,
    Place,
    Standing,
    find_misses,
    middle,
    standing,
    standings,
)
from papers.cross.rules import NEAR_THE_BEST, NEAR_THE_BEST_BY_WAY, NONE_LOST, RULE
from papers.cross.table import (
    BEHIND_S,
    Measured,
    Table,
    all_combinations,
    fill,
    full_tasks,
    quick_tasks,
)
from papers.experiment import Check, Experiment, Outcome, Settings

DEFAULT_WAY = Way.AT_ONCE.value


def run_cross(settings: Settings) -> Outcome:
    """Fill the table and say where `even` stands."""
    seeds = settings.seeds(full=20, quick=1)
    default = (DEFAULT_WAY, DEFAULT_STRATEGY)
    tasks = quick_tasks(seeds, default) if settings.quick else full_tasks(seeds)
    processes = min(2, os.cpu_count() or 1)
    table, runs = fill(tasks, processes, settings.progress)
    outcome = judge(table, runs, find_misses(table, seeds, processes), tuple(seeds))
    quick = " Quick: at once and paced only, but for `even` on three loads."
    return replace(outcome, note=outcome.note + quick) if settings.quick else outcome


def judge(table: Table, runs: int, misses: Sequence[Miss], seeds: tuple[int, ...]) -> Outcome:
    """Return what follows from a table that took `runs` runs, and from what was seen where `even` is not the best."""
    stands = standings(table)
    checks = (
        _lost_check(table, runs),
        *(_load_check(table, load) for load in LOADS),
        *(
            _way_check(way.value, stands, misses)
            for way in Way
            if any(one.place.handover == way.value for one in stands)
        ),
    )
    data = {
        "seeds": list(seeds),
        "runs": runs,
        "places": len(stands),
        "misses": [miss.as_dict() for miss in misses],
        "cells": _cells(table),
    }
    note = (
        f"8 lanes at {USED:.0%} load, 64 slots of 4 MB, 40 s, seeds {seeds[0]} to {seeds[-1]}, {runs:,} runs; a run "
        "without any move counts for all strategies, and for all ways in which lanes would stop, or would not."
    )
    return Outcome(checks, _picture(table, stands), data, note, seeds)


def _lost_check(table: Table, runs: int) -> Check:
    lost = max(abs(measured.lost) for cell in table.values() for measured in cell)
    return NONE_LOST.check((lost,), "0", f"{lost:g} in {runs:,} runs", "records vanished: a defect")


def _load_check(table: Table, load: str) -> Check:
    """Compare the 99th percentile of `even` with the best of all policies, handed over at once and paced."""
    stands = standing(table, Place(DEFAULT_WAY, DEFAULT_STRATEGY, load))

    def figures(policy: str) -> str:
        cell = table[policy, DEFAULT_WAY, DEFAULT_STRATEGY, load]
        return f"{policy} {middle(cell, 'p99_s'):.3g} s, {middle(cell, 'moved_mb'):.0f} MB"

    ours = f"{figures(DEFAULT_POLICY)}; best {figures(stands.best)}; {figures('static')}"
    why = f"{stands.best} is {stands.times:.1f} times better; see choosing-a-policy.md for why"
    return NEAR_THE_BEST.check(
        (stands.times,), "no paper has it", ours, why, f"{load}: p99 latency, `even` is the best"
    )


def _way_check(way: str, stands: Sequence[Standing], misses: Sequence[Miss]) -> Check:
    """Compare them for all strategies and loads with one way to hand over: the worst place counts."""
    here = [one for one in stands if one.place.handover == way]
    worst = max(here, key=lambda one: one.times)
    good = sum(one.times <= CLOSE for one in here)
    ours = f"in {good} of {len(here)}; at worst {worst.times:.1f} times the p99 of {worst.best} ({worst.place})"
    words = {reason.value: None for miss in misses if miss.stands.place.handover == way for reason in miss.reasons}
    why = f"{', '.join(words) or 'not known'}; choosing-a-policy.md lists each"
    what = f"{way}, all strategies and loads that were run: p99 latency, `even` is the best"
    return NEAR_THE_BEST_BY_WAY.check((worst.times,), "no paper has it", ours, why, what)


def _cells(table: Table) -> list[dict[str, Any]]:
    """Return every cell as median and range of each measure."""
    return [
        {
            "policy": policy,
            "handover": way,
            "strategy": strategy,
            "load": load,
            **{part.name: _spread(cell, part.name) for part in fields(Measured)},
        }
        for (policy, way, strategy, load), cell in table.items()
    ]


def _spread(cell: Sequence[Measured], measure: str) -> list[float]:
    values = [getattr(one, measure) for one in cell]
    return [float(f"{value:.4g}") for value in (np.median(values), min(values), max(values))]


def _picture(table: Table, stands: Sequence[Standing]) -> Picture:
    loads, policies = list(LOADS), list(POLICIES)
    ways = [f"{way}, {strategy}" for way, strategy in all_combinations()]

    def by_policy(measure: str) -> list[list[float]]:
        return [
            [middle(table[policy, DEFAULT_WAY, DEFAULT_STRATEGY, load], measure) for load in loads]
            for policy in POLICIES
        ]

    def by_way(value: Callable[[Place], float]) -> list[list[float]]:
        return [[value(Place(way, strategy, load)) for load in loads] for way, strategy in all_combinations()]

    def own_p99(place: Place) -> float:
        return middle(table.get((DEFAULT_POLICY, place.handover, place.strategy, place.load), ()), "p99_s")

    times = {one.place: one.times for one in stands}
    heats = {
        "p99 latency (s), at once, paced": Heat(policies, loads, by_policy("p99_s"), "seconds", LEAST_S),
        "Peak latency (s), at once, paced": Heat(policies, loads, by_policy("peak_s"), "seconds", LEAST_S),
        "State moved (MB), at once, paced": Heat(policies, loads, by_policy("moved_mb"), "megabytes", 1.0),
        f"Time with a lane more than {BEHIND_S:g} s behind (s of 40)": Heat(
            policies, loads, by_policy("unbalanced_s"), "seconds"
        ),
        "p99 latency (s) of `even`, all ways and strategies": Heat(ways, loads, by_way(own_p99), "seconds", LEAST_S),
        "The same as a multiple of the lowest of all policies (1: `even` is the best)": Heat(
            ways, loads, by_way(lambda place: times.get(place, float("nan"))), "times", 1.0
        ),
    }
    return Picture([Panel(title, "load", "", heat=heat) for title, heat in heats.items()])


CROSS = Experiment("cross", "none", "Every policy, way to hand over and strategy on every load", RULE, run_cross)
