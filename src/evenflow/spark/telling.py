"""What of a query's life goes to its log: what was chosen at the start, and of the journal what people want to know.

Nothing is told per epoch: what goes on for a while (a refusal, a slot that no move can relieve) is told when it begins.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evenflow.control.journal import (
    Decided,
    Entry,
    LanesChanged,
    LanesWanted,
    PhaseChanged,
    Refusal,
    Refused,
    Requested,
)
from evenflow.log import QueryLog
from evenflow.migration import Event
from evenflow.model import Move, SlotId, UnitNames
from evenflow.policies.base import policy_name

if TYPE_CHECKING:
    from evenflow.spark.shell import Shell

_SHOWN = 5  # moves and slots that a line names
_LASTS = 3  # decisions in a row after which what no move can cure is no chance any more
_ROUTINE = {Refusal.COOLING_DOWN, Refusal.BYTES_IN_FLIGHT}  # waiting, as set
_FAULTY = {Refusal.BAD_PROPOSAL, Refusal.BAD_REQUEST}


def tell_start(shell: Shell, *, lanes_why: str, exchange_asked: bool) -> None:
    """Tell what the query runs with, and why."""
    balancer, recovery = shell.balancer, shell.checkpoint.recover()
    shell.log.info(
        "starts with %d lanes (%s), %d slots, policy %s, strategy %s, exchange %s (%s), max_lag %d; checkpoint %s, %s",
        len(balancer.table.lanes),
        lanes_why,
        balancer.table.slots,
        policy_name(balancer.policy),
        balancer.strategy.name,
        shell.router.exchange,
        "as asked" if exchange_asked else "by the kind of master",
        shell.max_lag,
        shell.checkpoint.folder.storage.address(""),
        "which is new"
        if recovery.last_accepted < 0
        else f"where it goes on after epoch {recovery.last_accepted}, published up to epoch {recovery.last_published}",
    )


@dataclass
class JournalLog:
    """Tells the log what the journal records; one per query."""

    log: QueryLog
    names: UnitNames = field(default_factory=UnitNames)
    clock: Callable[[], float] = time.monotonic
    _refused: set[str] = field(default_factory=set)  # since the last decision to move
    _hopeless: dict[SlotId, int] = field(default_factory=dict)  # for how many decisions in a row
    _under_way: dict[SlotId, float] = field(default_factory=dict)  # when it was announced
    _done: int = 0

    def __call__(self, entry: Entry) -> None:
        """Tell of one entry, as loud as it deserves."""
        if isinstance(entry, Decided):
            self._decided(entry)
        elif isinstance(entry, Refused):
            self._refusal(entry)
        elif isinstance(entry, PhaseChanged):
            self._step(entry)
        elif isinstance(entry, LanesChanged):
            self._lanes(entry)
        elif isinstance(entry, LanesWanted):
            level = self._level_of(f"{entry.lanes} lanes", logging.INFO)
            self.log.log(level, "the policy wants %d lanes: %s", entry.lanes, entry.why, epoch=entry.epoch)
        elif isinstance(entry, Requested):
            self.log.info(
                "%d moves are planned: %s", len(entry.moves), shown(entry.moves, self.names), epoch=entry.epoch
            )
        else:
            self.log.debug("%s", entry, epoch=entry.epoch)

    def _lanes(self, entry: LanesChanged) -> None:
        for lane in entry.lost:
            self.log.warning("lost; it is started again and loads its slots", lane=lane, epoch=entry.epoch)
        for lane in entry.gone:
            self.log.warning("it does not come back; its slots go to the other lanes", lane=lane, epoch=entry.epoch)
        if not entry.lost and not entry.gone:
            self.log.info("lanes are now %s", ", ".join(map(str, entry.lanes)), epoch=entry.epoch)

    def _decided(self, entry: Decided) -> None:
        level = logging.INFO if entry.moves else logging.DEBUG
        self.log.log(
            level,
            "policy %s: %d moves in %d steps, %d bytes of state; max/mean %.2f, then %.2f. %s",
            entry.policy,
            len(entry.moves),
            entry.steps,
            entry.bytes_moved,
            entry.before.max_over_mean,
            entry.after.max_over_mean,
            entry.note,
            epoch=entry.epoch,
        )
        if entry.moves:
            self._refused.clear()
        if entry.lanes:
            return  # what is said of some lanes is no word on the slots of others
        self._hopeless = {slot: self._hopeless.get(slot, 0) + 1 for slot in entry.not_curable}
        new = [slot for slot, decisions in self._hopeless.items() if decisions == _LASTS]
        if new:
            slots = ", ".join(map(self.names.text, new[:_SHOWN])) + (", ..." if len(new) > _SHOWN else "")
            self.log.warning("no move can relieve %s: %s", slots, entry.note, epoch=entry.epoch)

    def _refusal(self, entry: Refused) -> None:
        if entry.refusal in _ROUTINE:
            level = logging.DEBUG
        elif entry.refusal in _FAULTY:
            level = self._level_of(entry.why, logging.WARNING)
        else:
            level = self._level_of(entry.refusal.name, logging.INFO)
        text = f" to move {shown(entry.moves, self.names)}" if entry.moves else ""
        self.log.log(level, "refused%s: %s (%s)", text, entry.refusal.value, entry.why, epoch=entry.epoch)

    def _step(self, entry: PhaseChanged) -> None:
        self.log.debug(
            "%s: %s, now %s", shown([entry.move], self.names), entry.event.value, entry.after.value, epoch=entry.epoch
        )
        slot = entry.move.slot
        if entry.event is Event.ANNOUNCE:
            self._under_way[slot] = self.clock()
        elif entry.after.is_over and slot in self._under_way:
            took_s = self.clock() - min(self._under_way.values())
            del self._under_way[slot]
            self._done += 1
            if not self._under_way:
                self.log.info(
                    "%d moves are done, %.3g s after the first was told", self._done, took_s, epoch=entry.epoch
                )
                self._done = 0

    def _level_of(self, what: str, level: int) -> int:
        """Return `level` the first time since moves were decided on, else DEBUG."""
        level = logging.DEBUG if what in self._refused else level
        self._refused.add(what)
        return level


def shown(moves: Sequence[Move], names: UnitNames) -> str:
    """Return some moves in words."""
    words = [f"{names.text(move.slot)} from lane {move.source} to {move.target}" for move in moves[:_SHOWN]]
    more = [f"{len(moves) - _SHOWN} more"] if len(moves) > _SHOWN else []
    reason = f" ({moves[0].reason})" if moves and moves[0].reason else ""
    return f"{', '.join([*words, *more])}{reason}"
