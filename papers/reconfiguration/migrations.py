"""One migration in the simulator: bins go from some workers to more, as one strategy has it; and what that does.

The prices are those recommended for the paper's unstated ones (LR-P10): a step keeps the workers of its bins from
serving for 0.8 us per key and 0.1 ms. The plan is queued ahead of time (LR-M6) with the real balancer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from evenflow.control import Balancer, BalancerOptions, Journal
from evenflow.control.journal import PhaseChanged
from evenflow.migration import Phase, Step, scheduled, steps_between, strategy_named
from evenflow.model import RoutingTable
from evenflow.model.slots import FloatArray
from evenflow.plot.picture import Series
from evenflow.policies import policy_named
from evenflow.sim.quantum import Arrivals, Cluster, Handover, Scenario, Timeline, Way

SECONDS_PER_KEY = 0.8e-6
SECONDS_PER_STEP = 1e-4
BINS = 256
ROW_S = 0.25
STABLE_FOR_S = 1.0


def spread_out(bins: int, before: int, after: int) -> tuple[RoutingTable, RoutingTable]:
    """Return the tables of a scale-out: every second bin of a worker goes to one that was idle (LR-F1)."""
    lanes = tuple(range(after))
    return RoutingTable(np.arange(bins) % before, lanes), RoutingTable(np.arange(bins) % after, lanes)


@dataclass(frozen=True)
class Migration:
    """What is migrated, when, and how fast records come and workers serve; times in virtual seconds.

    A run ends after `duration_s`, or before it once all has arrived, nothing waits and some time has passed in peace.
    Steps begin at least `every_s` apart.
    """

    keys: float
    tables: tuple[RoutingTable, RoutingTable]
    arrivals: Arrivals
    records_per_s: float
    start_s: float = 10.0
    duration_s: float = 20.0
    step_s: float = 1e-3
    epoch_steps: int = 10
    way: Way = Way.AT_TIMESTAMP
    every_s: float = 0.0
    seconds_per_key: float = SECONDS_PER_KEY

    @property
    def epoch_s(self) -> float:
        """The finest time between two steps of a plan."""
        return self.step_s * self.epoch_steps

    def steps(self, strategy: str) -> tuple[Step, ...]:
        """Return the plan of a strategy between the two tables."""
        return steps_between(*self.tables, strategy_named(strategy))

    def run(self, strategy: str | None) -> MigrationRun:
        """Migrate by `strategy`; None never migrates."""
        before = self.tables[0]
        balancer = Balancer(before, policy_named("static"), strategy_named("sudden"), BalancerOptions(history=1))
        if strategy is not None:
            first, every = round(self.start_s / self.epoch_s), round(self.every_s / self.epoch_s)
            balancer.queue(scheduled(self.steps(strategy), first, every))
        cluster = Cluster(self._scenario(before), balancer, np.random.default_rng(0))
        left = cluster.scenario.steps
        while left:
            if strategy is not None and _is_at_rest(cluster):
                left = min(left, round((STABLE_FOR_S + 2 * ROW_S) / self.step_s))
            cluster.step()
            left -= 1
        return MigrationRun(strategy or "none", self, cluster.timeline())

    def _scenario(self, table: RoutingTable) -> Scenario:
        """Return the cluster; a key counts as one byte, nothing is left to chance."""
        price = (self.seconds_per_key, self.seconds_per_key, SECONDS_PER_STEP, SECONDS_PER_STEP)
        return Scenario(
            lanes=len(table.lanes),
            slots=table.slots,
            arrivals=self.arrivals,
            seconds_per_record=1.0 / self.records_per_s,
            state_bytes=self.keys / table.slots,
            duration_s=self.duration_s,
            step_s=self.step_s,
            epoch_steps=self.epoch_steps,
            row_epochs=max(1, round(ROW_S / self.epoch_s)),
            handover=Handover(self.way, *price, streams=True),
            table=table,
            poisson=False,
        )


@dataclass(frozen=True)
class MigrationRun:
    """What a migration did to latencies."""

    strategy: str
    migration: Migration
    timeline: Timeline
    announced: tuple[int, ...] = field(init=False)
    settled: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Read the epochs of the plan off the journal."""
        object.__setattr__(self, "announced", _epochs(self.timeline.journal, Phase.ANNOUNCED))
        object.__setattr__(self, "settled", _epochs(self.timeline.journal, Phase.SETTLED))

    @property
    def moved(self) -> int:
        """The bins that have arrived."""
        return len(self.settled)

    @property
    def steps(self) -> int:
        """The steps that were carried out."""
        return len(set(self.announced))

    @property
    def complete(self) -> bool:
        """Whether the map at the end is the one that was wanted."""
        wanted = self.migration.tables[1]
        return self.moved == len(self.announced) and self.timeline.table.owners.tolist() == wanted.owners.tolist()

    @property
    def duration_s(self) -> float:
        """From the first step's announcement to the last one's end, to within an epoch."""
        return (self.settled[-1] + 1 - self.announced[0]) * self.migration.epoch_s

    @property
    def peak_s(self) -> float:
        """The highest latency from the start of the migration on."""
        return float(np.nanmax(self.latest_s[self.timeline.rows(self.migration.start_s)]))

    @property
    def latest_s(self) -> FloatArray:
        """The highest latency of each quarter second, NaN where nothing was answered."""
        return self.timeline.latency_max_s

    @property
    def normal_s(self) -> float:
        """The median of the highest latencies before the migration."""
        return float(np.nanmedian(self.latest_s[self.timeline.rows(0.0, self.migration.start_s)]))

    def stable_after_s(self, normal_s: float | None = None) -> float:
        """Return the time from the start until latencies are below twice the normal one, for a second; NaN if never.

        What is below an epoch counts as normal: nothing finer is told apart.
        """
        level = max(2 * (self.normal_s if normal_s is None else normal_s), self.migration.epoch_s)
        at = self.timeline.rows(self.migration.start_s)
        calm = self.latest_s[at] <= level  # a row without answers is not calm
        need = max(1, round(STABLE_FOR_S / self.timeline.row_s))
        for first in range(calm.size - need + 1):
            if calm[first : first + need].all():
                return float(self.timeline.time_s[at[first]] - self.timeline.row_s - self.migration.start_s)
        return float("nan")

    def series(self, label: str | None = None) -> Series:
        """Return the timeline as the paper draws it: microseconds over elapsed seconds."""
        shown = np.flatnonzero(~np.isnan(self.latest_s))
        floor = self.migration.step_s  # what is below a quantum is shown as one
        latency = np.maximum(self.latest_s[shown], floor) * 1e6
        return Series(label or self.strategy, self.timeline.time_s[shown].tolist(), latency.tolist())

    def as_dict(self) -> dict[str, object]:
        """Return the figures as plain values."""
        return {
            "strategy": self.strategy,
            "steps": self.steps,
            "bins_moved": self.moved,
            "peak_s": self.peak_s,
            "duration_s": self.duration_s if self.settled else None,
            "normal_s": self.normal_s,
            "stable_after_s": self.stable_after_s(),
            "time_s": self.timeline.time_s,
            "latency_max_s": self.timeline.latency_max_s,
            "latency_p99_s": self.timeline.latency_p99_s,
            "latency_p50_s": self.timeline.latency_p50_s,
        }


def _is_at_rest(cluster: Cluster) -> bool:
    """Whether all is carried out and no more waits than came in the last step."""
    if cluster.balancer.planned or cluster.balancer.in_flight:
        return False
    rate = float(cluster.scenario.arrivals.rates(cluster.now_s).sum())
    return float(cluster.counts.waiting.sum()) <= rate * cluster.scenario.step_s


def _epochs(journal: Journal, phase: Phase) -> tuple[int, ...]:
    return tuple(entry.epoch for entry in journal.of(PhaseChanged) if entry.after is phase)
