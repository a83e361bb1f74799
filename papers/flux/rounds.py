"""What the pair rule of 5.3 comes to without chance, round by round: the policy itself decides on windows of means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenflow.model import LaneLoad, LoadView, RoutingTable, SlotLoads, window_of
from evenflow.policies import policy_named, proposal_of
from papers.flux.cluster import LOADED_SPEED


@dataclass(frozen=True)
class Rounds:
    """Share of the full rate, partitions that left the first slow machine, and moves in all."""

    rate: float
    left: int
    moves: int


def round_model(partitions: int, slow: Sequence[int], machines: int, rounds: int = 1_000) -> Rounds:
    """Let `flux-load` decide until it moves nothing: `partitions` alike per machine, all wait for the slowest."""
    slots = partitions * machines
    table = RoutingTable.even(slots, machines)
    speeds = np.where(np.isin(np.arange(machines), slow), LOADED_SPEED, 1.0)
    policy, memory = policy_named("flux-load"), None
    records = np.full(slots, 1_000)
    moves = 0
    for _ in range(rounds):
        took_s = table.sum_by_lane(records) / speeds
        loads = [LaneLoad(lane, took_s.max() - took, took_s.max()) for lane, took in enumerate(took_s.tolist())]
        window = window_of(table, SlotLoads.of(records, records / 1e3, np.ones(slots)), loads)
        proposal = proposal_of(policy, LoadView((window,), table, memory))
        memory = proposal.memory
        if not proposal.moves:
            break
        moves += len(proposal.moves)
        table = table.apply(proposal.moves)
    took_s = table.sum_by_lane(records) / speeds
    left = partitions - int((table.owners == slow[0]).sum()) if slow else 0
    return Rounds(float(records.sum() / machines / took_s.max()), left, moves)
