"""A saved journal: written, read, planned on and replayed under another policy."""

from __future__ import annotations

import json

import numpy as np
import pytest

from evenflow.control import BalancerOptions, Journal
from evenflow.control.window_json import read_window_json, write_journal_json
from evenflow.errors import InputError
from evenflow.model import LaneLoad, LoadWindow, RoutingTable, SlotLoads
from evenflow.policies import policy_named
from evenflow.sim.quantum import Scenario, Timeline, simulate, with_hotspot
from evenflow.sim.replay import recording_of
from evenflow.sim.what_if import answer, replayed


def recorded() -> Timeline:
    scenario = Scenario(
        lanes=4,
        slots=32,
        arrivals=with_hotspot(32, 1_000, range(0, 32, 4), 0.6),
        seconds_per_record=1e-3,
        state_bytes=1_000,
        duration_s=12,
    )
    return simulate(scenario, policy_named("static"), options=BalancerOptions())


def test_a_journal_is_read_back_as_it_was_written() -> None:
    journal = recorded().journal
    file = read_window_json(write_journal_json(journal), "journal")
    assert len(file.windows) == len(journal.windows) == 12
    for (window, table), again in zip(journal.windows, file.windows, strict=True):
        assert again.slots == window.slots
        assert again.lanes == window.lanes
        assert file.table.owners.tolist() == table.owners.tolist()


def test_a_decision_is_made_on_the_windows_that_the_policy_was_shown() -> None:
    """Lanes that have just started are slow: on their windows too, another decision might come out."""
    scenario = Scenario(4, 32, with_hotspot(32, 1_000, range(0, 32, 4), 0.6), 1e-3, 1_000, duration_s=12)
    journal = simulate(scenario, policy_named("static"), options=BalancerOptions(settle_windows=3)).journal
    file = read_window_json(write_journal_json(journal), "journal")
    assert len(file.windows) == 12
    assert file.shown == file.windows[3:]


def test_entries_are_there_for_people() -> None:
    saved = json.loads(write_journal_json(recorded().journal))
    assert {"WindowClosed", "Decided"} <= {entry["kind"] for entry in saved["journal"]}


def test_only_so_many_windows_are_kept() -> None:
    journal, table = Journal(keep_slots=10), RoutingTable.even(4, 2)
    for records in range(5):
        loads = SlotLoads.of([records] * 4)
        journal.keep_window(LoadWindow(loads, (LaneLoad(0), LaneLoad(1))), table)
    assert [int(window.slots.records[0]) for window, _ in journal.windows] == [3, 4]


def test_the_same_policy_gives_what_was_recorded_and_another_one_is_more_even() -> None:
    timeline = recorded()
    text = write_journal_json(timeline.journal)
    same = answer(*replayed(text, "j", "static", "paced", None))
    assert same.summary()["moves"] == 0
    assert same.timeline.imbalance[-1] == pytest.approx(timeline.imbalance[-1], rel=0.1)
    assert same.timeline.arrived.sum() == pytest.approx(timeline.arrived.sum(), rel=0.1)
    other = answer(*replayed(text, "j", "flux-load", "paced", None))
    assert other.summary()["moves"] > 0
    assert other.timeline.imbalance[-1] < 0.9 * same.timeline.imbalance[-1]
    rows = other.rows()
    assert rows[0]["recorded_imbalance"] == pytest.approx(timeline.imbalance[0], rel=0.1)


def test_prices_and_state_come_from_the_windows() -> None:
    scenario = recording_of(read_window_json(write_journal_json(recorded().journal), "j")).scenario
    assert np.asarray(scenario.seconds_per_record) == pytest.approx(1e-3, rel=1e-3)
    assert np.unique(np.asarray(scenario.state_bytes)).tolist() == [1_000]


def behind(epochs: int) -> Journal:
    """What Spark's lanes report, an epoch of 10 rows per slot each second: lane 0 needs 1.5 s for it, lane 1 0.5 s."""
    journal, table = Journal(), RoutingTable.even(4, 2)
    for epoch in range(epochs):
        waits = int(0.5 * (epoch + 1)) * 10
        loads = SlotLoads.of([10] * 4, [0.75, 0.25] * 2, [100] * 4, [waits, 0] * 2)
        lanes = (LaneLoad(0, 0.0, 1.5, queue=2 * waits), LaneLoad(1, 0.5, 1.0))
        journal.keep_window(LoadWindow(loads, lanes, (epoch, epoch), all_served=True), table)
    return journal


def test_a_lane_that_fell_behind_on_spark_does_so_in_the_replay() -> None:
    text = write_journal_json(behind(20))
    file = read_window_json(text, "j")
    assert [window.slots.pending[0] for window in file.windows][-2:] == [90, 100]
    assert all(window.all_served for window in file.windows)
    same = answer(*replayed(text, "j", "static", "paced", None)).timeline
    assert same.arrived.sum() == pytest.approx(20 * 40, rel=0.05)  # each row once, as fast as it came
    # After 20 s lane 0 has served 20 s of its 30 s of work: a third of its 400 rows waits, and none of lane 1's.
    assert same.backlog[-1] == pytest.approx([400 / 3, 0.0], rel=0.15, abs=2)
    even = answer(*replayed(text, "j", "even", "paced", None)).timeline
    assert even.backlog[-1].sum() < 0.5 * same.backlog[-1].sum()


def window(lanes: list[int], slots: list[dict[str, int]]) -> dict[str, object]:
    return {"lanes": [{"lane": lane} for lane in lanes], "slots": slots}


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ([], "at least one window"),
        ([window([0, 1], [{"slot": 0, "lane": 0}])], "nothing to replay"),
        (
            [
                window([0, 1], [{"slot": 0, "lane": 0, "records": 1}]),
                window([0], [{"slot": 0, "lane": 0, "records": 1}]),
            ],
            "lanes that come and go",
        ),
        (
            [
                window([0], [{"slot": 0, "lane": 0, "records": 1}]),
                window([0], [{"slot": 0, "lane": 0, "records": 1}, {"slot": 1, "lane": 0, "records": 1}]),
            ],
            "list all in each",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused(windows: list[object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        recording_of(read_window_json(json.dumps({"windows": windows, "journal": []}).encode(), "j"))
