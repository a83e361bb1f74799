"""What can happen to a query, as its engine is told: things are done, and lanes come, go and speak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from evenflow.lane.events import LaneEvent
from evenflow.state import EpochRecord


@dataclass(frozen=True)
class Accepted:
    """An epoch's record is durable: its moves begin, its blocks are there to be folded."""

    record: EpochRecord


@dataclass(frozen=True)
class Committed:
    """What `Commit` asked for is durable."""


@dataclass(frozen=True)
class Asked:
    """Somebody has asked the balancer for something: see what follows from it."""


@dataclass(frozen=True)
class Room:
    """The answer to `FindRoom`: there is room for `spare` more lanes, `asked` are wanted."""

    asked: int
    spare: int


@dataclass(frozen=True)
class TimePassed:
    """It is as late as the engine wanted to be told (`Engine.waits_until_s`)."""


Event: TypeAlias = LaneEvent | Accepted | Committed | Asked | Room | TimePassed
