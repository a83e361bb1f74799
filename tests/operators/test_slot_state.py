"""A user's dictionary, entry by entry: what is written after any change is all of it, and no more than has changed."""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.operators import slot_state
from evenflow.operators.slot_state import ENTRIES, PACK, LiveState, RestingState, StateRow
from evenflow.operators.stored_state import StateCodec
from evenflow.operators.tracked import Tracked

ENDS = ["itself", "copy", "filtered", "recovered", "snapshot", "snapshot, recovered"]
PLAIN = (dict, defaultdict, OrderedDict, Counter)
KINDS: dict[str, Callable[[], dict[Any, Any]]] = {
    "dict": dict,
    "defaultdict": lambda: defaultdict(list),
    "OrderedDict": OrderedDict,
    "Counter": Counter,
}


def refused(state: Any, version: int) -> Any:
    raise AssertionError(f"upgrade of {state} from {version}")


class Slot:
    """A state as a lane has it, and what others would make of the rows that were written."""

    def __init__(self, state: Any) -> None:
        self.codec = StateCodec(object())
        self.live = LiveState(self.codec, 1, state)
        self.written = RestingState()

    @property
    def state(self) -> Any:
        return self.live.value

    def end_epoch(self, *returned: Any) -> list[StateRow]:
        """Write what has changed."""
        rows = self.live.update(returned[0] if returned else self.state)
        places = [row.place for row in rows]
        assert len(set(places)) == len(places), "a row twice"
        for row in rows:
            self.written.put(row)
        return rows

    def recover(self) -> None:
        """Go on from what was written."""
        self.live = LiveState.woken(self.codec, 1, copy.deepcopy(self.written), refused)

    def snapshot(self) -> None:
        """Write all of it."""
        for row in self.live.rows():
            self.written.put(row)

    def check(self, expected: Any) -> None:
        """Compare what was written, and a snapshot, with a state, order and kind included."""
        snapshot = RestingState()
        for row in self.live.rows():
            snapshot.put(row)
        rested = RestingState()
        for row in copy.deepcopy(self.written).rows(self.codec):
            rested.put(row)
        for stored in (self.written, snapshot, rested):
            found = stored.load(self.codec)
            assert len(stored) == (len(expected) if type(expected) in PLAIN else 1)
            assert type(found) is type(expected)
            assert found == expected
            if isinstance(expected, dict):
                assert list(map(repr, found.items())) == list(map(repr, expected.items()))
        assert snapshot.size == self.live.size


keys = st.sampled_from([0, 1, "a", "b", (1, "x"), None, 2.5])
values = st.sampled_from([0, 7, "text", None, 1.5, (1, 2)]) | st.lists(st.integers(0, 3), max_size=3)
OPERATIONS = st.one_of(
    st.tuples(st.just("set"), keys, values),
    st.tuples(st.just("change"), keys, st.integers(0, 9)),
    st.tuples(st.just("change by get"), keys, st.integers(0, 9)),
    st.tuples(
        st.just("change all"), st.sampled_from(["values", "items", "copy", "dict", "stars", "or"]), st.integers(0, 9)
    ),
    st.tuples(st.just("setdefault"), keys, values),
    st.tuples(st.just("delete"), keys, st.none()),
    st.tuples(st.just("pop"), keys, st.none()),
    st.tuples(st.just("popitem"), st.none(), st.none()),
    st.tuples(st.just("clear"), st.none(), st.none()),
    st.tuples(st.just("update"), st.dictionaries(keys, values, max_size=3), st.none()),
    st.tuples(st.just("ior"), st.dictionaries(keys, values, max_size=3), st.none()),
    st.tuples(st.just("move_to_end"), keys, st.booleans()),
    st.tuples(st.just("same again"), keys, st.none()),
)


