"""What the watermarks of several inputs come to."""

from __future__ import annotations

from evenflow.model import Heard, Watermarks


def test_a_stream_without_any() -> None:
    assert Heard().after() == Watermarks((), None, None, None)


def test_the_first_rows_are_late_against_1970_as_in_spark() -> None:
    assert Heard((5_000,)).after() == Watermarks((5_000,), 5_000, 0, 0)
    assert Heard((-5_000,)).after() == Watermarks((-5_000,), 0, 0, 0)


def test_it_never_goes_back() -> None:
    were = Watermarks((5_000,), 5_000, 4_000, 3_000)
    assert Heard((3_000,)).after(were) == Watermarks((5_000,), 5_000, 5_000, 4_000)
    assert Heard((None,)).after(were) == Watermarks((5_000,), 5_000, 5_000, 4_000)
    assert Heard((9_000,)).after(were) == Watermarks((9_000,), 9_000, 5_000, 4_000)


def test_a_tick_hears_nothing_and_what_was_reached_counts_as_before() -> None:
    were = Watermarks((7_000, 9_000), 7_000, 2_000, 1_000)
    tick = Heard().after(were)
    assert tick == Watermarks((7_000, 9_000), 7_000, 7_000, 2_000)
    assert Heard((None, None)).after(tick).late_us == 7_000, "what the tick has closed takes no more rows"


def test_the_lowest_of_several_inputs_counts_or_the_highest() -> None:
    assert Heard((7_000, 9_000)).after().now_us == 7_000
    assert Heard((7_000, 9_000), max).after().now_us == 9_000


def test_an_input_that_has_said_nothing_yet_holds_the_others_back() -> None:
    first = Heard((7_000, None)).after()
    assert first == Watermarks((7_000, 0), 0, 0, 0)
    assert Heard((None, 9_000)).after(first) == Watermarks((7_000, 9_000), 7_000, 0, 0)
