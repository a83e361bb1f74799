"""What no move can cure: the slots that the policy names, and the key that makes each hot, asked of its lane."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from evenflow.control import Balancer
from evenflow.lane.messages import HotKey
from evenflow.model import Epoch, SlotId

_EVERY = 20  # epochs after which a lane is asked for the key of a slot again
_MOST = 8  # slots per work whose keys are asked for


@dataclass
class HotSpots:
    """Knows when to ask for the hottest key of which slot, and what lanes have answered."""

    balancer: Balancer
    _known: dict[SlotId, tuple[Epoch, HotKey]] = field(default_factory=dict)

    def to_ask(self, slots: Iterable[SlotId], epoch: Epoch) -> tuple[SlotId, ...]:
        """Return those of the slots that a lane folds up to an epoch whose hottest key it is to look for."""
        hot = self.balancer.not_curable
        self._known = {slot: known for slot, known in self._known.items() if slot in hot}
        due = [slot for slot in slots if slot in hot and epoch >= self._known.get(slot, (-_EVERY,))[0] + _EVERY]
        return tuple(due[:_MOST])

    def heard(self, epoch: Epoch, answers: Iterable[HotKey]) -> None:
        """Take in what a lane has found in the rows up to an epoch."""
        self._known.update({answer.slot: (epoch, answer) for answer in answers})

    def rows(self) -> list[dict[str, Any]]:
        """Return the slots that no move can cure, those with most load first, and what is known of their keys.

        `share` is the slot's part of all load in the newest window, `since` the epoch from which on the policy has
        said so; `keyShare` the part of the slot's rows that its most frequent `key` has, among `keys` of them.
        """
        hot, table = self.balancer.not_curable, self.balancer.table
        shares = self.balancer.slot_shares()
        rows = []
        for slot in sorted(hot, key=lambda slot: -shares[slot]):
            _, known = self._known.get(slot, (0, None))
            key = {"key": known.key, "keyShare": known.share, "keys": known.keys} if known else {}
            row = {"slot": slot, "lane": int(table.owners[slot]), "share": float(shares[slot]), "since": hot[slot]}
            rows.append(row | {"key": None, "keyShare": None, "keys": None} | key)
        return rows
