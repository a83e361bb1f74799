"""kill -9 of a process at the moment a move reaches a phase, by the words that driver and lanes exchange about it.

Everything is real: lanes are Spark tasks, the driver is a process, the signal is SIGKILL. Only the moment is chosen, by
a shell that looks at each message on its way. Who is to hear a message is stopped before it is sent and killed
after: it has it and never reads it. Who has said something is killed when the driver hears it, with or without the
driver taking note of it (`unsaid`): the second is a death between doing and saying.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias
from unittest import mock

from evenflow.engine import Accepted, Commit, Event, Handover
from evenflow.lane.events import Said
from evenflow.lane.messages import Adopt, Adopted, Done, FromLane, Prepare, Prepared, Release, Released, ToLane, Work
from evenflow.spark.shell import Shell
from evenflow.spark.sink import Sink
from evenflow.state import EpochRecord, LaneCommit

Victim: TypeAlias = Literal["source", "target", "driver"]

COPYING = ("copying", "copied")  # before a move is announced, if state is copied ahead
PHASES = (*COPYING, "announced", "releasing", "handed off", "loading", "installed", "folded", "committed")
SPEAKERS: dict[str, Victim] = {"copied": "target", "handed off": "source", "installed": "target", "folded": "target"}
_TOLD: dict[type[ToLane], str] = {Prepare: "copying", Release: "releasing", Adopt: "loading"}
_SAID: dict[type[FromLane], str] = {Prepared: "copied", Released: "handed off", Adopted: "installed", Done: "folded"}


@dataclass(frozen=True)
class Kind:
    """One of the four kinds of move."""

    handover: Handover
    copied: bool

    def __str__(self) -> str:
        return f"{self.handover}, {'copied ahead' if self.copied else 'handed off'}"

    @property
    def phases(self) -> tuple[str, ...]:
        return tuple(phase for phase in PHASES if self.copied or phase not in COPYING)

    @property
    def options(self) -> dict[str, Any]:
        return {"handover": self.handover, "copy_ahead_bytes": 1 if self.copied else None}


KINDS = tuple(Kind(handover, copied) for handover in ("at the timestamp", "at once") for copied in (False, True))


@dataclass(frozen=True)
class Kill:
    """Who dies when, in which kind of move."""

    kind: Kind
    phase: str
    victim: Victim
    unsaid: bool = False

    def __str__(self) -> str:
        word = " before it can say so" if self.unsaid else ""
        return f"{self.kind}; {self.phase}: the {self.victim} dies{word}"

    @property
    def mark(self) -> str:
        """The name of the file that says that it has happened."""
        return "-".join([str(self.kind), self.phase, self.victim, *(["unsaid"] if self.unsaid else [])])


@dataclass
class Trap:
    """Waits for a move to reach a phase, and kills. Also makes a backlog: what is accepted waits for the move."""

    before_driver_dies: Callable[[Kill], None] = lambda _kill: None
    kill: Kill | None = None
    source: int = -1
    target: int = -1
    slots: frozenset[int] = frozenset()
    epoch: int = -1  # that the move was announced with
    killed: int | None = None  # the process
    reached: list[str] = field(default_factory=list)
    left_at: dict[int, int] = field(default_factory=dict)  # the version of each slot when its source let go
    passed: threading.Event = field(default_factory=threading.Event)  # the copy is made, or somebody is dead
    _held_back: int = 0

    def set_for(self, kill: Kill, source: int, target: int, slots: frozenset[int], backlog: int) -> None:
        """Kill once in the next move, of these slots; no lane gets work until it or `backlog` epochs are accepted."""
        self.kill, self.source, self.target, self.slots = kill, source, target, slots
        self.epoch, self.killed, self._held_back = -1, None, backlog
        self.reached, self.left_at = [], {}
        self.passed.clear()

    @property
    def holds_back(self) -> bool:
        return self._held_back > 0

    def accepted(self, record: EpochRecord) -> bool:
        """Tell whether an epoch begins the move."""
        begins = not self.slots.isdisjoint(slot for slot, _, _ in record.moves)
        self._held_back = 0 if begins else self._held_back - 1
        self.epoch = record.epoch if begins else self.epoch
        return begins

    def phase_told(self, lane: int, message: ToLane) -> str | None:
        """Return what phase begins with a message to a lane."""
        phase = _TOLD.get(type(message))
        if phase is None or isinstance(message, Work) or lane != (self.source if phase == "releasing" else self.target):
            return None
        entries = getattr(message, "slots", ())
        return phase if any(getattr(entry, "slot", entry) in self.slots for entry in entries) else None

    def phase_said(self, lane: int, message: FromLane) -> str | None:
        """Return what phase a lane's word ends."""
        phase = _SAID.get(type(message))
        if phase is None or lane != (self.source if SPEAKERS[phase] == "source" else self.target):
            return None
        if isinstance(message, Done):
            return phase if self.advances(message.commit) else None
        if isinstance(message, Released):
            self.left_at.update({slot: version for slot, version in message.slots if slot in self.slots})
        slots = (entry[0] if isinstance(entry, tuple) else entry for entry in getattr(message, "slots", ()))
        return phase if not self.slots.isdisjoint(slots) else None

    def advances(self, commit: LaneCommit) -> bool:
        """Tell whether a moved slot was folded by its target, in an epoch that is the target's."""
        ours = commit.lane == self.target and self.epoch >= 0
        return ours and any(
            advance.version >= self.epoch and not self.slots.isdisjoint(advance.slots) for advance in commit.advances
        )

    def is_due(self, phase: str) -> bool:
        self.reached.append(phase)
        if phase == "copied":
            self.passed.set()
        return self.kill is not None and self.killed is None and self.kill.phase == phase

    def strike(self, pid: int | None) -> None:
        """Kill the process; that of the driver is this one."""
        assert self.kill is not None
        if self.kill.victim == "driver":
            self.before_driver_dies(self.kill)
            pid = os.getpid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self.killed = pid
            self.passed.set()


