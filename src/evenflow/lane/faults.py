"""Scripted failures: a process kills itself at a named point, once. Tests and `examples/` use it, nothing else does.

A script is text like ``lane.folded@1:3`` (point, lane, epoch; ``*`` for any), several separated by commas; with
``!executor`` at its end a lane takes the executor it runs in along. The environment variable ``EVENFLOW_FAULTS`` holds
it; ``EVENFLOW_FAULTS_DONE`` names a folder in which a fired fault leaves its mark, so that the next attempt survives.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_EXECUTOR = "!executor"

POINTS = (
    "driver.before-accept",
    "driver.after-accept",
    "driver.before-commit",
    "driver.after-commit",
    "driver.during-publish",
    "driver.during-move",
    "lane.before-fold",
    "lane.folded",
    "lane.changes-written",
    "lane.done-sent",
    "lane.releasing",
    "lane.released",
    "lane.adopting",
    "lane.preparing",
)


@dataclass(frozen=True)
class Faults:
    """The failures that a process is to suffer."""

    script: tuple[str, ...] = ()
    done: str | None = None

    @classmethod
    def scripted(cls, environment: Mapping[str, str] = os.environ) -> Faults:
        """Read the script from the environment; usually there is none."""
        script = tuple(part for part in environment.get("EVENFLOW_FAULTS", "").split(",") if part)
        return cls(script, environment.get("EVENFLOW_FAULTS_DONE"))

    def reach(self, point: str, lane: int | None = None, epoch: int | None = None) -> None:
        """Die here if the script says so and it has not happened yet."""
        for fault in self.script:
            name, _, where = fault.removesuffix(_EXECUTOR).partition("@")
            at_lane, _, at_epoch = where.partition(":")
            if name != point or at_lane not in ("", "*", str(lane)) or at_epoch not in ("", "*", str(epoch)):
                continue
            if self._first_time(fault):
                if fault.endswith(_EXECUTOR):
                    os.kill(_parent_of(os.getppid()), signal.SIGKILL)  # worker, Spark's Python daemon, executor
                os.kill(os.getpid(), signal.SIGKILL)

    def _first_time(self, fault: str) -> bool:
        if self.done is None:
            return True
        try:
            (Path(self.done) / fault.replace("/", "_").replace(":", "_").replace("*", "any")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
