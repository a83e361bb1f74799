"""Windows from load reports that are lost, late, repeated or out of order; and what holds for any such stream."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.control.journal import Entry, ReportIgnored, WindowDropped
from evenflow.control.windows import ReportCollector
from evenflow.model import LaneLoad, LoadReport, LoadWindow, RoutingTable, SlotLoads

SLOTS = 4


def report(epoch: int, lane: int, records: dict[int, int] | None = None, window_s: float = 1.0) -> LoadReport:
    """Return what `lane` tells of `epoch`; by default it served slot `lane` once."""
    served = {lane: 1} if records is None else records
    loads = SlotLoads.of(list(served.values()), busy_s=[0.5 * count for count in served.values()])
    return LoadReport(epoch, LaneLoad(lane, window_s=window_s), np.array(list(served), dtype=np.int64), loads)


class Desk:
    """A collector with its journal, for lanes 0, 1, ...; `tell` returns the windows that a report completes."""

    def __init__(self, lanes: int = 2, window_epochs: int = 1, patience: int = 8) -> None:
        self.journal: list[Entry] = []
        self.collector = ReportCollector(SLOTS, tuple(range(lanes)), self.journal.append, window_epochs, patience)

    def take(self) -> list[LoadWindow]:
        return list(iter(self.collector.take, None))

    def tell(self, *reports: LoadReport) -> list[LoadWindow]:
        windows = []
        for one in reports:
            self.collector.add(one)
            windows += self.take()
        return windows

    def tell_epochs(self, *reports: tuple[int, int]) -> list[tuple[int, int]]:
        """Tell reports as (epoch, lane) and return the windows' epochs."""
        return [window.epochs for window in self.tell(*[report(*one) for one in reports])]

    @property
    def ignored(self) -> list[str]:
        return [entry.why for entry in self.journal if isinstance(entry, ReportIgnored)]

    @property
    def dropped(self) -> list[tuple[tuple[int, int], str]]:
        return [(entry.epochs, entry.why) for entry in self.journal if isinstance(entry, WindowDropped)]


class TestCompleteSets:
    def test_a_window_closes_when_the_last_lane_has_reported(self) -> None:
        desk = Desk(lanes=3)
        assert desk.tell(report(0, 2), report(0, 0)) == []
        (window,) = desk.tell(report(0, 1, {1: 5, 3: 2}))
        assert window.slots.records.tolist() == [1, 5, 1, 2]
        assert window.lane_ids == (0, 1, 2)
        assert window.epochs == (0, 0)

    def test_counts_and_times_add_up_over_the_epochs_of_a_window(self) -> None:
        desk = Desk(window_epochs=2)
        assert desk.tell(report(0, 0, {0: 3}), report(0, 1), report(1, 1)) == []
        (window,) = desk.tell(report(1, 0, {0: 4, 2: 1}))
        assert window.slots.records.tolist() == [7, 2, 1, 0]
        assert window.slots.busy_s.tolist() == [3.5, 1.0, 0.5, 0.0]
        assert [lane.window_s for lane in window.lanes] == [2.0, 2.0]

    def test_windows_tumble(self) -> None:
        desk = Desk(window_epochs=2)
        assert desk.tell_epochs(*[(epoch, lane) for epoch in range(6) for lane in (0, 1)]) == [(0, 1), (2, 3), (4, 5)]

    def test_a_slot_reported_by_two_lanes_counts_for_both(self) -> None:
        (window,) = Desk().tell(report(0, 0, {0: 3}), report(0, 1, {0: 4}))
        assert window.slots.records.tolist() == [7, 0, 0, 0]

    def test_a_lane_that_served_nothing_reports_nothing_and_that_is_complete(self) -> None:
        (window,) = Desk().tell(report(0, 0), report(0, 1, {}))
        assert window.slots.records.tolist() == [1, 0, 0, 0]


