"""Dictionaries that know which of their entries may have changed, so that only these need be written.

Looking an entry up hands its value out: one that can be changed in place may be another afterwards, so it is compared
with what was stored. Every entry has a *place*, a number that grows in the order of the dictionary and is its own as
long as it is there. Places are what entries are stored under: their order is the dictionary's, and an entry that is
removed and comes back has another one.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from copy import copy
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

Plain: TypeAlias = "dict[Any, Any]"
Mark: TypeAlias = Callable[[Any], int]  # what tells a value from others when it is stored
if TYPE_CHECKING:
    _Dictionary = dict[Any, Any]
else:
    _Dictionary = object  # dict and its kinds have layouts that do not mix: what is added must have none

_FIXED = frozenset(
    {int, float, complex, bool, str, bytes, type(None), Decimal}
    | {dt.date, dt.time, dt.datetime, dt.timedelta}
    | {np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64}
    | {np.float16, np.float32, np.float64, np.str_, np.bytes_, np.datetime64, np.timedelta64}
)
NEW, SHOWN = object(), object()  # no value was stored at this place; one was that has been handed out since
_UNTOUCHED = object()
_EXACT = frozenset({int, bool, str, bytes, type(None)})  # equal ones are stored alike


def same(was: Any, value: Any) -> bool:
    """Tell whether two fixed values are known to be stored alike."""
    if was is value:
        return True
    kind = type(was)
    if kind is not type(value):
        return False
    if kind is tuple:
        return len(was) == len(value) and all(map(same, was, value))
    return kind in _EXACT and bool(was == value)


def is_fixed(value: Any) -> bool:
    """Tell whether a value cannot be changed in place."""
    kind = type(value)
    return kind in _FIXED or (kind in (tuple, frozenset) and all(map(is_fixed, value)))


class Tracker:
    """What is known of the entries of one dictionary since they were last stored."""

    __slots__ = ("_high", "_low", "all_shown", "coarse", "gone", "mark", "marks", "places", "touched")

    def __init__(self, mark: Mark, low: int = 0, high: int = 0) -> None:
        """Start with no entry; the next places are below `low` and from `high` on."""
        self.mark = mark
        self.places: dict[Hashable, int] = {}
        self.marks: dict[Hashable, int | None] = {}  # of all whose value is not fixed; None: not known
        self.touched: dict[Hashable, Any] = {}  # NEW, SHOWN, or the fixed value that was stored
        self.gone: set[int] = set()  # places that are stored and not used any more
        self.all_shown = False
        self.coarse = 0  # as often what is handed out is taken for changed: comparing it did not pay
        self._low, self._high = low, high

    def add(self, key: Hashable, *, first: bool = False) -> None:
        """Give a key that has none a place behind all others, or before them."""
        if first:
            self._low -= 1
        self.places[key] = self._low if first else self._high
        self._high += not first
        self.touched[key] = NEW

    def keep(self, entries: Iterable[tuple[Any, Any]], places: Sequence[int]) -> None:
        """Start with entries that are stored at these places, ascending."""
        keys = []
        for key, value in entries:
            keys.append(key)
            if type(value) not in _FIXED and not is_fixed(value):
                self.marks[key] = None
        self.places = dict(zip(keys, places, strict=True))
        if len(places):
            self._low, self._high = min(self._low, places[0]), max(self._high, places[-1] + 1)

    def remove(self, key: Hashable) -> None:
        """Take a key's place away."""
        place = self.places.pop(key, None)
        if place is not None and self.touched.pop(key, None) is not NEW:
            self.gone.add(place)
        self.marks.pop(key, None)

    def move(self, key: Hashable, *, first: bool) -> None:
        """Give a key another place, behind all others or before them."""
        self.remove(key)
        self.add(key, first=first)

    def settled(self) -> None:
        """Note that all is stored as it is."""
        self.touched.clear()
        self.gone.clear()
        self.all_shown = False

    def packed(self, values: Iterable[tuple[Any, Any]]) -> None:
        """Note that all is stored as it is, and that nobody has looked at each entry."""
        self.settled()
        self.marks = {key: None for key, value in values if type(value) not in _FIXED and not is_fixed(value)}

    def successor(self) -> Tracker:
        """Return the tracker of a dictionary that takes this one's place: no place comes again."""
        next_one = Tracker(self.mark, self._low, self._high)
        next_one.coarse = self.coarse
        return next_one

    @property
    def stored_places(self) -> set[int]:
        """The places that are stored, of entries that are there or went."""
        return self.gone | {place for key, place in self.places.items() if self.touched.get(key) is not NEW}

    def candidates(self) -> Iterator[tuple[Hashable, Any]]:
        """Yield the keys whose entries may differ from what is stored, each with what is known of it."""
        yield from self.touched.items()
        if self.all_shown:
            yield from ((key, SHOWN) for key in self.marks if key not in self.touched)


