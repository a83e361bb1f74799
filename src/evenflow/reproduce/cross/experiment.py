"""The cross table as an experiment: what is checked, what is drawn, and in which form the numbers are kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from evenflow.migration import DEFAULT_STRATEGY
from evenflow.policies import DEFAULT_POLICY, POLICIES
from evenflow.reproduce.cross.loads import LOADS, USED
from evenflow.reproduce.cross.table import (
    BEHIND_S,
    Measured,
    Table,
    all_combinations,
    fill,
    full_tasks,
    quick_tasks,
)
from evenflow.reproduce.experiment import Check, Experiment, Heat, Outcome, Panel, Picture, Settings, Verdict
from evenflow.reproduce.verdicts import holds
from evenflow.sim.quantum import Way

DEFAULT_WAY = Way.AT_ONCE.value
CLOSE = 1.1  # as good as the best, but for noise
_NEAR = 2.0
LEAST_S = 0.05  # latencies below a quarter of the simulator's step are all alike


def run_cross(settings: Settings) -> Outcome:
    """Fill the table and say where `even` stands."""
    seeds = settings.seeds(full=20, quick=1)
    default = (DEFAULT_WAY, DEFAULT_STRATEGY)
    tasks = quick_tasks(seeds, default) if settings.quick else full_tasks(seeds)
    table, runs = fill(tasks, min(2, os.cpu_count() or 1), settings.progress)
    checks = (_lost_check(table, runs), *(_even_check(table, load) for load in LOADS))
    note = (
        f"8 lanes at {USED:.0%} load, 64 slots of 4 MB, 40 s, {len(seeds)} seeds, {runs:,} runs; a run without any "
        "move counts for every way and strategy."
    )
    if settings.quick:
        note += " Quick: at once and paced only, but for `even` on three loads."
    return Outcome(checks, _picture(table), {"seeds": list(seeds), "runs": runs, "cells": _cells(table)}, note)


def _lost_check(table: Table, runs: int) -> Check:
    lost = max(abs(measured.lost) for cell in table.values() for measured in cell)
    return Check(
        "records lost, in every run",
        "0",
        f"{lost:g} in {runs:,} runs",
        holds(lost == 0),
        "" if lost == 0 else "records vanished: a defect",
    )


def _even_check(table: Table, load: str) -> Check:
    """Compare the 99th percentile of `even` with the best of all policies, handed over at once and paced."""
    p99 = {policy: _middle(table[policy, DEFAULT_WAY, DEFAULT_STRATEGY, load], "p99_s") for policy in POLICIES}
    moved = {policy: _middle(table[policy, DEFAULT_WAY, DEFAULT_STRATEGY, load], "moved_mb") for policy in POLICIES}
    best = min(POLICIES, key=lambda policy: (max(p99[policy], LEAST_S), moved[policy]))
    ratio = max(p99[DEFAULT_POLICY], LEAST_S) / max(p99[best], LEAST_S)
    verdict = Verdict.MATCH if ratio <= CLOSE else Verdict.SHAPE if ratio <= _NEAR else Verdict.DIFFERS
    ours = f"even {p99[DEFAULT_POLICY]:.3g} s, {moved[DEFAULT_POLICY]:.0f} MB; "
    ours += f"best {best} {p99[best]:.3g} s, {moved[best]:.0f} MB; static {p99['static']:.3g} s"
    why = "" if verdict is Verdict.MATCH else f"{best} is {ratio:.1f} times better; see choosing-a-policy.md for why"
    return Check(f"{load}: p99 latency, `even` is the best", "no paper has it", ours, verdict, why)


def _middle(cell: Sequence[Measured], measure: str) -> float:
    """Return the median over the seeds; not a number if the cell was not run."""
    return float(np.median([getattr(one, measure) for one in cell])) if cell else float("nan")


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


def _picture(table: Table) -> Picture:
    loads = list(LOADS)

    def by_policy(measure: str) -> list[list[float]]:
        return [
            [_middle(table[policy, DEFAULT_WAY, DEFAULT_STRATEGY, load], measure) for load in loads]
            for policy in POLICIES
        ]

    ways = [f"{way}, {strategy}" for way, strategy in all_combinations()]
    by_way = [
        [_middle(table.get((DEFAULT_POLICY, way, strategy, load), ()), "p99_s") for load in loads]
        for way, strategy in all_combinations()
    ]
    policies = list(POLICIES)
    heats = {
        "p99 latency (s), at once, paced": Heat(policies, loads, by_policy("p99_s"), "seconds", LEAST_S),
        "State moved (MB), at once, paced": Heat(policies, loads, by_policy("moved_mb"), "megabytes", 1.0),
        f"Time with a lane more than {BEHIND_S:g} s behind (s of 40)": Heat(
            policies, loads, by_policy("unbalanced_s"), "seconds"
        ),
        "p99 latency (s) of `even`, all ways and strategies": Heat(ways, loads, by_way, "seconds", LEAST_S),
    }
    return Picture([Panel(title, "load", "", heat=heat) for title, heat in heats.items()])


CROSS = Experiment(
    "cross",
    "none",
    "Every policy, way to hand over and strategy on every load",
    "No record may be lost in any run. For each load, with slots handed over at once and paced: match if the p99 "
    "latency of `even` is within 10 % of the best policy's, shape within a factor of 2, else differs; what is below "
    "0.05 s counts as 0.05 s.",
    run_cross,
)