class TestDisorder:
    def test_a_lost_report_closes_nothing(self) -> None:
        desk = Desk(patience=3)
        assert desk.tell_epochs((0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)) == []

    def test_a_lost_report_is_given_up_once_patience_is_over(self) -> None:
        desk = Desk(patience=2)
        assert desk.tell_epochs((0, 0), (1, 0), (1, 1), (2, 0), (2, 1)) == []
        assert desk.tell_epochs((3, 0), (3, 1)) == [(1, 1), (2, 2), (3, 3)]
        assert desk.dropped == [((0, 0), "reports of epoch 0 are missing")]

    def test_the_whole_window_of_a_lost_report_is_given_up(self) -> None:
        desk = Desk(window_epochs=3, patience=0)
        told = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (4, 1)]
        assert desk.tell_epochs(*told) == [(2, 4)]
        assert desk.dropped == [((0, 1), "reports of epoch 1 are missing")]

    def test_an_epoch_of_which_nobody_reports_is_given_up_too(self) -> None:
        desk = Desk(patience=0)
        assert desk.tell_epochs((1, 0), (1, 1)) == [(1, 1)]

    def test_with_no_patience_the_next_epoch_is_enough(self) -> None:
        desk = Desk(patience=0)
        assert desk.tell_epochs((0, 0), (1, 1), (1, 0)) == [(1, 1)]

    def test_a_lane_far_ahead_gives_up_nothing(self) -> None:
        # Lanes may be max_lag epochs apart; only complete epochs prove that an older one is lost.
        desk = Desk(patience=1)
        assert desk.tell_epochs(*[(epoch, 0) for epoch in range(10)]) == []
        assert desk.tell_epochs((0, 1), (1, 1)) == [(0, 0), (1, 1)]

    def test_a_late_report_within_patience_completes_all_the_windows_that_waited_for_it(self) -> None:
        desk = Desk()
        assert desk.tell_epochs((0, 0), (1, 0), (1, 1), (2, 0), (2, 1)) == []
        assert desk.tell_epochs((0, 1)) == [(0, 0), (1, 1), (2, 2)]

    def test_a_report_later_than_that_is_ignored(self) -> None:
        desk = Desk(patience=0)
        assert desk.tell_epochs((0, 0), (1, 0), (1, 1), (0, 1)) == [(1, 1)]
        assert desk.ignored == ["too late: the open window begins at epoch 2"]

    def test_a_repeated_report_is_ignored_the_first_one_counts(self) -> None:
        desk = Desk()
        (window,) = desk.tell(report(0, 0, {0: 3}), report(0, 0, {0: 99}), report(0, 1))
        assert window.slots.records.tolist() == [3, 1, 0, 0]
        assert desk.ignored == ["already reported"]

    def test_a_repeated_report_of_a_closed_window_is_ignored(self) -> None:
        desk = Desk()
        assert desk.tell_epochs((0, 0), (0, 1), (0, 1)) == [(0, 0)]
        assert desk.ignored == ["too late: the open window begins at epoch 1"]

    def test_out_of_order(self) -> None:
        desk = Desk(window_epochs=2)
        assert desk.tell_epochs((1, 1), (3, 0), (0, 0), (2, 1), (1, 0), (2, 0), (3, 1), (0, 1)) == [(0, 1), (2, 3)]

    def test_strangers_are_ignored(self) -> None:
        desk = Desk()
        assert desk.tell(report(0, 7, {0: 1}), report(0, 1, {SLOTS: 1}), report(0, 0)) == []
        assert desk.ignored == ["lane 7 is not one of [0, 1]", "slot 4 does not exist, there are 4"]


