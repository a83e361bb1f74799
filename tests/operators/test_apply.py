"""Users' own operators: every form of state and rows, what they may return, and what an error says."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from evenflow.errors import InputError, OperatorError
from evenflow.operators import HASH, SLOT, Apply, Operator, Resident, SlotOperator

SCHEMA = pa.schema({"word": pa.string(), "n": pa.int64()})
KEYS = ("word",)
SLOTS = 6
WORDS = pa.table({"word": ["a", "b", "a", "c"], "n": [1, 2, 3, 4]}, SCHEMA)
IN_SLOTS = np.array([1, 1, 1, 4])


class PythonCount(SlotOperator):
    """State: any Python object."""

    output = pa.schema({"word": pa.string(), "total": pa.int64()})

    def init(self) -> Counter[str]:
        return Counter()

    def process(self, state: Counter[str], rows: pa.Table) -> tuple[Any, Any]:
        for row in rows.to_pylist():
            state[row["word"]] += row["n"]
        words = sorted(set(rows["word"].to_pylist()))
        return state, pa.table({"total": [state[word] for word in words], "word": words})


class ArrowCount(SlotOperator):
    """State: an Arrow table."""

    output = PythonCount.output

    def process(self, state: pa.Table | None, rows: pa.Table) -> tuple[Any, Any]:
        both = pa.concat_tables([state, rows]) if state is not None else rows
        summed = both.group_by("word", use_threads=False).aggregate([("n", "sum")]).rename_columns(["word", "n"])
        seen = pa.compute.is_in(summed["word"], rows["word"].combine_chunks())
        return summed, summed.filter(seen).rename_columns(["word", "total"]).sort_by("word")


class BatchCount(ArrowCount):
    """State: a record batch."""

    def process(self, state: pa.RecordBatch | None, rows: pa.Table) -> tuple[Any, Any]:
        table, output = super().process(None if state is None else pa.Table.from_batches([state]), rows)
        return table.combine_chunks().to_batches()[0], output.to_batches()[0]


class PandasCount(SlotOperator):
    """State and rows: pandas."""

    output = PythonCount.output
    frame: Literal["arrow", "pandas"] = "pandas"

    def process(self, state: Any, rows: pd.DataFrame) -> tuple[Any, Any]:
        came = rows.groupby("word")["n"].sum()
        state = came if state is None else state.add(came, fill_value=0)
        return state, state[came.index].rename("total").reset_index()


COUNTS: list[type[SlotOperator]] = [PythonCount, ArrowCount, BatchCount, PandasCount]


def opened(user: SlotOperator) -> Resident:
    return Apply(user).open(SCHEMA, KEYS, SLOTS)


@pytest.mark.parametrize("user", COUNTS)
def test_each_slot_gets_its_state_and_rows(user: type[SlotOperator]) -> None:
    resident = opened(user())
    folded = resident.fold(WORDS, IN_SLOTS)
    assert folded.output.schema == user.output
    assert folded.output.to_pylist() == [
        {"word": "a", "total": 4},
        {"word": "b", "total": 2},
        {"word": "c", "total": 4},
    ]
    assert sorted(set(folded.changes[SLOT].to_pylist())) == [1, 4]
    assert folded.changes[SLOT].to_pylist() == sorted(folded.changes[SLOT].to_pylist())
    assert folded.changes.schema == Apply(user()).state_schema(SCHEMA, KEYS)
    again = resident.fold(WORDS.slice(1, 1), IN_SLOTS[1:2])
    assert again.output.to_pylist() == [{"word": "b", "total": 4}]
    assert again.changes[SLOT].to_pylist() == [1]


@pytest.mark.parametrize("user", COUNTS)
def test_extract_and_install_keep_behaviour(user: type[SlotOperator]) -> None:
    source, target, stayed = opened(user()), opened(user()), opened(user())
    folded = source.fold(WORDS, IN_SLOTS)
    stayed.fold(WORDS, IN_SLOTS)
    assert source.slot_rows().tolist() == ([0, 2, 0, 0, 1, 0] if user is PythonCount else [0, 1, 0, 0, 1, 0])
    assert source.slot_bytes().tolist() == [_bytes_of(folded.changes, slot) for slot in range(SLOTS)]
    state = source.snapshot([4, 2, 1])
    assert sorted(set(state[SLOT].to_pylist())) == [1, 4]
    assert source.slot_bytes().tolist() == [_bytes_of(state, slot) for slot in range(SLOTS)]
    source.drop([1, 4])
    assert source.snapshot(range(SLOTS)).num_rows == 0
    assert source.slot_bytes().sum() == 0
    target.install(state)
    assert target.snapshot([1, 4]).equals(state)
    assert target.slot_rows().tolist() == ([0, 2, 0, 0, 1, 0] if user is PythonCount else [0, 1, 0, 0, 1, 0])
    assert target.fold(WORDS, IN_SLOTS).output.equals(stayed.fold(WORDS, IN_SLOTS).output)


def _bytes_of(changes: pa.Table, slot: int) -> int:
    rows = [row for row in changes.to_pylist() if row[SLOT] == slot]
    return sum(len(row["state"]) + len(row["key"] or b"") for row in rows)


@pytest.mark.parametrize("user", COUNTS)
def test_changes_in_order_rebuild_the_state(user: type[SlotOperator]) -> None:
    source, target = opened(user()), opened(user())
    changes = [source.fold(WORDS, IN_SLOTS).changes for _ in range(3)]
    target.install(pa.concat_tables(changes))
    assert target.fold(WORDS, IN_SLOTS).output.equals(source.fold(WORDS, IN_SLOTS).output)


def test_busy_time_is_measured_per_slot() -> None:
    ticks = iter([0.0, 1.5, 10.0, 10.25])
    resident = Apply(PythonCount(), clock=lambda: next(ticks)).open(SCHEMA, KEYS, SLOTS)
    busy = resident.fold(WORDS, IN_SLOTS).busy_s
    assert busy is not None
    assert busy.tolist() == [0.0, 1.5, 0.0, 0.0, 0.25, 0.0]


class Answers(SlotOperator):
    """Returns what it is told to."""

    output: ClassVar[pa.Schema] = pa.schema([("a", pa.int64()), pa.field("b", pa.string(), nullable=False)])  # type: ignore[misc]

    def __init__(self, answer: Any, frame: Literal["arrow", "pandas"] = "arrow") -> None:
        self.answer, self.frame = answer, frame

    def process(self, state: Any, rows: Any) -> tuple[Any, Any]:  # noqa: ARG002
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: tuple[Any, Any] = self.answer
        return answer


def test_no_output_is_an_empty_table() -> None:
    folded = opened(Answers((None, None))).fold(WORDS, IN_SLOTS)
    assert folded.output.num_rows == 0
    assert folded.output.schema == Answers.output


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (KeyError("x"), "operator Answers, slot 1: KeyError: 'x'"),
        ([1, 2], r"must return \(state, output rows or None\), got list"),
        ((None, [1]), "must be a pyarrow table, a pandas frame or None, got list"),
        ((None, pa.table({"a": [1]})), "output columns: expected a, b; got a"),
        ((None, pa.table({"a": [1], "b": ["x"], "c": [1]})), "output columns: expected a, b; got a, b, c"),
        ((None, pa.table({"a": ["1"], "b": ["x"]})), "slot 1: output column 'a': expected int64, got string"),
        ((None, pd.DataFrame({"a": ["x"], "b": ["x"]})), r"output column 'a': expected int64, got object \("),
        ((None, pa.table({"a": [1], "b": pa.nulls(1, pa.string())})), "'b' is declared not null, got 1 nulls"),
        (((n for n in "ab"), None), "the state, a generator, cannot be pickled"),
    ],
)
def test_errors_name_operator_and_slot(answer: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message) as caught:
        opened(Answers(answer)).fold(WORDS, IN_SLOTS)
    assert caught.value.slot == 1
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301


def test_columns_of_nulls_take_the_declared_type() -> None:
    answer = (None, pa.table({"a": pa.nulls(1), "b": ["x"]}))
    assert opened(Answers(answer)).fold(WORDS, IN_SLOTS).output["a"].null_count == 2


def test_user_code_does_not_see_reserved_columns() -> None:
    seen: list[list[str]] = []

    class Looks(PythonCount):
        def process(self, state: Any, rows: pa.Table) -> tuple[Any, Any]:
            seen.append(rows.column_names)
            return state, None

    opened(Looks()).fold(WORDS.append_column(HASH, pa.array([1, 2, 1, 3])), IN_SLOTS)
    assert seen == [["word", "n"], ["word", "n"]]


def test_an_epoch_without_rows() -> None:
    folded = opened(PythonCount()).fold(WORDS.slice(0, 0), IN_SLOTS[:0])
    assert folded.changes.num_rows == folded.output.num_rows == 0


def test_complete_mode_is_refused() -> None:
    with pytest.raises(InputError, match="complete mode needs aggregates"):
        opened(PythonCount()).output([0])


def test_what_apply_refuses() -> None:
    with pytest.raises(InputError, match=r"takes an instance of .*\(the class itself: call it\)"):
        Apply(PythonCount)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="frame is 'arrow' or 'pandas', got 'polars'"):
        Apply(Answers(None, "polars"))  # type: ignore[arg-type]

    class Ddl(PythonCount):
        output = "word string"

    with pytest.raises(InputError, match=r"Ddl.output must be a pyarrow.Schema here, got 'word string'"):
        opened(Ddl())

    class Needy(PythonCount):
        columns_needed = ("m",)

    with pytest.raises(InputError, match=r"Needy needs the column 'm'; the input has word, n"):
        opened(Needy())


def test_it_is_an_operator() -> None:
    operator: Operator = Apply(PythonCount())
    assert operator.columns() is None
    contents = operator.contents(SCHEMA, KEYS)
    assert (contents.operator, contents.version, contents.reads_older) == ("PythonCount", 1, False)
    assert contents.inputs == (("n", "int64"),)
    assert operator.resumed(contents) is operator
    assert not operator.needs_hash(SCHEMA, KEYS)


class OlderCount(SlotOperator):
    """The state of before: one number for all words."""

    name = "Count"
    output = PythonCount.output

    def init(self) -> int:
        return 0

    def process(self, state: int, rows: pa.Table) -> tuple[Any, Any]:
        return state + rows.num_rows, None


class NewerCount(OlderCount):
    """The state of today: a dict."""

    version = 2

    def upgrade(self, state: int, version: int) -> Any:
        return {"rows": state, "was": version}

    def process(self, state: Any, rows: pa.Table) -> tuple[Any, Any]:
        state = state or {"rows": 0}
        return {**state, "rows": state["rows"] + rows.num_rows}, None


def test_older_state_is_upgraded_when_rows_come_and_stays_as_it_is_until_then() -> None:
    older, newer, last = opened(OlderCount()), opened(NewerCount()), opened(NewerCount())
    older.fold(WORDS, IN_SLOTS)
    newer.install(older.snapshot([1, 4]))
    newer.fold(WORDS.slice(0, 1), IN_SLOTS[:1])
    state = newer.snapshot([1, 4])
    assert set(zip(state[SLOT].to_pylist(), state["version"].to_pylist(), strict=True)) == {(1, 2), (4, 1)}
    last.install(state)
    last.fold(WORDS, IN_SLOTS)
    held = [(row["slot"], row["key"], row["value"]) for row in last.view([1, 4]).to_pylist()]
    assert held == [(1, "rows", "7"), (1, "was", "1"), (4, "rows", "2"), (4, "was", "1")]


def test_older_state_that_nobody_can_read_is_an_error() -> None:
    class Forgetful(OlderCount):
        version = 2

    older, newer = opened(OlderCount()), opened(Forgetful())
    older.fold(WORDS, IN_SLOTS)
    newer.install(older.snapshot([1, 4]))
    with pytest.raises(OperatorError, match=r"operator Count, slot 1: .*a state of version 1: define upgrade"):
        newer.fold(WORDS, IN_SLOTS)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("name", "", "Bad.name is a text, or None for the class's, got ''"),
        ("name", 3, "Bad.name is a text"),
        ("version", 0, "Bad.version is a number from 1 on, got 0"),
        ("version", True, "Bad.version is a number from 1 on, got True"),
        ("version", "2", "Bad.version is a number from 1 on, got '2'"),
    ],
)
def test_names_and_versions_that_cannot_be(attribute: str, value: Any, message: str) -> None:
    bad = type("Bad", (PythonCount,), {attribute: value})
    with pytest.raises(InputError, match=message):
        Apply(bad())


PROGRAM = """
from tests.operators.test_apply import PythonCount

class Plain(PythonCount):
    def helper(self):
        {}
"""


def source_of_program(place: Path, helper: str) -> str:
    """Return what tells a program's class from others."""
    file = place / f"program{len(list(place.iterdir()))}.py"
    file.write_text(PROGRAM.format(helper))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        return Apply(module.Plain()).contents(SCHEMA, KEYS).source
    finally:
        del sys.modules[file.stem]


def test_the_code_of_a_class_tells_it_from_another_whatever_its_comments(tmp_path: Path) -> None:
    plain, commented, other = (
        source_of_program(tmp_path, text) for text in ("return 1", "return  1  # one", "return 2")
    )
    assert plain
    assert (plain == commented, plain == other) == (True, False)
    assert Apply(type("Typed", (PythonCount,), {})()).contents(SCHEMA, KEYS).source == "", "there is no text"
