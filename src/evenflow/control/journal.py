"""The journal: a typed record of every decision, refusal, move and phase; progress, plots and tests read it."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from evenflow.migration import Event, Phase
from evenflow.model import Balance, Epoch, LaneId, LoadWindow, Move, RoutingTable, SlotId, UnitNames


class Refusal(Enum):
    """Why something that was asked for is not done, or not yet."""

    BAD_PROPOSAL = "the policy proposed something that cannot be"
    BAD_REQUEST = "what was asked for by hand cannot be"
    GAIN_TOO_SMALL = "the gain is below the minimum"
    COOLING_DOWN = "the last moves are too recent"
    BYTES_IN_FLIGHT = "too much state would be in flight"
    LANES_ARE_FIXED = "the number of lanes may not change"
    LANES_DO_NOT_COME = "lanes that were asked for are not there"
    LAST_LANE = "there is no other lane"
    LANES_WOULD_STOP = "all lanes would stop again before they have caught up"


@dataclass(frozen=True, slots=True)
class Entry:
    """What all entries have: the newest epoch at the time."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class WindowClosed(Entry):
    """All reports of a window are there."""

    epochs: tuple[Epoch, Epoch]
    balance: Balance


@dataclass(frozen=True, slots=True)
class WindowDropped(Entry):
    """A window is not used; `why` tells the reason."""

    epochs: tuple[Epoch, Epoch]
    why: str


@dataclass(frozen=True, slots=True)
class ReportIgnored(Entry):
    """A load report that came too late, twice, or from a stranger."""

    lane: LaneId
    report_epoch: Epoch
    why: str


@dataclass(frozen=True, slots=True)
class Decided(Entry):
    """The policy was asked; `moves` may be empty, `note` says why.

    `lanes`: those that it was asked about, while others were in moves; empty if about all. `plan` is the number of the
    plan that the moves make, 0 if there are none.
    """

    policy: str
    moves: tuple[Move, ...]
    steps: int
    not_curable: tuple[SlotId, ...]
    before: Balance
    after: Balance
    bytes_moved: int
    note: str
    lanes: tuple[LaneId, ...] = ()
    plan: int = 0


