"""The units of a query's stages: one after the other, so that one table and one ledger cover all of them."""

from __future__ import annotations

from dataclasses import dataclass

from evenflow.model.slots import SlotId


@dataclass(frozen=True, slots=True)
class StageUnits:
    """The units of one stage: its slots, numbered from `first` on.

    `fed_by` is the number of the stage whose outputs are its input, None if its input comes from the source.
    """

    first: SlotId
    slots: int
    fed_by: int | None = None

    @property
    def units(self) -> slice:
        """Where its units are among all units."""
        return slice(self.first, self.first + self.slots)
