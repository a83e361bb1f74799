"""When something is due, by either clock."""

from __future__ import annotations

import pytest

from evenflow.model import Due, EpochTime


@pytest.mark.parametrize(
    ("due", "time", "reached"),
    [
        (Due(), EpochTime(1, 10, 10), False),
        (Due(watermark_us=10), EpochTime(1, 9, 99), False),
        (Due(watermark_us=10), EpochTime(1, 10, 0), True),
        (Due(watermark_us=10), EpochTime(1, None, 99), False),
        (Due(processing_us=10), EpochTime(1, 99, 9), False),
        (Due(processing_us=10), EpochTime(1, None, 10), True),
        (Due(5, 10), EpochTime(1, 4, 10), True),
    ],
)
def test_it_is_reached_by_the_clock_that_it_goes_by(due: Due, time: EpochTime, reached: bool) -> None:
    assert due.is_reached(time) == reached


def test_the_earlier_of_two_by_each_clock() -> None:
    assert Due(5, None).or_earlier(Due(7, 3)) == Due(7, 3).or_earlier(Due(5, None)) == Due(5, 3)
    assert Due(5, 6).or_earlier(None) == Due(5, 6)
    assert Due().or_earlier(Due()) == Due()
