"""What happens to the attempts of lanes, as the driver hears of it, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from evenflow.lane.messages import FromLane, Hello


@dataclass(frozen=True)
class Joined:
    """A lane's new attempt is there."""

    hello: Hello


@dataclass(frozen=True)
class Lost:
    """The connection to a lane's attempt has ended: nothing it says counts any more."""

    lane: int
    token: str


@dataclass(frozen=True)
class Said:
    """A lane's newest attempt sent a message."""

    lane: int
    token: str
    message: FromLane


LaneEvent: TypeAlias = Joined | Lost | Said
