"""A scenario from a SCENARIO.toml: what arrives, how lanes do, who decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenflow.control import BalancerOptions
from evenflow.errors import InputError
from evenflow.migration import Strategy, strategy_named
from evenflow.model import LaneId, RoutingTable
from evenflow.model.registry import fitted_options
from evenflow.model.slots import FloatArray
from evenflow.policies import Policy, policy_named, starting_table
from evenflow.sim.quantum import Handover, Memory, Network, Scenario, Way
from evenflow.sim.quantum.arrivals import Arrivals, During, InTurn, Steady, uniform, with_hotspot
from evenflow.sim.quantum.network import UNLIMITED
from evenflow.sim.scenario_schema import (
    FOREVER,
    MOST,
    AddLanes,
    Hotspot,
    KillLane,
    MemoryPressure,
    MovingHotspot,
    ScenarioFile,
    SlowLane,
    Spike,
    parsed,
)
from evenflow.workloads.skew import zipf_shares


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A scenario with all that decides in it.

    `lanes_at` are lanes that are started by hand: when, and how many. `kills_at` are those that die: when, and which.
    """

    title: str
    seed: int
    scenario: Scenario
    policy: Policy
    strategy: Strategy
    options: BalancerOptions
    names: dict[str, str]
    lanes_at: tuple[tuple[float, int], ...] = ()
    kills_at: tuple[tuple[float, LaneId], ...] = ()


def read_scenario(text: bytes, name: str, seed: int | None = None) -> WhatIf:
    """Read a file; every error names `name`, what was expected and what came."""
    file = parsed(text, name)
    try:
        return _built(file, file.seed if seed is None else seed)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def _built(file: ScenarioFile, seed: int) -> WhatIf:
    balance, time, move = file.balance, file.time, file.move
    _refuse_bad_events(file)
    _refuse_bad_load(file)
    policy = policy_named(balance.policy, **balance.policy_options)
    table = starting_table(policy, file.slots, range(file.lanes))
    price = (move.seconds_per_byte, move.seconds_per_byte, move.seconds_per_move, move.seconds_per_move)
    epoch_steps = max(1, round(time.epoch_s / time.step_s))
    row_s = time.row_s or max(time.epoch_s, file.duration_s / 30)
    scenario = Scenario(
        lanes=file.lanes,
        slots=file.slots,
        arrivals=_arrivals(file, table, np.random.default_rng(seed)),
        seconds_per_record=1.0 / file.lane.records_per_s,
        state_bytes=file.slot.state_bytes,
        duration_s=file.duration_s,
        step_s=time.step_s,
        epoch_steps=epoch_steps,
        row_epochs=max(1, round(row_s / (time.step_s * epoch_steps))),
        handover=Handover(Way(balance.handover), *price),
        network=Network(cross_section=move.network_bytes_per_s or UNLIMITED, latency_s=move.network_latency_s),
        speeds=_Slowed(tuple(event for event in file.event if isinstance(event, SlowLane))),
        memory=_memory(file),
        mergeable=balance.mergeable,
        poisson=file.load.poisson,
        lane_start_s=file.lane.start_s,
        table=table,
    )
    return WhatIf(
        file.title,
        seed,
        scenario,
        policy,
        strategy_named(balance.strategy, **balance.strategy_options),
        balancer_options(balance.balancer),
        {"policy": balance.policy, "strategy": balance.strategy, "handover": balance.handover},
        tuple((event.at_s, event.count) for event in file.event if isinstance(event, AddLanes)),
        tuple((event.at_s, lane) for event in file.event if isinstance(event, KillLane) for lane in event.lanes),
    )


def balancer_options(given: dict[str, Any]) -> BalancerOptions:
    """Return the brakes; a name there is none of is an error that lists those there are."""
    known = [name for name in BalancerOptions.__dataclass_fields__ if name != "move_cost"]
    for name in given:
        if name not in known:
            raise InputError(f"balance.balancer: there is no key {name!r}; known: {', '.join(known)}")
    return BalancerOptions(**fitted_options("balance.balancer", BalancerOptions, given))


# --- what arrives ---------------------------------------------------------------------------------------------------


