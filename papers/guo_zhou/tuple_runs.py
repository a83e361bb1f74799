"""Tuple level: lanes of limited rate, a policy at work between windows, and a pause while state moves (GZ-P11, P12)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from evenflow.model import LoadView, LoadWindow, RoutingTable
from evenflow.model.balance import moved_state
from evenflow.model.slots import BoolArray, FloatArray, IntArray
from evenflow.policies import Policy, proposal_of
from papers.guo_zhou.histograms import window_with
from papers.guo_zhou.streams import HISTORY
from papers.guo_zhou.tuples import PauseCost, held_back, served_at

SERVICE_S = 1e-3  # a lane serves 1000 tuples per second

Handover = Literal["pause all", "pause moved"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A span with one number of lanes: the share of each substream in each window (rows), and tuples per second."""

    lanes: int
    rates: FloatArray
    per_second: float
    window_s: float


@dataclass(frozen=True, slots=True)
class StageResult:
    """What came out of a stage: when it ended; each tuple's latency and end; state moved; order kept or not."""

    lanes: int
    end_s: float
    latency_s: FloatArray
    done_s: FloatArray
    moved_share: FloatArray
    in_order: bool


@dataclass(slots=True)
class TupleRun:
    """A policy on a stream of tuples. A balancing pauses the operator, or only what moves, until state has moved.

    Nothing is in flight while state moves: the pause begins with the window, lasts until the lanes concerned have
    finished what they had, and then as long as the state takes. What arrives meanwhile waits upstream and is replayed.
    """

    policy: Policy
    table: RoutingTable
    random: np.random.Generator
    cost: PauseCost
    handover: Handover = "pause all"
    now_s: float = 0.0
    free_at: FloatArray = field(default_factory=lambda: np.zeros(1))
    memory: Any = None
    past: deque[LoadWindow] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def stage(self, stage: Stage) -> StageResult:
        """Run the stage; where lanes are added, the policy decides at once and afresh."""
        if stage.lanes != len(self.table.lanes):
            self.table = self.table.with_lanes(range(stage.lanes))
            self.free_at = np.concatenate([self.free_at, np.full(stage.lanes - self.free_at.size, self.now_s)])
            self.memory = None
        parts = list(self._windows(stage))
        return StageResult(
            lanes=stage.lanes,
            end_s=self.now_s,
            latency_s=np.concatenate([part.latency_s for part in parts]),
            done_s=np.concatenate([part.done_s for part in parts]),
            moved_share=np.array([part.moved_share for part in parts]),
            in_order=all(part.in_order for part in parts),
        )

    def _windows(self, stage: Stage) -> Iterator[_WindowResult]:
        for shares in stage.rates:
            before, moved_share, until = self._balance()
            count = int(self.random.poisson(stage.per_second * stage.window_s))
            due = np.sort(self.random.uniform(self.now_s, self.now_s + stage.window_s, count))
            substream = self.random.choice(shares.size, count, p=shares / shares.sum())
            moving = before.owners != self.table.owners
            held = (due < until) & (np.ones(count, dtype=bool) if self.handover == "pause all" else moving[substream])
            yield self._serve(due, substream, held, until, moved_share)
            self.past.append(window_with(np.bincount(substream, minlength=shares.size), self.table))
            self.now_s += stage.window_s

    def _balance(self) -> tuple[RoutingTable, float, float]:
        """Ask the policy; return the table before, the share of the state that moves, and until when input waits."""
        before = self.table
        if not self.past:
            return before, 0.0, self.now_s
        self.past.append(window_with(self.past.pop().slots.records, before))  # under the lanes there are now
        view = LoadView(tuple(self.past), before, self.memory)
        proposal = proposal_of(self.policy, view)
        self.memory = proposal.memory
        self.table = proposal.table_after(before)
        state = view.last.slots.state_bytes
        moved = moved_state(before, self.table, state)
        moving = before.owners != self.table.owners
        if not moving.any():
            return before, 0.0, self.now_s
        drained = self.free_at.max() if self.handover == "pause all" else self._free(before, moving)
        until = max(self.now_s, float(drained)) + self.cost.seconds(max(1.0, moved))
        return before, moved / max(1, int(state.sum())), until

    def _free(self, table: RoutingTable, moving: BoolArray) -> float:
        """Return when the lanes that give something away have finished what they had."""
        return float(self.free_at[np.unique(table.lane_positions()[moving])].max())

    def _serve(
        self, due: FloatArray, substream: IntArray, held: BoolArray, until: float, moved_share: float
    ) -> _WindowResult:
        ready, order = held_back(due, held, until)
        lane = self.table.lane_positions()[substream]
        done = np.empty(due.size)
        done[order], self.free_at = served_at(ready[order], lane[order], self.free_at, SERVICE_S)
        return _WindowResult(done - due, done, moved_share, _in_order(done, substream))


@dataclass(frozen=True, slots=True)
class _WindowResult:
    latency_s: FloatArray
    done_s: FloatArray
    moved_share: float
    in_order: bool


def _in_order(done: FloatArray, substream: IntArray) -> bool:
    """Say whether the tuples of each substream were done in the order of their arrival."""
    by_substream = np.argsort(substream, kind="stable")
    same = np.diff(substream[by_substream]) == 0
    return bool((np.diff(done[by_substream])[same] > 0).all())
