"""SCENARIO.toml: a what-if as anyone can write it down, read into a scenario of the quantum level.

::

    title = "a hotspot on one of eight lanes"
    lanes = 8
    slots = 256                       # default 256
    duration_s = 60

    [load]
    records_per_s = 100_000
    skew = "hotspot"                  # uniform, zipf (exponent, keys) or hotspot (lanes or slots, share)
    lanes = [0]
    share = 0.5

    [lane]
    records_per_s = 20_000            # what an ordinary lane serves
    memory_bytes = 1e9                # left out: all slots fit
    start_s = 1.0                     # how long a new lane takes to start

    [slot]
    state_bytes = 1e6

    [balance]
    policy = "even"                   # and policy_options, strategy, strategy_options
    handover = "at once"              # at the timestamp, at once, pause all, forward and merge
    controller = { window_epochs = 2 }

    [move]                            # what moving costs
    seconds_per_byte = 1e-8
    seconds_per_move = 1e-3
    network_bytes_per_s = 1.25e8

    [time]
    step_s = 0.1
    epoch_s = 1.0
    row_s = 2.0

    [[event]]
    kind = "hotspot"                  # hotspot, moving-hotspot, spike, slow-lane, memory, add-lanes
    at_s = 30
    until_s = 45                      # left out: until the end
    lanes = [3]
    share = 0.6

Lanes of a hotspot stand for the slots that they own at the start, when a policy with a table of its own (the ring of
`dpa-halving` and `dpa-doubling`) has that one. Later hotspots replace earlier ones while they last; a spike multiplies
whatever comes. Numbers end at 1e15, and no more records may come: beyond it they could not be counted one by one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np

from evenflow.control import ControllerOptions
from evenflow.errors import InputError
from evenflow.migration import DEFAULT_STRATEGY, Strategy, strategy_named
from evenflow.model import DEFAULT_SLOTS, RoutingTable
from evenflow.model.registry import fitted_options
from evenflow.model.slots import FloatArray
from evenflow.policies import DEFAULT_POLICY, Policy, policy_named, starting_table
from evenflow.sim.quantum import Handover, Memory, Network, Scenario, Way
from evenflow.sim.quantum.arrivals import Arrivals, During, InTurn, Steady, uniform, with_hotspot
from evenflow.sim.quantum.network import UNLIMITED
from evenflow.workloads.skew import zipf_shares

MOST = 1e15  # whole numbers up to here, and sums of them, are exact as floats

Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=MOST)]
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MOST)]
Noticeable: TypeAlias = Annotated[float, msgspec.Meta(ge=1e-9, le=MOST)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
Few: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Many: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Numbers: TypeAlias = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
Ways: TypeAlias = Literal["at the timestamp", "at once", "pause all", "forward and merge"]
FOREVER = float("inf")


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file; a key it does not have is an error."""


class LoadPart(_Part, frozen=True, kw_only=True):
    """`[load]`: what arrives."""

    records_per_s: Noticeable
    skew: Literal["uniform", "zipf", "hotspot"] = "uniform"
    exponent: Annotated[float, msgspec.Meta(ge=0, le=20)] = 1.0
    keys: Many = 100_000
    lanes: Numbers = ()
    slots: Numbers = ()
    share: Share = 0.5
    poisson: bool = True


class LanePart(_Part, frozen=True, kw_only=True):
    """`[lane]`: what an ordinary lane can do."""

    records_per_s: Noticeable
    memory_bytes: Positive | None = None
    start_s: NotNegative = 1.0


class SlotPart(_Part, frozen=True, kw_only=True):
    """`[slot]`: what a slot holds."""

    state_bytes: NotNegative = 0.0


class BalancePart(_Part, frozen=True, kw_only=True):
    """`[balance]`: who decides and how slots change hands."""

    policy: str = DEFAULT_POLICY
    policy_options: dict[str, Any] = {}
    strategy: str = DEFAULT_STRATEGY
    strategy_options: dict[str, Any] = {}
    handover: Ways = "at once"
    mergeable: bool = False
    controller: dict[str, Any] = {}


class MovePart(_Part, frozen=True, kw_only=True):
    """`[move]`: what moving costs each of the two lanes, and the network."""

    seconds_per_byte: NotNegative = 1e-8
    seconds_per_move: NotNegative = 1e-3
    network_bytes_per_s: Positive | None = None
    network_latency_s: NotNegative = 0.0


class TimePart(_Part, frozen=True, kw_only=True):
    """`[time]`: the quantum, the epoch and the row of the timeline."""

    step_s: Noticeable = 0.1
    epoch_s: Positive = 1.0
    row_s: Positive | None = None


class _Event(_Part, frozen=True, tag_field="kind", kw_only=True):
    at_s: NotNegative
    until_s: Annotated[float, msgspec.Meta(gt=0)] = FOREVER