def all_of(state: Any, way: str) -> Any:
    """Return the values of a state, handed out in some way."""
    ways: dict[str, Callable[[], Any]] = {
        "values": lambda: dict(enumerate(state.values())),
        "items": lambda: dict(state.items()),
        "copy": lambda: copy.copy(state),
        "dict": lambda: dict(state),
        "stars": lambda: {**{str(key): value for key, value in dict(state).items()}},
        "or": lambda: {} | state,
    }
    return list(dict.values(ways[way]()))


def carry_out(state: Any, what: str, one: Any, two: Any) -> None:  # noqa: C901, PLR0912 - one after the other
    if what == "set":
        state[one] = copy.deepcopy(two)
    elif what in ("change", "change by get") and one in state:
        value = state[one] if what == "change" else state.get(one)
        if isinstance(value, list):
            value.append(two)
    elif what == "change all":
        for value in all_of(state, one):
            if isinstance(value, list):
                value.append(two)
    elif what == "setdefault":
        state.setdefault(one, copy.deepcopy(two))
    elif what == "delete" and one in state:
        del state[one]
    elif what == "pop":
        state.pop(one, None)
    elif what == "popitem" and state:
        state.popitem()
    elif what == "clear":
        state.clear()
    elif what == "update" and not isinstance(state, Counter):
        state.update(copy.deepcopy(one))
    elif what == "ior" and not isinstance(state, Counter):
        state |= copy.deepcopy(one)
    elif what == "move_to_end" and isinstance(state, OrderedDict) and one in state:
        state.move_to_end(one, last=two)
    elif what == "same again" and one in state:
        state[one] = state[one]


