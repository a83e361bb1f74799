"""What the watermarks of several inputs come to."""

from __future__ import annotations

from evenflow.model import Heard, Watermarks


def test_a_stream_without_any() -> None:
    assert Heard().after((), None) == Watermarks((), None, None)


def test_the_first_rows_are_late_against_1970_as_in_spark() -> None:
    assert Heard((5_000,)).after((), None) == Watermarks((5_000,), 5_000, 0)
    assert Heard((-5_000,)).after((), None) == Watermarks((-5_000,), 0, 0)


def test_it_never_goes_back() -> None:
    assert Heard((3_000,)).after((5_000,), 5_000) == Watermarks((5_000,), 5_000, 5_000)
    assert Heard((None,)).after((5_000,), 5_000) == Watermarks((5_000,), 5_000, 5_000)
    assert Heard((9_000,)).after((5_000,), 5_000) == Watermarks((9_000,), 9_000, 5_000)


def test_a_tick_hears_nothing_and_what_was_reached_counts_as_before() -> None:
    assert Heard().after((7_000, 9_000), 7_000) == Watermarks((7_000, 9_000), 7_000, 7_000)


def test_the_lowest_of_several_inputs_counts_or_the_highest() -> None:
    assert Heard((7_000, 9_000)).after((), None).now_us == 7_000
    assert Heard((7_000, 9_000), max).after((), None).now_us == 9_000


def test_an_input_that_has_said_nothing_yet_holds_the_others_back() -> None:
    assert Heard((7_000, None)).after((), None) == Watermarks((7_000, 0), 0, 0)
    assert Heard((None, 9_000)).after((7_000, 0), 0) == Watermarks((7_000, 9_000), 7_000, 0)
