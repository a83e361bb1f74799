"""Does what the engine wants done: messages to lanes, commits, files to remove, lanes to start and to retire.

Nothing here holds a lock: a socket, a disk or Spark may take its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from evenflow.engine import (
    Action,
    Commit,
    Committed,
    Discard,
    Engine,
    Event,
    FindRoom,
    LookForStrays,
    Progressed,
    Room,
    StartLane,
    Tell,
)
from evenflow.lane.faults import Faults
from evenflow.log import QueryLog, Slow
from evenflow.spark.lane_links import LaneLinks
from evenflow.spark.progress import Progress
from evenflow.state import Checkpoint

_SLOW_COMMIT_S = 2.0  # what is told of: all lanes wait for a commit


@dataclass
class Acting:
    """Carries out actions, in their order; one thread at a time calls it."""

    checkpoint: Checkpoint
    links: LaneLinks
    engine: Engine
    progress: Progress
    log: QueryLog
    faults: Faults
    spare_slots: Callable[[], int]
    _slow_commit: Slow = field(init=False)

    def __post_init__(self) -> None:
        """Tell of slow commits."""
        self._slow_commit = Slow(self.log, "a commit to the checkpoint", _SLOW_COMMIT_S)

    def act(self, actions: Sequence[Action]) -> list[Event]:
        """Do what the engine wants done; return what it is to be told of it."""
        events: list[Event] = []
        for action in actions:
            if isinstance(action, Tell):
                self.links.send(action.lane, action.token, action.message)
            elif isinstance(action, Commit):
                self._commit(action)
                events.append(Committed())
            elif isinstance(action, Discard):
                self.checkpoint.discard(action.files)
            elif isinstance(action, LookForStrays):
                self.checkpoint.expect_strays()
            elif isinstance(action, Progressed):
                self.progress.lane_done(action.done)
            elif isinstance(action, FindRoom):
                events.append(self._room_for(action.lanes))
            elif isinstance(action, StartLane):
                self.links.start(action.lane)
            else:
                self.links.retire(action.lane)
                self.progress.lanes_are(self.engine.lanes)
        return events

    def _commit(self, action: Commit) -> None:
        if not action.lanes:
            return
        epoch, began_s = max(commit.epoch for commit in action.lanes), time.monotonic()
        self.faults.reach("driver.before-commit", epoch=epoch)
        self.checkpoint.commit(action.lanes)
        self.faults.reach("driver.after-commit", epoch=epoch)
        self._slow_commit.took(time.monotonic() - began_s, self.checkpoint.frontier)

    def _room_for(self, lanes: int) -> Room:
        spare = self.spare_slots()
        if lanes > spare:
            self.log.warning(
                "the policy wants %d more lanes, and %d task slots are free: it goes on as it is", lanes, max(0, spare)
            )
        return Room(lanes, spare)
