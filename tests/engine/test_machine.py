"""The engine, event by event: lanes are played by the test, nothing runs by itself."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.control.journal import PhaseChanged
from evenflow.engine import Asked
from evenflow.errors import EvenflowError, LaneFailedError
from evenflow.lane.events import Said
from evenflow.lane.messages import Adopt, Done, Failed, Forget, Prepare, Prepared, Release, Work
from evenflow.migration import Event, Phase
from evenflow.model import LoadView
from evenflow.policies import Proposal
from evenflow.state import Advance, LaneCommit
from tests.engine.scene import Scene, folded


def settled(scene: Scene) -> list[int]:
    return [entry.move.slot for entry in scene.balancer.journal.of(PhaseChanged) if entry.after is Phase.SETTLED]


def costs(scene: Scene, first: int = 0) -> dict[int, list[int]]:
    """Return what each slot cost by the windows from an epoch on, in rows of the epoch that closes each."""
    windows = [window for window, _ in scene.balancer.journal.windows]
    return {window.epochs[1]: window.slots.records.tolist() for window in windows if window.epochs[0] >= first}


class TestPace:
    def test_a_lane_that_is_behind_holds_up_nobody(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        for epoch in range(4):
            scene.accept()
            assert scene.done(1).epoch == epoch
        assert scene.versions == [-1, -1, 3, 3]
        assert scene.checkpoint.frontier == -1
        assert [work.epoch for work in scene.told(0, Work)] == [0]  # one at a time, however much there is

    def test_one_epoch_at_a_time_until_it_is_known_what_they_cost(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        for _ in range(3):
            scene.accept()
        assert [scene.done(0).epoch for _ in range(3)] == [0, 1, 2]
        assert not scene.told(0, Work)

    def test_several_small_epochs_are_folded_in_one_work(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.accept()
        for _ in range(5):
            scene.accept()
        scene.done(0, seconds=1e-4)  # 2 rows in 0.1 ms
        work = scene.done(0)
        assert folded(work) == {epoch: [0, 1] for epoch in range(1, 6)}
        assert work.advances == (Advance(0, 5, (0, 1)),)

    def test_epochs_that_take_long_are_not_folded_together(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        for _ in range(3):
            scene.accept()
        scene.done(0, seconds=0.04)  # two of them are more than lanes may be at in one go
        assert folded(scene.done(0, seconds=0.04)) == {1: [0, 1]}

    def test_an_epoch_without_rows_still_advances_all_slots(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.accept(rows=0)
        assert folded(scene.done(0)) == {0: []}
        scene.done(1)
        assert scene.checkpoint.frontier == 0

    def test_a_lane_without_slots_reports_all_the_same(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.engine._add_lane(2)
        scene.join(2)
        scene.accept()
        assert scene.done(2).advances == ()
        assert scene.engine.lanes[2].epoch == 0

    def test_a_lane_without_slots_that_answers_late_holds_up_no_window(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path, slots=2, lanes=3)  # lane 2 has none
        for _ in range(2):
            scene.accept()
            for lane in (0, 1):
                scene.run(lane)
        assert costs(scene) == {}
        scene.done(2)  # epoch 0; epoch 1 is over: nobody will ask the lane for it
        assert not scene.told(2, Work)
        assert costs(scene) == {0: [1, 1], 1: [1, 1]}
        last, _ = scene.balancer.journal.windows[-1]
        assert [lane.utilisation for lane in last.lanes][2] == 0.0


class TestPending:
    """What is reported to wait for each slot: rows of accepted epochs that it has not folded."""

    def test_a_lane_that_is_behind_reports_the_later_epochs_slot_by_slot(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        for rows in (1, 2, 3):
            scene.accept(rows)
            scene.done(1)
        assert scene.engine.pending_rows().tolist() == [6, 6, 0, 0]
        scene.done(0)
        scene.done(0)
        first, second = (window for window, _ in scene.balancer.journal.windows)
        assert first.slots.pending.tolist() == [5, 5, 0, 0]
        assert second.slots.pending.tolist() == [3, 3, 0, 0]
        assert [lane.queue for lane in first.lanes] == [10, 0]
        assert first.all_served
        assert second.all_served

    def test_a_slot_without_rows_or_state_so_far_is_reported_for_what_waits(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.accept(rows=0)
        scene.accept(rows=4)
        scene.done(0)
        scene.done(1)
        window, _ = scene.balancer.journal.windows[0]
        assert window.slots.records.tolist() == [0] * 4
        assert window.slots.pending.tolist() == [4] * 4

    def test_what_waits_for_a_slot_goes_with_it(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        for _ in range(3):
            scene.accept()
        scene.ask((0, 1))
        scene.accept()
        scene.done(0)  # epoch 0; the move takes effect at 3
        scene.release(0)
        assert scene.engine.pending_rows().tolist() == [3, 3, 4, 4]
        for _ in range(4):
            scene.done(1)  # its own slots
        scene.adopt(1)
        for lane in (0, 1):
            scene.run(lane)
        assert scene.engine.pending_rows().tolist() == [0] * 4


class Hopeless:
    """A policy that names some slots and moves none."""

    def __init__(self, *slots: int) -> None:
        self.slots = slots

    def propose(self, view: LoadView) -> Proposal:  # noqa: ARG002
        return Proposal(not_curable=self.slots)


class TestNotCurable:
    @staticmethod
    def epoch(scene: Scene) -> list[tuple[int, ...]]:
        """Go through an epoch; return of which slots the lanes were asked for the hottest key."""
        scene.accept()
        return [scene.done(lane).hot_slots for lane in (0, 1)]

    def test_the_lane_of_a_slot_is_asked_for_its_key_now_and_then(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.balancer.set_policy(Hopeless(3))
        assert self.epoch(scene) == [(), ()]  # nobody knows yet
        unknown = {"key": None, "keyShare": None, "keys": None}
        row = {"slot": 3, "lane": 1, "share": 0.25, "since": 0}
        assert scene.engine.hot_spots.rows() == [row | unknown]
        assert self.epoch(scene) == [(), (3,)]
        assert scene.engine.hot_spots.rows() == [row | {"key": {"key": 3}, "keyShare": 1 / 3, "keys": 5}]
        assert [self.epoch(scene) for _ in range(19)] == [[(), ()]] * 19
        assert self.epoch(scene) == [(), (3,)]

    def test_what_is_cured_is_not_told_of_any_more(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.balancer.set_policy(Hopeless(3))
        for _ in range(2):
            self.epoch(scene)
        scene.balancer.set_policy(Hopeless())
        assert scene.engine.hot_spots.rows() == []
        self.epoch(scene)
        scene.balancer.set_policy(Hopeless(3, 0))
        self.epoch(scene)
        assert [(row["slot"], row["since"], row["key"]) for row in scene.engine.hot_spots.rows()] == [
            (3, 3, None),
            (0, 3, None),
        ]
        assert self.epoch(scene) == [(0,), (3,)]


class TestAtOnce:
    def test_the_source_stops_where_it_is_and_the_backlog_goes_along(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.accept()
        scene.accept()
        scene.done(0)  # epoch 0; it is at epoch 1 now
        scene.ask((0, 1))
        scene.accept()  # 2: the move takes effect
        assert scene.told(0, Release) == [Release((0,))]
        assert scene.done(0).advances == (Advance(0, 1, (0, 1)),)  # the work it was at counts
        assert folded(scene.take(0, Work)) == {2: [1]}
        scene.accept()
        scene.release(0)
        scene.done(1)
        scene.adopt(1)
        for _ in range(3):
            scene.done(1)
        assert scene.versions[0] == 3
        assert settled(scene) == [0]

    def test_what_the_source_has_not_begun_is_left_to_the_target(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        for _ in range(4):
            scene.accept()  # 0 to 3; the source is at 0
        scene.ask((0, 1))
        scene.accept()
        scene.done(0)
        assert scene.release(0) == Release((0,))
        for _ in range(5):
            scene.done(1)  # its own slots, up to 4
        scene.adopt(1)
        taken = [scene.done(1) for _ in range(2)]
        # Rows that were routed to the source, since they came before the move; slot 1 is not touched.
        assert [folded(work) for work in taken] == [{1: [0], 2: [0]}, {3: [0], 4: [0]}]


class TestAtTheTimestamp:
    def test_the_source_folds_up_to_the_move_and_the_target_from_there(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path, handover="at the timestamp")
        for _ in range(3):
            scene.accept()
        scene.ask((0, 1))
        scene.accept()  # 3
        assert [folded(scene.done(0)) for _ in range(2)] == [{0: [0, 1]}, {1: [0, 1]}]
        work = scene.told(0, Work)[0]
        assert scene.heard[0] == [work]
        assert folded(work) == {2: [0, 1]}
        scene.handle(Asked())  # behind the last work before the move the release may go out: lanes keep the order
        assert scene.heard[0] == [work, Release((0,))]
        scene.done(0)
        scene.release(0)
        assert folded(scene.done(0)) == {3: [1]}
        for _ in range(4):
            scene.done(1)
        scene.adopt(1)
        assert folded(scene.done(1)) == {3: [0]}
        assert scene.checkpoint.frontier == 3

    def test_a_lost_source_does_not_fold_any_more_its_backlog_goes_along(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path, handover="at the timestamp")
        scene.accept()
        scene.ask((0, 1))
        scene.accept()
        scene.lose(0)
        scene.done(1)
        scene.done(1)
        assert [entry.slot for entry in scene.adopt(1).slots] == [0]
        assert folded(scene.done(1)) == {0: [0], 1: [0]}
        assert scene.versions == [1, -1, 1, 1]


class TestCatchingUp:
    def test_a_slot_that_is_behind_takes_two_epochs_per_work_and_the_others_go_on(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        for _ in range(6):
            scene.accept()
        scene.ask((0, 1))
        scene.accept()  # 6
        scene.done(0)
        scene.release(0)
        for _ in range(7):
            scene.done(1)
        scene.adopt(1)
        behind = scene.told(1, Work)[0]
        scene.accept()  # 7
        assert folded(behind) == {1: [0], 2: [0]}
        scene.done(1)
        assert folded(scene.done(1)) == {3: [0], 4: [0], 7: [2, 3]}
        scene.accept()  # 8
        assert folded(scene.done(1)) == {5: [0], 6: [0]}
        # One behind now: it draws level in one go.
        assert folded(scene.done(1)) == {7: [0], 8: [0, 2, 3]}

    def test_what_is_caught_up_is_no_cost_of_the_epoch_it_is_done_with(self, tmp_path: Path) -> None:
        """AF-A26: the first window after a move is as the ones after it, whatever the slot had to catch up."""
        scene = Scene.ready(tmp_path)
        for _ in range(4):
            scene.accept()
        scene.ask((0, 1))
        scene.accept()  # 4
        scene.done(0)
        scene.release(0)
        for _ in range(5):
            scene.done(1)
        scene.adopt(1)  # with epochs 1 to 4 of slot 0 behind it
        for _ in range(3):
            scene.accept()
        for lane in (0, 1):
            scene.run(lane)
        assert costs(scene, first=5) == {5: [1, 1, 1, 1], 6: [1, 1, 1, 1], 7: [1, 1, 1, 1]}

    def test_a_slot_that_is_level_when_its_move_settles_costs_what_it_costs(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.accept()
        for lane in (0, 1):
            scene.run(lane)
        scene.ask((0, 1))
        scene.accept()  # 1
        for lane in (0, 1):
            scene.run(lane)
        scene.release(0)
        scene.adopt(1)
        scene.run(1)  # epoch 1 of slot 0
        scene.accept()
        for lane in (0, 1):
            scene.run(lane)
        assert costs(scene, first=2) == {2: [1, 1, 1, 1]}
        assert [lane.window_s for lane in scene.balancer.journal.windows[-1][0].lanes] == pytest.approx([1.0, 1.0])

    def test_no_report_is_made_before_all_slots_have_passed_the_epoch(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        for _ in range(5):
            scene.accept()
        scene.ask((0, 1))
        scene.accept()  # 5
        scene.done(0)
        scene.release(0)
        for _ in range(6):
            scene.done(1)
        scene.adopt(1)
        scene.accept()  # 6: the first that counts
        scene.run(0)
        while 6 not in folded(scene.told(1, Work)[0]):
            scene.done(1)
        scene.done(1)  # its own slots of 6; slot 0 is behind
        assert costs(scene, first=6) == {}
        scene.run(1)
        assert costs(scene, first=6) == {6: [1, 1, 1, 1]}


class TestWaiting:
    def test_what_lanes_waited_for_a_move_is_not_in_the_window_after_it(self, tmp_path: Path) -> None:
        """AF-A26: the first epoch after a move begins when the move has ended, the wait before it while it was on."""
        scene = Scene.ready(tmp_path, lanes=3, slots=6)
        scene.now_s = 100.0
        scene.accept()
        scene.ask((0, 1))
        scene.accept()
        for lane in range(3):
            scene.run(lane)
        scene.release(0)
        scene.now_s += 3.0
        scene.adopt(1)
        scene.run(1)  # the slot that came draws level, in a second that it would have had to spare
        scene.now_s += 1.0
        scene.accept()
        scene.now_s += 1.5
        scene.done(0, seconds=1.0, idle_s=4.5)  # of which 1.5 s were after the move
        scene.done(1, seconds=1.2, idle_s=0.3)
        scene.done(2, seconds=1.0, idle_s=4.5)
        window = scene.balancer.journal.windows[-1][0]
        assert [lane.idle_s for lane in window.lanes] == pytest.approx([1.5, 1.3, 1.5])
        assert [lane.window_s for lane in window.lanes] == pytest.approx([2.5, 2.5, 2.5])


class TestLoss:
    def test_the_slots_of_a_lost_lane_wait_for_its_next_attempt(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.accept()
        scene.lose(0)
        assert scene.engine.missing() == [0]
        scene.done(1)
        scene.accept()
        assert folded(scene.done(1)) == {1: [2, 3]}  # nobody else waits, and nobody else takes them
        scene.join(0)
        assert [entry.version for entry in scene.adopt(0).slots] == [-1, -1]
        assert scene.run(0) == {0: [0, 1], 1: [0, 1]}

    def test_a_lane_that_is_loading_after_a_loss_reports_nothing_yet(self, tmp_path: Path) -> None:
        """Its slots have not got cheaper, and what they catch up afterwards has not made them dearer."""
        scene = Scene.ready(tmp_path)
        scene.accept()
        for lane in (0, 1):
            scene.run(lane)
        scene.lose(0)
        scene.join(0)
        for _ in range(3):
            scene.accept()
            scene.run(1)
        assert not scene.told(0, Work)
        assert costs(scene) == {0: [1, 1, 1, 1]}
        scene.adopt(0)
        scene.run(0)
        assert costs(scene) == {epoch: [1, 1, 1, 1] for epoch in range(4)}

    def test_what_lanes_waited_for_a_lost_one_is_not_in_the_windows_after_it(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.now_s = 100.0
        scene.lose(0)
        scene.join(0)
        scene.now_s += 5.0
        scene.adopt(0)
        scene.accept()
        scene.now_s += 1.0
        for lane in (0, 1):
            scene.done(lane, seconds=0.5, idle_s=5.5)
        assert [lane.idle_s for lane in scene.balancer.journal.windows[-1][0].lanes] == pytest.approx([0.5, 0.5])

    def test_what_it_has_said_counts_and_what_it_says_afterwards_does_not(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.accept()
        scene.done(0, later=True)
        scene.lose(0)
        assert scene.versions[:2] == [0, 0]
        token = scene._tokens[0].token
        scene.join(0)
        scene.adopt(0)
        scene.accept()
        work = scene.told(0, Work)[0]
        scene.handle(Said(0, token, Done(LaneCommit(0, token, 1, work.advances), (), 0.0, 0, 0)))
        assert scene.versions[:2] == [0, 0]

    def test_a_lane_that_is_lost_again_and_again_without_progress_ends_the_query(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.accept()
        for _ in range(4):
            scene.lose(0)
            scene.join(0)
            scene.adopt(0)
        with pytest.raises(EvenflowError, match="lane 0 was lost 5 times in one epoch"):
            scene.lose(0)

    def test_losses_with_progress_in_between_do_not_add_up(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        for _ in range(8):
            scene.accept()
            scene.done(0)
            scene.lose(0)
            scene.join(0)
            scene.adopt(0)

    def test_a_failure_is_raised_with_the_lanes_words(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        with pytest.raises(LaneFailedError, match=r"lane 1.*no such price"):
            scene.say(1, Failed("ValueError", "no such price", "traceback"))

    def test_a_target_that_dies_while_loading_loads_again(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.accept()
        scene.done(0)
        scene.done(1)
        scene.ask((0, 1))
        scene.accept()
        scene.release(0)
        assert scene.told(1, Adopt)
        scene.lose(1)
        scene.join(1)
        adopted = scene.adopt(1)
        assert sorted(entry.slot for entry in adopted.slots) == [0, 2, 3]
        handoff = next(entry for entry in adopted.slots if entry.slot == 0)
        assert handoff.snapshot is not None  # what the source wrote is still the newest
        assert handoff.snapshot.file.name.startswith("handoffs/")
        assert settled(scene) == [0]


def there_and_back(place: Path) -> Scene:
    """Return a scene whose lane 0 was lost and is still at loading, while its slot 0 was at lane 1 for an epoch."""
    scene = Scene.ready(place)
    scene.lose(0)
    scene.ask((0, 1))
    scene.join(0)
    scene.accept()
    scene.done(1)
    scene.adopt(1)
    scene.run(1)
    scene.ask((0, 0))
    scene.accept()
    scene.release(1)
    return scene


class TestMovesInARow:
    def test_a_slot_moves_on_once_its_first_move_has_settled(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path, slots=3, lanes=3)
        scene.ask((0, 1))
        scene.accept()
        scene.ask((0, 2))
        scene.accept()  # the second waits
        scene.release(0)
        assert not scene.told(2, Adopt)
        scene.done(1)
        scene.adopt(1)
        scene.accept()
        scene.release(1)
        scene.done(2)
        assert [entry.slot for entry in scene.adopt(2).slots] == [0]
        assert settled(scene) == [0, 0]

    def test_a_slot_that_is_still_loading_after_a_loss_can_be_moved_away(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.lose(0)
        scene.ask((0, 1))
        scene.join(0)
        assert [entry.slot for entry in scene.told(0, Adopt)[0].slots] == [0, 1]
        scene.accept()
        assert scene.forgotten(0) == [0]
        scene.done(1)
        assert [entry.slot for entry in scene.adopt(1).slots] == [0]
        scene.adopt(0)  # it has loaded both before it heard; only slot 1 is its own
        assert scene.run(0) == {0: [1]}

    def test_a_slot_that_moved_away_and_cannot_be_loaded_here_any_more_is_nothing(self, tmp_path: Path) -> None:
        """Its new lane may have written it anew, and the files of before are gone."""
        scene = Scene.ready(tmp_path)
        scene.lose(0)
        scene.ask((0, 1))
        scene.join(0)
        scene.accept()
        scene.take(0, Adopt)
        scene.say(0, Failed("DamagedFileError", "it is gone", "", (0, 1)))
        assert [entry.slot for entry in scene.adopt(0).slots] == [1]  # again, without the one that is elsewhere
        assert scene.run(0) == {0: [1]}

    def test_an_answer_of_before_does_not_count_for_a_slot_that_has_come_back(self, tmp_path: Path) -> None:
        scene = there_and_back(tmp_path)
        first, second = scene.told(0, Adopt)
        assert [[entry.slot for entry in adopt.slots] for adopt in (first, second)] == [[0, 1], [0]]
        scene.adopt(0)  # both slots as they were at first; slot 0 has gone on elsewhere
        assert scene.told(0, Work)[0].advances == (Advance(-1, 0, (1,)),)
        assert scene.engine.missing() == [0]
        scene.adopt(0)
        assert scene.run(0) == {0: [1], 1: [0, 1]}
        assert settled(scene) == [0, 0]

    def test_a_failure_of_before_does_not_count_for_a_slot_that_has_come_back(self, tmp_path: Path) -> None:
        scene = there_and_back(tmp_path)
        scene.take(0, Adopt)
        scene.say(0, Failed("DamagedFileError", "it is gone", "", (0, 1)))
        assert [[entry.slot for entry in adopt.slots] for adopt in scene.told(0, Adopt)] == [[0], [1]]

    def test_a_slot_that_cannot_be_loaded_ends_the_query(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path)
        scene.join(0)
        with pytest.raises(LaneFailedError, match="it is gone"):
            scene.say(0, Failed("DamagedFileError", "it is gone", "", (0, 1)))


class Witness:
    """A policy that moves nothing and keeps what it is shown."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def propose(self, view: LoadView) -> Proposal:
        self.seen.append(view.last.slots.records.tolist())
        return Proposal()


