"""The nine loads of the cross table, each a scenario of the quantum level: 8 lanes, 64 slots, 40 s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evenflow.model import RoutingTable
from evenflow.sim.quantum import (
    Arrivals,
    During,
    Fixed,
    Handover,
    InTurn,
    Loaded,
    Memory,
    Network,
    Scenario,
    Steady,
    Way,
    uniform,
    with_hotspot,
)
from evenflow.workloads.skew import zipf_shares

LANES, SLOTS = 8, 64
COST_S = 1e-4  # of a record on an ordinary lane
USED = 0.6  # share of the lanes' time that the records need
PER_S = USED * LANES / COST_S
STATE_BYTES = 4e6  # of a slot
DURATION_S, STEP_S, EPOCH_STEPS = 40.0, 0.2, 5
HOT_SLOTS, HOT_SHARE = 6, 0.5  # so many slots get this share of the records: two on one lane overload it
HOT_KEY_SHARE = 0.16  # 77 % of what a lane can do: curable if nearly all else leaves its lane

_NETWORK = Network(point_to_point=50e6, cross_section=200e6)
_PHASE_S = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """What arrives, from when on that is unusual, and what is unusual about the cluster."""

    summary: str
    arrivals: Callable[[np.random.Generator], Arrivals]
    since_s: float = 0.0
    cluster: dict[str, Any] = field(default_factory=dict)


def scenario(load: str, way: Way, table: RoutingTable, seed: int) -> Scenario:
    """Return the scenario of `load`, with its random part drawn from `seed`."""
    chosen = LOADS[load]
    handover = Handover(way, 2e-9, 2e-9, extract_s=1e-3, install_s=1e-3, forward_s=COST_S / 10)
    return Scenario(
        lanes=LANES,
        slots=SLOTS,
        arrivals=chosen.arrivals(np.random.default_rng((seed, 11))),
        seconds_per_record=COST_S,
        state_bytes=STATE_BYTES,
        duration_s=DURATION_S,
        step_s=STEP_S,
        epoch_steps=EPOCH_STEPS,
        handover=handover,
        network=_NETWORK,
        mergeable=way is Way.FORWARD_MERGE,
        table=table,
        **chosen.cluster,
    )


def _even(_: np.random.Generator) -> Arrivals:
    return uniform(SLOTS, PER_S)


def _zipf(exponent: float) -> Callable[[np.random.Generator], Arrivals]:
    def draw(random: np.random.Generator) -> Arrivals:
        return Steady(PER_S * zipf_shares(SLOTS, exponent, random))

    return draw


def _hot_key(random: np.random.Generator) -> Arrivals:
    return with_hotspot(SLOTS, PER_S, [int(random.integers(SLOTS))], HOT_KEY_SHARE)


def _hotspot(random: np.random.Generator) -> Arrivals:
    """Return some hot slots, wherever they are: no policy's first table is favoured."""
    return with_hotspot(SLOTS, PER_S, random.permutation(SLOTS)[:HOT_SLOTS], HOT_SHARE)


def _moving(random: np.random.Generator) -> Arrivals:
    return InTurn([_hotspot(random) for _ in range(int(DURATION_S / _PHASE_S))], _PHASE_S)


def _spike(random: np.random.Generator) -> Arrivals:
    return During(uniform(SLOTS, PER_S), _hotspot(random), _PHASE_S, 2 * _PHASE_S)


_BEGINS_S = 5.0  # when a lane gets short of memory, or slow
_PRESSED = Memory(Fixed(1.25 * STATE_BYTES * SLOTS / LANES, (0,), 0.5 * STATE_BYTES * SLOTS / LANES, start_s=_BEGINS_S))
_SLOWED = Loaded([5], 0.5, start_s=_BEGINS_S)

LOADS: dict[str, Load] = {
    "uniform": Load("every slot alike", _even),
    "zipf 0.8": Load("keys Zipf 0.8", _zipf(0.8)),
    "zipf 1.2": Load("keys Zipf 1.2: the top key alone fills a lane almost", _zipf(1.2)),
    "zipf 1.5": Load("keys Zipf 1.5: the top key alone is 1.8 lanes' work, no move cures it", _zipf(1.5)),
    "hot key": Load("16 % of the records in one slot: curable if its lane gives nearly all else away", _hot_key),
    "moving hotspot": Load("half of the records in 6 slots, in 6 others every 10 s", _moving),
    "spike": Load("uniform, but for 10 s half of the records in 6 slots", _spike, _PHASE_S),
    "memory": Load(
        "uniform; one lane has memory for half of its state from 5 s on", _even, _BEGINS_S, {"memory": _PRESSED}
    ),
    "slow lane": Load("uniform; one lane at half speed from 5 s on", _even, _BEGINS_S, {"speeds": _SLOWED}),
}
