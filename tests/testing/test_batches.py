"""Any operator, batch by batch, without Spark: rows in every form, time, timers, and what is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from evenflow.errors import InputError
from evenflow.operators import SLOT, Agg, Aggregate, SlotOperator
from evenflow.testing import Batch, run_batches
from tests.operators.timers import timers

TOTALS = Aggregate({"total": Agg("sum", "n")})
ROWS = [{"user": "ann", "n": 1}, {"user": "bob", "n": 2}, {"user": "ann", "n": 3}]


class Seen(SlotOperator):
    """How often each user came, as a Spark user declares it."""

    output = "user string, times long"

    def init(self) -> Any:
        return {}

    def process(self, state: Any, rows: pa.Table) -> tuple[Any, Any]:
        users = rows["user"].to_pylist()
        for user in users:
            state[user] = state.get(user, 0) + 1
        known = sorted(set(users))
        return state, pa.table({"user": known, "times": [state[user] for user in known]})


def by_user(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["user"]))


@pytest.mark.parametrize("form", ["list", "table", "batch", "pandas"])
def test_rows_in_every_form(form: str) -> None:
    table = pa.Table.from_pylist(ROWS)
    given: dict[str, Any] = {"list": ROWS, "table": table, "batch": table.to_batches()[0], "pandas": pd.DataFrame(ROWS)}
    run = run_batches(TOTALS, [given[form], given[form]], keys="user")
    assert by_user(run.rows(0)) == [{"user": "ann", "total": 4}, {"user": "bob", "total": 2}]
    assert by_user(run.rows(1)) == [{"user": "ann", "total": 8}, {"user": "bob", "total": 4}]
    assert by_user(run.state.to_pylist()) == by_user(run.rows(1))
    assert [changes.num_rows for changes in run.changes] == [2, 2]
    assert run.due is None


def test_an_operator_of_ones_own_as_it_was_written_for_spark() -> None:
    run = run_batches(Seen(), [ROWS, None, ROWS[:1]], keys="user")
    assert by_user(run.rows(0)) == [{"user": "ann", "times": 2}, {"user": "bob", "times": 1}]
    assert run.rows(1) == []
    assert run.rows(2) == [{"user": "ann", "times": 3}]
    assert {row["key"]: row["value"] for row in run.state.to_pylist()} == {"ann": "3", "bob": "1"}


def test_several_keys_and_columns_that_are_named() -> None:
    run = run_batches(TOTALS, [[], [{"a": 1, "b": None, "n": 5}]], keys=["a", "b"], schema="a long, b string, n long")
    assert run.rows() == [{"a": 1, "b": None, "total": 5}]


def test_slots_are_those_of_the_key() -> None:
    run = run_batches(TOTALS, [ROWS, ROWS], keys="user", slots=1000)
    first, second = ({row["user"]: row[SLOT] for row in changes.to_pylist()} for changes in run.changes)
    assert first == second
    assert first["ann"] != first["bob"]


def test_the_watermark_is_what_the_batch_says() -> None:
    at = [{"k": 1, "value": 50}, {"k": 2, "value": 70}]
    run = run_batches(timers("watermark"), [at, Batch(watermark=49), Batch(watermark=60), None], keys="k")
    assert [len(table) for table in run.outputs] == [0, 0, 1, 0]
    assert run.rows() == [{"k": 1, "at": 50, "n": 1}]
    assert run.due is not None
    assert run.due.watermark_us == 70


def test_the_watermark_follows_a_column() -> None:
    def batch(minute: int, value: int = 10**18) -> list[dict[str, Any]]:
        return [{"k": minute, "value": value, "at": datetime(2026, 1, 1, 12, minute)}]  # noqa: DTZ001 - UTC is meant

    ten = int(datetime(2026, 1, 1, 12, 10, tzinfo=UTC).timestamp() * 1e6)
    batches = [batch(0, ten), batch(19), batch(5), batch(20)]
    run = run_batches(timers("watermark"), batches, keys="k", watermark=("at", timedelta(minutes=10)))
    assert [len(table) for table in run.outputs] == [0, 0, 0, 1]


def test_processing_time_is_what_the_batch_says_and_stays() -> None:
    late = Batch(processing_time=datetime(2026, 1, 1, 12))  # noqa: DTZ001 - UTC is meant
    batches = [Batch(None, None, "2026-01-01T11:00:00+00:00"), [{"k": 1, "value": 3_600_000_000}], None, late]
    run = run_batches(timers("processing"), batches, keys="k", schema="k long, value long")
    assert [len(table) for table in run.outputs] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Seen, [ROWS], "user"), r"got <class .*Seen'> \(the class itself: call it\)"),
        ((TOTALS, [None], "user"), "no batch has rows: say which columns there are"),
        (
            (TOTALS, [{"user": 1}], "user"),
            "a batch is a table, a pandas frame, a list of dictionaries or None, got dict",
        ),
        ((TOTALS, [ROWS], "who"), "there is no key column 'who'; the input has user, n"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments: tuple[Any, Any, str], message: str) -> None:
    operator, batches, keys = arguments
    with pytest.raises(InputError, match=message):
        run_batches(operator, batches, keys=keys)