@dataclass
class KillingShell(Shell):
    """A shell with a trap."""

    trap: Trap = field(default_factory=Trap)

    def __post_init__(self, sink: Sink) -> None:
        super().__post_init__(sink)
        give_work = self.engine._give_work
        hold_back = lambda: None if self.trap.holds_back else give_work()  # noqa: E731
        self.engine._give_work = hold_back  # type: ignore[method-assign]
        self.links.send = partial(self._send, self.links.send)  # type: ignore[method-assign]
        self._acting._commit = partial(self._commit, self._acting._commit)  # type: ignore[method-assign]

    def _handle(self, events: Sequence[Event]) -> None:
        super()._handle([event for event in events if not self._is_unsaid(event)])

    def _is_unsaid(self, event: Event) -> bool:
        """Kill, if this is the moment; tell whether the driver does not hear any more what was said."""
        if isinstance(event, Accepted) and self.trap.accepted(event.record) and self.trap.is_due("announced"):
            self.trap.strike(self._victim())
        phase = self.trap.phase_said(event.lane, event.message) if isinstance(event, Said) else None
        if phase is not None and self.trap.is_due(phase):
            self.trap.strike(self._victim())
            return self.trap.killed is not None and self.trap.kill is not None and self.trap.kill.unsaid
        return False

    def _send(self, send: Callable[[int, str, ToLane], bool], lane: int, token: str, message: ToLane) -> bool:
        phase = self.trap.phase_told(lane, message)
        if phase is None or not self.trap.is_due(phase):
            return send(lane, token, message)
        pid = self._victim()
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
        sent = send(lane, token, message)
        self.trap.strike(pid)
        return sent

    def _commit(self, commit: Callable[[Commit], None], action: Commit) -> None:
        commit(action)
        if any(self.trap.advances(lane) for lane in action.lanes) and self.trap.is_due("committed"):
            self.trap.strike(self._victim())

    def _victim(self) -> int | None:
        """Return the process to be killed; None for the driver, and for a lane that is not there."""
        kill = self.trap.kill
        if kill is None or kill.victim == "driver":
            return None
        hello = self.links.hello_of(self.trap.source if kill.victim == "source" else self.trap.target)
        return None if hello is None else int(hello.pid)


@contextlib.contextmanager
def shells_with(trap: Trap) -> Iterator[None]:
    """Give queries that are started meanwhile a shell with a trap."""
    with mock.patch("evenflow.spark.composition.Shell", partial(KillingShell, trap=trap)):
        yield
