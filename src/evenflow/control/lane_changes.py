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
    gone: frozenset[LaneId] = frozenset()  # lost for good; their slots go to others with the next epoch
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

    def do_not_come(self) -> None:
        """Lanes that the engine was asked for will not be there: nobody waits for them any more."""
        self.awaited = bool(self.leaving)

    def takers(self, table: RoutingTable) -> list[LaneId]:
        """Return the lanes that slots of a lane which is gone may go to: those that stay, if there are any."""
        there = self.there(table)
        return [lane for lane in there if lane not in self.draining] or there

    def there(self, table: RoutingTable) -> list[LaneId]:
        """Return the lanes that are not gone."""
        return [lane for lane in table.lanes if lane not in self.gone]

    def are_now(self, lanes: Collection[LaneId]) -> None:
        """The engine has done what it was asked for, or has not: these lanes there are."""
        self.awaited, self.leaving = False, ()
        self.forget_all_but(lanes)

    def forget_all_but(self, lanes: Collection[LaneId]) -> None:
        """Other lanes than these there are none any more."""
        self.retiring, self.drained = (
            tuple(lane for lane in wanted if lane in lanes) for wanted in (self.retiring, self.drained)
        )
        self.gone = self.gone.intersection(lanes)


def refitted(move: Move, lanes: tuple[LaneId, ...]) -> str:
    """Return why a resize to `lanes` makes a move."""
    why = f"lane {move.target} takes its share" if move.source in lanes else f"lane {move.source} leaves"
    return f"resize to {len(lanes)} lane{'s' if len(lanes) > 1 else ''}: {why}"
