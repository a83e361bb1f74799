"""Runs a scenario on the message simulator: AutoFlow's protocol, its policy, the real balancer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenflow.control import Balancer, BalancerOptions, Journal
from evenflow.migration.strategies import Sudden
from evenflow.model.slots import FloatArray, IntArray
from evenflow.policies.autoflow import AutoFlow
from evenflow.policies.static import Static
from papers.autoflow.protocol.run import autoflow_run
from papers.autoflow.scenario import Scenario
from papers.messages.loop import SECOND
from papers.messages.plant import Plant, Timing
from papers.messages.run import Result
from papers.messages.stream import RecordStream, random_draw, systematic_draw

LATENCY_EVERY, THROUGHPUT_EVERY = 100, 1_000
"""The paper samples latency once every 100 records and throughput every 1000 (AF-P10)."""


@dataclass(frozen=True, eq=False, slots=True)
class ScenarioRun:
    """A scenario, what its run gave, and the balancer's journal."""

    scenario: Scenario
    result: Result
    journal: Journal

    def latency_samples(self, reducer: int) -> tuple[FloatArray, FloatArray]:
        """Return when a reducer served every 100th of its records, and with what latency, in seconds."""
        order = _served_order(self.result, reducer)[::LATENCY_EVERY]
        return self.result.served_at[order] / SECOND, self.result.latency_s[order]

    def throughput_samples(self, reducer: int) -> tuple[FloatArray, FloatArray]:
        """Return when a reducer had served 1000 more records, and at what rate; a slow one reports rarely."""
        times = self.result.served_at[_served_order(self.result, reducer)][::THROUGHPUT_EVERY] / SECOND
        return times[1:], THROUGHPUT_EVERY / np.diff(times)

    def due_between(self, start_s: float, end_s: float) -> IntArray:
        """Return the records that were due in a span of time."""
        due = self.result.stream.due
        return np.flatnonzero((due >= start_s * SECOND) & (due < end_s * SECOND))

    def shares(self, start_s: float, end_s: float) -> FloatArray:
        """Return what share of the records due in a span of time each reducer served, in percent."""
        records = self.due_between(start_s, end_s)
        counts = np.bincount(self.result.served_by[records], minlength=self.scenario.reducers)
        return 100.0 * counts / max(1, records.size)

    def latency(self, start_s: float = 0.0, end_s: float | None = None) -> FloatArray:
        """Return the latency of the records due in a span of time, in seconds."""
        return self.result.latency_s[self.due_between(start_s, self.scenario.duration_s if end_s is None else end_s)]

    @property
    def area(self) -> float:
        """The area under the latency over time: mean latency by the length of the run, in s^2."""
        return float(self.result.latency_s.mean()) * self.scenario.duration_s

    @property
    def migrations_s(self) -> list[float]:
        """When each set of moves was announced."""
        return sorted({trace.announced / SECOND for trace in self.result.trace.moves.values()})


def _served_order(result: Result, reducer: int) -> IntArray:
    mine = np.flatnonzero(result.served_by == reducer)
    return mine[np.argsort(result.served_at[mine], kind="stable")]


def stream_of(scenario: Scenario, seed: int) -> RecordStream:
    """Return the records of a scenario: due at even distances, over all sources and mappers alike (AF-P4)."""
    rng = np.random.default_rng(seed)
    slots: list[IntArray] = []
    for phase, end_s in scenario.ends():
        count = round((end_s - phase.start_s) * scenario.rate)
        shares = scenario.slot_shares(phase)
        if scenario.arrivals == "random":
            slots.append(random_draw(shares, count, rng))
        else:
            slots.append(np.resize(systematic_draw(shares, scenario.rate, rng), count))
    slot = np.concatenate(slots)
    total, keys = slot.size, scenario.keys_per_slot
    key = slot * keys + rng.integers(0, keys, total)
    path = rng.integers(0, scenario.reducers, (2, total))
    slot_of_key = np.repeat(np.arange(scenario.table.slots), keys)
    # The first record comes when the first control message would: every epoch is as long as every other.
    due = round(scenario.delay_s * SECOND) + 1 + np.arange(total) * SECOND // scenario.rate
    return RecordStream(due, path[0], path[1], key, rng.integers(1, 100, total), slot_of_key, scenario.table.slots)


def plant_of(scenario: Scenario, seed: int, **changes: Any) -> Plant:
    """Return the dataflow of a scenario."""
    delay = round(scenario.delay_s * SECOND)
    timing = Timing(control=(delay, delay), metric=(delay, delay), transfer=round(scenario.transfer_s * SECOND))
    period = round(scenario.control_period_s * SECOND)
    return Plant(scenario.table, SECOND // scenario.capacity, period, timing, seed=seed, **changes)


def balancer_of(scenario: Scenario) -> Balancer:
    """Return the balancer with AutoFlow's policy, or one that never moves anything."""
    policy = AutoFlow(scenario.factor) if scenario.balancing else Static()
    # One decision after the other, as the results on record: which pair is relieved next is decided when all is still.
    options = BalancerOptions(window_epochs=scenario.window_epochs, overlap=False)
    return Balancer(scenario.table, policy, Sudden(), options, Journal())


def simulate(
    scenario: Scenario, seed: int, wire: Callable[..., Any] = autoflow_run, stream: RecordStream | None = None
) -> ScenarioRun:
    """Run a scenario; `wire` is the protocol, AutoFlow's unless told otherwise."""
    balancer = balancer_of(scenario)
    records = stream_of(scenario, seed) if stream is None else stream
    result = wire(records, plant_of(scenario, seed), balancer).run()
    return ScenarioRun(scenario, result, balancer.journal)
