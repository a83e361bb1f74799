"""Lanes that do not come back, that come back after all, and that never came: nobody waits for them for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from evenflow.control import LaneWish
from evenflow.control.journal import LanesChanged, PhaseChanged, Refusal, Requested
from evenflow.errors import InputError
from evenflow.migration import Event, Phase
from evenflow.model import Move
from evenflow.policies import Proposal
from tests.control.story import HOT, Story

ELSEWHERE = Move(2, 1, 2)  # has nothing to do with lane 3, which has slots 6 and 7


FULL = (1, 50, 1, 1, 1, 1, 1, 1)  # lane 0 takes nothing


def without_lane_3(story: Story, weights: Sequence[float] | None = None) -> None:
    story.balancer.lane_lost(3)
    story.balancer.lane_gone(3, weights)


class TestGone:
    def test_its_slots_go_to_the_least_loaded_of_the_others_and_say_why(self) -> None:
        story = Story()
        story.run()  # busy time: lane 0 has 0.15, 1 has 0.11, 2 has 0.07
        without_lane_3(story)
        assert story.balancer.adoption_waits
        moves = story.begin()
        assert moves == (Move(6, 3, 2), Move(7, 3, 2))
        assert {move.reason for move in moves} == {"lane 3 is gone"}
        assert story.phases == {6: Phase.RECOVERING, 7: Phase.RECOVERING}, "there is no handoff to wait for"
        assert not story.balancer.adoption_waits
        assert story.balancer.table.lanes == (0, 1, 2)
        assert [entry.gone for entry in story.of(LanesChanged)] == [(), (3,), ()]

    def test_they_can_go_at_once_without_an_epoch(self) -> None:
        story = Story([HOT])
        story.run(2)
        without_lane_3(story, FULL)
        begun = story.balancer.adopt()
        assert {(life.move.slot, life.move.source, life.phase) for life in begun} == {
            (0, 0, Phase.ANNOUNCED),  # on its way there, and still where it was
            (6, 3, Phase.RECOVERING),
            (7, 3, Phase.RECOVERING),
        }
        assert {life.epoch for life in begun} == {story.epoch}
        assert story.balancer.table.lanes == (0, 1, 2)
        assert 3 not in story.owners
        assert story.begin() == ()
        story.settle()
        assert story.phases == {}

    def test_a_source_that_still_has_a_slot_that_is_passed_on_is_not_let_go(self) -> None:
        story = Story()
        table = story.balancer.table
        story.balancer.resize(table.apply([Move(0, 0, 3), Move(1, 0, 1)]).with_lanes([1, 2, 3]))
        story.begin()
        without_lane_3(story)
        story.balancer.adopt()
        assert story.ack(1, Event.INSTALLED) is None
        assert story.settle() == LaneWish(retire=(0,))

    def test_weights_may_be_given(self) -> None:
        story = Story()
        story.run()
        story.balancer.lane_gone(3, weights=[0, 0, 5, 5, 9, 9, 1, 1])
        assert {move.target for move in story.begin()} == {0}

    def test_then_windows_are_complete_without_it(self) -> None:
        story = Story()
        story.run()
        without_lane_3(story)
        story.begin()
        story.settle()
        story.run()
        assert story.policy.asked[-1].table.lanes == (0, 1, 2)

    def test_they_wait_for_nobody_not_even_for_lanes_in_other_moves_or_bytes(self) -> None:
        story = Story(max_bytes_in_flight=100, overlap=False, copy_ahead_bytes=1)
        story.run()
        story.balancer.request([ELSEWHERE])
        story.balancer.prepared(ELSEWHERE.slot)
        assert story.begin() == (ELSEWHERE,)
        without_lane_3(story)
        assert story.balancer.to_prepare() == ()
        assert story.begin() == (Move(6, 3, 1), Move(7, 3, 1)), "lane 1 still gives slot 2"

    def test_plans_with_it_are_dropped_and_others_are_not(self) -> None:
        story = Story(strategy="sudden")
        for moves in ([HOT], [Move(6, 3, 0)], [ELSEWHERE]):
            story.balancer.request(moves, not_before=5)
        without_lane_3(story)
        assert story.balancer.planned == (Move(6, 3, 0), Move(7, 3, 1), ELSEWHERE)

    @pytest.mark.parametrize("event", [None, Event.HANDED_OFF, Event.HANDOFF_DAMAGED])
    def test_a_slot_on_its_way_there_is_passed_on(self, event: Event | None) -> None:
        story = Story([HOT])
        story.run(2)
        if event:
            story.ack(HOT.slot, event)
        without_lane_3(story, FULL)
        assert sorted(move.slot for move in story.begin()) == [0, 6, 7]
        ends = [entry.after for entry in story.of(PhaseChanged) if entry.move == HOT]
        assert ends[-1] is Phase.PASSED_ON
        # Where the source has not let go of it, it still does; from elsewhere there is nothing to wait for.
        first = Phase.RECOVERING if event else Phase.ANNOUNCED
        assert story.phases == {0: first, 6: Phase.RECOVERING, 7: Phase.RECOVERING}
        story.ack(HOT.slot, Event.INSTALLED, epoch=1)
        assert 0 in story.phases, "a late word about the first way"
        story.settle()
        assert story.phases == {}
        assert 3 not in story.owners

    def test_a_slot_on_its_way_from_there_arrives(self) -> None:
        story = Story([Move(6, 3, 0)])
        story.run(2)
        without_lane_3(story)
        assert story.begin() == (Move(7, 3, 2),)
        assert story.phases == {6: Phase.RECOVERING, 7: Phase.RECOVERING}
        story.settle()
        assert story.owners[6:] == [0, 2]

    def test_whatever_happens_until_the_next_epoch_they_are_not_left_there(self) -> None:
        story = Story()
        story.run()
        story.balancer.lanes_changed(range(5))
        without_lane_3(story)
        assert {move.target for move in story.balancer.planned} == {4}, "which has nothing yet"
        story.balancer.lane_lost(3)
        story.balancer.lane_lost(4)
        story.balancer.lanes_changed(range(4))
        assert [move.slot for move in story.begin()] == [6, 7]
        assert 3 not in story.owners

    def test_nothing_is_decided_about_it_even_if_it_owns_nothing_and_its_reports_are_there(self) -> None:
        story = Story([Move(6, 3, 0), Move(7, 3, 1)])
        story.run(2)
        story.settle()
        story.begin()
        without_lane_3(story)
        story.report_all()
        assert len(story.policy.asked) == 1
        assert story.begin() == ()
        assert story.balancer.table.lanes == (0, 1, 2)

    def test_two_lanes_at_once_give_nothing_to_each_other(self) -> None:
        story = Story()
        story.run()
        for lane in (3, 2):
            story.balancer.lane_lost(lane)
            story.balancer.lane_gone(lane)
        assert Counter(move.source for move in story.begin()) == {2: 2, 3: 2}
        assert set(story.owners) == {0, 1}
        assert story.balancer.table.lanes == (0, 1)

    def test_one_after_the_other(self) -> None:
        story = Story()
        story.run()
        without_lane_3(story)
        story.begin()
        story.balancer.lane_lost(2)
        story.balancer.lane_gone(2)  # which was to have slots 6 and 7
        assert sorted(move.slot for move in story.begin()) == [4, 5, 6, 7]
        story.settle()
        assert set(story.owners) == {0, 1}

    def test_the_last_lane_is_waited_for(self) -> None:
        story = Story(lanes=1)
        story.balancer.lane_lost(0)
        story.balancer.lane_gone(0)
        assert story.begin() == ()
        assert story.refusals == [Refusal.LAST_LANE]

    def test_twice_is_once(self) -> None:
        story = Story()
        without_lane_3(story)
        story.balancer.lane_gone(3)
        story.begin()
        story.balancer.lane_gone(3)
        assert story.begin() == ()
        assert len(story.of(Requested)) == 1

    @pytest.mark.parametrize("move", [HOT, Move(6, 3, 1)])
    def test_moves_by_hand_with_it_are_refused(self, move: Move) -> None:
        story = Story()
        without_lane_3(story)
        with pytest.raises(InputError, match="lane 3 is gone; its slots go to other lanes with the next epoch"):
            story.balancer.request([move])

    def test_lanes_that_are_drained_take_nothing(self) -> None:
        story = Story()
        table = story.balancer.table
        story.balancer.resize(table.apply([Move(4, 2, 0), Move(5, 2, 1)]).with_lanes([0, 1, 3]))
        without_lane_3(story)
        assert story.begin() == (Move(6, 3, 0), Move(7, 3, 1))
        assert story.settle() is None
        assert story.begin() == (Move(4, 2, 0), Move(5, 2, 1)), "what nobody serves goes first"
        assert story.settle() == LaneWish(retire=(2,))

    def test_a_resize_meanwhile_does_not_call_it_off(self) -> None:
        story = Story()
        without_lane_3(story)
        table = story.balancer.table
        story.balancer.resize(table.apply([Move(4, 2, 0), Move(5, 2, 1)]).with_lanes([0, 1, 3]))
        assert {move.slot for move in story.begin()} == {6, 7}
        story.settle()
        assert {move.slot for move in story.begin()} == {4, 5}
        assert set(story.owners) == {0, 1}

    def test_a_lane_that_was_to_retire_and_is_gone_is_not_let_go_again(self) -> None:
        story = Story(Proposal((Move(6, 3, 0), Move(7, 3, 1)), retire=(3,)), min_lanes=1)
        story.run(2)
        without_lane_3(story)
        assert story.begin() == ()
        assert story.balancer.table.lanes == (0, 1, 2)
        assert story.settle() is None


class TestBack:
    def test_before_its_slots_have_gone_it_keeps_them(self) -> None:
        story = Story()
        story.run()
        without_lane_3(story)
        story.balancer.lane_back(3)
        assert story.begin() == ()
        assert story.balancer.table.lanes == (0, 1, 2, 3)
        assert not story.balancer.adoption_waits

    def test_else_it_gets_a_share_again_and_unrelated_plans_stay(self) -> None:
        story = Story()
        story.run()
        without_lane_3(story)
        story.begin()
        story.settle()
        story.balancer.request([ELSEWHERE], not_before=9)
        story.balancer.lane_back(3, weights=np.ones(8))
        assert story.balancer.table.lanes == (0, 1, 2, 3)
        moves = story.begin()
        assert [move.target for move in moves] == [3, 3]
        assert {move.reason for move in moves} == {"lane 3 is back and takes its share"}
        story.settle()
        assert Counter(story.owners) == {0: 2, 1: 2, 2: 2, 3: 2}
        assert story.balancer.planned == (ELSEWHERE,)

    def test_while_another_is_gone_it_takes_nothing_from_that_one_as_a_share(self) -> None:
        story = Story()
        story.run()
        without_lane_3(story)
        story.begin()
        story.settle()
        story.balancer.lane_gone(2)
        story.balancer.lane_back(3, weights=np.ones(8))
        reasons = {move.slot: move.reason for move in story.begin()}
        assert {slot for slot, reason in reasons.items() if reason == "lane 2 is gone"} == {4, 5, 6, 7}
        story.settle()
        story.begin()
        story.settle()
        assert set(story.owners) == {0, 1, 3}

    def test_its_first_windows_do_not_count(self) -> None:
        story = Story(settle_windows=1)
        story.run(2)
        without_lane_3(story)
        story.begin()
        story.settle()
        story.balancer.lane_back(3)
        asked = len(story.policy.asked)
        story.begin()
        story.settle()
        story.run(3)
        assert len(story.policy.asked) == asked + 2

    def test_a_lane_that_was_only_lost_is_as_before(self) -> None:
        story = Story()
        story.balancer.lane_lost(3)
        story.balancer.lane_back(3)
        assert story.begin() == ()
        assert story.of(Requested) == []


class TestNeverCame:
    def test_the_policy_is_asked_again(self) -> None:
        story = Story(Proposal(add_lanes=2), max_lanes=8)
        story.begin()
        assert story.report_all() == LaneWish(add=2)
        story.run(3)
        assert len(story.policy.asked) == 1
        story.balancer.join_failed([4, 5])
        story.run()
        assert len(story.policy.asked) == 2
        assert story.refusals == [Refusal.LANES_DO_NOT_COME]

    def test_lanes_that_are_told_to_stop_are_still_waited_for(self) -> None:
        story = Story(Proposal((Move(6, 3, 0), Move(7, 3, 1)), retire=(3,)), min_lanes=1)
        story.run(2)
        assert story.settle() == LaneWish(retire=(3,))
        story.balancer.join_failed([4])
        story.run()
        assert len(story.policy.asked) == 1
