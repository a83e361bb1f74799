"""A scenario: the cluster, what arrives, what moving costs, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from evenflow.errors import InputError
from evenflow.model import RoutingTable, SlotId
from evenflow.model.load import refuse_bad_numbers
from evenflow.model.slots import BoolArray, FloatArray
from evenflow.sim.quantum.arrivals import Arrivals
from evenflow.sim.quantum.flow import Flow
from evenflow.sim.quantum.handover import Handover, Way
from evenflow.sim.quantum.memory import Memory
from evenflow.sim.quantum.network import Network
from evenflow.sim.quantum.speeds import Alike, Speeds

_MOST_STEPS = 10**9


@dataclass(frozen=True, eq=False)
class Scenario:
    """What is simulated. All times are virtual seconds.

    `step_s` is the quantum: nothing is finer. An epoch is `epoch_steps` steps: control messages are sent and load is
    reported once per epoch. With `stretch`, an epoch lasts longer while moves are under way, or as long as the policy
    asks to collect: the rounds of Flux (FX 5.3). A row of the timeline is as long as `row_epochs` plain epochs.

    `seconds_per_record` and `state_bytes` are one number, or one per slot. `poisson` draws the arrivals, else the
    expected numbers arrive. `queue_records` bounds what may wait for a lane; what comes beyond it is refused and
    counted (FX-F6). `important` slots go first: lanes serve others only while no important record waits, and where a
    queue is full others are refused first, or displaced (FX-F4).

    With a `flow`, producers make as much as there is room for, and of `arrivals` only the shares count. `stateless`
    says that any lane may serve any record, which River's rule needs; nothing is left to move then. Without
    `memory`, lanes hold all their slots. `lane_start_s` is how long a lane takes to start when a policy asks for
    more. `table` is the routing at the start, dealt out in turn if None.
    """

    lanes: int
    slots: int
    arrivals: Arrivals
    seconds_per_record: npt.ArrayLike = 2e-5
    state_bytes: npt.ArrayLike = 0.0
    duration_s: float = 60.0
    step_s: float = 0.1
    epoch_steps: int = 10
    row_epochs: int = 1
    stretch: bool = False
    handover: Handover = field(default_factory=Handover)
    network: Network = field(default_factory=Network)
    speeds: Speeds = field(default_factory=Alike)
    flow: Flow | None = None
    memory: Memory | None = None
    mergeable: bool = False
    stateless: bool = False
    poisson: bool = True
    queue_records: float | None = None
    important: Sequence[SlotId] | None = None
    lane_start_s: float = 1.0
    table: RoutingTable | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be simulated."""
        if self.lanes < 1 or self.slots < 1:
            raise InputError(f"scenario: needs at least 1 lane and 1 slot, got {self.lanes} and {self.slots}")
        if not (self.step_s > 0 and self.duration_s >= self.step_s and self.epoch_steps >= 1 and self.row_epochs >= 1):
            raise InputError(
                f"scenario: {self.duration_s} s in steps of {self.step_s} s, {self.epoch_steps} steps per epoch and "
                f"{self.row_epochs} epochs per row is no run"
            )
        if max(self.duration_s / self.step_s, self.epoch_steps * self.row_epochs) > _MOST_STEPS:
            raise InputError(
                f"scenario: {self.duration_s} s, or a row of {self.epoch_steps * self.row_epochs} steps, in steps of "
                f"{self.step_s} s would never end; a run has at most {_MOST_STEPS} steps"
            )
        for name in ("seconds_per_record", "state_bytes"):
            refuse_bad_numbers(f"scenario: {name}", self.per_slot(name))
        if not self.per_slot("seconds_per_record").all():
            raise InputError("scenario: seconds_per_record must be above 0, got 0; a lane serves by the time it has")
        if self.arrivals.rates(0.0).shape != (self.slots,):
            raise InputError(
                f"scenario: arrivals give {self.arrivals.rates(0.0).size} slots, the scenario has {self.slots}"
            )
        if self.handover.way is Way.FORWARD_MERGE and not self.mergeable:
            raise InputError(
                "scenario: 'forward and merge' keeps partial states on several lanes, which only mergeable operators "
                "allow; set mergeable=True if yours is one, or choose another way to hand over"
            )
        self._refuse_keyed_river()
        self._refuse_bad_classes()
        if self.table is not None and (self.table.slots, len(self.table.lanes)) != (self.slots, self.lanes):
            raise InputError(f"scenario: {self.table} does not fit {self.lanes} lanes and {self.slots} slots")

    def _refuse_keyed_river(self) -> None:
        """Refuse a flow that ignores keys, unless nothing depends on them."""
        if self.stateless and (self.per_slot("state_bytes").any() or self.memory is not None):
            raise InputError(
                "scenario: stateless, yet with state_bytes above 0 or a memory to keep state in; choose one"
            )
        if self.flow is None or not self.flow.river:
            return
        if not self.stateless:
            raise InputError(
                "scenario: river sends a record to any lane, but a keyed operator has the state of a key on one lane "
                "only; set stateless=True and state_bytes=0 if yours keeps none, or choose another flow"
            )
        if np.ptp(self.per_slot("seconds_per_record")) > 0:
            raise InputError("scenario: river does not look at keys; give one seconds_per_record for all slots")

    def _refuse_bad_classes(self) -> None:
        """Refuse important slots that are none, and queues in which they cannot go first."""
        if self.important is None:
            return
        for slot in self.important:
            if not 0 <= slot < self.slots:
                raise InputError(f"scenario: important: there is no slot {slot}; slots are 0 to {self.slots - 1}")
        if self.flow is not None or (self.memory is not None and self.memory.spool_s is not None):
            raise InputError(
                "scenario: important slots go first in the queues of lanes; with a flow, or input that is spooled to "
                "disk, records wait elsewhere too, in turn; leave out one of them"
            )

    @property
    def important_slots(self) -> BoolArray | None:
        """Tell of each slot whether it is important; None if no such difference is made."""
        return None if self.important is None else np.isin(np.arange(self.slots), np.asarray(self.important, np.int64))

    def per_slot(self, name: str) -> FloatArray:
        """Return one of the columns that may be given as a single number."""
        values = np.asarray(getattr(self, name), dtype=np.float64)
        if values.ndim > 1 or values.size not in (1, self.slots):
            raise InputError(f"scenario: {name} is one number or one per slot ({self.slots}), got {values.shape}")
        return np.broadcast_to(values, (self.slots,)).copy()

    @property
    def epoch_s(self) -> float:
        """The length of an epoch."""
        return self.step_s * self.epoch_steps

    @property
    def steps(self) -> int:
        """The number of steps, in whole rows."""
        per_row = self.epoch_steps * self.row_epochs
        return max(1, round(self.duration_s / (self.step_s * per_row))) * per_row

    @property
    def first_table(self) -> RoutingTable:
        """The routing at the start."""
        return self.table if self.table is not None else RoutingTable.even(self.slots, self.lanes)
