"""Control messages: what the balancer sends for an epoch, totally ordered.

The fields are those of AutoFlow's Table I; `moves` generalises its one sender and one receiver (AF-A16).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from evenflow.model.routing import Move
from evenflow.model.slots import Epoch, LaneId, SlotId


@dataclass(frozen=True, slots=True)
class Transfer:
    """The slots that go from one lane to another: Table I's `sender`, `receiver` and `slot_ids`."""

    sender: LaneId
    receiver: LaneId
    slot_ids: tuple[SlotId, ...]


@dataclass(frozen=True, slots=True, order=True)
class ControlMessage:
    """The boundary before epoch `event_time`: records of that epoch on are routed by the table after `moves`.

    An empty message still marks the boundary (AF III-B); `migration` is then False (AF-A4).
    """

    event_time: Epoch
    moves: tuple[Move, ...] = ()
    event_type: Literal["control"] = "control"

    @property
    def migration(self) -> bool:
        """Whether any slot moves at this boundary."""
        return bool(self.moves)

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The moves as Table I writes them, one entry per pair of lanes."""
        pairs: defaultdict[tuple[LaneId, LaneId], list[SlotId]] = defaultdict(list)
        for move in self.moves:
            pairs[move.source, move.target].append(move.slot)
        return tuple(Transfer(*pair, tuple(sorted(slots))) for pair, slots in sorted(pairs.items()))
