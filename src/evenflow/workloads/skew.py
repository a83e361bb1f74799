"""Bundled loads, uneven in different ways: what `evenflow plan --example` shows and the benchmarks compare on.

Each is a table and the windows seen so far, made from a seed; nothing here runs a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from evenflow.errors import UnknownNameError
from evenflow.model import LaneLoad, LoadWindow, RoutingTable, SlotLoads
from evenflow.model.slots import FloatArray

_SLOTS, _LANES, _RECORDS = 256, 8, 100_000
_COST_S = 2e-5  # busy seconds per record on an ordinary lane
_BYTES_PER_KEY = 100
_ONE_SLOW = (1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0)  # lane 5 is half as fast


@dataclass(frozen=True, slots=True)
class Workload:
    """A load to decide on: the table in force and the windows, oldest first; `slowness` is each lane's, by position."""

    name: str
    summary: str
    table: RoutingTable
    windows: tuple[LoadWindow, ...]
    slowness: tuple[float, ...]

    def under(self, table: RoutingTable) -> LoadWindow:
        """Return the newest window as it would look under another table of the same lanes."""
        newest, slow = self.windows[-1], np.array(self.slowness)
        busy = newest.slots.busy_s * slow[table.lane_positions()] / slow[self.table.lane_positions()]
        loads = replace(newest.slots, busy_s=busy)
        return LoadWindow(loads, _lanes_under(table, loads, newest.lanes[0].memory_budget))


def workload_named(name: str, seed: int = 1) -> Workload:
    """Return the bundled workload `name`; an unknown one is an error that lists those there are."""
    if name not in WORKLOADS:
        raise UnknownNameError("bundled workload", name, WORKLOADS)
    make, summary = WORKLOADS[name]
    table, windows = make(np.random.default_rng(seed))
    slowness = _ONE_SLOW if name == "slow-lane" else (1.0,) * len(table.lanes)
    return Workload(name, summary, table, windows, slowness)


def window_under(
    table: RoutingTable,
    records: npt.ArrayLike,
    state_bytes: npt.ArrayLike,
    *,
    cost_s: npt.ArrayLike = _COST_S,
    slowness: npt.ArrayLike = 1.0,
    budget: int | None = None,
    spilled: npt.ArrayLike = False,
) -> LoadWindow:
    """Return what a span of 1 s (more if a lane needs more) looks like when lanes serve `records` under `table`."""
    counts = np.round(np.asarray(records, dtype=np.float64))
    lane_of_slot = table.lane_positions()
    busy = counts * np.asarray(cost_s) * np.broadcast_to(slowness, len(table.lanes))[lane_of_slot]
    loads = SlotLoads.of(
        counts,
        busy,
        np.round(np.asarray(state_bytes, dtype=np.float64)),
        spilled=np.broadcast_to(spilled, table.slots),
    )
    return LoadWindow(loads, _lanes_under(table, loads, budget))


def _lanes_under(table: RoutingTable, loads: SlotLoads, budget: int | None) -> tuple[LaneLoad, ...]:
    """Return the lanes: as idle as the busiest leaves them, and behind by what an even lane would have done."""
    busy, records = table.sum_by_lane(loads.busy_s), table.sum_by_lane(loads.records)
    span = max(1.0, float(busy.max()))
    behind = records * np.maximum(0.0, 1.0 - busy.mean() / np.maximum(busy, 1e-12))
    return tuple(
        LaneLoad(lane, max(0.0, span - float(used)), span, budget, int(queue))
        for lane, used, queue in zip(table.lanes, busy, behind, strict=True)
    )


def zipf_shares(slots: int, exponent: float, rng: np.random.Generator, keys: int = 100_000) -> FloatArray:
    """Return each slot's share of a stream whose keys are Zipf distributed and hashed to slots."""
    weights = 1.0 / np.arange(1, keys + 1) ** exponent
    shares = np.bincount(rng.integers(0, slots, keys), weights=weights, minlength=slots)
    normalised: FloatArray = shares / shares.sum()
    return normalised


Made = tuple[RoutingTable, tuple[LoadWindow, ...]]


def _state(rng: np.random.Generator) -> FloatArray:
    """Return state that follows the number of keys in a slot, not their load."""
    return rng.poisson(400, _SLOTS).astype(np.float64) * _BYTES_PER_KEY


def _zipf(exponent: float) -> Callable[[np.random.Generator], Made]:
    def make(rng: np.random.Generator) -> Made:
        table = RoutingTable.even(_SLOTS, _LANES)
        shares = zipf_shares(_SLOTS, exponent, rng)
        return table, (window_under(table, rng.poisson(shares * _RECORDS), _state(rng)),)

    return make


