"""State made of what no module can be asked for: classes of a script, local classes, functions, closures."""

from __future__ import annotations

import enum
import threading
from collections import defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenflow.errors import InputError, OperatorError
from evenflow.operators import Apply, Resident, SlotOperator
from evenflow.operators.stored_state import PICKLE, StateCodec, StoredState

SCHEMA = pa.schema({"word": pa.string(), "n": pa.int64()})
ROWS = pa.table({"word": ["a", "b"], "n": [1, 2]}, SCHEMA)
OUTPUT = pa.schema({"seen": pa.string()})


def program(revision: str) -> Any:
    """Return an operator and its classes, made anew as by another start of the program, in which they may differ."""

    class Mood(enum.Enum):
        FAIR = 1

    class Base:
        pass

    @dataclass
    class Session(Base):
        total: int = 0
        mood: Any = Mood.FAIR
        seen: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: 0))

        class Visit:
            pass

        def speak(self) -> str:
            return f"{revision} {self.total} {self.mood is Mood.FAIR} {sorted(self.seen.items())}"

    def merged(state: Session, row: dict[str, Any]) -> None:
        state.total += row["n"]
        state.seen[row["word"]] += 1

    class Sessions(SlotOperator):
        output = OUTPUT
        session = Session

        def init(self) -> Session:
            return Session()

        def process(self, state: Session, rows: pa.Table) -> tuple[Session, pa.Table]:
            assert isinstance(state, Session)
            for row in rows.to_pylist():
                merged(state, row)
            return state, pa.table({"seen": [state.speak()]})

    return Sessions()


def opened(operator: SlotOperator) -> Resident:
    return Apply(operator).open(SCHEMA, ("word",), 2)


def test_what_the_operator_reaches_comes_back_as_the_classes_of_the_program_that_loads_it() -> None:
    first, second = opened(program("old")), opened(program("new"))
    slots = np.array([1, 1])
    first.fold(ROWS, slots)
    second.install(first.snapshot([0, 1]))
    said = second.fold(ROWS, slots).output["seen"].to_pylist()
    assert said == ["new 6 True [('a', 2), ('b', 2)]"]


def test_nested_classes_and_functions_are_found_by_name() -> None:
    old, new = program("old"), program("new")
    state = [old.session.Visit(), old.session.Visit, old.session.speak, old.process.__func__]
    visit, kind, speak, process = StateCodec(new).load(StateCodec(old).store(state))
    assert type(visit) is kind is new.session.Visit
    assert (speak, process) == (new.session.speak, new.process.__func__)


def test_what_nobody_can_name_is_stored_by_value() -> None:
    class Stranger:
        def speak(self) -> str:
            return "hello"

    offset = 3
    codec = StateCodec(program("old"))
    state = {"add": lambda n: n + offset, "stranger": Stranger(), "counts": defaultdict(lambda: 0, a=1)}
    loaded = StateCodec(program("new")).load(codec.store(state))
    assert loaded["add"](1) == 4
    assert loaded["stranger"].speak() == "hello"
    assert loaded["counts"]["b"] == 0
    # From here on the codec knows; plain states still come back.
    assert codec.load(codec.store({"a": [1, None]})) == {"a": [1, None]}


def test_two_classes_of_one_name_are_not_mixed_up() -> None:
    def made(greeting: str) -> type:
        class Twin:
            def speak(self) -> str:
                return greeting

        return Twin

    class Twins(SlotOperator):
        output = OUTPUT
        one, other = made("one"), made("other")

        def process(self, state: Any, rows: Any) -> tuple[Any, Any]:  # noqa: ARG002
            return state, None

    operator = Twins()
    loaded = StateCodec(operator).load(StateCodec(operator).store([operator.one(), operator.other()]))
    assert [each.speak() for each in loaded] == ["one", "other"]


def test_a_class_that_is_gone_is_named() -> None:
    class Lonely(SlotOperator):
        output = OUTPUT

        def process(self, state: Any, rows: Any) -> tuple[Any, Any]:  # noqa: ARG002
            return state, None

    stored = StateCodec(program("old")).store(program("old").session())
    assert isinstance(StateCodec(Lonely()).load(stored), object), "another program's class was stored by value"
    old = program("old")
    stored = StateCodec(old).store(old.session())
    with pytest.raises(InputError, match=r"holds .*Session of .*test_stored_state, and .*Lonely refers to nothing"):
        StateCodec(Lonely()).load(stored)


Point = namedtuple("Point", "x y")  # noqa: PYI024 - the old form is used too


@pytest.mark.parametrize("state", [{"a": 1}, [1.5, None], Point(1, 2), {Point(1, 2): np.int64(3)}])
def test_plain_states_are_plain_pickles_and_the_same_bytes_every_time(state: Any) -> None:
    codec = StateCodec(program("old"))
    stored = codec.store(state)
    assert codec.load(stored) == state
    assert stored == StateCodec(program("new")).store(state)
    assert b"cloudpickle" not in stored.data


def test_what_cannot_be_stored_is_refused() -> None:
    class Holder(SlotOperator):
        output = OUTPUT

        def process(self, state: Any, rows: Any) -> tuple[Any, Any]:  # noqa: ARG002
            return {"held": threading.Lock()}, None

    with pytest.raises(OperatorError, match=r"the state, a dict, cannot be pickled: cannot pickle .*lock"):
        opened(Holder()).fold(ROWS, np.array([0, 0]))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InputError, match="kind 'parquet'; expected table, batch or pickle"):
        StateCodec(program("old")).load(StoredState("parquet", b""))
    assert StateCodec(program("old")).store(None).kind == PICKLE
