"""What a policy is: one method, from an immutable view to proposed moves; and the check that nothing escapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from evenflow.errors import PolicyError
from evenflow.model import LaneId, LoadView, Move, RoutingTable, SlotId


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a policy wants.

    `add_lanes` lanes are asked for (numbered as `LoadView.new_lanes` says), those in `retire` may go once they
    own nothing. `not_curable` names slots that alone exceed what a lane should carry: no move can help.
    `memory` comes back in the next view. `collect_s` asks for a window at least that long before the next call.
    `on_their_own`: those of the moves each of which is of use without all others; where a plan takes several steps and
    lanes stop for each, the balancer may carry out some of these only, and ask again.
    `note` is one sentence about the decision as a whole, for people.
    """

    moves: tuple[Move, ...] = ()
    add_lanes: int = 0
    retire: tuple[LaneId, ...] = ()
    not_curable: tuple[SlotId, ...] = ()
    memory: Any = field(default=None, compare=False)
    collect_s: float | None = None
    on_their_own: tuple[Move, ...] = ()
    note: str = ""

    def table_after(self, table: RoutingTable, new_lanes: Iterable[LaneId] = ()) -> RoutingTable:
        """Return the table once all is done: lanes added, slots moved, retired lanes gone."""
        grown = table.with_lanes([*table.lanes, *new_lanes])
        moved = grown.apply(self.moves)
        kept = [lane for lane in moved.lanes if lane not in self.retire]
        return RoutingTable(moved.owners, tuple(kept), table.version + 1)


@runtime_checkable
class Policy(Protocol):
    """Anything with this one method. It may return a Proposal, or just the moves.

    One with an attribute `takes_parts = True` is also asked while slots of some lanes move: about the others, as if
    they were all there is, their slots numbered from 0, without its memory. So it must not know slots by their numbers.
    """

    def propose(self, view: LoadView) -> Proposal | Iterable[Move]:
        """Look at the view, and at nothing else; say which slots should move where, each with its reason."""


def proposal_of(policy: Policy, view: LoadView) -> Proposal:
    """Ask `policy`, and refuse as a whole what cannot be carried out: one bad move and nothing moves."""
    who = policy_name(policy)
    try:
        answer = policy.propose(view)
        # A generator runs while it is read, and nonsense of a new kind fails while it is checked: both are its fault.
        proposal = answer if isinstance(answer, Proposal) else Proposal(_moves_in(who, answer))
        _refuse_nonsense(who, proposal, view)
    except PolicyError:
        raise
    except Exception as error:
        raise PolicyError(f"policy {who} failed: {type(error).__name__}: {error}") from error
    reason = f"policy {who}: {proposal.note or 'it gives no reason'}"
    moves, alone = (with_reason(moves, reason) for moves in (proposal.moves, proposal.on_their_own))
    return replace(proposal, moves=moves, on_their_own=alone)


def with_reason(moves: Iterable[Move], reason: str) -> tuple[Move, ...]:
    """Return the moves, those that have no reason of their own with this one."""
    return tuple(move if move.reason else replace(move, reason=reason) for move in moves)


def starting_table(policy: Policy, slots: int | Sequence[int], lanes: Iterable[LaneId]) -> RoutingTable:
    """Return the table a query begins with: one of the policy's own (`initial_table`) if it has one, else even.

    `slots` are those of the query, or of each of its stages: then each stage is spread by itself.
    """
    stages, there = [slots] if isinstance(slots, int) else list(slots), list(lanes)
    own = getattr(policy, "initial_table", None)
    if own is None:
        tables = [RoutingTable.even(each, there) for each in stages]
        return RoutingTable(np.concatenate([table.owners for table in tables]), tables[0].lanes)
    table: RoutingTable = own(sum(stages), there)
    return table


def policy_name(policy: Policy) -> str:
    """Return the name a policy gives itself, or that of its class."""
    return str(getattr(policy, "name", type(policy).__name__))


def _moves_in(who: str, answer: object) -> tuple[Move, ...]:
    if not isinstance(answer, Iterable) or isinstance(answer, str | bytes):
        raise PolicyError(f"policy {who} must return a Proposal or moves, it returned {type(answer).__name__}")
    return tuple(answer)


def _refuse_nonsense(who: str, proposal: Proposal, view: LoadView) -> None:
    """Raise PolicyError at the first thing in `proposal` that cannot be."""
    _refuse_impossible_wishes(who, proposal, view)
    table = view.table
    lanes = {*table.lanes, *view.new_lanes(proposal.add_lanes)}
    owners = table.owners
    moved: set[SlotId] = set()
    for move in proposal.moves:
        if not isinstance(move, Move):
            raise PolicyError(f"policy {who} must return moves, one of them is {move!r}")
        if move.slot not in range(table.slots):
            raise PolicyError(
                f"policy {who} moves slot {move.slot!r}, which does not exist; slots are 0 to {table.slots - 1}"
            )
        if move.slot in moved:
            raise PolicyError(f"policy {who} moves slot {move.slot} twice")
        if owners[move.slot] != move.source:
            raise PolicyError(
                f"policy {who} takes slot {move.slot} from lane {move.source!r}; its owner is lane {owners[move.slot]}"
            )
        if move.target not in lanes:
            raise PolicyError(
                f"policy {who} moves slot {move.slot} to lane {move.target!r}, which does not exist; "
                f"lanes are {sorted(lanes)}"
            )
        if move.target == move.source:
            raise PolicyError(f"policy {who} moves slot {move.slot} to lane {move.target}, where it is already")
        if move.target in proposal.retire:
            raise PolicyError(f"policy {who} moves slot {move.slot} to lane {move.target}, which it also retires")
        moved.add(move.slot)
    _refuse_retiring_owners(who, proposal, view, moved)
    strangers = [slot for slot in proposal.not_curable if slot not in range(table.slots)]
    if strangers:
        raise PolicyError(f"policy {who} calls slots {strangers} not curable, which do not exist")


def _refuse_impossible_wishes(who: str, proposal: Proposal, view: LoadView) -> None:
    if proposal.collect_s is not None and not 0 <= proposal.collect_s < float("inf"):
        raise PolicyError(f"policy {who} asks for a window of {proposal.collect_s!r} s; it must be 0 or more")
    if proposal.add_lanes < 0:
        raise PolicyError(f"policy {who} asks for {proposal.add_lanes!r} more lanes; it must be 0 or more")
    unplanned = [str(move) for move in proposal.on_their_own if move not in proposal.moves]
    if unplanned:
        raise PolicyError(f"policy {who} has moves on their own that are none of its moves: {unplanned[:5]}")
    unknown = [lane for lane in proposal.retire if lane not in view.table.lanes]
    if unknown:
        raise PolicyError(f"policy {who} retires lanes {unknown}, which do not exist")
    if len(set(proposal.retire)) >= len(view.table.lanes) + proposal.add_lanes:
        raise PolicyError(f"policy {who} retires every lane; one must stay")


def _refuse_retiring_owners(who: str, proposal: Proposal, view: LoadView, moved: set[SlotId]) -> None:
    for lane in proposal.retire:
        left = [slot for slot in view.table.slots_of(lane).tolist() if slot not in moved]
        if left:
            raise PolicyError(f"policy {who} retires lane {lane}, which still owns slots {left[:5]}")
