"""How epochs pass from stage to stage: a unit takes an epoch when all units that feed it have committed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from evenflow.engine.units import NO_LIMIT
from evenflow.model import Epoch, StageUnits
from evenflow.model.slots import IntArray


class Flow:
    """Knows which stage feeds which, and how far each lets the next go."""

    def __init__(self, stages: Sequence[StageUnits], versions: Callable[[], IntArray]) -> None:
        """Take the stages, and how to learn the committed version of each unit."""
        self._versions = versions
        self._fed = [(stage, stages[stage.fed_by]) for stage in stages if stage.fed_by is not None]
        self._frontiers = self._now()

    def limits(self, units: IntArray) -> IntArray:
        """Return up to which epoch the input of some units, ascending, is there."""
        limits = np.full(units.size, NO_LIMIT)
        for (stage, _), frontier in zip(self._fed, self._now(), strict=True):
            limits[_among(units, stage)] = frontier
        return limits

    def reached(self, units: IntArray, versions: IntArray, epoch: Epoch) -> IntArray:
        """Return how far a lane is with the stages of some units of its own, ascending; `epoch`: with its source's.

        A unit is behind if others of its stage are further: one that waits for its input is not.
        """
        reached = np.full(units.size, epoch)
        for stage, _ in self._fed:
            where = _among(units, stage)
            reached[where] = versions[where].max(initial=-1)
        return reached

    def advanced(self) -> list[StageUnits]:
        """Return the stages for which there is more input than when this was asked before."""
        before, self._frontiers = self._frontiers, self._now()
        pairs = zip(self._fed, before, self._frontiers, strict=True)
        return [stage for (stage, _), then, now in pairs if now > then]

    def _now(self) -> list[Epoch]:
        return [int(self._versions()[source.units].min()) for _, source in self._fed]


def _among(units: IntArray, stage: StageUnits) -> slice:
    """Return where the units of a stage are among some that are sorted."""
    low, high = np.searchsorted(units, [stage.units.start, stage.units.stop])
    return slice(int(low), int(high))
