"""The WINDOW.json format: what lanes and slots cost, written down by people or monitoring tools.

``{"lanes": [{"lane": 0, "idle_s": 0.1, "window_s": 1.0, "memory_budget": null, "queue": 120}, ...],
"slots": [{"slot": 0, "lane": 0, "records": 120, "busy_s": 0.02, "state_bytes": 4096, "pending": 0,
"spilled": false}, ...], "epochs": [7, 7], "all_served": false}``, or a list of such objects, oldest first. Only `lane`,
`slot` and the slot's `lane` must be there. What is left out:

* `epochs`, the first and the last of the window: it is one epoch long and follows the window before it;
* `all_served`: false; true says that epochs were reported once all of them was served (see `LoadWindow`);
* `idle_s`: what the lane's slots leave of `window_s`; `queue`: what pends on the lane's slots;
* `busy_s`: where other slots have it, records at their mean cost; else the lane's busy span shared out by
  records; else records alone count, the busiest lane being taken as fully busy.

A journal that a query has saved (`Query.save_journal`) is an object ``{"windows": [...], "journal": [...]}``: the same
windows, and what was decided on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec
import numpy as np

from evenflow.control.journal import Journal, WindowDropped
from evenflow.errors import InputError
from evenflow.model import Epoch, LaneLoad, LoadWindow, RoutingTable, SlotId, SlotLoads
from evenflow.model.slots import FloatArray

MOST = 10**15  # whole numbers up to here, and sums of them, are exact as floats

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MOST)]
Span: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=MOST)]


class LaneJson(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of `lanes`."""

    lane: Number
    idle_s: Seconds | None = None
    window_s: Span = 1.0
    memory_budget: Number | None = None
    queue: Count | None = None
    crowded_s: Seconds = 0.0


