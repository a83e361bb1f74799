"""Tells what a policy does wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from evenflow.errors import PolicyError
from evenflow.model import LaneLoad, LoadView, LoadWindow, RoutingTable, SlotLoads, window_of
from evenflow.policies.base import Policy, policy_name, proposal_of
from evenflow.workloads import WORKLOADS, workload_named

_REST_ROUNDS = 100


def check_policy(policy: Policy, *, must_rest: bool = True, seed: int = 1) -> None:
    """Try `policy` on many loads; raise PolicyError with all that is wrong, or return if nothing is.

    Checked: it answers every load, also empty ones and single lanes, with moves that can be; the same view gets the
    same answer; with `must_rest`, a load that does not change is left alone after some rounds.
    """
    checks: list[tuple[str, Callable[[], None]]] = []
    for what, view in _views(seed):
        checks.append((what, lambda view=view: _check_answer(policy, view)))  # type: ignore[misc]
    if must_rest:
        for what, table, loads in _steady_loads(seed):
            checks.append((what, lambda table=table, loads=loads: _check_rest(policy, table, loads)))  # type: ignore[misc]
    faults = [f"  {what}: {fault}" for what, check in checks if (fault := _fault(check)) is not None]
    if faults:
        raise PolicyError(f"policy {policy_name(policy)} fails {len(faults)} checks:\n" + "\n".join(faults))


def _fault(check: Callable[[], None]) -> str | None:
    try:
        check()
    except PolicyError as error:
        return str(error)
    return None


def _check_answer(policy: Policy, view: LoadView) -> None:
    first, second = proposal_of(policy, view), proposal_of(policy, view)
    if first != second:
        raise PolicyError("the same view got two different answers; a policy must be a pure function of its view")


def _check_rest(policy: Policy, table: RoutingTable, loads: SlotLoads) -> None:
    memory = None
    for _ in range(_REST_ROUNDS):
        view = LoadView((_window(table, loads),) * 2, table, memory)
        proposal = proposal_of(policy, view)
        if not proposal.moves:
            return
        memory = proposal.memory
        table = proposal.table_after(table, view.new_lanes(proposal.add_lanes))
    raise PolicyError(f"it still moves slots after {_REST_ROUNDS} rounds of a load that does not change")


def _window(table: RoutingTable, loads: SlotLoads) -> LoadWindow:
    busy, queue = table.sum_by_lane(loads.busy_s), table.sum_by_lane(loads.pending)
    span = max(1.0, float(busy.max()))
    lanes = [
        LaneLoad(lane, max(0.0, span - float(used)), span, None, int(waiting))
        for lane, used, waiting in zip(table.lanes, busy, queue, strict=True)
    ]
    return window_of(table, loads, lanes)


def _views(seed: int) -> Iterator[tuple[str, LoadView]]:
    """Yield named views: the bundled workloads and the corner cases."""
    for name in WORKLOADS:
        workload = workload_named(name, seed)
        yield f"bundled load {name}", LoadView(workload.windows, workload.table)
    corners = {
        "no load at all": (RoutingTable.even(8, 4), np.zeros(8)),
        "a single lane": (RoutingTable.even(8, 1), np.arange(8)),
        "a single slot": (RoutingTable.even(1, 3), np.array([100])),
        "more lanes than slots": (RoutingTable.even(2, 5), np.array([100, 1])),
        "lane numbers with holes": (RoutingTable(np.array([2, 2, 2, 7]), (2, 7, 9)), np.array([50, 5, 5, 1])),
    }
    for name, (table, records) in corners.items():
        loads = SlotLoads.of(records, records * 1e-3, records * 100)
        yield name, LoadView((_window(table, loads),), table)


def _steady_loads(seed: int) -> Iterator[tuple[str, RoutingTable, SlotLoads]]:
    """Yield named loads that do not change."""
    rng = np.random.default_rng(seed)
    for slots, lanes in ((16, 3), (64, 4), (256, 8)):
        for shape, records in (
            ("uniform", rng.poisson(100, slots)),
            ("Zipf", rng.permutation(10_000 / np.arange(1, slots + 1) ** 1.1)),
        ):
            counts = np.round(records)
            loads = SlotLoads.of(counts, counts * 2.0**-14, np.full(slots, 4096), counts)
            yield f"steady {shape} load, {slots} slots on {lanes} lanes", RoutingTable.even(slots, lanes), loads
