"""What the policy is shown and what it has said: windows kept, its memory, what a move costs, what it cannot cure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from evenflow.control.options import ControllerOptions
from evenflow.migration import Weights
from evenflow.model import Epoch, LoadView, LoadWindow, MoveCost, RoutingTable, SlotId
from evenflow.model.slots import FloatArray, IntArray
from evenflow.policies import Policy, Proposal, proposal_of

_NEWEST = 0.3  # the weight of the newest measurement of what a move costs
_TELLING_BYTES = 1 << 20


class Asking:
    """Keeps what the policy gets to see, and asks it."""

    def __init__(self, policy: Policy, slots: int, options: ControllerOptions) -> None:
        """Start with nothing seen."""
        self.policy, self.options = policy, options
        self.state_bytes: IntArray = np.zeros(slots, np.int64)  # of each slot, as last seen
        self.move_cost: MoveCost = options.move_cost
        self._windows: deque[LoadWindow] = deque(maxlen=options.history)
        self._memory: Any = None
        self._not_curable: dict[SlotId, Epoch] = {}

    @property
    def not_curable(self) -> Mapping[SlotId, Epoch]:
        """The slots that no move can help, by the policy's newest word, and the epoch since which it says so."""
        return self._not_curable

    @property
    def is_warm(self) -> bool:
        """Whether there are as many windows as the policy is to see at least."""
        return len(self._windows) >= min(self.options.warm_up_windows, self.options.history)

    def set_policy(self, policy: Policy) -> None:
        """Ask another policy, which has no memory yet."""
        self.policy, self._memory, self._not_curable = policy, None, {}

    def forget_windows(self) -> None:
        """The lanes are others now: what was seen of those before is of no use."""
        self._windows.clear()
        self._not_curable = {}

    def saw_sizes(self, window: LoadWindow) -> None:
        """Note how big slots are; one on its way is reported by nobody, and has its state all the same."""
        unseen = (window.slots.state_bytes == 0) & (window.slots.records == 0)
        self.state_bytes = np.where(unseen, self.state_bytes, window.slots.state_bytes)

    def keep(self, window: LoadWindow) -> None:
        """Keep a window that counts."""
        self._windows.append(window)

    def measured_move(self, state_bytes: int, seconds: float) -> None:
        """Learn what moving state costs: the newest measurements count most; small ones tell only what a move costs."""
        cost, weight = self.move_cost, _NEWEST
        if state_bytes >= _TELLING_BYTES:
            per_byte = (1 - weight) * cost.seconds_per_byte + weight * seconds / state_bytes
            self.move_cost = replace(cost, seconds_per_byte=per_byte)
        else:
            per_move = (1 - weight) * cost.seconds_per_move + weight * seconds
            self.move_cost = replace(cost, seconds_per_move=per_move)

    def view(self, table: RoutingTable, last_move_s: float) -> LoadView:
        """Return what the policy is shown of all lanes."""
        windows = tuple(self._windows)
        return LoadView(windows, table, self._memory, last_move_s, self.move_cost, self.options.whole_epochs)

    def ask(self, view: LoadView, epoch: Epoch) -> Proposal:
        """Ask the policy; what it says of a view of all lanes is kept."""
        proposal = proposal_of(self.policy, view)
        self._memory = proposal.memory
        self._not_curable = {int(slot): self._not_curable.get(slot, epoch) for slot in proposal.not_curable}
        return proposal

    def slot_shares(self) -> FloatArray:
        """Return each slot's part of the load of the newest window that counts; nothing if there is none."""
        busy_s = self._windows[-1].slots.busy_s if self._windows else np.zeros(self.state_bytes.size)
        shares: FloatArray = busy_s / max(1e-12, busy_s.sum())
        return shares

    def weights(self) -> Weights:
        """Return what strategies may weigh slots by."""
        load = dict(enumerate(self._windows[-1].slots.busy_s.tolist())) if self._windows else {}
        return Weights(load, dict(enumerate(self.state_bytes.tolist())), self.move_cost.seconds_per_byte)
