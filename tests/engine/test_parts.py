"""Parts of the engine by themselves, where the whole never gets them into that state."""

from __future__ import annotations

from pathlib import Path

from evenflow.engine.handoffs import Handoffs
from evenflow.lane.messages import Work
from evenflow.state import Advance, FileRef, SlotRef, SlotSources
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
