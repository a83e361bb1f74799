"""Lanes that come and go: those that are just starting, and what the controller wants of lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from evenflow.control import Controller, LaneWish
from evenflow.control.fitting import fitted
from evenflow.engine.actions import Action, FindRoom
from evenflow.engine.events import Room
from evenflow.engine.lanes import Lane
from evenflow.errors import InputError
from evenflow.model import LaneId
from evenflow.model.slots import FloatArray


@dataclass
class Elastic:
    """Adds lanes, lets them take part once they are there, and lets those go that own nothing any more."""

    controller: Controller
    lanes: Mapping[LaneId, Lane]
    add: Callable[[LaneId], None]
    remove: Callable[[LaneId], None]
    act: Callable[[Action], None]
    weights: Callable[[], FloatArray]  # what each unit cost lately
    joining: set[LaneId] = field(default_factory=set)

    def resize(self, lanes: int, spare: int) -> None:
        """Go on with so many lanes, where there is room for `spare` more; refuse what cannot be."""
        table = self.controller.table
        if not 1 <= lanes <= table.slots:
            raise InputError(f"resize: from 1 to {table.slots} lanes (a slot each), got {lanes}")
        if self.joining:
            raise InputError(f"resize: lanes {sorted(self.joining)} are just starting; wait until they are there")
        if self.controller.draining:
            raise InputError(
                f"resize: lanes {sorted(self.controller.draining)} are giving away their slots; wait until they "
                f"are gone"
            )
        more = lanes - len(table.lanes)
        if more > max(0, spare):
            raise InputError(
                f"resize: {more} more lanes need {more} task slots, {max(0, spare)} are free: "
                f"give the session more cores, or ask for {len(table.lanes) + max(0, spare)} lanes"
            )
        if more > 0:
            self._start(more)
        elif more < 0:
            self.act_on(self.controller.resize(fitted(table, table.lanes[:lanes], self.weights())))

    def act_on(self, wish: LaneWish | None) -> None:
        """Do what the controller wants of lanes."""
        if wish is None:
            return
        if wish.add:
            self.act(FindRoom(wish.add))
        for lane in wish.retire:
            self.remove(lane)
        if wish.retire:
            self.controller.lanes_changed([lane for lane in self.controller.table.lanes if lane not in wish.retire])

    def welcome(self) -> None:
        """Once all new lanes are there, let the controller know of them and give them their share of the units."""
        if not self.joining or any(self.lanes[lane].token is None for lane in self.joining):
            return
        before = self.controller.table
        lanes = sorted({*before.lanes, *self.joining})
        self.joining.clear()
        self.controller.lanes_changed(lanes)
        self.act_on(self.controller.resize(fitted(before, lanes, self.weights())))

    def found(self, room: Room) -> None:
        """Start the lanes that the policy wants, or go on as it is if there is no room for them."""
        if room.asked > room.spare:
            self.controller.lanes_changed(self.controller.table.lanes)
        else:
            self._start(room.asked)

    def _start(self, count: int) -> None:
        first = max(self.lanes) + 1
        for lane in range(first, first + count):
            self.add(lane)
            self.joining.add(lane)