class TestSpan:
    def test_a_window_is_at_least_as_long_as_was_asked_for(self) -> None:
        desk = Desk()
        desk.collector.min_span_s = 2.5
        assert desk.tell_epochs(*[(epoch, lane) for epoch in range(6) for lane in (0, 1)]) == [(0, 2), (3, 5)]

    def test_the_longest_lane_counts(self) -> None:
        desk = Desk()
        desk.collector.min_span_s = 3.0
        (window,) = desk.tell(report(0, 0, window_s=0.1), report(0, 1, window_s=3.0))
        assert window.epochs == (0, 0)

    def test_both_bounds_hold(self) -> None:
        desk = Desk(window_epochs=2)
        desk.collector.min_span_s = 0.5
        assert desk.tell_epochs((0, 0), (0, 1), (1, 0), (1, 1)) == [(0, 1)]

    def test_a_new_bound_holds_for_the_next_window(self) -> None:
        desk = Desk()
        assert desk.tell_epochs((0, 0), (1, 0), (1, 1), (2, 0), (2, 1)) == []
        desk.collector.add(report(0, 1))
        assert desk.collector.take() is not None
        desk.collector.min_span_s = 2.0
        assert [window.epochs for window in desk.take()] == [(1, 2)]


class TestLanesChange:
    def test_a_new_lane_is_waited_for_from_the_next_epoch_on(self) -> None:
        desk = Desk()
        desk.tell_epochs((0, 0), (0, 1), (1, 0))
        desk.collector.restart((0, 1, 2), after=1, why="the lanes changed")
        assert desk.dropped == [((1, 1), "the lanes changed")]
        assert desk.tell_epochs((1, 1), (2, 0), (2, 1)) == []
        assert desk.tell_epochs((2, 2)) == [(2, 2)]

    def test_a_lane_that_is_gone_is_not_waited_for(self) -> None:
        desk = Desk(lanes=3)
        desk.collector.restart((0, 2), after=-1, why="the lanes changed")
        assert desk.tell_epochs((0, 0), (0, 1), (0, 2)) == [(0, 0)]
        assert desk.ignored == ["lane 1 is not one of [0, 2]"]
        assert desk.dropped == []

    def test_what_a_lane_said_before_it_went_does_not_count(self) -> None:
        desk = Desk(lanes=3)
        desk.tell_epochs((5, 1), (5, 0))
        desk.collector.restart((0, 2), after=4, why="the lanes changed")
        (window,) = desk.tell(report(5, 2))
        assert window.slots.records.tolist() == [1, 0, 1, 0]

    def test_restarting_never_goes_back(self) -> None:
        desk = Desk()
        assert desk.tell_epochs((0, 0), (0, 1), (1, 0), (1, 1)) == [(0, 0), (1, 1)]
        desk.collector.restart((0, 1), after=0, why="a late word")
        assert desk.tell_epochs((1, 0), (1, 1)) == []
        assert desk.ignored == ["too late: the open window begins at epoch 2"] * 2


EPOCHS = 12


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, list[LoadReport]]:
    """Reports of every lane for every epoch: some lost, some twice (then with other counts), delayed at random."""
    lanes = draw(st.integers(1, 4))
    stream = []
    for epoch in range(EPOCHS):
        for lane in range(lanes):
            for _ in range(draw(st.sampled_from([1, 1, 1, 1, 1, 1, 2, 0]))):
                served = draw(st.dictionaries(st.integers(0, SLOTS - 1), st.integers(0, 9), max_size=SLOTS))
                delay = draw(st.sampled_from([0, 0, 0, 0, 1, 2, 6]))
                stream.append((epoch + delay, report(epoch, lane, served)))
    return lanes, [one for _, one in sorted(stream, key=lambda pair: pair[0])]


