"""Moves of different lanes at the same time: what waits for what, what the policy is asked about, what stays serial."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from evenflow.control import LaneWish
from evenflow.control.journal import Decided, PhaseChanged, Refusal, Requested, StepWaits, WindowDropped
from evenflow.migration import Event, Phase, QueuedStep, scheduled
from evenflow.model import Move, MoveCost
from evenflow.policies import Proposal
from tests.control.story import Scripted, Story

# 8 slots on 4 lanes, two each: 0 and 1 on lane 0, ..., 6 and 7 on lane 3.
A, A2 = Move(0, 0, 1), Move(1, 0, 1)
B, B2 = Move(4, 2, 3), Move(5, 2, 3)
ACROSS = Move(2, 1, 2)


@dataclass(frozen=True)
class Case:
    """Plans by hand, each a list of steps; `then` is what each further epoch announces while nothing settles."""

    name: str
    plans: list[list[tuple[Move, ...]]]
    then: list[tuple[Move, ...]]
    waits: list[str] = field(default_factory=list)


CASES = [
    Case("plans of lanes that have nothing to do with each other begin together", [[(A,)], [(B,)]], [(A, B), ()]),
    Case(
        "a lane that still takes a slot makes the next plan of it wait",
        [[(A,)], [(ACROSS,)]],
        [(A,), (), ()],
        ["waits for lane 1, which still takes slot 0"],
    ),
    Case(
        "a lane that still gives a slot makes the next plan of it wait",
        [[(A,)], [(Move(1, 0, 3),)]],
        [(A,), ()],
        ["waits for lane 0, which still gives slot 0"],
    ),
    Case(
        "the steps of one plan keep to one at a time, whatever their lanes: that is what a strategy promises",
        [[(A,), (B,)]],
        [(A,), (), ()],
    ),
    Case(
        "a plan whose own step takes long is in nobody's way",
        [[(A,), (B,)], [(B2,)]],
        [(A, B2), ()],
    ),
    Case(
        "what waits for a lane goes before what was planned after it",
        [[(A,)], [(ACROSS,)], [(B,)]],
        [(A,), ()],
        ["waits for lane 1, which still takes slot 0", "waits for lane 2, which is first to take slot 2"],
    ),
    Case(
        "each plan goes as far as it gets",
        [[(A,)], [(A2,)], [(B,)], [(B2,)]],
        [(A, B), ()],
        ["waits for lane 0, which still gives slot 0", "waits for lane 2, which still gives slot 4"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_begins_beside_what(case: Case) -> None:
    story = Story()
    for plan in case.plans:
        story.balancer.queue([QueuedStep(step) for step in plan])
    assert [story.begin() for _ in case.then] == case.then
    assert [entry.why for entry in story.of(StepWaits)] == case.waits, "each wait is told once"
    for _ in range(8):
        story.settle()
        story.begin()
    story.settle()
    assert story.balancer.planned == () == story.balancer.in_flight, "every plan ends"


@pytest.mark.parametrize("strategy", ["fluid", "batched", "paced"])
def test_a_plan_of_a_strategy_has_one_step_under_way_beside_others(strategy: str) -> None:
    """Fluid: one move; batched: no lane twice; paced: so many bytes. All of it within the plan."""
    story = Story(strategy=strategy)
    story.run(size=12 << 20)  # more than half of what a step of `paced` may hold
    story.balancer.request([A, A2])
    story.balancer.request([B, B2])
    assert story.begin() == (A, B)
    assert story.begin() == ()
    story.ack(A.slot, Event.INSTALLED, epoch=1)
    assert story.begin() == (A2,)
    story.ack(B.slot, Event.INSTALLED, epoch=1)
    assert story.begin() == (B2,)


def test_without_overlap_one_step_is_under_way() -> None:
    story = Story(overlap=False)
    story.balancer.request([A])
    story.balancer.request([B])
    assert [story.begin(), story.begin()] == [(A,), ()]
    story.settle()
    assert story.begin() == (B,)


def test_a_source_is_free_once_it_has_let_go_even_if_its_target_is_stuck() -> None:
    story = Story()
    story.balancer.request([A])
    story.balancer.request([Move(1, 0, 2)])
    assert story.begin() == (A,)
    assert story.begin() == ()
    story.ack(A.slot, Event.HANDED_OFF, epoch=0)
    assert story.begin() == (Move(1, 0, 2),)


def test_bytes_in_flight_are_those_of_all_plans() -> None:
    story = Story(max_bytes_in_flight=250)
    story.run(size=100)
    story.balancer.request([A])
    story.balancer.request([B, B2])
    story.balancer.request([Move(6, 3, 2)])
    assert story.begin() == (A, B), "the third one would be too much"
    assert story.begin() == ()
    assert story.refusals == [Refusal.BYTES_IN_FLIGHT], "told once"
    story.ack(A.slot, Event.INSTALLED, epoch=1)
    assert story.begin() == (), "one step of a plan at a time"
    story.ack(B.slot, Event.INSTALLED, epoch=1)
    assert story.begin() == (B2,)


def test_one_slot_may_always_go_but_only_if_none_is_on_its_way() -> None:
    story = Story(max_bytes_in_flight=50)
    story.run(size=100)
    story.balancer.request([A])
    story.balancer.request([B])
    assert story.begin() == (A,)
    assert story.begin() == ()
    story.settle()
    assert story.begin() == (B,)


class TestCopyAhead:
    def test_steps_that_can_begin_beside_each_other_are_copied_together(self) -> None:
        story = Story(copy_ahead_bytes=1)
        story.run()
        for moves in ([A], [B], [ACROSS]):
            story.balancer.request(moves)
        assert story.balancer.to_prepare() == (A, B)
        story.balancer.prepared(B.slot)
        assert story.begin() == (B,), "a copy that does not come holds up its own step only"
        assert [entry.why for entry in story.of(StepWaits)] == [
            "waits until lane 1 has loaded slot 0 ahead",
            "waits for lane 1, which is first to take slot 0",
        ]

    def test_a_step_that_waits_for_its_own_plan_keeps_nobody_from_being_copied(self) -> None:
        story = Story(strategy="fluid", copy_ahead_bytes=1)
        story.run()
        story.balancer.request([A, Move(3, 1, 2)])
        story.balancer.prepared(A.slot)
        assert story.begin() == (A,)
        story.balancer.request([B])
        assert story.balancer.to_prepare() == (Move(3, 1, 2), B)
        story.balancer.prepared(B.slot)
        assert story.begin() == (B,)


class Parts(Scripted):
    """A scripted policy that may be asked about a part."""

    takes_parts = True


def asked(story: Story) -> list[tuple[int, ...]]:
    return [view.table.lanes for view in story.policy.asked]


def story_of(*answers: Any, **options: Any) -> Story:
    story = Story(**options)
    story.policy = Parts(*answers)
    story.balancer.set_policy(story.policy)
    return story


class TestAskingAboutAPart:
    """While A is on its way from lane 0 to lane 1, lanes 2 and 3 are looked at as if they were all there is."""

    # In the part slots 4 to 7 are 0 to 3.
    relief = Move(0, 2, 3, "hot")

    def test_a_hot_spot_elsewhere_is_relieved_at_the_same_time(self) -> None:
        story = story_of([A], [self.relief])
        story.run()
        assert story.begin() == (A,)
        story.report_all()
        assert story.begin() == (B,), "in the numbers of the whole"
        assert asked(story) == [(0, 1, 2, 3), (2, 3)]
        assert story.policy.asked[1].last.slots.records.tolist() == [4, 3, 2, 1]
        whole, part = story.of(Decided)
        assert (whole.lanes, whole.plan) == ((), 1)
        assert (part.lanes, part.plan, part.moves) == ((2, 3), 2, (B,))
        assert part.before.max_load == pytest.approx(0.07), "that of lanes 2 and 3"

    def test_a_policy_that_does_not_say_that_it_can_is_not(self) -> None:
        story = Story([A], [self.relief])
        story.run(4)
        assert asked(story) == [(0, 1, 2, 3)]

    @pytest.mark.parametrize("options", [{"overlap": False}, {"move_cost": MoveCost(stops_all=True)}])
    def test_nor_without_overlap_nor_where_all_lanes_stop_for_a_move(self, options: dict[str, Any]) -> None:
        story = story_of([A], [self.relief], **options)
        story.run(4)
        assert asked(story) == [(0, 1, 2, 3)]

    def test_lanes_of_steps_that_wait_are_not_looked_at(self) -> None:
        story = story_of([A], [self.relief])
        story.run()
        story.balancer.request([Move(7, 3, 1)])
        story.run(2)
        assert asked(story) == [(0, 1, 2, 3)], "lane 2 alone is nobody to balance"

    def test_a_window_in_which_a_move_completed_is_not_used_for_its_lanes(self) -> None:
        # AF-A26, lane by lane: A settles in window 2-3, B is under way all the time.
        story = story_of(strategy="fluid", window_epochs=2)
        story.balancer.request([A])
        story.balancer.request([Move(6, 3, 2)])
        story.run(3)
        story.ack(A.slot, Event.INSTALLED, epoch=0)
        story.run(3)
        assert [(view.table.lanes, view.last.epochs) for view in story.policy.asked] == [((0, 1), (4, 5))]

    def test_it_is_shown_the_windows_that_count_for_all_its_lanes_and_no_others(self) -> None:
        story = story_of(Proposal(), [Move(4, 2, 3)])
        story.run(3)  # 0 and 1 count for all; B is announced with epoch 2, which counts for lanes 0 and 1
        story.settle()  # and a window begins anew after it
        story.balancer.request([Move(0, 0, 1)])
        story.run(2)  # 3 and 4 count for lanes 2 and 3
        seen = {view.table.lanes: [window.epochs[0] for window in view.windows] for view in story.policy.asked}
        assert seen[0, 1] == [0, 1, 2]
        assert seen[2, 3] == [0, 1, 3, 4]

    def test_the_memory_of_the_whole_is_not_touched(self) -> None:
        story = story_of(
            Proposal((A,), memory="all"), Proposal((self.relief,), memory="part", not_curable=(1,)), Proposal()
        )
        story.run(3)
        story.settle()
        story.run()
        assert [view.memory for view in story.policy.asked] == [None, None, "all"]
        assert dict(story.balancer.not_curable) == {}

    def test_other_lanes_are_not_asked_for_while_some_are_in_moves(self) -> None:
        wish = Proposal((self.relief,), add_lanes=1)
        story = story_of([A], wish, max_lanes=8)
        story.run()
        story.begin()
        assert story.report_all() is None
        assert story.begin() == ()
        assert story.refusals == [Refusal.LANES_ARE_FIXED]

    def test_lanes_that_cool_down_are_not_looked_at_others_are(self) -> None:
        story = story_of([A], cooldown_windows=2)
        story.run(2)
        story.settle()
        story.run(3)
        assert asked(story) == [(0, 1, 2, 3), (2, 3), (2, 3), (2, 3), (0, 1, 2, 3)]

    def test_a_part_that_stays_as_it_is_leaves_no_decision_behind(self) -> None:
        story = story_of([A])
        story.run(3)
        assert len(story.of(Decided)) == 1
        assert [entry.why for entry in story.of(WindowDropped)] == ["moves are under way"] * 2

    def test_the_rest_of_a_plan_that_hangs_is_given_up_and_the_other_lanes_are_asked_about_anew(self) -> None:
        story = story_of([A, B, B2], *[Proposal()] * 9, [self.relief], strategy="fluid", patience=3)
        announced = story.run(9)
        assert announced[1] == (A,)
        (given_up, *_) = story.of(StepWaits)
        assert given_up.why == "given up, slot 0: lane 0 -> lane 1 takes more than 3 epochs"
        dropped = [entry.move for entry in story.of(PhaseChanged) if entry.after is Phase.CANCELLED]
        assert dropped == [B, B2]
        assert set(asked(story)[1:]) == {(2, 3)}

    def test_a_plan_by_hand_is_never_given_up(self) -> None:
        story = story_of(strategy="fluid", patience=1)
        story.balancer.request([A, B])
        story.run(9)
        assert story.balancer.planned == (B,)


class TestLanesThatGo:
    def test_a_lane_is_let_go_whatever_else_is_under_way(self) -> None:
        story = Story()
        story.balancer.request([A])
        story.begin()
        table = story.balancer.table.apply([Move(6, 3, 2), Move(7, 3, 2)]).with_lanes([0, 1, 2])
        assert story.balancer.resize(table) is None
        assert story.begin() == (Move(6, 3, 2), Move(7, 3, 2))
        for slot in (6, 7):
            wish = story.ack(slot, Event.INSTALLED)
        assert wish == LaneWish(retire=(3,))
        assert [life.move for life in story.balancer.in_flight] == [A]

    def test_each_lane_is_let_go_when_its_own_slots_are_elsewhere(self) -> None:
        story = Story()
        moves = [Move(4, 2, 0), Move(5, 2, 0), Move(6, 3, 1), Move(7, 3, 1)]
        story.balancer.resize(story.balancer.table.apply(moves).with_lanes([0, 1]))
        story.begin()
        wishes = [story.ack(slot, Event.INSTALLED) for slot in (6, 7, 4, 5)]
        assert wishes == [None, LaneWish(retire=(3,)), None, LaneWish(retire=(2,))]


def test_the_journal_says_which_plan_a_move_belongs_to() -> None:
    story = Story([A])
    story.run(2)
    story.balancer.queue(scheduled([(B,), (B2,)]))
    story.begin()
    story.restart()
    story.settle()
    assert [entry.plan for entry in story.of(Decided)] == [1]
    assert [entry.plan for entry in story.of(Requested)] == [2]
    assert {(entry.move.slot, entry.plan) for entry in story.of(PhaseChanged)} == {(0, 1), (4, 2), (0, 0), (4, 0)}