class SlotJson(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of `slots`."""

    slot: Number
    lane: Number
    records: Count = 0
    busy_s: Seconds | None = None
    state_bytes: Count = 0
    pending: Count = 0
    spilled: bool = False


class WindowJson(msgspec.Struct, forbid_unknown_fields=True):
    """One window."""

    lanes: list[LaneJson]
    slots: list[SlotJson]
    epochs: tuple[Count, Count] | None = None
    all_served: bool = False


@dataclass(frozen=True, slots=True)
class WindowFile:
    """What a file holds: windows, oldest first, the newest one's table, and the slots' own numbers.

    `dropped`: the epochs of windows that the query's policy was not shown, since lanes had just started, say.
    """

    windows: tuple[LoadWindow, ...]
    table: RoutingTable
    labels: tuple[SlotId, ...]
    first_table: RoutingTable | None = None
    dropped: frozenset[tuple[Epoch, Epoch]] = frozenset()

    @property
    def shown(self) -> tuple[LoadWindow, ...]:
        """The windows to decide on: those that a policy would have been shown, and the newest."""
        return (*(window for window in self.windows[:-1] if window.epochs not in self.dropped), self.windows[-1])


class _EntryJson(msgspec.Struct):
    """An entry of a saved journal: all of it is for people, but for what tells that a window was dropped."""

    kind: str
    epochs: tuple[Epoch, Epoch] | None = None


class _JournalJson(msgspec.Struct):
    """A saved journal."""

    windows: list[WindowJson]
    journal: list[_EntryJson] = []

    @property
    def dropped(self) -> frozenset[tuple[Epoch, Epoch]]:
        return frozenset(
            entry.epochs for entry in self.journal if entry.kind == WindowDropped.__name__ and entry.epochs
        )


_DECODER = msgspec.json.Decoder(WindowJson | list[WindowJson])
_JOURNAL_DECODER = msgspec.json.Decoder(_JournalJson)


def read_window_json(text: bytes, name: str = "window") -> WindowFile:
    """Parse one window or several; every error names `name` and the field, and says what was expected."""
    try:
        journal = _JOURNAL_DECODER.decode(text) if _is_journal(text) else None
        decoded = journal.windows if journal else _DECODER.decode(text)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$").lstrip(".") or "top level"
        raise InputError(f"{name}: {field}: {what[:1].lower()}{what[1:]}") from error
    except msgspec.DecodeError as error:
        raise InputError(f"{name} is not JSON: {error}") from error
    parsed = decoded if isinstance(decoded, list) else [decoded]
    if not parsed:
        raise InputError(f"{name}: expected at least one window, got an empty list")
    newest = parsed[-1]
    labels = _slot_numbers(newest, name)
    table = _table(newest, name)
    epochs = _epochs(parsed, name)
    windows = tuple(
        _window(window, labels, span, f"{name}: window {at}")
        for at, (window, span) in enumerate(zip(parsed, epochs, strict=True))
    )
    dropped = journal.dropped if journal else frozenset()
    return WindowFile(windows, table, tuple(labels.tolist()), _table(parsed[0], f"{name}: window 0"), dropped)


def write_journal_json(journal: Journal) -> bytes:
    """Return a journal as JSON that `read_window_json` reads: its windows, and all entries for people."""
    windows = [_as_json(window, table) for window, table in journal.windows]
    return msgspec.json.encode({"windows": windows, "journal": journal.as_dicts()})


def _as_json(window: LoadWindow, table: RoutingTable) -> WindowJson:
    loads = window.slots
    lanes = [
        LaneJson(one.lane, one.idle_s, one.window_s, one.memory_budget, one.queue, one.crowded_s)
        for one in window.lanes
    ]
    columns = (table.owners, loads.records, loads.busy_s, loads.state_bytes, loads.pending, loads.spilled)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return WindowJson(lanes, [SlotJson(slot, *row) for slot, row in enumerate(rows)], window.epochs, window.all_served)


def _is_journal(text: bytes) -> bool:
    """Tell a saved journal from a window by its keys; what is neither is left to the decoder to refuse."""
    try:
        return "windows" in msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return False


def _slot_numbers(window: WindowJson, name: str) -> np.typing.NDArray[np.int64]:
    """Return the slots' numbers, ascending; refuse none at all and duplicates."""
    if not window.lanes or not window.slots:
        raise InputError(
            f"{name}: expected at least 1 lane and 1 slot, got {len(window.lanes)} lanes and {len(window.slots)} slots"
        )
    numbers, counts = np.unique([slot.slot for slot in window.slots], return_counts=True)
    if (counts > 1).any():
        raise InputError(f"{name}: slot {numbers[counts > 1][0]} is listed {counts.max()} times; list each slot once")
    return numbers


def _table(window: WindowJson, name: str) -> RoutingTable:
    lanes = [lane.lane for lane in window.lanes]
    if len(set(lanes)) != len(lanes):
        twice = next(lane for lane in lanes if lanes.count(lane) > 1)
        raise InputError(f"{name}: lane {twice} is listed twice; list each lane once")
    known = set(lanes)
    for slot in window.slots:
        if slot.lane not in known:
            raise InputError(f"{name}: slot {slot.slot} is on lane {slot.lane}, but the lanes are {sorted(known)}")
    ordered = sorted(window.slots, key=lambda slot: slot.slot)
    return RoutingTable(np.array([slot.lane for slot in ordered]), tuple(lanes))


def _epochs(windows: Sequence[WindowJson], name: str) -> list[tuple[Epoch, Epoch]]:
    """Return the first and the last epoch of each window; refuse windows that do not come one after the other."""
    spans: list[tuple[Epoch, Epoch]] = []
    for at, window in enumerate(windows):
        least = spans[-1][1] + 1 if spans else 0
        first, last = window.epochs or (least, least)
        if not least <= first <= last:
            raise InputError(
                f"{name}: window {at}: expected epochs from {least} on, the first not above the last, "
                f"got {first} to {last}; list the windows oldest first"
            )
        spans.append((first, last))
    return spans


def _window(
    window: WindowJson, labels: np.typing.NDArray[np.int64], epochs: tuple[Epoch, Epoch], name: str
) -> LoadWindow:
    """Return one window with its slots in the order of `labels`; slots it does not list had no load."""
    table = _table(window, name)
    own = _slot_numbers(window, name)
    strange = np.setdiff1d(own, labels)
    if strange.size:
        raise InputError(f"{name}: slot {strange[0]} is not in the newest window")
    slots = sorted(window.slots, key=lambda slot: slot.slot)
    place = np.searchsorted(labels, own)

    def column(values: Sequence[float]) -> FloatArray:
        spread = np.zeros(labels.size)
        spread[place] = values
        return spread

    busy = _busy(window, slots)
    loads = SlotLoads(
        column([slot.records for slot in slots]).astype(np.int64),
        column(busy.tolist()),
        column([slot.state_bytes for slot in slots]).astype(np.int64),
        column([slot.pending for slot in slots]).astype(np.int64),
        column([slot.spilled for slot in slots]).astype(bool),
    )
    used = table.sum_by_lane(busy)
    waiting = table.sum_by_lane([slot.pending for slot in slots])
    position = {lane: at for at, lane in enumerate(table.lanes)}
    lanes = tuple(
        LaneLoad(
            lane.lane,
            max(0.0, lane.window_s - lane.crowded_s - used[position[lane.lane]])
            if lane.idle_s is None
            else lane.idle_s,
            lane.window_s,
            lane.memory_budget,
            int(waiting[position[lane.lane]]) if lane.queue is None else lane.queue,
            lane.crowded_s,
        )
        for lane in window.lanes
    )
    return LoadWindow(loads, lanes, epochs, window.all_served)


def _busy(window: WindowJson, slots: Sequence[SlotJson]) -> FloatArray:
    """Return the busy time of each slot, filled in where it is not given (see the module)."""
    records = np.array([slot.records for slot in slots], dtype=np.float64)
    given = np.array([slot.busy_s is not None for slot in slots])
    busy = np.array([slot.busy_s or 0.0 for slot in slots])
    if given.all():
        return busy
    if given.any():
        mean = busy[given].sum() / max(1.0, records[given].sum())
        return np.where(given, busy, records * mean)
    return records * _seconds_per_record(window, slots, records)


def _seconds_per_record(window: WindowJson, slots: Sequence[SlotJson], records: FloatArray) -> FloatArray:
    """Return what a record costs on each slot's lane when no slot tells."""
    served: dict[int, float] = {}
    for slot, count in zip(slots, records, strict=True):
        served[slot.lane] = served.get(slot.lane, 0.0) + float(count)
    most = max(1.0, *served.values())
    span = max(lane.window_s for lane in window.lanes)
    cost = {
        lane.lane: span / most
        if lane.idle_s is None
        else max(0.0, lane.window_s - lane.idle_s) / max(1.0, served.get(lane.lane, 0.0))
        for lane in window.lanes
    }
    return np.array([cost[slot.lane] for slot in slots])
