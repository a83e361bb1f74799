"""How fast lanes are: external load comes and goes, machines differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from evenflow.errors import InputError
from evenflow.model import LaneId
from evenflow.model.slots import FloatArray


class Speeds(Protocol):
    """Anything that knows how fast a lane is."""

    def at(self, at_s: float, lanes: int) -> FloatArray:
        """Return the speed of lanes 0 to `lanes` - 1 at a moment: 1 is ordinary, 0.5 half as fast."""


@dataclass(frozen=True)
class Alike:
    """All lanes are ordinary, always."""

    def at(self, at_s: float, lanes: int) -> FloatArray:  # noqa: ARG002 - the interface
        """Return ones."""
        return np.ones(lanes)


@dataclass(frozen=True)
class Loaded:
    """Some lanes share their machine with something else from `start_s` until `end_s`."""

    lanes: Sequence[LaneId]
    speed: float
    start_s: float = 0.0
    end_s: float = float("inf")

    def __post_init__(self) -> None:
        """Refuse a speed at which nothing is ever done."""
        if not self.speed > 0:
            raise InputError(f"speeds: a lane must be faster than 0, got {self.speed}")

    def at(self, at_s: float, lanes: int) -> FloatArray:
        """Return `speed` for the chosen lanes while it lasts."""
        speeds = np.ones(lanes)
        if self.start_s <= at_s < self.end_s:
            speeds[[lane for lane in self.lanes if lane < lanes]] = self.speed
        return speeds


@dataclass(frozen=True)
class Visiting:
    """External load visits one lane after the other, `each_s` seconds each (FX-E1)."""

    speed: float
    each_s: float
    lanes: int

    def at(self, at_s: float, lanes: int) -> FloatArray:
        """Return `speed` for the lane that is visited."""
        return Loaded([int(at_s / self.each_s + 1e-9) % self.lanes], self.speed).at(at_s, lanes)
