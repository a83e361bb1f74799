"""The units of a query's stages: one after the other, so that one table and one ledger cover all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class UnitNames:
    """What people call units: by their slot, in a query of several stages by stage and slot.

    Stages are numbered from 0 in the order in which rows go through them. No stages: there is one.
    """

    stages: tuple[StageUnits, ...] = ()

    def of(self, unit: SlotId) -> dict[str, int]:
        """Return a unit's names; where there are stages also its number, by which `rebalance` knows it."""
        if len(self.stages) <= 1:
            return {"slot": unit}
        number, stage = next(
            (number, stage) for number, stage in enumerate(self.stages) if unit < stage.first + stage.slots
        )
        return {"stage": number, "slot": unit - stage.first, "unit": unit}

    def text(self, unit: SlotId) -> str:
        """Return a unit's name as messages show it."""
        return " ".join(f"{name} {number}" for name, number in self.of(unit).items() if name != "unit")

    def named(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is told of a unit, which `slot` holds, with its names in that place."""
        found: dict[str, Any] = {}
        for key, value in row.items():
            found |= self.of(value) if key == "slot" else {key: value}
        return found
