"""Ask a policy again and again about a load that does not change, and carry out what it says."""

from __future__ import annotations

from collections.abc import Iterator

from evenflow.model import LaneLoad, LoadView, LoadWindow, RoutingTable, SlotLoads
from evenflow.policies.base import Policy, Proposal, proposal_of


def steady_view(table: RoutingTable, loads: SlotLoads, memory: object = None, history: int = 1) -> LoadView:
    """Return the view of a load that follows its slots: lanes all equally fast, spans wide enough for all."""
    span = max(1.0, float(loads.busy_s.sum()))
    busy, queue = table.sum_by_lane(loads.busy_s), table.sum_by_lane(loads.pending)
    lanes = tuple(
        LaneLoad(lane, max(0.0, span - float(used)), span, None, int(waiting))
        for lane, used, waiting in zip(table.lanes, busy, queue, strict=True)
    )
    return LoadView((LoadWindow(loads, lanes),) * history, table, memory)


def steady_rounds(
    policy: Policy, table: RoutingTable, loads: SlotLoads, rounds: int, history: int = 1
) -> Iterator[tuple[RoutingTable, Proposal]]:
    """Yield table and proposal of each round, the table being the one the proposal was made for."""
    memory = None
    for _ in range(rounds):
        proposal = proposal_of(policy, steady_view(table, loads, memory, history))
        yield table, proposal
        memory = proposal.memory
        new = range(table.lanes[-1] + 1, table.lanes[-1] + 1 + proposal.add_lanes)
        table = proposal.table_after(table, new)