@pytest.mark.parametrize("row_bytes", [64, 0])  # with 0, entries are hardly ever written together
@pytest.mark.parametrize("kind", KINDS)
@given(
    epochs=st.lists(
        st.tuples(
            st.lists(OPERATIONS, max_size=6),
            st.sampled_from(["itself", "copy", "filtered", "recovered", "snapshot", "snapshot, recovered"]),
        ),
        max_size=6,
    )
)
@settings(max_examples=120, deadline=None)
def test_what_is_written_is_the_state(kind: str, row_bytes: int, epochs: list[tuple[list[Any], str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot_state, "_ROW_BYTES", row_bytes)
        live_through(kind, epochs)


def live_through(kind: str, epochs: list[tuple[list[Any], str]]) -> None:
    slot, plain = Slot(KINDS[kind]()), KINDS[kind]()
    for operations, end in epochs:
        if "snapshot" in end and slot.written.head:
            slot.snapshot()
        if "recovered" in end and slot.written.head:
            slot.recover()
        for operation in operations:
            carry_out(slot.state, *operation)
            carry_out(plain, *operation)
            assert slot.state == plain
        if end == "copy":
            slot.end_epoch(slot.state.copy())
        elif end == "filtered" and kind == "dict":
            plain = {key: value for key, value in plain.items() if value}
            slot.end_epoch({key: value for key, value in slot.state.items() if value})
        else:
            slot.end_epoch()
        slot.check(plain)
        assert slot.end_epoch() == [], "nothing has changed since"


def test_only_entries_that_have_changed_are_written() -> None:
    slot = Slot({str(at): [at] for at in range(1000)} | {"number": 1})
    assert [row.place for row in slot.end_epoch()] == [None, PACK]
    slot.state["7"].append(8)
    slot.state["8"].append(9)
    slot.state["8"].pop()
    assert slot.state["9"] == [9]
    slot.state["number"] = 1
    for value in slot.state.values():
        assert value
    (row,) = slot.end_epoch()
    assert (row.place, pickle.loads(row.key or b"")) == (7, "7")  # noqa: S301
    del slot.state["3"]
    slot.state["new"] = None
    gone, new = slot.end_epoch()
    assert (gone.place, gone.stored, new.place) == (3, None, 1001)


def test_a_dictionary_that_is_made_anew_is_compared_with_the_one_before() -> None:
    slot = Slot({at: (f"{at:0100}",) for at in range(100)})
    slot.end_epoch()
    rows = slot.end_epoch({at: (f"{at:0100}",) for at in range(100) if at != 50} | {100: 1})
    assert [row.place for row in rows] == [50, 100]
    slot.end_epoch({at: (at,) for at in reversed(range(5))})
    slot.check({at: (at,) for at in reversed(range(5))})


def test_a_key_is_written_as_the_dictionary_has_it() -> None:
    slot = Slot({1.0: "a", 2: "b"})
    slot.end_epoch()
    slot.state[1] = "c"
    slot.state[np.int64(2)] = "d"
    slot.end_epoch()
    slot.check({1.0: "c", 2: "d"})


def test_the_user_sees_the_dictionary_that_it_is() -> None:
    for made in KINDS.values():
        plain = made()
        plain["a"] = 1
        plain["b"] = 2
        state = Slot(copy.copy(plain)).state
        assert isinstance(state, type(plain))
        assert isinstance(state, Tracked)
        assert (state == plain, plain == state, state != plain) == (True, True, False)
        assert repr(state) == repr(plain)
        for same in (copy.copy(state), copy.deepcopy(state), state.copy(), pickle.loads(pickle.dumps(state))):  # noqa: S301
            assert type(same) is type(plain)
            assert same == plain
            assert getattr(same, "default_factory", None) == getattr(plain, "default_factory", None)
        assert type(state | {"c": 3}) is type(plain | {"c": 3})
        assert json.dumps(state) == json.dumps(plain)
        assert pd.Series(["a", "b"]).map(state).tolist() == [1, 2]
        assert (list(state), len(state), "a" in state, list(reversed(state))) == (["a", "b"], 2, True, ["b", "a"])
        with pytest.raises(TypeError):
            state[[]] = 1
        state.__class__().update(z=1)  # a dictionary of its own
        assert "z" not in state
    with pytest.raises(KeyError):
        Slot({}).state["missing"]
    with pytest.raises(KeyError):
        del Slot({}).state["missing"]


def test_what_is_missing_is_made_and_written() -> None:
    slot, factory = Slot(defaultdict(list)), list
    slot.state["a"].append(1)
    slot.end_epoch()
    slot.check(defaultdict(factory, {"a": [1]}))
    slot.state["a"].append(2)
    slot.recover()
    slot.state["b"].append(3)
    slot.end_epoch()
    slot.check(defaultdict(factory, {"a": [1], "b": [3]}))


def test_counts_are_counted() -> None:
    slot = Slot(Counter())
    slot.state.update("abca")
    slot.state.update({"a": 3})
    slot.state.subtract(b=1)
    slot.end_epoch()
    slot.check(Counter({"a": 5, "b": 0, "c": 1}))
    state = slot.state
    state += Counter("c")
    slot.end_epoch(state)  # b, which has no count, is gone
    slot.check(Counter({"a": 5, "c": 2}))
    assert slot.state.most_common(1) == [("a", 5)]


class Named(dict[Any, Any]):
    """A dictionary of a user's own."""


@pytest.mark.parametrize("state", [Named(a=1), 5, None, "text", [1], pa.table({"a": [1]}), {1, 2}])
def test_any_other_state_is_one_row_and_written_when_it_has_changed(state: Any) -> None:
    slot = Slot(state)
    (row,) = slot.end_epoch()
    assert row.place is None
    assert row.stored is not None
    assert row.stored.kind != ENTRIES
    assert slot.end_epoch() == []
    slot.recover()
    assert slot.end_epoch() == []
    slot.check(state)


def test_a_state_may_become_another() -> None:
    slot = Slot({"a": [1], "b": 2})
    slot.end_epoch()
    for state, rows in (([1, 2], 3), ({"c": 3}, 2), (OrderedDict(c=3, d=4), 2), (None, 3), (Named(e=5), 1), ({}, 1)):
        assert len(slot.end_epoch(copy.copy(state))) == rows
        slot.check(state)
        slot.recover()


def test_a_dictionary_with_attributes_is_one_row() -> None:
    slot = Slot(OrderedDict(a=[1]))
    slot.end_epoch()
    slot.state.seen = 5
    slot.end_epoch()
    slot.recover()
    assert slot.state.seen == 5
    slot.state["a"].append(2)
    slot.end_epoch()
    slot.recover()
    assert (slot.state, slot.state.seen) == (OrderedDict(a=[1, 2]), 5)


def test_an_older_state_is_upgraded_as_a_whole_and_written_anew() -> None:
    slot = Slot({"a": 1, "b": 2, "c": 3})
    slot.end_epoch()
    seen = []

    def upgrade(state: Any, version: int) -> Any:
        seen.append((state, version))
        return {key: [value] for key, value in state.items() if key != "b"}

    slot.live = LiveState.woken(slot.codec, 2, slot.written, upgrade)
    assert seen == [({"a": 1, "b": 2, "c": 3}, 1)]
    rows = slot.end_epoch()
    assert [row.place for row in rows] == [None, PACK]
    assert {row.stored.version for row in slot.written.rows(slot.codec) if row.stored} == {2}
    assert slot.written.load(slot.codec) == {"a": [1], "c": [3]}
    assert slot.end_epoch() == []


def test_what_is_less_is_written_entries_or_all() -> None:
    small, large = Slot(dict.fromkeys(range(1000), 1)), Slot({at: [f"{at:01000}"] for at in range(1000)})
    for slot in (small, large):
        slot.end_epoch()
        for at in range(500):
            slot.state[at] = at if slot is small else slot.state[at] + ["more"]
        rows = slot.end_epoch()
        assert [row.place for row in rows] == ([PACK] if slot is small else list(range(500)))


def test_values_that_change_all_the_time_are_not_compared_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slot, compared = Slot({at: [at] for at in range(1000)}), 0

    def counted(live: LiveState, value: Any) -> int:
        nonlocal compared
        compared += 1
        return mark(live, value)

    mark = LiveState._mark_of
    monkeypatch.setattr(LiveState, "_mark_of", counted)
    slot.live.value.tracker.mark = lambda value: counted(slot.live, value)
    for _ in range(20):
        for value in slot.state.values():
            value.append(1)
        assert [row.place for row in slot.end_epoch()][-1] == PACK
    assert 1000 < compared < 5000
    for epoch in range(20):  # and once few do, they are found
        for value in slot.state.values():
            if value[0] == 7:
                value.append(epoch)
        rows = slot.end_epoch()
    assert [row.place for row in rows] == [7]


def test_size_follows_what_is_written() -> None:
    slot = Slot({at: f"{at:0100}" for at in range(100)})
    slot.end_epoch()
    assert slot.live.size == slot.written.size
    for at in range(0, 20, 2):
        slot.state[at] = f"{at:0300}"
    assert len(slot.end_epoch()) == 10
    assert slot.live.size == pytest.approx(12_700, rel=0.1)
    slot.snapshot()
    assert slot.live.size == slot.written.size == pytest.approx(12_700, rel=0.1)
    for at in range(50, 70):
        del slot.state[at]
    assert len(slot.end_epoch()) == 20
    assert slot.live.size == pytest.approx(10_300, rel=0.1)
    slot.snapshot()
    assert slot.live.size == slot.written.size == pytest.approx(10_300, rel=0.1)
    slot.state.clear()
    slot.end_epoch()
    slot.snapshot()
    assert slot.live.size == slot.written.size < 50


def test_size_is_never_below_zero() -> None:
    slot = Slot(dict.fromkeys(range(100), ("x" * 1000,)))
    slot.snapshot()  # in which the text is there once
    slot.recover()
    for at in range(100):
        slot.state[at] = 1
    slot.end_epoch()
    assert slot.live.size >= 0