class TestAnyStream:
    @given(streams(), st.integers(1, 3), st.integers(0, 4), st.sampled_from([0.0, 2.0]))
    def test_a_window_is_the_sum_of_the_reports_of_its_epochs_and_no_epoch_counts_twice(
        self, stream: tuple[int, list[LoadReport]], window_epochs: int, patience: int, span: float
    ) -> None:
        lanes, reports = stream
        desk = Desk(lanes, window_epochs, patience)
        desk.collector.min_span_s = span
        windows = desk.tell(*reports)
        first: dict[tuple[int, int], LoadReport] = {}
        for one in reports:
            first.setdefault((one.epoch, one.lane.lane), one)
        for window in windows:
            start, end = window.epochs
            counts = np.zeros(SLOTS, dtype=np.int64)
            for epoch in range(start, end + 1):
                for lane in range(lanes):
                    one = first[epoch, lane]  # there is one: the set is complete
                    counts[one.slots] += one.loads.records
            assert window.slots.records.tolist() == counts.tolist()
            assert end - start + 1 >= max(window_epochs, span)
        assert all(before.epochs[1] < after.epochs[0] for before, after in pairwise(windows))
        used = Counter(epoch for window in windows for epoch in range(window.epochs[0], window.epochs[1] + 1))
        assert set(used.values()) <= {1}

    @given(streams(), st.integers(1, 3))
    def test_with_all_reports_there_in_the_end_and_enough_patience_nothing_is_lost(
        self, stream: tuple[int, list[LoadReport]], window_epochs: int
    ) -> None:
        lanes, reports = stream
        desk = Desk(lanes, window_epochs, patience=EPOCHS)
        told = {(one.epoch, one.lane.lane) for one in reports}
        resent = [report(epoch, lane) for epoch in range(EPOCHS) for lane in range(lanes) if (epoch, lane) not in told]
        windows = desk.tell(*reports, *resent)
        assert [window.epochs for window in windows] == [
            (start, start + window_epochs - 1) for start in range(0, EPOCHS, window_epochs)
        ]
        assert desk.dropped == []

    @given(streams(), st.integers(0, 4))
    def test_every_report_is_used_dropped_with_its_epoch_or_ignored_with_a_reason(
        self, stream: tuple[int, list[LoadReport]], patience: int
    ) -> None:
        lanes, reports = stream
        desk = Desk(lanes, patience=patience)
        used = sum(window.epochs[1] - window.epochs[0] + 1 for window in desk.tell(*reports)) * lanes
        waiting = sum(len(of_epoch) for of_epoch in desk.collector._reports.values())
        dropped = len(reports) - used - waiting - len(desk.ignored)
        assert dropped >= 0
        assert (dropped > 0) == bool(desk.dropped)


@pytest.mark.parametrize("first", [1, 1_000_000])
def test_a_query_that_goes_on_at_a_high_epoch_gets_its_first_window_after_patience(first: int) -> None:
    desk = Desk(patience=2)
    told = [(epoch, lane) for epoch in range(first, first + 3) for lane in (0, 1)]
    assert desk.tell_epochs(*told) == [(epoch, epoch) for epoch in range(first, first + 3)]


class TestAllLanesAtOnce:
    """The load of an epoch in one piece comes to the same as a report of each lane."""

    @given(
        epochs=st.lists(st.integers(0, 6), min_size=1, max_size=12),
        restart_after=st.none() | st.integers(0, 5),
        window_epochs=st.integers(1, 3),
        min_span_s=st.sampled_from([0.0, 1.0, 2.5]),
    )
    def test_windows_and_journal_are_the_same(
        self, epochs: list[int], restart_after: int | None, window_epochs: int, min_span_s: float
    ) -> None:
        table = RoutingTable.even(SLOTS, 2)
        apart, whole = Desk(window_epochs=window_epochs), Desk(window_epochs=window_epochs)
        told: dict[str, list[LoadWindow]] = {"apart": [], "whole": []}
        for desk in (apart, whole):
            desk.collector.min_span_s = min_span_s
            if restart_after is not None:
                desk.collector.restart((0, 1), restart_after, "a test")
        for count, epoch in enumerate(epochs):
            records = {lane: {slot: count + slot for slot in table.slots_of(lane).tolist()} for lane in (0, 1)}
            reports = [report(epoch, lane, records[lane]) for lane in (0, 1)]
            told["apart"] += apart.tell(*reports)
            load = LoadWindow.from_reports(reports, SLOTS)
            at_once = whole.collector.add_all(load, table)
            told["whole"] += [*([at_once] if at_once is not None else []), *whole.take()]
        assert told["apart"] == told["whole"]
        assert apart.journal == whole.journal
