"""SCENARIO.toml: a what-if as anyone can write it down; what may stand in the file, and what is wrong with one.

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
    balancer = { window_epochs = 2 }

    [move]                            # what moving costs
    seconds_per_byte = 1e-8
    seconds_per_move = 1e-3
    network_bytes_per_s = 1.25e8

    [time]
    step_s = 0.1
    epoch_s = 1.0
    row_s = 2.0

    [[event]]
    kind = "hotspot"                  # hotspot, moving-hotspot, spike, slow-lane, memory, add-lanes, kill-lane
    at_s = 30
    until_s = 45                      # left out: until the end
    lanes = [3]
    share = 0.6

Lanes of a hotspot stand for the slots that they own at the start, when a policy with a table of its own (the ring of
`dpa-halving` and `dpa-doubling`) has that one. Later hotspots replace earlier ones while they last; a spike multiplies
whatever comes. Numbers end at 1e15, and no more records may come: beyond it they could not be counted one by one.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from evenflow.errors import InputError
from evenflow.migration import DEFAULT_STRATEGY
from evenflow.model import DEFAULT_SLOTS
from evenflow.policies import DEFAULT_POLICY

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
    balancer: dict[str, Any] = {}


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


class KillLane(_Event, frozen=True, tag="kill-lane", kw_only=True):
    """The processes of lanes die and are started again."""

    lanes: Numbers


AnyEvent: TypeAlias = Hotspot | MovingHotspot | Spike | SlowLane | MemoryPressure | AddLanes | KillLane


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


def parsed(text: bytes, name: str) -> ScenarioFile:
    """Parse a file; every error names `name` and the key, what was expected and what came."""
    try:
        return msgspec.toml.decode(text, type=ScenarioFile)
    except msgspec.ValidationError as error:
        raise InputError(_explained(str(error), name)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name} is not TOML: {error}") from error


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


_EVENTS: tuple[type[_Event], ...] = (Hotspot, MovingHotspot, Spike, SlowLane, MemoryPressure, AddLanes, KillLane)
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
