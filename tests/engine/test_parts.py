"""Parts of the engine by themselves, where the whole never gets them into that state."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from evenflow.control.journal import StateMoved
from evenflow.engine.away import Away
from evenflow.engine.handoffs import Handoffs
from evenflow.engine.inputs import EpochIndex
from evenflow.engine.lanes import Lane
from evenflow.lane.messages import Done, EpochLoad, Prepare, Prepared, Release, Released, SlotColumns, Work
from evenflow.state import Advance, Block, EpochRecord, FileRef, LaneCommit, Segment, SlotRef, SlotSources
from tests.engine.scene import Scene


def ref(version: int) -> SlotRef:
    return SlotRef(FileRef(f"handoffs/{version}", 1, 0), version, 0, 1)


def test_a_handoff_of_another_version_is_not_loaded() -> None:
    handoffs = Handoffs()
    assert handoffs.written(0, ref(3)) is None
    assert handoffs.of(0, 3) == ref(3)
    assert handoffs.of(0, 4) is None
    assert handoffs.of(0, 2) is None
    assert handoffs.of(1, 3) is None
    assert handoffs.written(0, ref(4)) == ref(3)
    assert handoffs.of(0, 3) is None


def test_a_copy_that_a_newer_snapshot_overtook_is_not_used(tmp_path: Path) -> None:
    scene = Scene.ready(tmp_path, options={"copy_ahead_bytes": 1}, handover="at the timestamp")
    for _ in range(2):
        scene.accept()
        for lane in (0, 1):
            scene.done(lane, size=10)
    scene.ask((0, 1), not_before=3)
    scene.prepare(1)  # at version 1
    scene.accept()
    scene.accept()  # 3: the move
    assert scene.told(0, Work)
    copies, snapshots = scene.engine._copies, [0]
    copies.sources = lambda _: SlotSources(ref(snapshots[0]), ())
    for version, copied in ((0, 1), (1, 1), (2, None)):
        snapshots[0] = version
        assert copies.version_of(0) == copied


def test_a_unit_is_not_folded_past_its_move_by_its_source_with_epochs_that_are_folded_together(tmp_path: Path) -> None:
    scene = Scene.ready(tmp_path, handover="at the timestamp")
    scene.accept()
    scene.accept()
    scene.ask((0, 1))
    scene.accept()  # 2: the move; the source is still at 0
    scene.done(0, seconds=1e-4)
    assert scene.told(0, Work)[0].advances == (Advance(0, 1, (0,)), Advance(0, 2, (1,)))


def test_how_long_lanes_are_waited_for() -> None:
    away = Away(grace_s=100.0, start_s=10.0, lost={0: 1000.0, 1: 1050.0}, joining={2: 1010.0, 3: 1020.0})
    assert away.until_s({4}) == 1020.0
    assert away.until_s({2, 3}) == 1100.0
    assert away.until_s(()) == 1020.0
    assert Away(lost={0: 1000.0}).until_s(()) == math.inf
    assert away.not_come(1019.0, {4}) == []
    assert away.not_come(1020.0, {4}) == [2]
    assert away.not_come(1500.0, {2}) == [3]
    assert away.overdue(1099.0, {4}) == []
    assert away.overdue(1100.0, {4}) == [0]
    assert away.overdue(1500.0, {4}) == [0, 1]
    assert away.overdue(1500.0, ()) == []


def test_what_is_put_out_on_the_way_comes_after_the_blocks_in_the_order_it_came() -> None:
    def block(name: str, unit: int) -> Block:
        return Block(FileRef(name, 1, 0), (Segment(0, 0, 1, (unit,), (1,)),))

    record = EpochRecord(0, 0, 0, (0,), (0, 0, 0), (), (block("a", 0), block("b", 1)), (), 2, 0.0)
    index = EpochIndex(record)
    for name in ("c", "d", "e"):
        index.feed(block(name, 2))
    parts = index.input_of(np.arange(3)).parts
    assert [part.file.name for part in parts] == ["a", "b", "c", "d", "e"]
    assert index.rows.tolist() == [1, 1, 3]


def test_a_lane_whose_rows_took_no_time_keeps_the_pace_it_had() -> None:
    def done(rows: int, busy_s: float) -> Done:
        load = EpochLoad(0, SlotColumns((), (), (), ()), rows, busy_s)
        return Done(LaneCommit(0, "a", 0, (), (), (), ()), (load,), 0.0, 0, 0)

    lane = Lane(-1)
    lane.worked(done(10, 0.5))
    assert lane.rows_per_s == 20.0
    for rows, busy_s in ((10, 0.0), (0, 1.0)):
        lane.worked(done(rows, busy_s))
        assert lane.rows_per_s == 20.0


def test_epochs_are_folded_together_up_to_a_twentieth_of_a_second(tmp_path: Path) -> None:
    scene = Scene.ready(tmp_path, slots=2)
    for _ in range(9):
        scene.accept()
    scene.done(0, seconds=0.0125)  # a row: four of them are just short enough
    assert scene.told(0, Work)[0].epoch == 4


def test_lanes_at_work_are_those_that_have_not_answered(tmp_path: Path) -> None:
    scene = Scene.ready(tmp_path, slots=3, lanes=3)
    assert scene.engine.lanes_at_work == 0
    scene.accept()
    scene.done(0)
    assert scene.engine.lanes_at_work == 2


def test_a_lane_that_is_letting_go_of_a_unit_still_holds_it(tmp_path: Path) -> None:
    scene = Scene.ready(tmp_path)
    scene.accept()
    scene.ask((0, 1))
    scene.accept()
    assert scene.told(0, Release)
    assert scene.engine.missing() == []


def test_what_was_handed_off_is_shared_out_by_rows_and_absent_since_it_was_written(tmp_path: Path) -> None:
    scene = Scene.ready(tmp_path)
    scene.accept()
    scene.done(0)
    scene.done(1)
    scene.ask((0, 1), (1, 1))
    scene.accept()
    scene.now_s = 100.0
    scene.take(0, Release)
    file = FileRef("handoffs/0", 1, 0)
    refs = tuple((unit, SlotRef(file, 0, unit, rows)) for unit, rows in ((0, 1), (1, 3)))
    scene.say(0, Released(((0, 0), (1, 0)), refs, 1001, 8.0))
    moved = {entry.move.slot: (entry.keys, entry.state_bytes) for entry in scene.balancer.journal.of(StateMoved)}
    assert moved == {0: (1, 250), 1: (3, 750)}
    scene.now_s = 105.0
    scene.done(1)
    scene.adopt(1)
    absences = scene.engine._transfers.absences
    assert [(each.move.slot, each.since_s, each.until_s) for each in absences] == [(0, 92.0, 105.0), (1, 92.0, 105.0)]


def test_copies_are_journaled_with_their_share_and_stay_when_another_lane_is_lost(tmp_path: Path) -> None:
    scene = Scene.ready(tmp_path, slots=6, lanes=3, options={"copy_ahead_bytes": 1})
    for _ in range(2):
        scene.accept()
        for lane in range(3):
            scene.done(lane, size=10)
    scene.ask((2, 0), (3, 0), (4, 1), not_before=9)
    asked = scene.take(0, Prepare)
    scene.say(0, Prepared(tuple((entry.slot, entry.version) for entry in asked.slots), 1001, 2.0))
    moved = {entry.move.slot: entry.state_bytes for entry in scene.balancer.journal.of(StateMoved)}
    assert moved == {2: 500, 3: 500}
    copies = scene.engine._copies
    assert sorted(copies) == [2, 3, 4]
    copies.lane_lost(1)
    assert sorted(copies) == [2, 3]
