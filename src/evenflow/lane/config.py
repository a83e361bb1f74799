"""What a lane is told when it starts: whose lane it is, what it does with rows, and where its files go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenflow.model import StageUnits, UnitNames
from evenflow.operators import Resident, Stage
from evenflow.state import ARROW, OutputFormat, Retries
from evenflow.state.retrying import PATIENCE_S


@dataclass(frozen=True)
class LaneStage(Stage):
    """A stage and its units."""

    units: StageUnits

    def empty(self) -> Resident:
        """Return the state of a lane that holds nothing of the stage."""
        return self.open(self.units.slots)


def chained(stages: Sequence[Stage], slots: int) -> tuple[LaneStage, ...]:
    """Return stages of which each feeds the next, with so many slots each."""
    return tuple(
        LaneStage(
            stage.operator, stage.schema, stage.keys, StageUnits(number * slots, slots, number - 1 if number else None)
        )
        for number, stage in enumerate(stages)
    )


@dataclass(frozen=True)
class LaneConfig:
    """What a lane is told when it starts, whatever its attempt. What the last stage puts out is for the sink."""

    lane: int
    location: str
    stages: tuple[LaneStage, ...]
    complete: bool = False
    rows_per_second: float | None = None  # stands for a slower machine in demos and experiments; None in real use
    query: str = "query"  # what it is called in the log
    publishes: bool = True  # False if no sink wants the outputs: then they are not written
    output: OutputFormat = ARROW  # what the sink takes best
    retry_s: float = PATIENCE_S  # for how long errors of the storage that may pass are tried again
    operator_timeout_s: float | None = None  # how long a call of the user's code may take; None: for ever

    @property
    def units(self) -> tuple[StageUnits, ...]:
        """The units of all stages, in their order."""
        return tuple(stage.units for stage in self.stages)

    @property
    def names(self) -> UnitNames:
        """What people call the units."""
        return UnitNames(self.units)

    @property
    def retries(self) -> Retries:
        """How this lane tries again what its storage has refused."""
        return Retries(self.retry_s, self.query, self.lane)