@given(steps=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 2), st.integers(0, 5)), min_size=30, max_size=120))
@settings(max_examples=60)
def test_policies_see_what_each_slot_costs_per_epoch_whatever_is_caught_up(steps: list[tuple[int, int, int]]) -> None:
    """Slots move, lanes die, come back and answer when they like; each slot has one row per epoch all the time."""
    with TemporaryDirectory() as place:
        scene, witness = Scene.ready(Path(place), slots=6, lanes=3), Witness()
        scene.balancer.set_policy(witness)
        for what, lane, slot in steps:
            if what < 5:
                scene.answer(lane)
            elif what < 8 and len(scene.checkpoint.pending) < 6:
                scene.accept()
            elif what == 8 and int(scene.balancer.table.owners[slot]) != lane:
                scene.ask((slot, lane))
            elif what == 9 and scene.engine.lanes[lane].losses < 3:
                scene.lose(lane)
                scene.join(lane)
            else:
                for each in range(scene.lanes):
                    scene.answer(each)
        for _ in range(3 + len(scene.balancer.planned)):  # and then all goes well
            scene.accept()
            while any(scene.answer(lane) for lane in range(scene.lanes)):
                pass
        assert witness.seen
        assert all(records == [1] * 6 for records in witness.seen)
        assert scene.checkpoint.frontier == scene.checkpoint.recover().last_accepted


