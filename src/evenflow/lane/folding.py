"""Folds the input of some epochs, stage by stage: what each stage did in each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evenflow.lane.config import LaneConfig
from evenflow.lane.holding import HeldStage, Holding
from evenflow.lane.hot_keys import KeyCounter
from evenflow.lane.loading import rows_of
from evenflow.lane.messages import BlockPart, EpochInput, Work
from evenflow.model import Epoch, SlotId
from evenflow.model.slots import IntArray
from evenflow.operators import Folded
from evenflow.operators.calling import at_epoch
from evenflow.state import Folder


@dataclass(frozen=True)
class Fold:
    """What one stage did in one epoch: `records` rows came for each of its slots, and it took `seconds`.

    `output` are rows for the sink, none if there is nothing for it.
    """

    epoch: Epoch
    held: HeldStage
    records: IntArray
    folded: Folded | None
    output: pa.Table | None
    seconds: float


@dataclass(frozen=True)
class Folding:
    """Folds into what a lane holds."""

    config: LaneConfig
    holding: Holding
    folder: Folder
    clock: Callable[[], float]

    def folds(self, message: Work, counters: Sequence[KeyCounter]) -> Iterator[Fold]:
        """Fold the epochs one by one, so that what each puts out does not depend on how many come together.

        The counter of each stage sees its rows.
        """
        for each in message.inputs:
            passing = dict(self._passing(message, each.epoch))
            parts = self.holding.parts_by_stage(each.parts)
            for held in self.holding.stages:
                number = held.number
                if number in passing or number in parts:
                    yield self._fold(each, held, parts.get(number, []), passing.get(number, []), counters[number])

    def _passing(self, message: Work, epoch: Epoch) -> Iterator[tuple[int, list[SlotId]]]:
        """Yield the units of each stage, by its number, that pass an epoch."""
        units = (
            unit for advance in message.advances if advance.since < epoch <= advance.version for unit in advance.slots
        )
        yield from ((held.number, mine) for held, mine in self.holding.by_stage(units))

    def _fold(
        self, each: EpochInput, held: HeldStage, parts: list[BlockPart], passing: list[SlotId], counter: KeyCounter
    ) -> Fold:
        began = self._now()
        stage, resident = held.stage, held.resident
        rows, units = rows_of(self.folder, parts, stage)
        self.holding.must_serve(np.unique(units).tolist(), "fold rows of")
        counter.add(rows, units)
        slots, passing_slots = units - stage.units.first, held.slots(passing)
        with at_epoch(each.epoch, self._name(held)):
            folded = resident.fold(rows, slots, each.time) if rows.num_rows else None
            fired = resident.fire(passing_slots, each.time)
        if fired is not None:
            folded = fired if folded is None else folded.then(fired)
        output = None
        if self.config.publishes and held.number == len(self.config.stages) - 1:
            changed = None if folded is None else folded.output
            output = resident.output(passing_slots) if self.config.complete else changed
        records = np.bincount(slots, minlength=stage.units.slots)
        wanted = output if output is not None and output.num_rows else None
        return Fold(each.epoch, held, records, folded, wanted, self._now() - began)

    def _name(self, held: HeldStage) -> str | None:
        """Return what errors call a stage; a query of one has no need of it."""
        return f"{held.number} (by {', '.join(held.stage.keys)})" if len(self.config.stages) > 1 else None

    def _now(self) -> float:
        """Return the time if it matters: what a stage takes decides what its rows cost beside those of others."""
        return self.clock() if len(self.config.stages) > 1 else 0.0
