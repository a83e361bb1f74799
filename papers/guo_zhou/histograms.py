"""Run a policy over histograms: what each window's imbalance is, and how much state moves before it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenflow.model import LoadView, LoadWindow, RoutingTable, SlotLoads, window_of
from evenflow.model.balance import moved_state, variance
from evenflow.model.slots import FloatArray, IntArray
from evenflow.policies import POLICIES, Policy, policy_named, proposal_of

STATE_SHARE = 0.1  # state is a tenth of the data rate (GZ-P7)


@dataclass(frozen=True, slots=True)
class Trace:
    """One policy over the measured windows, an entry each: var(L_t), tuples served by all lanes, the share of the state
    moved before the window, the number of lanes. `table` is the one at the end.
    """

    variance: FloatArray
    served: FloatArray
    moved: FloatArray
    lanes: IntArray
    table: RoutingTable

    @property
    def balancings(self) -> int:
        """In how many windows anything moved."""
        return int(np.count_nonzero(self.moved))

    @property
    def moved_when_balanced(self) -> float:
        """The share of the state moved per balancing, on average; 0 if there was none."""
        return float(self.moved[self.moved > 0].mean()) if self.balancings else 0.0


def policy_with_seed(name: str, seed: int, **options: Any) -> Policy:
    """Return the policy `name`; one that draws random numbers draws those of `seed`."""
    seeds = {"seed": seed} if "seed" in POLICIES[name].__dataclass_fields__ else {}  # type: ignore[attr-defined]
    return policy_named(name, **options, **seeds)


def window_with(records: IntArray, table: RoutingTable) -> LoadWindow:
    """Return a histogram as a load window: busy time in proportion to tuples, state a tenth of them (GZ-P7)."""
    busy = records / max(1, int(records.sum()))
    return window_of(table, SlotLoads.of(records, busy, np.rint(records * STATE_SHARE)))


def run_policy(policy: Policy, histograms: IntArray, table: RoutingTable, history: int) -> Trace:
    """Let `policy` decide before each window on the newest `history` of those before it.

    The first `history` windows are only looked at. A window is served, and measured, under the table decided before
    it, so no policy knows what it is measured on.
    """
    past: deque[LoadWindow] = deque((window_with(row, table) for row in histograms[: history - 1]), history)
    memory = None
    spread, served, moved, lanes = [], [], [], []
    for now in range(history, len(histograms)):
        past.append(window_with(histograms[now - 1], table))
        view = LoadView(tuple(past), table, memory)
        proposal = proposal_of(policy, view)
        memory = proposal.memory
        after = proposal.table_after(table, view.new_lanes(proposal.add_lanes))
        state = view.last.slots.state_bytes
        moved.append(moved_state(table, after, state) / max(1, int(state.sum())))
        table = after
        loads = table.sum_by_lane(histograms[now])
        spread.append(variance(loads))
        served.append(loads.sum())
        lanes.append(len(table.lanes))
    return Trace(np.array(spread), np.array(served), np.array(moved), np.array(lanes), table)
