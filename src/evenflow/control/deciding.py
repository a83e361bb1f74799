"""From a complete window to a decision: which lanes it counts for, what the policy says of them, what the brakes leave.

While slots of some lanes move, the policy is asked about the others as if they were all there is, if it can be
(`takes_parts`): so hot spots on two pairs of lanes are relieved at the same time, and a handoff that takes long on one
pair keeps nobody else waiting (AF-M8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from evenflow.control.asking import Asking
from evenflow.control.at_rest import AtRest
from evenflow.control.brakes import Brakes
from evenflow.control.journal import Decided, Entry, Refusal, Refused, WindowClosed, WindowDropped
from evenflow.control.measure import balance_of
from evenflow.control.options import BalancerOptions
from evenflow.control.parts import Part
from evenflow.errors import PolicyError
from evenflow.migration import Step, Strategy
from evenflow.model import Balance, Epoch, LaneId, LoadView, LoadWindow, RoutingTable
from evenflow.model.balance import moved_state
from evenflow.policies import Policy, Proposal
from evenflow.policies.base import policy_name

_UNDER_WAY = "moves are under way"


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy wants and the brakes let through: `steps` of moves, or other lanes; `entry` tells of it."""

    entry: Decided
    steps: tuple[Step, ...] = ()
    add_lanes: int = 0
    retire: tuple[LaneId, ...] = ()

    @property
    def is_about_all_lanes(self) -> bool:
        """Whether the policy was asked about all lanes, and not about a part of them."""
        return not self.entry.lanes


@dataclass(frozen=True, slots=True)
class Situation:
    """How things stand when a window closes. `busy`: lanes in moves that are told, or may be with the next epoch."""

    epoch: Epoch
    table: RoutingTable
    busy: frozenset[LaneId]
    lanes_awaited: bool


class Deciding:
    """Keeps what decisions rest on, and makes them."""

    def __init__(
        self,
        policy: Policy,
        strategy: Strategy,
        slots: int,
        options: BalancerOptions,
        record: Callable[[Entry], None],
    ) -> None:
        """Start with nothing seen."""
        self.strategy, self.options, self.record = strategy, options, record
        self.asking = Asking(policy, slots, options)
        self.at_rest = AtRest(options.cooldown_windows)
        self.last_move_s = 0.0  # how long moves were under way since the policy was asked
        self.settling = options.settle_windows  # windows not used: a lane that has just started is slow

    @property
    def takes_parts(self) -> bool:
        """Whether the policy can be asked about some of the lanes while others are in moves."""
        stops_all = self.asking.move_cost.stops_all  # then nobody's load counts while anything moves
        return self.options.overlap and not stops_all and bool(getattr(self.asking.policy, "takes_parts", False))

    def on(self, window: LoadWindow, now: Situation) -> Decision | None:
        """Use a complete window: ask the policy unless something speaks against it."""
        balance = balance_of(window, now.table)
        self.record(WindowClosed(now.epoch, window.epochs, balance))
        self.asking.saw_sizes(window)
        if self.settling > 0:
            self.settling -= 1
            self.record(WindowDropped(now.epoch, window.epochs, "lanes have just started"))
            return None
        if now.lanes_awaited or (now.busy and not self.takes_parts):
            self.record(WindowDropped(now.epoch, window.epochs, _UNDER_WAY))
            return None
        return self._on_lanes_at_rest(window, now, balance)

    def _on_lanes_at_rest(self, window: LoadWindow, now: Situation, balance: Balance) -> Decision | None:
        lanes = self.at_rest.of(window, now.busy)
        self.asking.keep(window, lanes)
        cooling = self.at_rest.watch(lanes)
        if cooling:
            why = f"{max(cooling.values())} more windows to watch"
            self.record(Refused(now.epoch, Refusal.COOLING_DOWN, (), why))
        if lanes == now.table.lanes and not cooling:
            return self._on_all(now, balance)
        part = Part.of(now.table, (lane for lane in lanes if lane not in cooling))
        decision = self._on_part(part, now) if self.takes_parts and part.can_be_balanced else None
        if decision is None and now.busy:
            self.record(WindowDropped(now.epoch, window.epochs, _UNDER_WAY))
        return decision

    def _on_all(self, now: Situation, balance: Balance) -> Decision | None:
        windows = self.asking.windows_of(now.table.lanes)
        if len(windows) < self.options.warm_up_windows and len(windows) < self.options.history:
            return None
        view = self.asking.view(windows, now.table, self.last_move_s)
        proposal = self._proposed(view, now.epoch)
        if proposal is None:
            return None
        self.asking.heard(proposal, now.epoch)
        self.last_move_s = 0.0
        if not proposal.moves and not proposal.add_lanes and not proposal.retire:
            # There is nothing to weigh, to cut into steps or to carry out.
            return Decision(self._entry(now, proposal, balance))
        return self._disposed(proposal, view, now, balance)

    def _on_part(self, part: Part, now: Situation) -> Decision | None:
        """Ask about a part. That nothing is to be done there is not worth a decision."""
        windows = self.asking.windows_of(part.lanes)
        if len(windows) < self.options.warm_up_windows and len(windows) < self.options.history:
            return None
        view = part.view(self.asking.view(windows, now.table, 0.0))
        proposal = self._proposed(view, now.epoch)
        if proposal is None or not proposal.moves:
            return None
        if proposal.add_lanes or proposal.retire:
            why = "lanes are in moves: how many there should be is for when they are done"
            self.record(Refused(now.epoch, Refusal.LANES_ARE_FIXED, part.whole(proposal).moves, why))
            return None
        decision = self._disposed(proposal, view, now, balance_of(view.last, view.table), part)
        return decision and replace(decision, entry=replace(decision.entry, lanes=part.lanes))

    def _proposed(self, view: LoadView, epoch: Epoch) -> Proposal | None:
        try:
            return self.asking.ask(view)
        except PolicyError as error:
            self.record(Refused(epoch, Refusal.BAD_PROPOSAL, (), str(error)))
            return None

    def _disposed(
        self, proposal: Proposal, view: LoadView, now: Situation, before: Balance, part: Part | None = None
    ) -> Decision | None:
        """Return what the brakes leave of a proposal, in the numbers of the whole."""
        weights = self.asking.weights()
        weights = part.weights(weights) if part else weights
        verdict, denied = Brakes(self.strategy, self.options).dispose(proposal, view, before, weights)
        if denied is not None:
            moves = part.renamed(denied.moves) if part else denied.moves
            self.record(Refused(now.epoch, denied.refusal, moves, denied.why))
        if verdict is None:
            return None
        done = part.whole(verdict.proposal) if part else verdict.proposal
        steps = tuple(map(part.renamed, verdict.steps)) if part else verdict.steps
        moved = int(moved_state(view.table, verdict.table_after, view.last.slots.state_bytes))
        entry = self._entry(now, done, before)
        entry = replace(entry, steps=len(steps), after=verdict.balance_after, bytes_moved=moved)
        return Decision(entry, steps, done.add_lanes, done.retire)

    def _entry(self, now: Situation, proposal: Proposal, balance: Balance) -> Decided:
        """Return what is put on record if nothing moves."""
        name, moves, hopeless = policy_name(self.asking.policy), proposal.moves, proposal.not_curable
        return Decided(now.epoch, name, moves, 0, hopeless, balance, balance, 0, proposal.note)
