"""Folds with a function per key: every shape of state, rows or arrays, and what an error says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from evenflow.errors import InputError, OperatorError
from evenflow.operators.folding import Folding
from evenflow.testing import run_batches

ROWS = [{"k": "a", "n": 1, "who": "x"}, {"k": "b", "n": 2, "who": "y"}, {"k": "a", "n": 3, "who": "z"}]


class Seen(NamedTuple):
    total: int
    last: str


def run(folding: Folding, *batches: Any) -> list[list[dict[str, Any]]]:
    done = run_batches(folding, batches or [ROWS, ROWS[:1]], keys="k", slots=1)
    assert sorted(done.state.column_names) == sorted(done.outputs[0].column_names)
    return [table.to_pylist() for table in done.outputs]


def test_one_value() -> None:
    first, second = run(Folding(0, lambda total, n: total + n))
    assert first == [{"k": "a", "value": 4}, {"k": "b", "value": 2}]
    assert second == [{"k": "a", "value": 5}]


def test_a_name_for_it() -> None:
    assert run(Folding(0, lambda total, n: total + n, "total long"))[1] == [{"k": "a", "total": 5}]


def test_a_tuple() -> None:
    assert run(Folding((0, ""), lambda held, n, who: (held[0] + n, who)))[1] == [{"k": "a", "_1": 5, "_2": "x"}]
    made = run(Folding(Seen(0, ""), lambda held, n, who: Seen(held[0] + n, who)))
    assert made[0] == [{"k": "a", "total": 4, "last": "z"}, {"k": "b", "total": 2, "last": "y"}]


def test_a_dictionary_changed_in_place_is_each_keys_own() -> None:
    def step(held: dict[str, Any], who: str) -> dict[str, Any]:
        held["times"], held["who"] = held["times"] + 1, who
        return held

    for init in ({"times": 0, "who": ""}, lambda: {"times": 0, "who": ""}):
        assert run(Folding(init, step))[0] == [{"k": "a", "times": 2, "who": "z"}, {"k": "b", "times": 1, "who": "y"}]


def test_arrays_of_all_values_of_a_key() -> None:
    def step(most: float, n: Any) -> float:
        assert isinstance(n, np.ndarray)
        return max(most, float(n.max()))

    assert run(Folding(0.0, step, arrays=True))[0] == [{"k": "a", "value": 3.0}, {"k": "b", "value": 2.0}]


def test_no_columns_and_the_key_as_one() -> None:
    assert run(Folding(0, lambda n: n + 1))[0] == [{"k": "a", "value": 2}, {"k": "b", "value": 1}]
    assert run(Folding("", lambda text, k: text + k))[0] == [{"k": "a", "value": "aa"}, {"k": "b", "value": "b"}]


def test_only_keys_that_changed_are_written_and_all_that_had_rows_are_put_out() -> None:
    done = run_batches(Folding(0, max_of), [ROWS, ROWS], keys="k")
    assert [len(table) for table in done.changes] == [2, 0]
    assert [len(table) for table in done.outputs] == [2, 2]


def max_of(most: int, n: int) -> int:
    return max(most, n)


def test_nulls_are_none() -> None:
    rows = [{"k": 1, "n": None}, {"k": 1, "n": 2}]
    assert run(Folding(0, lambda held, n: None if n is None else held), rows) == [[{"k": 1, "value": None}]]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda held, n: held // (n - 2), "operator fold, key k='b': ZeroDivisionError"),
        (lambda held, n: sys.exit(3) if n == 2 else held, r"operator fold, key k='b': it called sys.exit\(3\)"),
    ],
)
def test_an_error_names_the_key(step: Callable[..., Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        run(Folding(0, step))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5), "fold: step is a function"),
        ((0, lambda *values: 0), "step takes the state, then columns by their names"),  # noqa: ARG005
        (([], lambda held, n: held), r"init is \[\], and \[\] does not say which type .*: declare the columns"),  # noqa: ARG005
        ((None, lambda held, n: held), "declare the columns"),  # noqa: ARG005
    ],
)
def test_what_cannot_be_folded_is_refused(arguments: tuple[Any, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Folding(*arguments)


def test_a_column_that_is_not_there_and_states_of_another_shape() -> None:
    with pytest.raises(InputError, match="fold needs the column 'price'; the input has k, n, who"):
        run(Folding(0, lambda total, price: total + price))
    with pytest.raises(OperatorError, match="step must return a tuple like init, got 5"):
        run(Folding((0, 0), lambda held, n: 5))  # noqa: ARG005
