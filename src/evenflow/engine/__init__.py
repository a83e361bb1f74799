"""Everything that decides what happens next, and nothing that does it: events in, actions out.

No pyspark, no clock, no I/O. A shell (`evenflow.spark.shell` on Spark) feeds in what has happened and carries out what
comes back; the same engine runs in one process with played lanes, in tests and in virtual time.

::

    events ──▶ machine ──▶ actions
                 ├── records    what it asks of the checkpoint's records
                 ├── units      where each unit is: the one table of states and transitions
                 ├── lanes      what is known of each lane: its attempt, its work, its pace
                 ├── inputs     what each accepted epoch has for whom
                 ├── flow       which stage feeds which, and how far each lets the next go
                 ├── planning   what a lane folds next
                 ├── loads      what epochs have cost, reported to the balancer
                 ├── transfers  how units get from lane to lane: let go, handed off, loaded
                 ├── handoffs   state on its way
                 ├── copies     units that are loaded ahead of their move
                 ├── elastic    lanes that come and go
                 ├── away       lanes that are waited for, and for how long
                 └── hot_spots  what no move can cure
"""

from evenflow.engine.actions import (
    Action,
    Commit,
    Discard,
    FindRoom,
    LookForStrays,
    Progressed,
    RetireLane,
    StartLane,
    Tell,
)
from evenflow.engine.events import Accepted, Asked, Committed, Event, Room, TimePassed
from evenflow.engine.machine import Engine
from evenflow.engine.transfers import Absence, Handover

__all__ = [
    "Absence",
    "Accepted",
    "Action",
    "Asked",
    "Commit",
    "Committed",
    "Discard",
    "Engine",
    "Event",
    "FindRoom",
    "Handover",
    "LookForStrays",
    "Progressed",
    "RetireLane",
    "Room",
    "StartLane",
    "Tell",
    "TimePassed",
]
