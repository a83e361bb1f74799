"""What a what-if comes to: runs it, and puts the timeline into rows, a summary and a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenflow.control import Balancer, BalancerOptions
from evenflow.control.journal import PhaseChanged
from evenflow.control.window_json import read_window_json
from evenflow.errors import InputError
from evenflow.migration import Phase, strategy_named
from evenflow.model.slots import FloatArray
from evenflow.plot.picture import Panel, Picture, Series
from evenflow.policies import DEFAULT_POLICY, policy_named, starting_table
from evenflow.sim.engine_run import Happenings, run_scenario
from evenflow.sim.quantum import Timeline
from evenflow.sim.quantum.engine import cluster_under
from evenflow.sim.replay import Recording, recording_of
from evenflow.sim.scenario_file import WhatIf

_MOST_LINES = 16  # lanes drawn one by one


@dataclass(frozen=True, slots=True)
class Answer:
    """A run, ready to be shown. `recorded` is set for a replay: how even lanes were in reality."""

    title: str
    seed: int
    names: dict[str, str]
    timeline: Timeline
    recorded: Recording | None = None

    @property
    def lanes(self) -> int:
        """The highest number of lanes there were."""
        return int(self.timeline.served.shape[1])

    def rows(self) -> list[dict[str, Any]]:
        """Return the timeline row by row."""
        line = self.timeline
        busy = np.clip(line.busy_s / line.row_s, 0.0, 1.0)
        was = self._recorded_by_row()
        return [
            {
                "time_s": float(line.time_s[at]),
                "records_per_s": float(line.throughput[at]),
                "waiting": float(line.backlog[at].sum()),
                "imbalance": float(line.imbalance[at]),
                "recorded_imbalance": _number(was[at]),
                "latency_p50_s": _number(line.latency_p50_s[at]),
                "latency_p99_s": _number(line.latency_p99_s[at]),
                "moves": int(line.moves[at]),
                "lanes": int(line.lanes[at]),
                "busy": busy[at].round(4).tolist(),
            }
            for at in range(line.time_s.size)
        ]

    def summary(self) -> dict[str, Any]:
        """Return the run in a few numbers."""
        line = self.timeline
        records = float(line.served.sum())
        return {
            "records": records,
            "records_per_s": records / float(line.time_s[-1]),
            "arrived": float(line.arrived.sum()),
            "waiting": float(line.backlog[-1].sum()),
            "latency_p50_s": _number(line.latency_s(0.5)),
            "latency_p99_s": _number(line.latency_s(0.99)),
            "moves": int(line.moves.sum()),
            "bytes_moved": float(line.bytes_moved.sum()),
            "imbalance_first": float(line.imbalance[0]),
            "imbalance_last": float(line.imbalance[-1]),
            "lost": line.lost,
        }

    def moves(self) -> list[dict[str, Any]]:
        """Return the moves that were announced, with their reasons."""
        return [
            {"epoch": entry.epoch, "slot": entry.move.slot, "source": entry.move.source, "target": entry.move.target}
            | {"reason": entry.move.reason}
            for entry in self.timeline.journal.of(PhaseChanged)
            if entry.after is Phase.ANNOUNCED and entry.before is Phase.PLANNED
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "title": self.title,
            "seed": self.seed,
            **self.names,
            "summary": self.summary(),
            "rows": self.rows(),
            "moves": self.moves(),
        }

    def _recorded_by_row(self) -> FloatArray:
        """Return the recorded imbalance at the end of each row; NaN without a recording."""
        line = self.timeline
        if self.recorded is None:
            return np.full(line.time_s.size, math.nan)
        at = np.searchsorted(self.recorded.ends_s, line.time_s - line.row_s / 2, side="left")
        found: FloatArray = self.recorded.imbalance[np.minimum(at, self.recorded.imbalance.size - 1)]
        return found


def answer(what_if: WhatIf, recorded: Recording | None = None) -> Answer:
    """Run it on the quantum level."""
    if what_if.kills_at:
        raise InputError("lanes do not die on the engine 'quantum': leave out the events 'kill-lane', or use 'real'")
    scenario = what_if.scenario
    cluster = cluster_under(scenario, what_if.policy, what_if.strategy, what_if.options, what_if.seed)
    coming = sorted(what_if.lanes_at)
    for _ in range(scenario.steps):
        while coming and coming[0][0] <= cluster.now_s + scenario.step_s / 2:
            cluster.add_lanes(coming.pop(0)[1])
        cluster.step()
    return Answer(what_if.title, what_if.seed, what_if.names, cluster.timeline(), recorded)


def real_answer(what_if: WhatIf, recorded: Recording | None = None) -> Answer:
    """Run it by the real engine in virtual time."""
    scenario = what_if.scenario
    balancer = Balancer(scenario.first_table, what_if.policy, what_if.strategy, what_if.options)
    timeline = run_scenario(scenario, balancer, what_if.seed, Happenings(what_if.lanes_at, what_if.kills_at))
    return Answer(what_if.title, what_if.seed, {**what_if.names, "engine": "real"}, timeline, recorded)


ENGINES = {"quantum": answer, "real": real_answer}


def with_choice(what_if: WhatIf, policy: str | None, strategy: str | None) -> WhatIf:
    """Return the what-if with another policy or strategy, without the options of the one in the file.

    What comes stays as it is, slot by slot; another policy starts with the table it would start a query with.
    """
    if policy is not None:
        chosen, scenario = policy_named(policy), what_if.scenario
        scenario = replace(scenario, table=starting_table(chosen, scenario.slots, range(scenario.lanes)))
        names = {**what_if.names, "policy": policy}
        what_if = replace(what_if, policy=chosen, scenario=scenario, names=names)
    if strategy is not None:
        what_if = replace(what_if, strategy=strategy_named(strategy), names={**what_if.names, "strategy": strategy})
    return what_if


def replayed(text: bytes, name: str, policy: str | None, strategy: str, seed: int | None) -> tuple[WhatIf, Recording]:
    """Return the what-if of a saved journal: what came in reality, decided on by `policy`."""
    recording = recording_of(read_window_json(text, name))
    chosen = policy or DEFAULT_POLICY
    names = {"policy": chosen, "strategy": strategy, "handover": recording.scenario.handover.way.value}
    what_if = WhatIf(
        f"replay of {name}",
        1 if seed is None else seed,
        recording.scenario,
        policy_named(chosen),
        strategy_named(strategy),
        BalancerOptions(),
        names,
    )
    return what_if, recording


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def picture_of(found: Answer) -> Picture:
    """Return throughput, backlog, latency and imbalance over time."""
    line = found.timeline
    time = line.time_s.tolist()
    marks = [(float(at), "") for at in line.time_s[np.flatnonzero(line.moves)]]
    evenness = [Series("simulated", time, line.imbalance.tolist())]
    if found.recorded is not None:
        evenness.append(Series("as recorded", found.recorded.ends_s.tolist(), found.recorded.imbalance.tolist()))
    shown = np.flatnonzero(np.isfinite(line.latency_p99_s))
    latency = [
        Series(name, line.time_s[shown].tolist(), column[shown].tolist())
        for name, column in (("p50", line.latency_p50_s), ("p99", line.latency_p99_s))
    ]
    return Picture(
        [
            Panel("Throughput", "time (s)", "records per s", _by_lane(found, line.served / line.row_s), marks=marks),
            Panel("Waiting", "time (s)", "records", _by_lane(found, line.backlog), marks=marks),
            Panel("Latency", "time (s)", "latency (s)", latency, log_y=True, marks=marks),
            Panel("Imbalance (vertical lines: moves)", "time (s)", "max / mean of busy time", evenness, marks=marks),
        ]
    )


def _by_lane(found: Answer, columns: FloatArray) -> list[Series]:
    """Return a line per lane, or the range of all if there are very many."""
    time = found.timeline.time_s.tolist()
    if found.lanes <= _MOST_LINES:
        return [Series(f"lane {lane}", time, columns[:, lane].tolist()) for lane in range(found.lanes)]
    low, high = columns.min(axis=1).tolist(), columns.max(axis=1).tolist()
    return [Series("mean of all lanes, and range", time, columns.mean(axis=1).tolist(), low=low, high=high)]
