"""One decision, looked at from all sides: what a policy would move, in which steps, and how even it is then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenflow.control.measure import balance_of
from evenflow.control.options import BalancerOptions
from evenflow.migration import Step, Strategy, Weights
from evenflow.model import Balance, LoadView, LoadWindow, Move, RoutingTable, SlotId
from evenflow.model.balance import moved_state
from evenflow.policies import Policy, proposal_of


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to "given this load, what would the policy do?"."""

    table: RoutingTable
    table_after: RoutingTable
    moves: tuple[Move, ...]
    steps: tuple[Step, ...]
    before: Balance
    after: Balance
    bytes_moved: int
    lanes_wanted: int
    not_curable: tuple[SlotId, ...]
    note: str
    decide_s: float

    def relabelled(self, labels: Sequence[SlotId]) -> Plan:
        """Return the plan with slot i called `labels[i]`."""

        def renamed(moves: Sequence[Move]) -> tuple[Move, ...]:
            return tuple(replace(move, slot=labels[move.slot]) for move in moves)

        return replace(
            self,
            moves=renamed(self.moves),
            steps=tuple(renamed(step) for step in self.steps),
            not_curable=tuple(labels[slot] for slot in self.not_curable),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, in the form of `evenflow plan --json`."""
        return {
            "moves": [_move_dict(move) for move in self.moves],
            "steps": [[_move_dict(move) for move in step] for step in self.steps],
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "bytes_moved": self.bytes_moved,
            "lanes_wanted": self.lanes_wanted,
            "not_curable": list(self.not_curable),
            "note": self.note,
            "decide_s": self.decide_s,
        }


def plan_moves(
    windows: Sequence[LoadWindow],
    table: RoutingTable,
    policy: Policy,
    strategy: Strategy,
    clock: Callable[[], float] = lambda: 0.0,
) -> Plan:
    """Ask `policy` once about `windows` (oldest first) under `table`, and `strategy` for the steps.

    As in a running query, windows from before the lanes changed do not count, nor more than it would have kept. `clock`
    gives the seconds by which `decide_s` is measured.
    """
    others = [at for at, window in enumerate(windows[:-1]) if window.lane_ids != table.lanes]
    since = windows[others[-1] + 1 if others else 0 :]
    view = LoadView(tuple(since[-BalancerOptions().history :]), table)
    started = clock()
    proposal = proposal_of(policy, view)
    decide_s = clock() - started
    after = proposal.table_after(table, view.new_lanes(proposal.add_lanes))
    loads = view.last.slots
    weights = Weights(dict(enumerate(loads.busy_s.tolist())), dict(enumerate(loads.state_bytes.tolist())))
    return Plan(
        table=table,
        table_after=after,
        moves=proposal.moves,
        steps=strategy.steps(proposal.moves, weights),
        before=balance_of(view.last, table),
        after=balance_of(view.last, after),
        bytes_moved=int(moved_state(table, after, loads.state_bytes)),
        lanes_wanted=len(after.lanes),
        not_curable=proposal.not_curable,
        note=proposal.note,
        decide_s=decide_s,
    )


def _move_dict(move: Move) -> dict[str, Any]:
    return {"slot": move.slot, "source": move.source, "target": move.target, "reason": move.reason}
