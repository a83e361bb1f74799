"""What the engine wants done; whoever runs it does so, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from evenflow.lane.messages import Done, ToLane
from evenflow.model import LaneId
from evenflow.state import FileRef, LaneCommit


@dataclass(frozen=True)
class Tell:
    """Send a message to one attempt of a lane. If that is gone, the engine hears of it as a loss."""

    lane: LaneId
    token: str
    message: ToLane


@dataclass(frozen=True)
class Commit:
    """Make what lanes have done count, then say `Committed`. Until then nothing else is decided."""

    lanes: tuple[LaneCommit, ...]


@dataclass(frozen=True)
class Discard:
    """Take files for useless that were written, and that no record names or will name."""

    files: tuple[FileRef, ...]


@dataclass(frozen=True)
class LookForStrays:
    """Have files that nobody names looked for, once: someone has died who may have written some."""


@dataclass(frozen=True)
class Progressed:
    """A lane's work counts: for whoever shows progress."""

    done: Done


@dataclass(frozen=True)
class FindRoom:
    """Look for room for so many more lanes, which the policy wants, then say `Room`."""

    lanes: int


@dataclass(frozen=True)
class StartLane:
    """Start a lane that has not been there."""

    lane: LaneId


@dataclass(frozen=True)
class RetireLane:
    """End a lane for good: it holds nothing."""

    lane: LaneId


Action: TypeAlias = Tell | Commit | Discard | LookForStrays | Progressed | FindRoom | StartLane | RetireLane
