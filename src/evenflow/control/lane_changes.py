"""Lanes that are to come or go: which ones give away their slots, which may stop, and what the engine was asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from evenflow.model import LaneId, Move, RoutingTable


@dataclass
class LaneChanges:
    """What is wanted of lanes and not done yet."""

    retiring: tuple[LaneId, ...] = ()  # may go once their slots are elsewhere
    drained: tuple[LaneId, ...] = ()  # of the retiring: a resize wants it, so nothing calls it off
    leaving: tuple[LaneId, ...] = ()  # the engine was told to stop them
    awaited: bool = False  # the engine was asked for other lanes, and has not said that they are there

    @property
    def draining(self) -> tuple[LaneId, ...]:
        """The lanes that take no slot any more: a resize has them give theirs away, or they are about to stop."""
        return (*self.drained, *self.leaving)

    def resize(self, going: tuple[LaneId, ...]) -> None:
        """Have these lanes, and no others, give away their slots and go."""
        self.retiring = self.drained = going

    def plan_lost_a_part(self) -> None:
        """A plan does not end as decided: the policy has to ask again for lanes to retire."""
        self.retiring = self.drained

    def let_go(self, table: RoutingTable, busy: Collection[LaneId]) -> tuple[LaneId, ...]:
        """Let those of the retiring lanes go that own nothing and are in no move; one that still owns slots stays."""
        owners = {*table.owners.tolist()}
        ready = [lane for lane in self.retiring if lane not in busy]
        going = tuple(lane for lane in ready if lane in table.lanes and lane not in owners)
        self.retiring = tuple(lane for lane in self.retiring if lane not in ready)
        self.drained = tuple(lane for lane in self.drained if lane not in ready)
        self.leaving += going
        self.awaited = self.awaited or bool(going)
        return going

    def are_now(self, lanes: Collection[LaneId]) -> None:
        """The engine has done what it was asked for, or has not: these lanes there are."""
        self.awaited, self.leaving = False, ()
        self.drained = tuple(lane for lane in self.drained if lane in lanes)


def refitted(move: Move, lanes: tuple[LaneId, ...]) -> str:
    """Return why a resize to `lanes` makes a move."""
    why = f"lane {move.target} takes its share" if move.source in lanes else f"lane {move.source} leaves"
    return f"resize to {len(lanes)} lane{'s' if len(lanes) > 1 else ''}: {why}"
