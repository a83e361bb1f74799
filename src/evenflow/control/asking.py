"""What the policy is shown and what it has said: windows kept, its memory, what a move costs, what it cannot cure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evenflow.control.options import BalancerOptions
from evenflow.migration import Weights
from evenflow.model import Epoch, LaneId, LoadView, LoadWindow, MoveCost, RoutingTable, SlotId
from evenflow.model.slots import FloatArray, IntArray
from evenflow.policies import Policy, Proposal, proposal_of

_NEWEST = 0.3  # the weight of the newest measurement of what a move costs
_TELLING_BYTES = 1 << 20


class Asking:
    """Keeps what the policy gets to see, and asks it."""

    def __init__(self, policy: Policy, slots: int, options: BalancerOptions) -> None:
        """Start with nothing seen."""
        self.policy, self.options = policy, options
        self.state_bytes: IntArray = np.zeros(slots, np.int64)  # of each slot, as last seen
        self.move_cost: MoveCost = options.move_cost
        self._windows: deque[LoadWindow] = deque(maxlen=options.history)  # that count for all lanes
        self._seen: deque[tuple[LoadWindow, frozenset[LaneId]]] = deque(maxlen=options.history)  # and for some
        self._memory: Any = None
        self.collect_s = 0.0  # how long the next window is to be, at least
        self._not_curable: dict[SlotId, Epoch] = {}

    @property
    def not_curable(self) -> Mapping[SlotId, Epoch]:
        """The slots that no move can help, by the policy's newest word, and the epoch since which it says so."""
        return self._not_curable

    def set_policy(self, policy: Policy) -> None:
        """Ask another policy, which has no memory yet."""
        self.policy, self._memory, self.collect_s, self._not_curable = policy, None, 0.0, {}

    def forget_windows(self) -> None:
        """The lanes are others now: what was seen of those before is of no use."""
        self._windows.clear()
        self._seen.clear()
        self._not_curable = {}

    def saw_sizes(self, window: LoadWindow) -> None:
        """Note how big slots are; one on its way is reported by nobody, and has its state all the same."""
        unseen = (window.slots.state_bytes == 0) & (window.slots.records == 0)
        self.state_bytes = np.where(unseen, self.state_bytes, window.slots.state_bytes)

    def keep(self, window: LoadWindow, lanes: Sequence[LaneId]) -> None:
        """Keep a window that counts for these lanes."""
        self._seen.append((window, frozenset(lanes)))
        if len(lanes) == len(window.lanes):
            self._windows.append(window)

    def windows_of(self, lanes: Sequence[LaneId]) -> tuple[LoadWindow, ...]:
        """Return the newest windows that count for these lanes, oldest first; some may have passed in between."""
        if self._windows and self._windows[-1].lane_ids == tuple(lanes):
            return tuple(self._windows)
        return tuple(window for window, counts_for in self._seen if counts_for.issuperset(lanes))

    def measured_move(self, state_bytes: int, seconds: float) -> None:
        """Learn what moving state costs: the newest measurements count most; small ones tell only what a move costs."""
        cost, weight = self.move_cost, _NEWEST
        if state_bytes >= _TELLING_BYTES:
            per_byte = (1 - weight) * cost.seconds_per_byte + weight * seconds / state_bytes
            self.move_cost = replace(cost, seconds_per_byte=per_byte)
        else:
            per_move = (1 - weight) * cost.seconds_per_move + weight * seconds
            self.move_cost = replace(cost, seconds_per_move=per_move)

    def view(self, windows: tuple[LoadWindow, ...], table: RoutingTable, last_move_s: float) -> LoadView:
        """Return what the policy is shown."""
        return LoadView(windows, table, self._memory, last_move_s, self.move_cost, self.options.whole_epochs)

    def ask(self, view: LoadView) -> Proposal:
        """Ask the policy."""
        return proposal_of(self.policy, view)

    def heard(self, proposal: Proposal, epoch: Epoch) -> None:
        """Keep what the policy says of all lanes: its memory, how long to collect, and what it cannot cure."""
        self._memory, self.collect_s = proposal.memory, proposal.collect_s or 0.0
        self._not_curable = {int(slot): self._not_curable.get(slot, epoch) for slot in proposal.not_curable}

    def slot_shares(self) -> FloatArray:
        """Return each slot's part of the load of the newest window that counts; nothing if there is none."""
        busy_s = self._windows[-1].slots.busy_s if self._windows else np.zeros(self.state_bytes.size)
        shares: FloatArray = busy_s / max(1e-12, busy_s.sum())
        return shares

    def weights(self) -> Weights:
        """Return what strategies may weigh slots by."""
        load = dict(enumerate(self._windows[-1].slots.busy_s.tolist())) if self._windows else {}
        return Weights(load, dict(enumerate(self.state_bytes.tolist())), self.move_cost.seconds_per_byte)
