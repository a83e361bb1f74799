"""Lanes that come and go: those that are just starting or do not come, and what the balancer wants of lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from evenflow.control import Balancer, LaneWish
from evenflow.control.fitting import fitted
from evenflow.engine.actions import Action, FindRoom
from evenflow.engine.away import Away
from evenflow.engine.events import Room
from evenflow.engine.lanes import Lane
from evenflow.errors import InputError
from evenflow.model import LaneId
from evenflow.model.slots import FloatArray


@dataclass
class Elastic:
    """Adds lanes, lets them take part once they are there, and lets those go that own nothing any more."""

    balancer: Balancer
    lanes: Mapping[LaneId, Lane]
    add: Callable[[LaneId], None]
    remove: Callable[[LaneId], None]
    act: Callable[[Action], None]
    weights: Callable[[], FloatArray]  # what each unit cost lately
    away: Away = field(default_factory=Away)

    def resize(self, lanes: int, spare: int, now_s: float) -> None:
        """Go on with so many lanes, where there is room for `spare` more; refuse what cannot be.

        Lanes that are gone are not among them, and need not come back: others are started in their place.
        """
        table, joining = self.balancer.table, self.away.joining
        spare = max(0, spare) + len(self.away.gone)
        if not 1 <= lanes <= table.slots:
            raise InputError(f"resize: from 1 to {table.slots} lanes (a slot each), got {lanes}")
        if joining:
            raise InputError(f"resize: lanes {sorted(joining)} are just starting; wait until they are there")
        if self.balancer.draining:
            raise InputError(
                f"resize: lanes {sorted(self.balancer.draining)} are giving away their slots; wait until they are gone"
            )
        more = lanes - len(table.lanes)
        if more > spare:
            raise InputError(
                f"resize: {more} more lanes need {more} task slots, {spare} are free: "
                f"give the session more cores, or ask for {len(table.lanes) + spare} lanes"
            )
        self._forget_gone()
        if more > 0:
            self._start(more, now_s)
        elif more < 0:
            self.act_on(self.balancer.resize(fitted(table, table.lanes[:lanes], self.weights())))

    def act_on(self, wish: LaneWish | None) -> None:
        """Do what the balancer wants of lanes."""
        if wish is None:
            return
        if wish.add:
            self.act(FindRoom(wish.add))
        for lane in wish.retire:
            self.remove(lane)
        if wish.retire:
            self.balancer.lanes_changed([lane for lane in self.balancer.table.lanes if lane not in wish.retire])

    def welcome(self) -> None:
        """Once all new lanes are there, let the balancer know of them and give them their share of the units."""
        joining = self.away.joining
        if not joining or any(self.lanes[lane].token is None for lane in joining):
            return
        before = self.balancer.table
        lanes = sorted({*before.lanes, *joining})
        joining.clear()
        self.balancer.lanes_changed(lanes)
        self.act_on(self.balancer.resize(fitted(before, lanes, self.weights())))

    def found(self, room: Room, now_s: float) -> None:
        """Start the lanes that the policy wants, or go on as it is if there is no room for them."""
        if room.asked > room.spare + len(self.away.gone):
            self.balancer.lanes_changed(self.balancer.table.lanes)
        else:
            self._forget_gone()
            self._start(room.asked, now_s)

    @property
    def there(self) -> list[LaneId]:
        """The lanes that have an attempt."""
        return [lane for lane, status in self.lanes.items() if status.token is not None]

    @property
    def serving(self) -> list[LaneId]:
        """The lanes of the table that have an attempt."""
        return [lane for lane in self.balancer.table.lanes if self.lanes[lane].token is not None]

    def came(self, lane: LaneId) -> None:
        """A lane is there. One that nobody waited for any more gets a share again."""
        if self.away.came(lane):
            self.balancer.lane_back(lane, self.weights())

    def waits_until_s(self) -> float:
        """Return until when lanes are waited for that are not there."""
        return min(self.away.until_s(self.serving), self.away.until_s(self.there))

    def give_up_new(self, now_s: float) -> None:
        """Do not wait any longer for new lanes that do not come."""
        late = self.away.not_come(now_s, self.there)
        for lane in late:
            self.remove(lane)
        if late:
            self.balancer.join_failed(late)

    def _forget_gone(self) -> None:
        for lane in sorted(self.away.gone):
            self.remove(lane)

    def _start(self, count: int, now_s: float) -> None:
        first = max(self.lanes) + 1
        for lane in range(first, first + count):
            self.add(lane)
            self.away.joining[lane] = now_s
