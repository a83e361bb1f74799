"""What things take in a played query: how fast lanes are, and what moving state costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from evenflow.model import LaneId
from evenflow.sim.engine_run.agenda import Agenda
from evenflow.sim.quantum.speeds import Alike, Speeds


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds. `extract`, `install`: of the lane itself, which serves nothing meanwhile. `transfer`: beside its work.

    `transfer_s_per_byte` is for each lane by itself, `shared_s_per_byte` for all that is on its way at once.
    `start_s`: until a lane is there, or there again. `notice_s`: until the driver hears that one is not.
    """

    extract_s: float = 0.0
    extract_s_per_byte: float = 0.0
    install_s: float = 0.0
    install_s_per_byte: float = 0.0
    transfer_s: float = 0.0
    transfer_s_per_byte: float = 0.0
    shared_s_per_byte: float = 0.0
    commit_s: float = 0.0
    start_s: float = 1.0
    notice_s: float = 0.0

    def extracting_s(self, slots: int, size: int) -> float:
        """Return how long an ordinary lane takes to get slots ready to go."""
        return slots * self.extract_s + size * self.extract_s_per_byte

    def installing_s(self, slots: int, size: int) -> float:
        """Return how long an ordinary lane takes to install slots."""
        return slots * self.install_s + size * self.install_s_per_byte


class Pace(Protocol):
    """How fast lanes are."""

    def until_s(self, lane: LaneId, since_s: float, seconds: float) -> float:
        """Return when a lane is done with what takes an ordinary one so many seconds."""


@dataclass(frozen=True, slots=True)
class SpeedsInSteps:
    """A scenario's speeds, looked at once per step."""

    speeds: Speeds = field(default_factory=Alike)
    step_s: float = 0.1

    def until_s(self, lane: LaneId, since_s: float, seconds: float) -> float:
        """Go on step by step, each at its speed."""
        if isinstance(self.speeds, Alike):
            return since_s + seconds
        now_s, left_s = since_s, seconds
        while True:
            speed = float(self.speeds.at(now_s, lane + 1)[lane])
            if left_s <= self.step_s * speed:
                return now_s + left_s / speed
            now_s, left_s = now_s + self.step_s, left_s - self.step_s * speed


class Network:
    """State on its way: one lane reads one thing after the other, and all share what there is."""

    def __init__(self, agenda: Agenda, prices: Prices) -> None:
        """Begin with nothing on the way."""
        self._agenda, self._prices = agenda, prices
        self._free_s = 0.0

    def carry_s(self, size: int) -> float:
        """Return when so many bytes are there that are asked for now."""
        now_s, prices = self._agenda.now_s, self._prices
        self._free_s = max(self._free_s, now_s) + size * prices.shared_s_per_byte
        return max(self._free_s, now_s + size * prices.transfer_s_per_byte) + prices.transfer_s
