"""What a lane must hold, and must not, to do what it is told: the last check before a slot's state could be wrong."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from evenflow.errors import ProtocolError
from evenflow.model import LaneId, SlotId


def must_hold(lane: LaneId, held: AbstractSet[SlotId], slots: Iterable[SlotId], what: str) -> None:
    """Refuse to take a slot that is elsewhere for an empty one."""
    absent = sorted(set(slots) - held)
    if absent:
        raise ProtocolError(f"lane {lane} was told to {what} slots {absent}, which it does not hold")


def must_not_hold(lane: LaneId, held: AbstractSet[SlotId], slots: Iterable[SlotId]) -> None:
    """Refuse to take an older copy for a slot that is served here: what was folded since would be lost."""
    served = sorted(held & set(slots))
    if served:
        raise ProtocolError(f"lane {lane} was told to copy slots {served}, which it serves")