def _uniform(rng: np.random.Generator) -> Made:
    table = RoutingTable.even(_SLOTS, _LANES)
    return table, (window_under(table, rng.poisson(_RECORDS / _SLOTS, _SLOTS), _state(rng)),)


def _hot_lane(rng: np.random.Generator) -> Made:
    table = RoutingTable.even(_SLOTS, 4)
    hot = table.owners == 0
    shares = np.where(hot, 0.8 / hot.sum(), 0.2 / (~hot).sum())
    return table, (window_under(table, rng.poisson(shares * _RECORDS), _state(rng)),)


def _hot_key(rng: np.random.Generator) -> Made:
    table = RoutingTable.even(_SLOTS, _LANES)
    shares = np.full(_SLOTS, 0.6 / _SLOTS)
    shares[17] += 0.4
    return table, (window_under(table, rng.poisson(shares * _RECORDS), _state(rng)),)


def _moving_hotspot(rng: np.random.Generator) -> Made:
    table = RoutingTable.even(_SLOTS, _LANES)
    windows = []
    for hot_lane in (2, 3, 4):
        hot = table.owners == hot_lane
        shares = np.where(hot, 0.5 / hot.sum(), 0.5 / (~hot).sum())
        windows.append(window_under(table, rng.poisson(shares * _RECORDS), _state(rng)))
    return table, tuple(windows)


def _costly_keys(rng: np.random.Generator) -> Made:
    table = RoutingTable.even(_SLOTS, _LANES)
    cost = np.where(rng.random(_SLOTS) < 0.1, 10 * _COST_S, _COST_S)  # a tenth of the slots is ten times as dear
    return table, (window_under(table, rng.poisson(_RECORDS / _SLOTS / 2, _SLOTS), _state(rng), cost_s=cost),)


def _slow_lane(rng: np.random.Generator) -> Made:
    table = RoutingTable.even(_SLOTS, _LANES)
    state = _state(rng)
    slow = np.array(_ONE_SLOW)
    before, *since = (rng.poisson(_RECORDS / _SLOTS, _SLOTS) for _ in range(3))
    return table, (
        window_under(table, before, state),
        *(window_under(table, records, state, slowness=slow) for records in since),  # one alone may be a bad moment
    )


def _heavy_state(rng: np.random.Generator) -> Made:
    table = RoutingTable.even(_SLOTS, _LANES)
    shares = zipf_shares(_SLOTS, 1.0, rng)
    return table, (window_under(table, rng.poisson(shares * _RECORDS), rng.lognormal(13, 2, _SLOTS)),)


def _memory_pressure(rng: np.random.Generator) -> Made:
    table = RoutingTable.even(_SLOTS, _LANES)
    full = np.where(table.owners == 0, 2.0, 1.0)
    state = rng.poisson(6_000, _SLOTS) * 1_000.0 * full
    budget = int(1.2 * 6e6 * _SLOTS / _LANES)
    over = np.flatnonzero((table.owners == 0) & (rng.random(_SLOTS) < 0.4))
    spilled = np.isin(np.arange(_SLOTS), over)
    records = rng.poisson(_RECORDS / _SLOTS, _SLOTS)
    return table, (window_under(table, records, state, budget=budget, spilled=spilled),)


WORKLOADS: dict[str, tuple[Callable[[np.random.Generator], Made], str]] = {
    "uniform": (_uniform, "nothing to do: every slot alike, Poisson noise"),
    "hot-lane": (_hot_lane, "80 % of the records in the slots of one of 4 lanes"),
    "hot-key": (_hot_key, "40 % of the records in one slot: not curable by moving"),
    "zipf-0.8": (_zipf(0.8), "keys Zipf 0.8"),
    "zipf-1.2": (_zipf(1.2), "keys Zipf 1.2"),
    "zipf-1.5": (_zipf(1.5), "keys Zipf 1.5: the top slot alone is too hot"),
    "moving-hotspot": (_moving_hotspot, "half of the records on one lane, another one in each window"),
    "costly-keys": (_costly_keys, "equal counts, but a tenth of the slots costs ten times as much per record"),
    "slow-lane": (_slow_lane, "uniform, one of 8 lanes has become half as fast"),
    "heavy-state": (_heavy_state, "Zipf 1.0 with state from kilobytes to gigabytes, unrelated to load"),
    "memory-pressure": (_memory_pressure, "one lane's state exceeds its budget and is partly spilled"),
}
