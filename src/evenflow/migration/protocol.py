"""The life of one move: a state machine with one table of legal transitions. No I/O.

::

              announce            handed off              installed
    PLANNED ───────────▶ ANNOUNCED ──────────▶ IN_TRANSIT ──────────▶ SETTLED
       │                  │   │  ▲ target lost   │   ▲ source or
       │ cancel,          │   └──┘               │   │ target lost
       │ superseded,      │                      │   └──┐
       │ any loss         │ source lost,         │──────┘
       ▼                  │ balancer           │ handoff damaged,
    CANCELLED             │ restarted            │ balancer restarted
                          ▼                      ▼
                       RECOVERING ◀──────────────┘
                          │   ▲ any further loss            target gone
                          │   └──┐              (from any of the three)
                          ├──────┘                           │
                          │ installed                        ▼
                          ▼                              PASSED_ON
                       SETTLED

*PLANNED*: decided, told to nobody; it can be dropped without a trace. *ANNOUNCED*: the control message for epoch t
is out and durable; records of epochs >= t go to the target, the source serves the slot up to t - 1 (or stops at once).
*IN_TRANSIT*: the source has let go; the state is on its way as a handoff. *RECOVERING*: there is no handoff to wait
for; the target rebuilds the slot from snapshot, changelog and block log, which need no one's help. *SETTLED*: the
target serves. *PASSED_ON*: the target does not come back, a further move takes the slot to another lane.

Why there is no way back from ANNOUNCED: the routing of epoch t is part of its record. Undoing a move is a second move.
A second move of the same slot waits as PLANNED until the first is over; a newer plan supersedes a PLANNED one.
Acknowledgements may come late, twice or out of order: an event that tells nothing new leaves the phase as it is, and
*installed* settles an ANNOUNCED move too, since the target's word may overtake the source's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from evenflow.errors import ProtocolError
from evenflow.model import Epoch, Move


class Phase(Enum):
    """Where a move stands."""

    PLANNED = "planned"
    ANNOUNCED = "announced"
    IN_TRANSIT = "in transit"
    RECOVERING = "recovering"
    SETTLED = "settled"
    PASSED_ON = "passed on"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing more can happen to the move."""
        return self in (Phase.SETTLED, Phase.PASSED_ON, Phase.CANCELLED)

    @property
    def is_in_flight(self) -> bool:
        """Whether lanes have been told and the slot is not served by its new lane yet."""
        return self in (Phase.ANNOUNCED, Phase.IN_TRANSIT, Phase.RECOVERING)


class Event(Enum):
    """What can happen to a move."""

    ANNOUNCE = "announce"
    HANDED_OFF = "handed off"
    INSTALLED = "installed"
    SOURCE_LOST = "source lost"
    TARGET_LOST = "target lost"
    TARGET_GONE = "target gone"
    HANDOFF_DAMAGED = "handoff damaged"
    BALANCER_RESTARTED = "balancer restarted"
    CANCEL = "cancel"
    SUPERSEDED = "superseded by a newer plan"


_LOSSES = (Event.SOURCE_LOST, Event.TARGET_LOST, Event.BALANCER_RESTARTED)

TRANSITIONS: dict[tuple[Phase, Event], Phase] = {
    (Phase.PLANNED, Event.ANNOUNCE): Phase.ANNOUNCED,
    (Phase.PLANNED, Event.CANCEL): Phase.CANCELLED,
    (Phase.PLANNED, Event.SUPERSEDED): Phase.CANCELLED,
    **{(Phase.PLANNED, loss): Phase.CANCELLED for loss in _LOSSES},
    (Phase.ANNOUNCED, Event.HANDED_OFF): Phase.IN_TRANSIT,
    # The source's word may be overtaken by the target's, they come on different connections.
    (Phase.ANNOUNCED, Event.INSTALLED): Phase.SETTLED,
    (Phase.ANNOUNCED, Event.SOURCE_LOST): Phase.RECOVERING,
    (Phase.ANNOUNCED, Event.TARGET_LOST): Phase.ANNOUNCED,
    (Phase.ANNOUNCED, Event.BALANCER_RESTARTED): Phase.RECOVERING,
    (Phase.IN_TRANSIT, Event.HANDED_OFF): Phase.IN_TRANSIT,
    (Phase.IN_TRANSIT, Event.INSTALLED): Phase.SETTLED,
    (Phase.IN_TRANSIT, Event.SOURCE_LOST): Phase.IN_TRANSIT,
    (Phase.IN_TRANSIT, Event.TARGET_LOST): Phase.IN_TRANSIT,
    (Phase.IN_TRANSIT, Event.HANDOFF_DAMAGED): Phase.RECOVERING,
    (Phase.IN_TRANSIT, Event.BALANCER_RESTARTED): Phase.RECOVERING,
    (Phase.RECOVERING, Event.INSTALLED): Phase.SETTLED,
    # A source taken for dead may still have finished; its handoff is not waited for any more.
    (Phase.RECOVERING, Event.HANDED_OFF): Phase.RECOVERING,
    (Phase.RECOVERING, Event.HANDOFF_DAMAGED): Phase.RECOVERING,
    **{(Phase.RECOVERING, loss): Phase.RECOVERING for loss in _LOSSES},
    **{(phase, Event.TARGET_GONE): Phase.PASSED_ON for phase in (Phase.ANNOUNCED, Phase.IN_TRANSIT, Phase.RECOVERING)},
    # Late and repeated words about a move that is over.
    **{
        (phase, event): phase
        for phase in (Phase.SETTLED, Phase.PASSED_ON)
        for event in (Event.HANDED_OFF, Event.INSTALLED, Event.HANDOFF_DAMAGED, Event.TARGET_GONE, *_LOSSES)
    },
    **{(Phase.CANCELLED, event): Phase.CANCELLED for event in (Event.CANCEL, Event.SUPERSEDED, *_LOSSES)},
}


@dataclass(frozen=True, slots=True)
class MoveLife:
    """A move and where it stands; `epoch` is the one it takes effect at, known from the announcement on."""

    move: Move
    phase: Phase = Phase.PLANNED
    epoch: Epoch | None = None

    def announced(self, epoch: Epoch) -> MoveLife:
        """Return the move as told to the lanes, effective at `epoch`."""
        return replace(self.after(Event.ANNOUNCE), epoch=epoch)

    def after(self, event: Event) -> MoveLife:
        """Return the move after `event`; an event that cannot happen in this phase is a defect."""
        phase = TRANSITIONS.get((self.phase, event))
        if phase is None:
            raise ProtocolError(f"{self.move} is {self.phase.value}: {event.value!r} cannot happen to it")
        return replace(self, phase=phase)