def copied_ahead(place: Path, not_before: int = 3, **how: Any) -> Scene:
    """Return a scene at epoch 1 with slot 0 planned to go to lane 1 later on, and lane 1 told to load it ahead."""
    scene = Scene.ready(place, options={"copy_ahead_bytes": 1}, **how)
    for _ in range(2):
        scene.accept()
        for lane in range(scene.lanes):
            scene.done(lane, size=10)
    scene.ask((0, 1), not_before=not_before)
    return scene


class TestCopyAhead:
    def test_the_target_loads_first_and_then_only_what_has_changed_since(self, tmp_path: Path) -> None:
        scene = copied_ahead(tmp_path)
        (entry,) = scene.prepare(1).slots
        assert (entry.slot, entry.version, entry.prepared) == (0, 1, None)
        scene.accept()
        scene.done(0, size=10)
        scene.done(1, size=10)
        scene.accept()  # 3: the move
        assert scene.release(0) == Release((0,), handoff=False)  # nothing to write: the target has it
        scene.done(1, size=10)
        (entry,) = scene.adopt(1).slots
        assert (entry.version, entry.prepared, entry.snapshot) == (2, 1, None)
        assert [change.version for change in entry.changes] == [2]

    def test_the_move_waits_until_the_copy_is_there(self, tmp_path: Path) -> None:
        scene = copied_ahead(tmp_path)
        for _ in range(3):
            scene.accept()
            scene.done(0, size=10)
            scene.done(1, size=10)
        assert not scene.told(0, Release)
        scene.prepare(1)
        scene.accept()
        assert scene.told(0, Release)

    def test_a_copy_that_could_not_be_made_does_not_hold_up_the_move(self, tmp_path: Path) -> None:
        scene = copied_ahead(tmp_path)
        scene.take(1, Prepare)
        scene.say(1, Prepared(((0, None),), 0, 0.0))
        scene.accept()
        scene.accept()
        assert scene.told(0, Release) == [Release((0,), handoff=True)]

    def test_no_snapshot_replaces_the_changes_that_the_copy_needs(self, tmp_path: Path) -> None:
        scene = copied_ahead(tmp_path, not_before=9)
        written: set[int] = set()
        for _ in range(3):
            scene.accept()
            written.update(scene.done(0).snapshot_slots)
        assert written == {1}

    def test_copies_take_nothing_of_what_may_be_written_of_other_slots(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path, slots=24, options={"copy_ahead_bytes": 1})
        for _ in range(2):
            scene.accept()
            for lane in (0, 1):
                scene.done(lane, size=10)
        scene.ask(*((slot, 1) for slot in range(9)), not_before=9)
        written = []
        for _ in range(6):
            scene.accept()
            written.append({slot for lane in (0, 1) for slot in scene.done(lane, size=10).snapshot_slots})
        assert set.union(*written) == set(range(9, 24))

    def test_a_plan_that_is_superseded_makes_the_target_forget(self, tmp_path: Path) -> None:
        scene = copied_ahead(tmp_path, slots=6, lanes=3)
        scene.prepare(1)
        scene.ask((0, 2), not_before=5)
        assert scene.told(1, Forget) == [Forget((0,))]
        assert [entry.slot for entry in scene.told(2, Prepare)[0].slots] == [0]

    def test_a_copy_that_was_called_off_does_not_count_for_the_next_one(self, tmp_path: Path) -> None:
        scene = copied_ahead(tmp_path, slots=6, lanes=3)
        scene.ask((0, 2))
        scene.ask((0, 1))  # lane 1 is still at the first copy, then forgets it, then makes another
        scene.prepare(1)
        scene.accept()
        assert not scene.told(0, Release)
        scene.prepare(1)
        scene.accept()
        assert scene.told(0, Release)

    def test_a_target_that_dies_copies_again(self, tmp_path: Path) -> None:
        scene = copied_ahead(tmp_path)
        scene.prepare(1)
        scene.ask((1, 1), not_before=3)  # plans that need a lost lane are dropped: this one and the first
        scene.lose(1)
        scene.join(1)
        scene.adopt(1)
        assert scene.balancer.planned == ()
        scene.ask((0, 1), not_before=3)
        assert [entry.slot for entry in scene.prepare(1).slots] == [0]

    def test_a_lane_that_still_serves_a_slot_is_not_told_to_copy_it(self, tmp_path: Path) -> None:
        """It moves away and is to come back: the copy would overwrite what the lane has folded and not committed."""
        scene = copied_ahead(tmp_path, handover="at the timestamp")
        scene.prepare(1)
        scene.accept()
        scene.accept()  # 3: the move to lane 1; lane 0 has not folded epoch 2 yet
        scene.ask((0, 0))  # and back
        assert not scene.told(0, Prepare)
        assert not scene.told(1, Forget)  # the first move needs its copy
        scene.done(0, size=10)
        assert not scene.release(0).handoff
        scene.done(1, size=10)
        scene.done(1, size=10)
        assert [entry.prepared for entry in scene.adopt(1).slots] == [1]
        assert [entry.slot for entry in scene.prepare(0).slots] == [0]


def test_a_lane_is_retired_when_its_last_slot_has_settled_elsewhere(tmp_path: Path) -> None:
    scene = Scene.ready(tmp_path)
    scene.ask((2, 0), (3, 0))
    scene.balancer.resize(scene.balancer.table.apply(scene.balancer.planned).with_lanes([0]))
    scene.accept()
    scene.release(1)
    scene.done(0)
    assert scene.retired == []
    scene.adopt(0)
    assert scene.retired == [1]
    assert Event.INSTALLED in {entry.event for entry in scene.balancer.journal.of(PhaseChanged)}