class Hotspot(_Event, frozen=True, tag="hotspot", kw_only=True):
    """`share` of the records goes to some slots."""

    share: Share
    lanes: Numbers = ()
    slots: Numbers = ()


class MovingHotspot(_Event, frozen=True, tag="moving-hotspot", kw_only=True):
    """A hotspot that stays `every_s` on each of `lanes`, in turn."""

    share: Share
    every_s: Positive
    lanes: Numbers


class Spike(_Event, frozen=True, tag="spike", kw_only=True):
    """All rates are `factor` times as high."""

    factor: Noticeable


class SlowLane(_Event, frozen=True, tag="slow-lane", kw_only=True):
    """Lanes have a part of their speed only."""

    lanes: Numbers
    speed: Noticeable


class MemoryPressure(_Event, frozen=True, tag="memory", kw_only=True):
    """Lanes have so much memory only."""

    lanes: Numbers
    memory_bytes: NotNegative


class AddLanes(_Event, frozen=True, tag="add-lanes", kw_only=True):
    """More lanes are started."""

    count: Few


AnyEvent: TypeAlias = Hotspot | MovingHotspot | Spike | SlowLane | MemoryPressure | AddLanes


class ScenarioFile(_Part, frozen=True, kw_only=True):
    """The whole file."""

    lanes: Few
    load: LoadPart
    lane: LanePart
    title: str = ""
    slots: Many = DEFAULT_SLOTS
    duration_s: Positive = 60.0
    seed: Annotated[int, msgspec.Meta(ge=0)] = 1
    slot: SlotPart = SlotPart()
    balance: BalancePart = BalancePart()
    move: MovePart = MovePart()
    time: TimePart = TimePart()
    event: tuple[AnyEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A scenario with all that decides in it; `lanes_at` are lanes that are started by hand: when, and how many."""

    title: str
    seed: int
    scenario: Scenario
    policy: Policy
    strategy: Strategy
    options: ControllerOptions
    names: dict[str, str]
    lanes_at: tuple[tuple[float, int], ...] = ()


def read_scenario(text: bytes, name: str, seed: int | None = None) -> WhatIf:
    """Parse a file; every error names `name` and the key, what was expected and what came."""
    try:
        file = msgspec.toml.decode(text, type=ScenarioFile)
    except msgspec.ValidationError as error:
        raise InputError(_explained(str(error), name)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name} is not TOML: {error}") from error
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
        controller_options(balance.controller),
        {"policy": balance.policy, "strategy": balance.strategy, "handover": balance.handover},
        tuple((event.at_s, event.count) for event in file.event if isinstance(event, AddLanes)),
    )


def controller_options(given: dict[str, Any]) -> ControllerOptions:
    """Return the brakes; a name there is none of is an error that lists those there are."""
    known = [name for name in ControllerOptions.__dataclass_fields__ if name != "move_cost"]
    for name in given:
        if name not in known:
            raise InputError(f"balance.controller: there is no key {name!r}; known: {', '.join(known)}")
    return ControllerOptions(**fitted_options("balance.controller", ControllerOptions, given))


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


def _explained(message: str, name: str) -> str:
    """Turn the decoder's words into: file, key, what was expected, what came."""
    what, _, where = message.partition(" - at ")
    place = where.strip("`").removeprefix("$").lstrip(".")
    unknown = re.search(r"unknown field `([^`]+)`", what)
    if unknown:
        known = _keys_at(place)
        near = get_close_matches(unknown[1], known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        inside = f" in {place}" if place else ""
        return f"{name}: there is no key {unknown[1]!r}{inside}; known: {', '.join(known)}{hint}"
    missing = re.search(r"missing required field `([^`]+)`", what)
    if missing:
        return f"{name}: {place + ': ' if place else ''}the key {missing[1]!r} is missing"
    if place.endswith(".kind"):
        what += f"; known: {', '.join(_TAGS)}"
    return f"{name}: {place or 'top level'}: {what[:1].lower()}{what[1:]}"


_EVENTS: tuple[type[_Event], ...] = (Hotspot, MovingHotspot, Spike, SlowLane, MemoryPressure, AddLanes)
_TAGS = tuple(str(kind.__struct_config__.tag) for kind in _EVENTS)
_TABLES: dict[str, type[_Part]] = {
    "load": LoadPart,
    "lane": LanePart,
    "slot": SlotPart,
    "balance": BalancePart,
    "move": MovePart,
    "time": TimePart,
}


def _keys_at(place: str) -> list[str]:
    """Return the keys that a table of the file may have."""
    first = re.split(r"[.\[]", place)[0]
    if first == "event":
        fields = {field for kind in _EVENTS for field in kind.__struct_fields__}
        return ["kind", *sorted(fields)]
    return list(_TABLES.get(first, ScenarioFile).__struct_fields__)
