"""Orders, and ranges in words."""

from __future__ import annotations

from papers.verdicts import ascending, median_range


def test_orders_and_ranges() -> None:
    assert ascending([1, 1, 2])
    assert not ascending([2, 1])
    assert median_range([3.0, 1.0, 2.0]) == "2 (1 to 3)"
    assert median_range([0.5, 0.5], "{:.0%}".format) == "50%"
