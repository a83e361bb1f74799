"""Operators of one's own per key, columnar: state, output, removal, timers, errors; compared with a plain loop."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from evenflow.errors import InputError, OperatorError
from evenflow.operators import GONE, ApplyKeys, KeyBatch, KeyChanges, KeyOperator
from evenflow.operators.key_operator import Clock
from evenflow.testing import Batch, run_batches

HOUR = 3_600_000_000


class Totals(KeyOperator):
    """A running total, and how many rows."""

    state = "total long, rows long"
    output = "total long, rows long"

    def process(self, batch: KeyBatch) -> KeyChanges:
        total = batch.held("total", 0) + np.add.reduceat(batch.column("n", 0), batch.starts)
        state = {"total": total, "rows": batch.held("rows", 0) + batch.counts}
        return KeyChanges(state, output=state)


class Last(KeyOperator):
    """The last text of a key; a key whose last text is empty is forgotten; texts with an x are put out, each."""

    state = pa.schema({"text": pa.string()})
    output = "place int, text string"

    def process(self, batch: KeyBatch) -> KeyChanges:
        texts = batch.column("text")
        last = texts[batch.offsets[1:] - 1]
        kept = [text if text is not None else held for text, held in zip(last, batch.held("text"), strict=True)]
        rows = [(key, place, texts[place]) for key in range(len(batch)) for place in self._rows_of(batch, key)]
        found = [(key, place - batch.offsets[key], text) for key, place, text in rows if text and "x" in text]
        return KeyChanges(
            pa.table({"text": pa.array(kept, pa.string())}),
            removed=last == "",
            output=pd.DataFrame({"place": [row[1] for row in found], "text": [row[2] for row in found]}).astype(
                {"place": "int32", "text": "string"}
            ),
            output_keys=[row[0] for row in found],
        )

    @staticmethod
    def _rows_of(batch: KeyBatch, key: int) -> range:
        return range(batch.offsets[key], batch.offsets[key + 1])


class Closing(KeyOperator):
    """Counts the rows of a key until none has come for an hour of event time, or it was told a processing time."""

    state = "n long, last timestamp, closes timestamp, ends timestamp"
    output = "n long, why string"
    timers: ClassVar[Mapping[str, Clock]] = {"closes": "event", "ends": "processing"}

    def process(self, batch: KeyBatch) -> KeyChanges:
        last = np.maximum.reduceat(batch.column("at"), batch.starts)
        ends = batch.processing_time + np.timedelta64(1, "D")
        state = {"n": batch.held("n", 0) + batch.counts, "last": last, "closes": last + np.timedelta64(1, "h")}
        return KeyChanges(state | {"ends": np.full(len(batch), ends)})

    def fire(self, batch: KeyBatch) -> KeyChanges:
        why = np.where(batch.fired("closes"), "closed", "ended")
        return KeyChanges(removed=np.ones(len(batch), bool), output={"n": batch.held("n"), "why": why})


class Again(KeyOperator):
    """A timer that sets itself anew twice."""

    state = "left long, at timestamp"
    output = "left long"
    timers: ClassVar[Mapping[str, Clock]] = {"at": "event"}

    def process(self, batch: KeyBatch) -> KeyChanges:
        return KeyChanges({"left": np.full(len(batch), 2), "at": batch.column("at")})

    def fire(self, batch: KeyBatch) -> KeyChanges:
        left = batch.held("left") - 1
        at = batch.held("at")
        state = {"left": left, "at": np.where(left > 0, at + np.timedelta64(1, "h"), at)}
        return KeyChanges(state, output={"left": left})


def test_the_running_total_of_each_key() -> None:
    batches = [[{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": None}], [{"k": "b", "n": 5}]]
    run = run_batches(Totals(), batches, keys="k", slots=1)
    assert run.rows(0) == [{"k": "a", "total": 1, "rows": 2}, {"k": "b", "total": 2, "rows": 1}]
    assert run.rows(1) == [{"k": "b", "total": 7, "rows": 2}]
    assert run.state.sort_by("k").to_pylist() == [{"k": "a", "total": 1, "rows": 2}, {"k": "b", "total": 7, "rows": 2}]
    assert run.due is None


@pytest.mark.parametrize("kind", ["long", "string", "double"])
@pytest.mark.parametrize("seed", range(5))
def test_random_streams_come_to_what_a_loop_comes_to(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    keys: dict[str, list[Any]] = {"long": [None, *range(40)], "string": [None, "", *"abc"], "double": [None, 0.0, 1.5]}
    totals: dict[Any, list[int]] = {}
    batches, expected = [], []
    for _ in range(6):
        rows = [{"k": rng.choice(keys[kind]), "n": rng.randint(-5, 5)} for _ in range(rng.randint(0, 60))]
        for row in rows:
            held = totals.setdefault(row["k"], [0, 0])
            held[0], held[1] = held[0] + row["n"], held[1] + 1
        batches.append(rows)
        expected.append({row["k"]: tuple(totals[row["k"]]) for row in rows})
    run = run_batches(Totals(), batches, keys="k", schema=f"k {kind}, n long")
    got = [{row["k"]: (row["total"], row["rows"]) for row in run.rows(number)} for number in range(6)]
    assert got == expected


def test_rows_of_a_key_stay_in_order_and_output_may_have_any_number_of_rows() -> None:
    texts = ["x1", "y", "x2", None, "x3", ""]
    rows = [{"k": place % 2, "text": text} for place, text in enumerate(texts)]
    run = run_batches(Last(), [rows, [{"k": 0, "text": "z"}], [{"k": 0, "text": ""}]], keys="k", slots=1)
    assert run.rows(0) == [{"k": 0, "place": place, "text": f"x{place + 1}"} for place in range(3)]
    assert run.rows(1) == []
    assert [table.num_rows for table in run.changes] == [1, 1, 1], "a key that came and went leaves no tombstone"
    assert run.changes[2][GONE].to_pylist() == [True]
    assert run.state.num_rows == 0


def test_only_keys_that_changed_are_written() -> None:
    same = [{"k": key, "text": "same"} for key in range(10)]
    run = run_batches(Last(), [same, same, [{"k": 3, "text": "other"}, *same[:3]], [*same[:3]]], keys="k")
    assert [table.num_rows for table in run.changes] == [10, 0, 1, 0]


def test_none_leaves_all_as_it_is_and_new_keys_without_state() -> None:
    class Silent(Totals):
        def process(self, batch: KeyBatch) -> Any:
            return super().process(batch) if (batch.column("n") > 0).all() else None

    run = run_batches(Silent(), [[{"k": 1, "n": 1}], [{"k": 1, "n": -1}, {"k": 2, "n": -1}]], keys="k", slots=1)
    assert run.state.to_pylist() == [{"k": 1, "total": 1, "rows": 1}]
    assert run.changes[1].num_rows == 0


def rows_at(*hours: float) -> pa.Table:
    at = pa.array([int(hour * HOUR) for hour in hours], pa.timestamp("us", "UTC"))
    return pa.table({"k": list(range(len(hours))), "at": at})


def test_timers_fire_once_by_either_clock_and_in_slots_without_rows() -> None:
    batches = [
        Batch(rows_at(1, 2, 9), watermark=HOUR, processing_time=0),
        Batch(watermark=2 * HOUR),
        Batch(watermark=2 * HOUR),
        Batch(rows_at(2.5), watermark=2 * HOUR + 1),
        Batch(watermark=3 * HOUR),
        Batch(processing_time=24 * HOUR),
    ]
    run = run_batches(Closing(), batches, keys="k")
    assert run.rows(0) == []
    assert run.rows(1) == [{"k": 0, "n": 1, "why": "closed"}]
    assert run.rows(2) == []
    assert run.rows(3) == []
    assert run.rows(4) == [{"k": 1, "n": 1, "why": "closed"}]
    assert sorted(run.rows(5), key=str) == [{"k": 0, "n": 1, "why": "ended"}, {"k": 2, "n": 1, "why": "ended"}]
    assert run.state.num_rows == 0
    assert run.due is None


def test_a_timer_that_is_set_anew_fires_again_and_one_that_is_not_is_off() -> None:
    run = run_batches(Again(), [rows_at(1), *(Batch(watermark=hour * HOUR) for hour in range(1, 6))], keys="k")
    assert [[row["left"] for row in table.to_pylist()] for table in run.outputs] == [[], [1], [0], [], [], []]
    assert run.state["at"].to_pylist() == [None]
    assert run.due is None


def test_timers_move_with_their_slot_and_are_known_by_whoever_installs_it() -> None:
    operator = ApplyKeys(Closing())
    run = run_batches(Closing(), [rows_at(5, 3)], keys="k", slots=1)
    operator.operator.state, operator.operator.output = (
        pa.schema([(each.name, each.type) for each in run.state.schema][1:]),
        pa.schema({"n": pa.int64(), "why": pa.string()}),
    )
    other = operator.open(rows_at(1).schema, ("k",), 1)
    other.install(run.changes[0])
    due = other.due([0])
    assert due is not None
    assert (due.watermark_us, due.processing_us) == (4 * HOUR, 24 * HOUR)
    other.drop([0])
    assert other.due([0]) is None


def test_keys_fire_in_an_order_of_their_own() -> None:
    """By time, then by key: not by how their rows came into this lane's memory."""
    fired = [
        run_batches(Again(), [rows, Batch(watermark=9 * HOUR)], keys="k", slots=1).rows(1) for rows in _two_orders()
    ]
    assert fired[0] == fired[1]