class Tracked(_Dictionary):
    """What all tracked dictionaries do otherwise than the dictionary that they are.

    Copies of one, by whatever way, are plain. `__iter__` is here because `dict(state)` and `{**state}` look nothing up
    in a subclass that has none of its own.
    """

    __slots__ = ()
    tracker: Tracker

    def __new__(cls, *_: Any, **__: Any) -> Any:
        made = super().__new__(cls)
        made.tracker = Tracker(lambda _: 0)  # of one that user code makes, nobody wants to know
        return made

    @property
    def has_more(self) -> bool:
        """Whether user code has given it attributes, which no entry holds."""
        return bool(getattr(self, "__dict__", None))

    def raw(self) -> Iterable[tuple[Any, Any]]:
        """Return the entries, in order, without handing them out."""
        return super().items()

    def raw_value(self, key: Hashable) -> Any:
        """Return a value that is there without handing it out."""
        return dict.__getitem__(self, key)

    def plain(self) -> Plain:
        """Return a copy that tracks nothing."""
        return dict(self.raw())

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__()

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if type(value) not in _FIXED:
            self._show(key, value)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        value = super().get(key, default)
        if type(value) not in _FIXED and key in self.tracker.places:
            self._show(key, value)
        return value

    def _show(self, key: Any, value: Any) -> None:
        tracker = self.tracker
        if key not in tracker.touched and not is_fixed(value):
            tracker.touched[key] = SHOWN
            if tracker.marks.get(key) is None and not tracker.coarse:
                tracker.marks[key] = tracker.mark(value)

    def _show_all(self) -> None:
        tracker = self.tracker
        if not tracker.all_shown:
            tracker.all_shown = True
            for key, mark in () if tracker.coarse else tracker.marks.items():
                if mark is None and tracker.touched.get(key, SHOWN) is SHOWN:
                    tracker.marks[key] = tracker.mark(self.raw_value(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        tracker = self.tracker
        if key not in tracker.places:
            tracker.add(key)
        elif key not in tracker.touched:
            before = self.raw_value(key)
            if is_fixed(before):
                tracker.touched[key] = before
            else:
                self._show(key, before)
        super().__setitem__(key, value)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self.tracker.places:
            self[key] = default
        return self[key]

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self.tracker.remove(key)

    def pop(self, key: Any, *default: Any) -> Any:
        value = super().pop(key, *default)
        self.tracker.remove(key)
        return value

    def popitem(self, *order: Any, **named: Any) -> tuple[Any, Any]:
        key, value = super().popitem(*order, **named)
        self.tracker.remove(key)
        return key, value

    def clear(self) -> None:
        super().clear()
        for key in list(self.tracker.places):
            self.tracker.remove(key)

    def update(self, *others: Any, **named: Any) -> None:
        for key, value in dict(*others, **named).items():
            self[key] = value

    def values(self) -> Any:
        self._show_all()
        return super().values()

    def items(self) -> Any:
        self._show_all()
        return super().items()

    def copy(self) -> Any:
        self._show_all()
        return self.plain()

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __copy__(self) -> Any:
        return self.copy()

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return copy, (self.plain(),)


class TrackedDict(Tracked, dict[Any, Any]):
    """A dict."""

    __slots__ = ("tracker",)


class TrackedDefaultDict(Tracked, defaultdict[Any, Any]):
    """A dict that makes what is missing."""

    __slots__ = ("tracker",)

    def plain(self) -> Plain:
        return defaultdict(self.default_factory, self.raw())


class TrackedOrderedDict(Tracked, OrderedDict[Any, Any]):
    """A dict whose entries can be moved to its ends."""

    __slots__ = ("tracker",)

    def plain(self) -> Plain:
        copy = OrderedDict(self.raw())
        vars(copy).update(vars(self))
        return copy

    def move_to_end(self, key: Any, last: bool = True) -> None:  # noqa: FBT001, FBT002 - as it is there
        super().move_to_end(key, last)
        self.tracker.move(key, first=not last)


class TrackedCounter(Counter[Any], TrackedDict):
    """A dict of counts. It counts with its own methods, and those change it through what is tracked."""

    __slots__ = ()

    def plain(self) -> Plain:
        copy: Counter[Any] = Counter()
        dict.update(copy, self.raw())
        vars(copy).update(vars(self))
        return copy

    def copy(self) -> Any:
        return TrackedDict.copy(self)


_KINDS: dict[type, type[Tracked]] = {
    dict: TrackedDict,
    defaultdict: TrackedDefaultDict,
    OrderedDict: TrackedOrderedDict,
    Counter: TrackedCounter,
}
for _plain, _tracked in _KINDS.items():
    _tracked.__name__ = _plain.__name__  # as it shows itself


def is_trackable(state: Any) -> bool:
    """Tell whether a state is a dictionary of a known kind, and nothing beside its entries.

    Classes of users may change what they hold without anybody to notice.
    """
    return type(state) in _KINDS and not getattr(state, "__dict__", None)


def emptied(state: Tracked) -> Plain:
    """Return an empty plain dictionary that makes what is missing as this one does."""
    if isinstance(state, TrackedDefaultDict):
        return defaultdict(state.default_factory)
    kind = next(plain for plain, kind in _KINDS.items() if type(state) is kind)
    return cast("Plain", kind())


def fill(state: Plain, entries: Iterable[tuple[Any, Any]]) -> None:
    """Put entries in, neither counted nor tracked."""
    if isinstance(state, OrderedDict):
        for key, value in entries:
            OrderedDict.__setitem__(state, key, value)
    else:
        dict.update(state, entries)


def tracked(state: Plain, tracker: Tracker) -> Tracked:
    """Return a tracked copy of a dictionary; the tracker knows its entries."""
    kind = _KINDS[type(state)]
    copy = cast("Tracked", kind.__new__(kind))
    if isinstance(state, defaultdict):
        cast("TrackedDefaultDict", copy).default_factory = state.default_factory
    fill(copy, state.items())
    copy.tracker = tracker
    return copy


def succeeding(state: Plain, before: Tracked) -> Tracked:
    """Return a tracked copy of a dictionary that takes the place of another one: what is the same stays stored.

    Entries keep their places as far as they stand in the same order from the beginning on.
    """
    old, new = before.tracker, before.tracker.successor()
    kept, places = _in_order(state, old)
    new.keep(((key, state[key]) for key in kept), places)
    for key in list(state)[len(kept) :]:
        new.add(key)
    before._show_all()  # noqa: SLF001 - both are held here
    stored = dict.__getitem__
    for key in kept:
        known = old.touched.get(key, _UNTOUCHED)
        if key in old.marks:
            new.marks[key] = old.marks[key]
            new.touched[key] = SHOWN
        elif known is not _UNTOUCHED:
            new.touched[key] = known
        else:
            was = stored(before, key)
            if not same(was, state[key]):
                new.touched[key] = was
    new.gone = old.stored_places.difference(places)
    return tracked(state, new)


def _in_order(state: Plain, old: Tracker) -> tuple[list[Any], list[int]]:
    """Return the keys that a dictionary begins with and that stand in the same order where they are stored."""
    kept, places, last = [], [], None
    for key in state:
        place = old.places.get(key)
        if place is None or (last is not None and place < last) or old.touched.get(key) is NEW:
            break
        kept.append(key)
        places.append(place)
        last = place
    return kept, places
