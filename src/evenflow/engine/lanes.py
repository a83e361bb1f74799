"""What is known of a lane: its present attempt, the work it is at, how fast it is, what it was told to load."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from evenflow.lane.messages import Done, Work
from evenflow.model import Due, Epoch, SlotId


@dataclass
class Lane:
    """A lane as the driver knows it. `token` names its present attempt, None if there is none."""

    epoch: Epoch  # the last one it has taken up
    token: str | None = None
    work: Work | None = None
    losses: int = 0  # without progress in between
    rows_per_s: float = 0.0
    due: Due | None = None  # when something is to be done next in one of its units, as it said last
    # What it was told to load, less what it was told to forget since; it answers each once, in this order.
    asked: deque[set[SlotId]] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        """Whether it is there and has no work."""
        return self.token is not None and self.work is None

    def is_lost(self) -> None:
        """Forget its attempt, and what that was told."""
        self.token, self.work, self.due = None, None, None
        self.asked.clear()
        self.losses += 1

    def calls_off(self, unit: SlotId) -> None:
        """Let what the lane answers to what it was told before not count for a unit any more."""
        for units in self.asked:
            units.discard(unit)

    def worked(self, done: Done) -> None:
        """Learn from an answer its pace, and what is due."""
        self.due = done.due
        rows, busy_s = sum(load.rows for load in done.loads), sum(load.busy_s for load in done.loads)
        if rows and busy_s:
            self.rows_per_s = rows / busy_s
