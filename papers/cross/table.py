"""Fill the cross table: every policy, way to hand over and strategy on every load, a run for each seed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias, TypeVar

import numpy as np

from evenflow.control import BalancerOptions
from evenflow.migration import STRATEGIES, strategy_named
from evenflow.policies import POLICIES, policy_named, starting_table
from evenflow.sim.quantum import Cluster, Timeline, Way
from evenflow.sim.quantum.engine import cluster_under
from papers.cross.loads import COST_S, LANES, LOADS, SLOTS, scenario

BEHIND_S = 0.5  # a lane with more work waiting than this is out of balance

QUICK_LOADS = ("zipf 1.2", "hot key", "moving hotspot")

Combination: TypeAlias = tuple[str, str, str, str]
"""Policy, way to hand over, strategy, load."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run gave.

    `imbalance`: max / mean of the lanes' busy time, mean over the run. `moved_mb`: state sent, and what remains to be
    merged. `peak_s`, `p99_s`: latency. `unbalanced_s`: how long some lane had more than half a second of work waiting;
    where the load changes once, that is the time to balance. `lost`: records that came, but were not served nor wait.
    """

    imbalance: float
    moved_mb: float
    peak_s: float
    p99_s: float
    unbalanced_s: float
    lost: float


@dataclass(frozen=True, slots=True)
class Task:
    """One policy on one load with one seed, in several combinations of way and strategy."""

    policy: str
    load: str
    seed: int
    ways_and_strategies: tuple[tuple[str, str], ...]


Table: TypeAlias = dict[Combination, list[Measured]]


def all_combinations() -> tuple[tuple[str, str], ...]:
    """Return every way to hand over with every strategy."""
    return tuple(product([way.value for way in Way], STRATEGIES))


def full_tasks(seeds: Sequence[int]) -> list[Task]:
    """Return the whole table."""
    return [Task(policy, load, seed, all_combinations()) for policy, load, seed in product(POLICIES, LOADS, seeds)]


def quick_tasks(seeds: Sequence[int], default: tuple[str, str]) -> list[Task]:
    """Return a part of it: everything in the default combination, and `even` in all of them on three loads."""
    return [
        Task(policy, load, seed, all_combinations() if policy == "even" and load in QUICK_LOADS else (default,))
        for policy, load, seed in product(POLICIES, LOADS, seeds)
    ]


def fill(tasks: Sequence[Task], processes: int, progress: Callable[[float], None]) -> tuple[Table, int]:
    """Run the tasks; return the table, and how many runs were needed."""
    table: Table = {}
    runs = 0
    for done, (task, found, needed) in enumerate(spread(run_task, tasks, processes)):
        runs += needed
        for (way, strategy), measured in found:
            table.setdefault((task.policy, way, strategy, task.load), []).append(measured)
        progress((done + 1) / len(tasks))
    return table, runs


_Job = TypeVar("_Job")
_Done = TypeVar("_Done")


def spread(work: Callable[[_Job], _Done], jobs: Sequence[_Job], processes: int) -> Iterator[_Done]:
    """Do all jobs on so many processes; yield what comes of each, in order."""
    if processes == 1:
        yield from map(work, jobs)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, jobs, chunksize=4)


def run_task(task: Task) -> tuple[Task, list[tuple[tuple[str, str], Measured]], int]:
    """Run all combinations of a task; return what each gave, and how many runs that took.

    How slots would change hands is seen by nobody if none does, but that all lanes would stop: a run without any move
    is the same in all combinations in which they would, or would not.
    """
    found: list[tuple[tuple[str, str], Measured]] = []
    unmoved: dict[bool, Measured] = {}
    runs = 0
    for way, strategy in task.ways_and_strategies:
        stops = Way(way) is Way.PAUSE_ALL
        measured = unmoved.get(stops)
        if measured is None:
            timeline = run(task.policy, Way(way), strategy, task.load, task.seed)
            measured, runs = measure(timeline), runs + 1
            if not timeline.moves.any():
                unmoved[stops] = measured
        found.append(((way, strategy), measured))
    return task, found, runs


def run(policy: str, way: Way, strategy: str, load: str, seed: int) -> Timeline:
    """Simulate one combination."""
    cluster = cluster_of(policy, way, strategy, load, seed)
    for _ in range(cluster.scenario.steps):
        cluster.step()
    return cluster.timeline()


def cluster_of(policy: str, way: Way, strategy: str, load: str, seed: int) -> Cluster:
    """Return the cluster of one combination at time 0."""
    chosen = policy_named(policy)
    table = starting_table(chosen, SLOTS, range(LANES))
    # Here records come one by one; and all policies decide when all is still, as some of them have to.
    options = BalancerOptions(whole_epochs=False, overlap=False)
    return cluster_under(scenario(load, way, table, seed), chosen, strategy_named(strategy), options, seed)


def measure(timeline: Timeline) -> Measured:
    """Return the measures of a run."""
    behind = timeline.backlog.max(axis=1) * COST_S > BEHIND_S
    came, served, waits = timeline.arrived.sum(), timeline.served.sum(), timeline.backlog[-1].sum()
    return Measured(
        imbalance=float(timeline.imbalance.mean()),
        moved_mb=(float(timeline.bytes_moved.sum()) + timeline.merge_bytes) / 1e6,
        peak_s=float(np.nanmax(timeline.latency_max_s)),
        p99_s=timeline.latency_s(0.99),
        unbalanced_s=float(behind.sum() * timeline.row_s),
        lost=float(np.round(came - served - waits, 3)),
    )