@dataclass(frozen=True, slots=True)
class Refused(Entry):
    """Moves that were proposed and are not made (or, for bytes in flight, not yet)."""

    refusal: Refusal
    moves: tuple[Move, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Requested(Entry):
    """Moves asked for by hand, or a plan queued for later epochs."""

    moves: tuple[Move, ...]
    plan: int = 0


@dataclass(frozen=True, slots=True)
class StepWaits(Entry):
    """The next step of a plan could begin if nothing were in its way; told once for each thing that is."""

    plan: int
    moves: tuple[Move, ...]
    why: str


@dataclass(frozen=True, slots=True)
class PhaseChanged(Entry):
    """A move of a plan took a step in its life; plan 0 is whatever there was before a restart."""

    move: Move
    event: Event
    before: Phase
    after: Phase
    plan: int = 0


@dataclass(frozen=True, slots=True)
class StateMoved(Entry):
    """The state of a slot has left its lane; `seconds` is what the lane took to write all it handed off at once.

    `ahead`: it was loaded by the new lane while the old one still served it, and that took the new lane so long.
    """

    move: Move
    keys: int
    state_bytes: int
    seconds: float
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class AckIgnored(Entry):
    """An acknowledgement of a move that is not known (any more), or that tells nothing new."""

    slot: SlotId
    event: Event
    why: str


@dataclass(frozen=True, slots=True)
class LanesWanted(Entry):
    """The policy wants another number of lanes."""

    lanes: int
    why: str


@dataclass(frozen=True, slots=True)
class LanesChanged(Entry):
    """Lanes were added or removed, or one was lost and restarts, or does not come back: its slots go to others."""

    lanes: tuple[LaneId, ...]
    lost: tuple[LaneId, ...] = ()
    gone: tuple[LaneId, ...] = ()


AnyEntry = TypeVar("AnyEntry", bound=Entry)

_OF_QUERY = 2_000  # entries of a kind
_ASIDE = 8  # as many as one entry weigh those that explain a gap, and no decision: they come in swarms
_SLOTS_OF_QUERY = 1 << 18


@dataclass
class Journal:
    """Keeps the newest `keep` entries of each kind in order, and the newest load windows, of `keep_slots` slots in all.

    An entry that names many moves counts for as many: a plan may move all slots there are.
    Windows are for replaying (`evenflow simulate --replay`) and planning again; entries tell what was made of them.
    What comes with every epoch does not push out what comes with a move; `dropped` counts what is not kept any more.
    """

    keep: int = 100_000
    keep_slots: int = 1 << 19
    names: UnitNames = field(default_factory=UnitNames)
    heard: Callable[[Entry], None] = lambda _entry: None  # is told of every entry
    dropped: Counter[str] = field(default_factory=Counter)  # by kind
    _entries: dict[type[Entry], deque[tuple[int, Entry]]] = field(default_factory=dict)  # numbered as they came
    _weights: Counter[type[Entry]] = field(default_factory=Counter)  # of what is kept
    _count: int = 0
    _windows: deque[tuple[LoadWindow, RoutingTable]] = field(default_factory=deque)

    @classmethod
    def of_query(cls, names: UnitNames | None = None) -> Journal:
        """Return the journal of a query that may run for months: some hours of epochs, and moves of as many weeks."""
        return cls(keep=_OF_QUERY, keep_slots=_SLOTS_OF_QUERY, names=names or UnitNames())

    def record(self, entry: Entry) -> None:
        """Add one entry."""
        kind = type(entry)
        kept = self._entries.setdefault(kind, deque())
        kept.append((self._count, entry))
        self._count += 1
        self._weights[kind] += _weight(entry)
        while self._weights[kind] > self.keep and len(kept) > 1:
            _, oldest = kept.popleft()
            self._weights[kind] -= _weight(oldest)
            self.dropped[kind.__name__] += 1
        self.heard(entry)

    def keep_window(self, window: LoadWindow, table: RoutingTable) -> None:
        """Add a window and the table in force."""
        self._windows.append((window, table))
        while len(self._windows) > max(1, self.keep_slots // table.slots):
            self._windows.popleft()

    @property
    def windows(self) -> tuple[tuple[LoadWindow, RoutingTable], ...]:
        """The newest windows with the table in force, oldest first."""
        return tuple(self._windows)

    def of(self, kind: type[AnyEntry]) -> list[AnyEntry]:
        """Return all entries of one kind, oldest first."""
        return [entry for entry in self if isinstance(entry, kind)]

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return all entries as plain values for JSON, each with its `kind`; an infinite number is None.

        Entries hold units; here they have the names that people know them by.
        """
        return [{"kind": type(entry).__name__, **_named(self.names, _plain(entry))} for entry in self]

    def __iter__(self) -> Iterator[Entry]:
        """Go through the entries there are now, oldest first; others may record more meanwhile."""
        kinds = [list(kept) for kept in list(self._entries.values())]
        return (entry for _, entry in heapq.merge(*kinds, key=itemgetter(0)))

    def __len__(self) -> int:
        """Return the number of entries kept."""
        return sum(map(len, self._entries.values()))


def _weight(entry: Entry) -> int:
    """Return for how many entries one counts."""
    if isinstance(entry, WindowDropped | ReportIgnored | AckIgnored):
        return _ASIDE
    return max(1, len(entry.moves)) if isinstance(entry, Decided | Refused | Requested | StepWaits) else 1


def _plain(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON would give it back; policies may have named slots by numpy's numbers."""
    encoded = msgspec.json.encode(entry, enc_hook=lambda number: number.item())
    plain: dict[str, Any] = msgspec.json.decode(encoded)
    return plain


def _named(names: UnitNames, value: Any) -> Any:
    """Return plain values with the names of units for their numbers, however deep they lie."""
    if isinstance(value, list):
        return [_named(names, each) for each in value]
    if not isinstance(value, dict):
        return value
    row = {key: _named(names, each) for key, each in value.items()}
    if len(names.stages) > 1 and "not_curable" in row:
        row["not_curable"] = [names.of(unit) for unit in row["not_curable"]]
    return names.named(row)
