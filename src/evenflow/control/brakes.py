"""What is made of a policy's proposal: all of it, a part, or nothing, with the reason. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evenflow.control.journal import Refusal
from evenflow.control.measure import balance_of
from evenflow.control.options import BalancerOptions
from evenflow.migration import Step, Strategy, Weights
from evenflow.model import Balance, LoadView, Move, RoutingTable
from evenflow.policies import Proposal


@dataclass(frozen=True, slots=True)
class Verdict:
    """As much of a proposal as is carried out, in steps, and the table it leads to."""

    proposal: Proposal
    steps: tuple[Step, ...]
    table_after: RoutingTable
    balance_after: Balance


@dataclass(frozen=True, slots=True)
class Denied:
    """What is not carried out, and why."""

    refusal: Refusal
    moves: tuple[Move, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Brakes:
    """Minimum gain, bounds on lanes, and as few stops as can be."""

    strategy: Strategy
    options: BalancerOptions

    def dispose(
        self, proposal: Proposal, view: LoadView, before: Balance, weights: Weights
    ) -> tuple[Verdict | None, Denied | None]:
        """Return what is carried out of a proposal that asks for something, and what is refused; one may be None."""
        wish = bool(proposal.add_lanes or proposal.retire)
        if wish and not self._may_have(len(view.table.lanes) + proposal.add_lanes - len(proposal.retire)):
            why = f"{proposal.add_lanes} more and {len(proposal.retire)} fewer lanes were asked for"
            return None, Denied(Refusal.LANES_ARE_FIXED, proposal.moves, why)
        verdict = _verdict(proposal, view, self.strategy.steps(proposal.moves, weights))
        gain, share = before.max_load - verdict.balance_after.max_load, self.options.min_gain
        if proposal.moves and not wish and share > 0 and gain < share * before.max_load:
            why = f"{gain:.3g} s off the busiest lane's {before.max_load:.3g} s"
            return None, Denied(Refusal.GAIN_TOO_SMALL, proposal.moves, why)
        if view.move_cost.stops_all and proposal.on_their_own and not wish and len(verdict.steps) > 1:
            # Stops in a row add up, and what was planned before one is outdated after it.
            first = self.strategy.steps(proposal.on_their_own, weights)[0]
            later = tuple(move for move in proposal.moves if move not in first)
            why = f"{len(verdict.steps)} steps in a row; what is left after one is for the next decision"
            denied = Denied(Refusal.LANES_WOULD_STOP, later, why)
            return _verdict(replace(proposal, moves=first), view, (first,)), denied
        return verdict, None

    def _may_have(self, lanes: int) -> bool:
        least, most = self.options.min_lanes, self.options.max_lanes
        if least is None and most is None:
            return False
        return (least or 1) <= lanes <= (most or lanes)


def _verdict(proposal: Proposal, view: LoadView, steps: tuple[Step, ...]) -> Verdict:
    after = proposal.table_after(view.table, view.new_lanes(proposal.add_lanes))
    return Verdict(proposal, steps, after, balance_of(view.last, after))
