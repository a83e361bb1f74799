"""From numbers to verdicts."""

from __future__ import annotations

import pytest

from evenflow.reproduce.experiment import Verdict
from evenflow.reproduce.verdicts import ascending, checked, holds, median_range, within


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (100.0, Verdict.MATCH),
        (104.9, Verdict.MATCH),
        (95.1, Verdict.MATCH),
        (106.0, Verdict.SHAPE),
        (199.0, Verdict.SHAPE),
        (51.0, Verdict.SHAPE),
        (201.0, Verdict.DIFFERS),
        (49.0, Verdict.DIFFERS),
        (float("nan"), Verdict.DIFFERS),
    ],
)
def test_a_number_is_close_near_or_neither(ours: float, verdict: Verdict) -> None:
    assert within(ours, 100.0, match=0.05, factor=2.0) is verdict


def test_a_statement_holds_a_weaker_one_or_none() -> None:
    assert holds(True) is Verdict.MATCH
    assert holds(False, weaker=True) is Verdict.SHAPE
    assert holds(False) is Verdict.DIFFERS


def test_the_reason_is_given_only_where_one_is_needed() -> None:
    assert checked("what", "1", "1", Verdict.MATCH, "noise").why == ""
    assert checked("what", "1", "2", Verdict.DIFFERS, "noise").why == "noise"


def test_orders_and_ranges() -> None:
    assert ascending([1, 1, 2])
    assert not ascending([2, 1])
    assert median_range([3.0, 1.0, 2.0]) == "2 (1 to 3)"
    assert median_range([0.5, 0.5], "{:.0%}".format) == "50%"
