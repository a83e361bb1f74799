"""What AutoFlow's experiments run, as plain numbers (AF-P3 to P12): any engine can build its stream from a scenario."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from evenflow.errors import InputError
from evenflow.model import RoutingTable
from evenflow.model.slots import FloatArray


@dataclass(frozen=True, slots=True)
class Phase:
    """From `start_s` on, `share` of all records go to the slots of the `hot` reducers; none is hot without a name."""

    start_s: float
    hot: tuple[int, ...] = ()
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One arm of one experiment. Rates are records per second.

    `load`: the input rate as a share of what all reducers can serve (AF-P5). `arrivals`: "even" repeats one second of
    each phase, so that equally loaded slots are exactly that; "random" draws every record. `delay_s`: of each control
    message and each load report on its way. `seed_offset` lets arms share or not share their records.
    """

    name: str
    reducers: int = 3
    phases: tuple[Phase, ...] = (Phase(0.0),)
    duration_s: int = 90
    balancing: bool = True
    capacity: int = 1_000
    load: float = 0.8
    slots_per_reducer: int = 16
    keys_per_slot: int = 20
    control_period_s: float = 1.0
    window_s: float = 5.0
    factor: float = 0.2
    delay_s: float = 0.001
    transfer_s: float = 0.05
    arrivals: Literal["even", "random"] = "even"

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if not self.phases or self.phases[0].start_s != 0:
            raise InputError(f"{self.name}: the first phase begins at 0 s")
        if self.window_s < self.control_period_s:
            raise InputError(f"{self.name}: a window of {self.window_s} s is shorter than the control period")

    @property
    def rate(self) -> int:
        """Records per second, over all sources."""
        return round(self.capacity * self.reducers * self.load)

    @property
    def window_epochs(self) -> int:
        """Control periods per window."""
        return max(1, round(self.window_s / self.control_period_s))

    @property
    def table(self) -> RoutingTable:
        """Who owns which slot at first: slot r_x_y of the paper is slot x * slots_per_reducer + y."""
        owners = np.repeat(np.arange(self.reducers), self.slots_per_reducer)
        return RoutingTable(owners, tuple(range(self.reducers)))

    def off(self) -> Scenario:
        """Return the same without balancing."""
        return replace(self, name=f"{self.name}, off", balancing=False)

    def scaled(self, factor: float) -> Scenario:
        """Return the same with slower reducers and as much less input: fewer records, the same times."""
        return replace(self, capacity=max(1, round(self.capacity * factor)))

    def slot_shares(self, phase: Phase) -> FloatArray:
        """Return each slot's share of the records in a phase: slots of a reducer are alike."""
        owners = self.table.owners
        hot = np.isin(owners, phase.hot)
        if not hot.any():
            return np.full(owners.size, 1.0 / owners.size)
        cold = (1.0 - phase.share) / max(1, int((~hot).sum()))
        shares: FloatArray = np.where(hot, phase.share / int(hot.sum()), cold)
        return shares

    def ends(self) -> list[tuple[Phase, float]]:
        """Return each phase with its end."""
        starts = [phase.start_s for phase in self.phases]
        return list(zip(self.phases, [*starts[1:], float(self.duration_s)], strict=True))


def fixed_skew(name: str, reducers: int, hot: int, share: float, duration_s: int = 90) -> Scenario:
    """Return a load that is skewed from the start and stays so (Fig. 5): `share` of it on the first `hot` reducers."""
    return Scenario(name, reducers, (Phase(0.0, tuple(range(hot)), share),), duration_s)
