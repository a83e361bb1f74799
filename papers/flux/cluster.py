"""The cluster of the paper (FX-P1 to P14): machines, producers, network, disk, external load, and its policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenflow.migration import strategy_named
from evenflow.model.slots import FloatArray
from evenflow.policies import policy_named
from evenflow.sim.quantum import (
    Alike,
    Arrivals,
    Disk,
    Flow,
    Handover,
    Loaded,
    Memory,
    Network,
    Scenario,
    Speeds,
    Steady,
    Timeline,
    Way,
    simulate,
    uniform,
)
from evenflow.sim.quantum.memory import Budgets

MACHINES = 32
TUPLE_BYTES = 80
SERVICE_S = 46.4e-6  # FX-P6: 6.9e5 tuples/s of 32 machines; 45 us of it are the operator's own
FULL_RATE = MACHINES / SERVICE_S
LOADED_SPEED = 0.43  # FX-P7: the external process takes about 57 %
GROUPS = 1 << 14
PACKET = 12.8  # tuples in a packet of 1 KB
CONNECTION = 2 * PACKET  # FX-P2: two packets between each pair
SKEW_BUFFER = 2048  # FX-P9, per producer
PRODUCE_S = 0.5e-6  # FX-P5
QUIESCE_S_PER_BYTE = 0.2e-6 / TUPLE_BYTES  # FX-P10: 0.2 us per tuple
MOVE_NETWORK = Network(point_to_point=250e6 / 8, cross_section=500e6 / 8)  # FX-P2, while partitions move
DISK = Disk(read=20e6, write=20e6, seek_s=0.005)  # FX-P3
MB = 1e6
PARTITION_BYTES = 800e3  # FX-P8, load runs: 10,000 tuples
BIG_PARTITION_BYTES = 6 * MB  # FX-P8, memory runs
MACHINE_BYTES = 1024 * MB
PRESSED_BYTES = 512 * MB
# The paper gives no size of the output buffers that spilled input is written from; 64 KB are assumed.
SPOOL_S = (DISK.seek_s + 64e3 / DISK.write) / (64e3 / TUPLE_BYTES)


@dataclass(frozen=True)
class Setup:
    """One run: how many machines and partitions, for how long, in steps of which length.

    There are always 32 producers, so that the connections of a machine hold what it serves in a step.
    """

    machines: int = MACHINES
    partitions: int = 64
    duration_s: float = 60.0
    step_s: float = 0.01
    drawn: bool = True
    skew_buffer: float = SKEW_BUFFER

    @property
    def slots(self) -> int:
        """All partitions."""
        return self.machines * self.partitions

    @property
    def full_rate(self) -> float:
        """Tuples per second of all machines, if none is slow."""
        return self.machines / SERVICE_S


def load_run(setup: Setup, arrivals: Arrivals | None = None, speeds: Speeds | None = None) -> Scenario:
    """Return the runs of section 5.4: plenty of memory, partitions of 800 KB."""
    return Scenario(
        lanes=setup.machines,
        slots=setup.slots,
        arrivals=arrivals or uniform(setup.slots, 1.0),
        seconds_per_record=SERVICE_S,
        state_bytes=PARTITION_BYTES,
        duration_s=setup.duration_s,
        step_s=setup.step_s,
        epoch_steps=1,
        row_epochs=round(1.0 / setup.step_s),
        stretch=True,
        handover=Handover(Way.AT_TIMESTAMP, QUIESCE_S_PER_BYTE, QUIESCE_S_PER_BYTE),
        network=MOVE_NETWORK,
        speeds=speeds or Alike(),
        flow=Flow(
            MACHINES,
            CONNECTION,
            setup.skew_buffer,
            produce_s=PRODUCE_S,
            drawn=setup.drawn,
            packet_records=PACKET if setup.drawn else None,
        ),
    )


def memory_run(setup: Setup, budgets: Budgets, speeds: Speeds | None = None, gap_s: float | None = None) -> Scenario:
    """Return the runs of section 6.3: partitions of 6 MB, what does not fit goes to disk.

    In-flight tuples of a partition that moves are held aside and go along (FX-M15): "at once".
    """
    return replace(
        load_run(setup, speeds=speeds),
        state_bytes=BIG_PARTITION_BYTES,
        handover=Handover(Way.AT_ONCE, QUIESCE_S_PER_BYTE, QUIESCE_S_PER_BYTE),
        memory=Memory(budgets, DISK, gap_s, SPOOL_S),
    )


def run(scenario: Scenario, policy: str = "static", seed: int = 1, **options: Any) -> Timeline:
    """Simulate under a policy of the paper; each of its rounds is one step, all moves at once."""
    if policy == "static":
        scenario = longer_epochs(scenario, 0.5)
    return simulate(scenario, policy_named(policy, **options), strategy_named("sudden"), seed=seed)


def longer_epochs(scenario: Scenario, epoch_s: float) -> Scenario:
    """Return the same with plain epochs of `epoch_s`, for policies that do not ask for a collection time."""
    row_s = scenario.epoch_s * scenario.row_epochs
    steps = round(epoch_s / scenario.step_s)
    return replace(scenario, epoch_steps=steps, row_epochs=round(row_s / epoch_s), stretch=False)


def external(machines: Sequence[int], start_s: float = 0.0) -> Speeds:
    """Return the external load of FX-P7 on some machines."""
    return Loaded(tuple(machines), LOADED_SPEED, start_s)


def self_similar(groups: int = GROUPS, most: float = 0.8, few: float = 0.2) -> FloatArray:
    """Return the share of each group: a fifth of the groups has four fifths of the load, and so on within (FX-A10)."""
    upto = np.arange(groups + 1) / groups
    shares: FloatArray = np.diff(upto ** (np.log(most) / np.log(few)))
    return shares


def flat(groups: int = GROUPS, most: float = 0.8, few: float = 0.2) -> FloatArray:
    """Return the other reading of 80/20: a fifth of the groups shares four fifths evenly."""
    popular = round(few * groups)
    return np.where(np.arange(groups) < popular, most / popular, (1 - most) / (groups - popular))


def by_partition(shares: FloatArray, partitions: int, rng: np.random.Generator) -> Steady:
    """Return groups hashed to partitions, the same number to each."""
    where = rng.permutation(shares.size) % partitions
    return Steady(np.bincount(where, weights=shares, minlength=partitions))


def evenly_spread(count: int, machines: int, first: int = 0) -> tuple[int, ...]:
    """Return `count` machines at equal distances, beginning with `first`."""
    return tuple(sorted((first + at * machines // count) % machines for at in range(count))) if count else ()
