"""What goes in and out of the balancer besides load reports and control messages, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

from evenflow.migration import Event, MoveLife
from evenflow.model import Epoch, LaneId, RoutingTable, SlotId


@dataclass(frozen=True, slots=True)
class Ack:
    """A lane's word on a move: which one (its slot and the epoch it took effect at) and what happened."""

    slot: SlotId
    epoch: Epoch
    event: Event
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LaneWish:
    """A command to the engine: start `add` more lanes, stop those in `retire`, which own nothing any more."""

    add: int = 0
    retire: tuple[LaneId, ...] = ()


@dataclass(frozen=True, slots=True)
class BalancerState:
    """What must survive a restart: the table and the moves that lanes were told of."""

    table: RoutingTable
    in_flight: tuple[MoveLife, ...] = ()
    epoch: Epoch = -1