def _arrivals(file: ScenarioFile, table: RoutingTable, rng: np.random.Generator) -> Arrivals:
    load, slots, rate = file.load, file.slots, file.load.records_per_s
    arrivals: Arrivals = uniform(slots, rate)
    if load.skew == "zipf":
        arrivals = Steady(rate * zipf_shares(slots, load.exponent, rng, load.keys))
    elif load.skew == "hotspot":
        arrivals = with_hotspot(slots, rate, _hot("load", load.lanes, load.slots, table), load.share)
    for at, event in enumerate(file.event):
        if isinstance(event, Hotspot):
            hot = _hot(f"event {at + 1}", event.lanes, event.slots, table)
            arrivals = During(arrivals, with_hotspot(slots, rate, hot, event.share), event.at_s, event.until_s)
        elif isinstance(event, MovingHotspot):
            places = [
                with_hotspot(slots, rate, _hot(f"event {at + 1}", (lane,), (), table), event.share)
                for lane in event.lanes
            ]
            turns = _Since(InTurn(places, event.every_s), event.at_s)
            arrivals = During(arrivals, turns, event.at_s, event.until_s)
    for event in file.event:
        if isinstance(event, Spike):
            arrivals = During(arrivals, _Scaled(arrivals, event.factor), event.at_s, event.until_s)
    return arrivals


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Other arrivals, all `factor` times as many."""

    base: Arrivals
    factor: float

    def rates(self, at_s: float) -> FloatArray:
        return self.base.rates(at_s) * self.factor


@dataclass(frozen=True, slots=True)
class _Since:
    """Other arrivals, whose time begins at `start_s`."""

    base: Arrivals
    start_s: float

    def rates(self, at_s: float) -> FloatArray:
        return self.base.rates(max(0.0, at_s - self.start_s))


def _hot(who: str, lanes: Sequence[int], slots: Sequence[int], table: RoutingTable) -> list[int]:
    """Return the hot slots: those named, or all that the named lanes own at the start."""
    if bool(lanes) == bool(slots):
        got = "both" if lanes else "neither"
        raise InputError(f"{who}: a hotspot needs lanes = [...] or slots = [...], got {got}")
    chosen = sorted({*slots, *(int(slot) for lane in lanes for slot in table.slots_of(lane))})
    if not chosen:
        raise InputError(f"{who}: lanes {list(lanes)} own no slots at the start, so nothing can be hot there")
    if chosen[-1] >= table.slots:
        raise InputError(f"{who}: there is no slot {chosen[-1]}; slots are 0 to {table.slots - 1}")
    return chosen


# --- lanes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Slowed:
    """Lanes that are slow for a while; where two events meet, both are felt."""

    events: tuple[SlowLane, ...]

    def at(self, at_s: float, lanes: int) -> FloatArray:
        speeds = np.ones(lanes)
        for event in self.events:
            if event.at_s <= at_s < event.until_s:
                speeds[[lane for lane in event.lanes if lane < lanes]] *= event.speed
        return speeds


@dataclass(frozen=True, slots=True)
class _Budgets:
    """The same memory for all lanes, but less for some for a while."""

    bytes_each: float
    events: tuple[MemoryPressure, ...]

    def at(self, at_s: float, lanes: int) -> FloatArray:
        budgets = np.full(lanes, self.bytes_each)
        for event in self.events:
            if event.at_s <= at_s < event.until_s:
                budgets[[lane for lane in event.lanes if lane < lanes]] = event.memory_bytes
        return budgets


def _memory(file: ScenarioFile) -> Memory | None:
    events = tuple(event for event in file.event if isinstance(event, MemoryPressure))
    if file.lane.memory_bytes is None and not events:
        return None
    return Memory(_Budgets(FOREVER if file.lane.memory_bytes is None else file.lane.memory_bytes, events))


# --- mistakes -------------------------------------------------------------------------------------------------------


def _refuse_bad_events(file: ScenarioFile) -> None:
    most = file.lanes + sum(event.count for event in file.event if isinstance(event, AddLanes))
    named = [("load", file.load.lanes, file.lanes)]
    for at, event in enumerate(file.event):
        who = f"event {at + 1}"
        if event.until_s <= event.at_s:
            raise InputError(f"{who}: until_s ({event.until_s:g}) must be after at_s ({event.at_s:g})")
        if event.at_s >= file.duration_s:
            raise InputError(f"{who}: at_s ({event.at_s:g}) must be before the end, duration_s ({file.duration_s:g})")
        hot = isinstance(event, Hotspot | MovingHotspot)
        named.append((who, getattr(event, "lanes", ()), file.lanes if hot else most))
    for who, lanes, count in named:
        for lane in lanes:
            if lane >= count:
                raise InputError(f"{who}: there is no lane {lane}; lanes are 0 to {count - 1}")


def _refuse_bad_load(file: ScenarioFile) -> None:
    """Refuse places for a hotspot that the load does not have, and more records than can be counted."""
    load, spikes = file.load, [event.factor for event in file.event if isinstance(event, Spike)]
    if load.skew != "hotspot" and (load.lanes or load.slots):
        raise InputError(f"load: lanes and slots are for skew = 'hotspot', the skew is {load.skew!r}")
    records = load.records_per_s * file.duration_s * math.prod(max(1.0, factor) for factor in spikes)
    if records > MOST:
        raise InputError(
            f"load: {load.records_per_s:g} records per second, with all spikes, come to {records:g} in "
            f"{file.duration_s:g} s; at most {MOST:g} can be counted"
        )