def _two_orders() -> list[pa.Table]:
    rows = rows_at(3, 1, 2, 1, 1)
    return [rows, rows.take(list(range(4, -1, -1)))]


class Strict(Totals):
    """Does not like 13."""

    def process(self, batch: KeyBatch) -> KeyChanges:
        if (batch.column("n") == 13).any():
            raise ValueError("not 13")
        return super().process(batch)


def test_an_error_names_the_key_that_makes_it() -> None:
    rows = [{"k": f"key {number}", "n": number} for number in range(50)]
    with pytest.raises(OperatorError, match=r"operator Strict, key k='key 13': ValueError: not 13") as caught:
        run_batches(Strict(), [rows], keys="k")
    assert isinstance(caught.value.__cause__, ValueError)


class Answers(Totals):
    """Returns what it is told to."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def process(self, batch: KeyBatch) -> Any:  # noqa: ARG002 - whatever comes
        return self.answer


GOOD = {"total": [1, 2], "rows": [1, 2]}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((GOOD, None), r"process\(\) must return KeyChanges or None, got tuple"),
        (KeyChanges({"total": [1, 2]}), "state: expected columns total, rows; got total"),
        (KeyChanges({"total": [1], "rows": [1]}), "state: expected 2 rows, one for each key, got 1"),
        (KeyChanges({"total": ["a", "b"], "rows": [1, 2]}), "state: column 'total': expected int64, got list"),
        (KeyChanges(5), "state: expected a dictionary of columns, a pyarrow table or a pandas frame, got int"),
        (KeyChanges(GOOD, removed=[0, 1]), "removed: expected 2 truth values, one for each key, got int64"),
        (KeyChanges(GOOD, output=GOOD, output_keys=[0, 2]), "output_keys: expected places of keys .*, from 0 to 1"),
        (KeyChanges(GOOD, output=GOOD, output_keys=[0]), "output: expected 1 rows"),
    ],
)
def test_answers_that_do_not_fit_are_named(answer: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        run_batches(Answers(answer), [[{"k": 1, "n": 1}, {"k": 2, "n": 1}]], keys="k")


class NoFire(Totals):
    timers: ClassVar[Mapping[str, Clock]] = {"total": "event"}


class NoTimestamp(Closing):
    timers: ClassVar[Mapping[str, Clock]] = {"n": "event"}


class HasKey(Totals):
    output = "k long, total long"


class Nested(Totals):
    state = "all array<long>"


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (NoFire(), r"NoFire has timers, total: define fire\(self, batch\)"),
        (NoTimestamp(), "NoTimestamp.timers: 'n' must be a timestamp column of the state"),
        (HasKey(), "HasKey.output has 'k', which is there already: the key is put in front"),
        (Nested(), "Nested.state: 'all' has type list<element: int64>; a column of the state holds numbers"),
    ],
)
def test_what_cannot_be_declared_is_refused(operator: KeyOperator, message: str) -> None:
    rows = pa.table({"k": [1], "n": [1], "at": pa.array([0], pa.timestamp("us", "UTC"))})
    with pytest.raises(InputError, match=message):
        run_batches(operator, [rows], keys="k")


class Sums(KeyOperator):
    """Totals, in a later version with another shape."""

    name = "Totals"
    version = 2
    state = pa.schema({"sum": pa.float64()})
    output = pa.schema({"sum": pa.float64()})

    def process(self, batch: KeyBatch) -> KeyChanges:
        state = {"sum": batch.held("sum", 0.0) + np.add.reduceat(batch.column("n", 0), batch.starts)}
        return KeyChanges(state, output=state)

    def upgrade(self, state: pa.Table, version: int) -> Any:
        assert version == 1
        return {"sum": state["total"].to_numpy() / 1.0}


def test_state_of_an_older_version_is_upgraded_and_tombstones_stay() -> None:
    run = run_batches(Totals(), [[{"k": 1, "n": 4}, {"k": 2, "n": 6}]], keys="k", slots=1)
    old = run.changes[0]
    gone = old.slice(0, 1).set_column(old.column_names.index(GONE), old.schema.field(GONE), [[True]])
    resident = ApplyKeys(Sums()).open(pa.schema({"k": pa.int64(), "n": pa.int64()}), ("k",), 1)
    resident.install(pa.concat_tables([old, gone]))
    assert resident.view([0]).to_pylist() == [{"k": 2, "sum": 6.0}]
