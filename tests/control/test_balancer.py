"""The balancer, story by story: what it waits for, what it refuses and why, and what no failure can shake."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from evenflow.control import Ack, Balancer, BalancerOptions, BalancerState, Journal, LaneWish
from evenflow.control.journal import (
    AckIgnored,
    Decided,
    Entry,
    LanesChanged,
    LanesWanted,
    PhaseChanged,
    Refusal,
    Refused,
    ReportIgnored,
    Requested,
    WindowClosed,
    WindowDropped,
)
from evenflow.errors import InputError, ProtocolError
from evenflow.migration import Event, MoveLife, Phase, QueuedStep, scheduled, steps_between, strategy_named
from evenflow.model import Balance, LaneLoad, LoadReport, Move, MoveCost, RoutingTable, SlotLoads, StageUnits, UnitNames
from evenflow.policies import Proposal
from tests.control.story import HOT, WARM, Scripted, Story


class TestWindows:
    def test_no_decision_on_an_incomplete_set(self) -> None:
        # AF-M9, FX-M9: drop one reply, no decision.
        story = Story([HOT])
        story.begin()
        for lane in (0, 1, 3):
            assert story.report(lane) is None
        assert story.policy.asked == []
        assert story.begin() == ()
        story.report(2, epoch=0)
        assert len(story.policy.asked) == 1
        assert story.begin() == (HOT,)

    def test_a_report_that_never_comes_costs_its_window_only(self) -> None:
        story = Story(patience=1)
        story.begin()
        for lane in (0, 1, 3):
            story.report(lane)
        story.run(2)
        assert [view.last.epochs for view in story.policy.asked] == [(1, 1), (2, 2)]
        assert [entry.epochs for entry in story.of(WindowDropped)] == [(0, 0)]

    def test_late_and_repeated_reports_and_strangers_are_in_the_journal(self) -> None:
        story = Story()
        story.run()
        story.report(0)
        story.begin()
        story.report(0)
        story.report(0)
        story.report(9)
        assert [entry.why for entry in story.of(ReportIgnored)] == [
            "too late: the open window begins at epoch 1",
            "already reported",
            "lane 9 is not one of [0, 1, 2, 3]",
        ]
        assert len(story.policy.asked) == 1

    def test_the_policy_is_asked_once_per_window(self) -> None:
        story = Story(window_epochs=3)
        story.run(7)
        assert [view.last.epochs for view in story.policy.asked] == [(0, 2), (3, 5)]
        assert [entry.epochs for entry in story.of(WindowClosed)] == [(0, 2), (3, 5)]
        assert len(story.of(Decided)) == 2

    def test_the_policy_sees_as_many_windows_as_are_kept_oldest_first(self) -> None:
        story = Story(history=2)
        story.run(3)
        assert [[window.epochs[0] for window in view.windows] for view in story.policy.asked] == [[0], [0, 1], [1, 2]]

    def test_the_policy_gets_its_memory_back(self) -> None:
        story = Story(Proposal(memory="ring"), Proposal(memory="ring 2"))
        story.run(3)
        assert [view.memory for view in story.policy.asked] == [None, "ring", "ring 2"]

    def test_the_policy_may_ask_for_a_longer_window(self) -> None:
        story = Story(Proposal(collect_s=3.0))
        story.run(6)
        assert [view.last.epochs for view in story.policy.asked] == [(0, 0), (1, 3), (4, 4), (5, 5)]

    def test_one_late_report_may_close_many_windows_but_starts_one_plan(self) -> None:
        story = Story([HOT])
        story.begin()
        for lane in (0, 1, 3):
            story.report(lane)
        story.run(2)
        story.report(2, epoch=0)
        assert [view.last.epochs for view in story.policy.asked] == [(0, 0)]
        assert [entry.why for entry in story.of(WindowDropped)] == ["moves are under way"] * 2
        assert story.balancer.planned == (HOT,)


class TestDecisions:
    def test_what_is_decided_is_announced_with_the_next_epoch_and_in_the_journal(self) -> None:
        story = Story(Proposal((HOT, WARM), not_curable=(7,), note="lane 0 is full"))
        assert story.run() == [()]
        (decided,) = story.of(Decided)
        assert (decided.policy, decided.moves, decided.steps) == ("scripted", (HOT, WARM), 1)
        assert (decided.not_curable, decided.bytes_moved, decided.note) == ((7,), 200, "lane 0 is full")
        assert decided.before.max_load == pytest.approx(0.15)
        assert story.begin() == (HOT, WARM)
        assert story.owners == [3, 2, 1, 1, 2, 2, 3, 3]
        assert story.phases == {0: Phase.ANNOUNCED, 1: Phase.ANNOUNCED}

    def test_nothing_is_decided_while_moves_are_under_way(self) -> None:
        story = Story([HOT])
        story.run(5)
        assert len(story.policy.asked) == 1
        assert story.phases == {0: Phase.ANNOUNCED}

    def test_the_window_in_which_a_move_completed_is_discarded(self) -> None:
        # AF-A26. Windows of 2 epochs: 0-1 decides, 2 announces, 4 settles, so 5-6 is the next one.
        story = Story([HOT], window_epochs=2)
        assert story.run(5) == [(), (), (HOT,), (), ()]
        story.settle()
        story.run(2)
        assert [view.last.epochs for view in story.policy.asked] == [(0, 1), (5, 6)]
        assert ((4, 4), "a move completed in it") in [(entry.epochs, entry.why) for entry in story.of(WindowDropped)]

    def test_also_when_the_rest_of_the_plan_was_dropped_in_between(self) -> None:
        story = Story([HOT, WARM], strategy="fluid", window_epochs=2)
        story.run(3)
        story.settle()
        story.balancer.lane_lost(2)
        assert story.balancer.planned == ()
        story.run(2)
        assert [view.last.epochs for view in story.policy.asked] == [(0, 1), (3, 4)]

    def test_cooldown_watches_whole_windows_after_the_last_move(self) -> None:
        story = Story([HOT], cooldown_windows=2)
        story.run(2)
        story.settle()
        story.run(3)
        assert [view.last.epochs[0] for view in story.policy.asked] == [0, 4]
        assert [view.last.epochs for view in story.policy.asked[1:]] == [(4, 4)]
        assert [entry.why for entry in story.of(Refused)] == ["1 more windows to watch", "0 more windows to watch"]
        assert story.refusals == [Refusal.COOLING_DOWN] * 2

    def test_windows_watched_while_cooling_down_are_history(self) -> None:
        story = Story([HOT], cooldown_windows=1)
        story.run(2)
        story.settle()
        story.run(2)
        assert [window.epochs[0] for window in story.policy.asked[-1].windows] == [0, 2, 3]

    def test_the_policy_is_told_how_long_its_moves_took_all_steps_together(self) -> None:
        # FX-M11: the next collection is as long as the last moves were.
        story = Story([HOT, WARM], strategy="fluid")
        story.run()
        story.begin(at_s=100.0)
        story.settle(at_s=102.0)
        story.begin(at_s=110.0)
        story.settle(at_s=113.0)
        story.run(2)
        assert [view.last_move_s for view in story.policy.asked] == [0.0, 5.0, 0.0]

    def test_after_a_restart_it_is_not_known_how_long_they_took(self) -> None:
        story = Story([HOT])
        story.run()
        story.begin(at_s=1_700_000_000.0)
        story.restart()
        story.settle(at_s=1_700_000_001.0)
        story.run()
        assert story.policy.asked[-1].last_move_s == 0.0


class TestMinimumGain:
    # Lane 0 is the busiest: slots 0 and 1 cost 0.08 and 0.07 s. Lane 3 has 0.03 s.
    relief = Move(1, 0, 3)  # leaves 0.11 s on lane 1: 0.04 of 0.15

    @pytest.mark.parametrize(
        ("min_gain", "moved"), [(0.0, True), (0.2, True), (0.26, True), (0.27, False), (0.9, False)]
    )
    def test_a_plan_must_take_its_share_off_the_busiest_lane(self, min_gain: float, moved: bool) -> None:
        story = Story([self.relief], min_gain=min_gain)
        story.run()
        assert story.begin() == ((self.relief,) if moved else ())
        assert story.refusals == ([] if moved else [Refusal.GAIN_TOO_SMALL])

    def test_the_refusal_says_how_little_it_was(self) -> None:
        story = Story([self.relief], min_gain=0.5)
        story.run()
        (refused,) = story.of(Refused)
        assert refused.moves == (self.relief,)
        assert refused.why == "0.04 s off the busiest lane's 0.15 s"

    def test_a_minimum_of_0_trusts_a_policy_that_makes_the_busiest_lane_busier(self) -> None:
        # Flux's memory policy balances bytes, not time.
        worse = Move(7, 3, 0)
        story = Story([worse])
        story.run()
        assert story.begin() == (worse,)


class TestSteps:
    def test_one_step_in_flight(self) -> None:
        # LR-M8: each step completes before the next one starts.
        story = Story([HOT, WARM], strategy="fluid")
        assert story.run(4) == [(), (HOT,), (), ()]
        story.ack(0, Event.HANDED_OFF, epoch=1)
        assert story.begin() == ()
        story.ack(0, Event.INSTALLED, epoch=1)
        assert story.begin() == (WARM,)
        assert story.balancer.planned == ()

    def test_a_step_waits_for_its_last_move(self) -> None:
        story = Story()
        story.balancer.queue([QueuedStep((HOT, WARM)), QueuedStep((Move(2, 1, 0),))])
        assert story.begin() == (HOT, WARM)
        story.ack(0, Event.INSTALLED)
        assert story.begin() == ()
        story.ack(1, Event.INSTALLED, epoch=0)
        assert story.begin() == (Move(2, 1, 0),)

    def test_where_all_lanes_stop_for_a_step_the_rest_of_a_plan_is_decided_anew(self) -> None:
        cool = Move(3, 1, 2, "cool")
        story = Story(
            Proposal((HOT, WARM), on_their_own=(WARM, HOT)),
            [cool],
            strategy="fluid",
            move_cost=MoveCost(stops_all=True),
        )
        assert story.run(2) == [(), (WARM,)], "of those that are of use on their own, the first"
        assert story.of(Decided)[0].moves == (WARM,)
        (refused,) = story.of(Refused)
        assert (refused.refusal, refused.moves) == (Refusal.LANES_WOULD_STOP, (HOT,))
        story.settle()
        assert story.run(2) == [(), (cool,)], "what is asked for now, not what was left"

    @pytest.mark.parametrize(
        ("proposal", "options"),
        [
            (Proposal((HOT, WARM), on_their_own=(HOT,)), {}),  # only slots that move have to wait
            (Proposal((HOT, WARM)), {"move_cost": MoveCost(stops_all=True)}),  # all or nothing
            (
                Proposal((HOT, WARM), retire=(0,), on_their_own=(HOT,)),  # lane 0 must be empty in the end
                {"move_cost": MoveCost(stops_all=True), "min_lanes": 1},
            ),
        ],
    )
    def test_else_all_steps_of_a_plan_are_carried_out(self, proposal: Proposal, options: dict[str, Any]) -> None:
        story = Story(proposal, strategy="fluid", **options)
        assert story.run(2) == [(), (HOT,)]
        story.settle()
        assert story.begin() == (WARM,)
        assert story.refusals == []

    def test_in_one_step_nothing_is_left_of_a_plan(self) -> None:
        story = Story(Proposal((HOT, WARM), on_their_own=(HOT,)), move_cost=MoveCost(stops_all=True))
        assert story.run(2) == [(), (HOT, WARM)]
        assert story.refusals == []

    def test_the_minimum_gain_is_that_of_the_whole_plan(self) -> None:
        """Of which only a part is carried out at a time."""
        small = Move(7, 3, 2, "gains nothing yet")
        proposal, cost = Proposal((small, HOT), on_their_own=(small, HOT)), MoveCost(stops_all=True)
        story = Story(proposal, strategy="fluid", min_gain=0.2, move_cost=cost)
        assert story.run(2) == [(), (small,)]
        assert story.refusals == [Refusal.LANES_WOULD_STOP]
        story = Story(proposal, strategy="fluid", min_gain=0.5, move_cost=cost)
        assert story.run(2) == [(), ()]
        assert story.refusals == [Refusal.GAIN_TOO_SMALL]

    def test_128_steps_submitted_at_once_run_without_further_talk(self) -> None:
        # LR-M6, at the paper's size: 4 to 8 lanes, 256 slots, a step every other epoch from epoch 10 on.
        four = RoutingTable(np.arange(256) % 4, tuple(range(8)))
        eight = RoutingTable(np.arange(256) % 8, tuple(range(8)))
        fluid = strategy_named("fluid")
        balancer = Balancer(four, Scripted(), fluid)
        balancer.queue(scheduled(steps_between(four, eight, fluid), first_epoch=10, every=2))
        announced = {}
        for epoch in range(10 + 2 * 128):
            moves = balancer.next_epoch(epoch).moves
            assert len(balancer.in_flight) == len(moves) <= 1
            for move in moves:
                announced[epoch] = move.slot
                balancer.acknowledge(Ack(move.slot, epoch, Event.INSTALLED))
        assert list(announced) == list(range(10, 266, 2))
        assert sorted(announced.values()) == [slot for slot in range(256) if slot % 8 >= 4]
        assert balancer.table.owners.tolist() == eight.owners.tolist()

    def test_a_step_that_was_held_up_comes_later_not_together_with_the_next(self) -> None:
        story = Story()
        story.balancer.queue(scheduled([(HOT,), (WARM,)], first_epoch=0))
        assert story.run(3) == [(HOT,), (), ()]
        story.settle()
        assert story.run(1) == [(WARM,)]

    def test_a_slot_may_move_twice_in_one_plan(self) -> None:
        story = Story()
        story.balancer.queue(scheduled([(Move(0, 0, 1),), (Move(0, 1, 2),)]))
        assert story.begin() == (Move(0, 0, 1),)
        story.settle()
        assert story.begin() == (Move(0, 1, 2),)
        assert story.owners[0] == 2

    def test_empty_steps_take_no_epoch(self) -> None:
        story = Story()
        story.balancer.queue([QueuedStep(()), QueuedStep((HOT,)), QueuedStep(())])
        assert story.begin() == (HOT,)
        story.settle()
        story.run()
        assert len(story.policy.asked) == 1

    @pytest.mark.parametrize("epoch", [0, 4, 5])
    def test_epochs_only_go_forward(self, epoch: int) -> None:
        story = Story()
        story.balancer.next_epoch(5)
        with pytest.raises(ProtocolError, match=f"epoch {epoch} was asked for after epoch 5"):
            story.balancer.next_epoch(epoch)


class TestPlansForLater:
    def test_what_may_begin_before_goes_first(self) -> None:
        story = Story()
        story.balancer.request([HOT], not_before=4)
        story.balancer.request([WARM])
        assert story.balancer.planned == (WARM, HOT)
        assert story.begin() == (WARM,)
        story.settle()
        assert story.run(4) == [(), (), (), (HOT,)]

    def test_the_policy_is_asked_until_then(self) -> None:
        story = Story(Proposal(), [WARM])
        story.balancer.request([HOT], not_before=5)
        assert story.run(3) == [(), (), (WARM,)]
        story.settle()
        assert story.run(3) == [(), (), (HOT,)]
        # Epoch 2 was in the first move, and at epoch 4 the second was about to begin.
        assert [view.last.epochs[0] for view in story.policy.asked] == [0, 1, 3]

    def test_a_slot_that_the_policy_moves_meanwhile_goes_on_from_there(self) -> None:
        story = Story([Move(0, 0, 1)])
        story.balancer.request([HOT], not_before=4)
        assert story.run(2) == [(), (Move(0, 0, 1),)]
        story.settle()
        assert story.balancer.planned == (Move(0, 1, 3),)
        assert story.run(3) == [(), (), (Move(0, 1, 3),)]

    def test_a_slot_that_is_there_already_stays_and_the_plan_is_over(self) -> None:
        story = Story([Move(0, 0, 3)], *[Proposal()] * 4, [Move(0, 3, 1)])
        story.balancer.request([HOT], not_before=4)
        story.run(2)
        story.settle()
        assert story.balancer.planned == ()
        assert story.run(8) == [()] * 5 + [(Move(0, 3, 1),), (), ()]  # it is not brought back
        story.settle()
        assert story.run(2) == [(), ()]

    def test_a_slot_that_has_left_again_before_its_time_is_brought_back(self) -> None:
        story = Story([Move(0, 0, 3)], [Move(0, 3, 1)])
        story.balancer.request([HOT], not_before=6)
        for _ in range(4):
            story.run()
            story.settle()
        assert story.owners[0] == 1
        assert story.run(3) == [(), (), (Move(0, 1, 3),)]

    def test_the_steps_of_a_plan_keep_their_order(self) -> None:
        story = Story()
        story.balancer.queue([QueuedStep((Move(0, 0, 1),), 3), QueuedStep((Move(0, 1, 2),), 0)])
        assert story.run(4) == [(), (), (), (Move(0, 0, 1),)]
        story.settle()
        assert story.begin() == (Move(0, 1, 2),)

    def test_they_keep_no_lane_from_being_retired_and_those_that_need_it_go(self) -> None:
        story = Story(Proposal((Move(6, 3, 0), Move(7, 3, 1)), retire=(3,)), min_lanes=1)
        story.balancer.request([HOT, WARM], not_before=9)  # HOT goes to lane 3
        story.run(2)
        assert story.settle() == LaneWish(retire=(3,))
        assert story.balancer.planned == (WARM,)

    def test_slots_are_copied_ahead_shortly_before(self) -> None:
        story = Story(copy_ahead_bytes=1000)
        story.run(size=2000)
        story.balancer.request([HOT], not_before=20)
        story.balancer.request([WARM], not_before=30)
        seen = {}
        for _ in range(14):
            story.run(size=2000)
            seen[story.epoch] = story.balancer.to_prepare()
        assert [epoch for epoch, moves in seen.items() if moves] == [12, 13, 14]
        assert seen[14] == (HOT,)


class TestBytesInFlight:
    moves = (Move(0, 0, 3), Move(1, 0, 2), Move(2, 1, 0), Move(3, 1, 0))

    @pytest.mark.parametrize(
        ("limit", "steps"),
        [
            (None, [4]),
            (400, [4]),
            (399, [3, 1]),
            (200, [2, 2]),
            (199, [1, 1, 1, 1]),
            (99, [1, 1, 1, 1]),
            (0, [1, 1, 1, 1]),
        ],
    )
    def test_no_more_than_the_limit_but_one_slot_always_goes(self, limit: int | None, steps: list[int]) -> None:
        story = Story(self.moves, max_bytes_in_flight=limit)
        story.run(size=100)
        seen: list[tuple[Move, ...]] = []
        for _ in steps:
            seen.append(story.begin())
            story.settle()
        assert story.balancer.planned == ()
        assert [len(step) for step in seen] == steps
        assert tuple(move for step in seen for move in step) == self.moves

    def test_what_has_to_wait_is_in_the_journal(self) -> None:
        story = Story(self.moves, max_bytes_in_flight=250)
        story.run()
        story.begin()
        (refused,) = story.of(Refused)
        assert (refused.refusal, refused.moves) == (Refusal.BYTES_IN_FLIGHT, self.moves[2:])
        assert refused.why == "at most 250 bytes may be in flight"

    def test_the_rest_waits_until_the_first_part_has_settled(self) -> None:
        story = Story(self.moves, max_bytes_in_flight=250)
        story.run()
        story.begin()
        story.ack(0, Event.INSTALLED)
        assert story.begin() == ()


class TestByHand:
    def test_moves_asked_for_are_planned_in_the_steps_of_the_strategy(self) -> None:
        story = Story(strategy="batched")
        story.balancer.request([HOT, WARM])
        assert story.begin() == (HOT,)
        assert story.balancer.planned == (WARM,)
        assert [entry.moves for entry in story.of(Requested)] == [(HOT, WARM)]

    def test_they_wait_for_their_epoch(self) -> None:
        story = Story()
        story.balancer.request([HOT], not_before=3)
        assert story.run(4) == [(), (), (), (HOT,)]

    def test_they_supersede_plans_for_the_same_slots_and_leave_the_others(self) -> None:
        story = Story([HOT, WARM])
        story.run()
        other = Move(0, 0, 1, "I say so")
        story.balancer.request([other])
        assert story.balancer.planned == (WARM, other)
        (dropped,) = story.of(PhaseChanged)
        assert (dropped.move, dropped.event, dropped.after) == (HOT, Event.SUPERSEDED, Phase.CANCELLED)
        assert story.begin() == (WARM,)
        story.settle()
        assert story.begin() == (other,)

    def test_later_moves_of_a_superseded_slot_go_too_they_build_on_the_earlier_ones(self) -> None:
        story = Story()
        story.balancer.queue(scheduled([(Move(0, 0, 1),), (Move(0, 1, 2),)], first_epoch=5))
        story.balancer.request([Move(0, 0, 3)])
        assert story.balancer.planned == (Move(0, 0, 3),)

    def test_a_second_move_of_a_slot_in_flight_waits_until_the_first_has_settled(self) -> None:
        story = Story()
        story.balancer.request([HOT])
        story.begin()
        again = Move(0, 3, 1)
        story.balancer.request([again])
        assert story.run(2) == [(), ()]
        story.settle()
        assert story.begin() == (again,)
        assert story.owners[0] == 1

    @pytest.mark.parametrize(
        ("bad", "text"),
        [
            ([Move(8, 0, 1)], "there is no slot 8; slots are 0 to 7"),
            ([Move(-1, 0, 1)], "there is no slot -1"),
            ([Move(0, 1, 2)], "the slot is owned by lane 0"),
            ([Move(0, 0, 4)], "there is no lane 4"),
            ([Move(0, 0, 0)], "slot 0: lane 0 -> lane 0: the slot is there already"),
            ([Move(0, 0, 1), Move(0, 0, 2)], "slot 0 is moved twice in one step"),
            ([Move(0, 0, 1), Move(0, 1, 2)], "slot 0 is moved twice in one step"),
        ],
    )
    @pytest.mark.parametrize("strategy", ["sudden", "fluid", "batched", "paced"])
    def test_a_bad_move_refuses_all_and_changes_nothing(self, bad: list[Move], text: str, strategy: str) -> None:
        story = Story([HOT], strategy=strategy)
        story.run()
        before = story.balancer.state, story.balancer.planned
        with pytest.raises(InputError, match=text):
            story.balancer.request([WARM, *bad])
        assert (story.balancer.state, story.balancer.planned) == before
        (refused,) = story.of(Refused)
        assert (refused.refusal, refused.moves) == (Refusal.BAD_REQUEST, (WARM, *bad))
        assert text in refused.why
        assert story.of(Requested) == []

    def test_a_plan_with_one_bad_step_is_refused_as_a_whole(self) -> None:
        story = Story()
        with pytest.raises(InputError, match="the slot is owned by lane 1"):
            story.balancer.queue(scheduled([(Move(0, 0, 1),), (Move(0, 0, 2),)]))
        assert story.balancer.planned == ()

    def test_a_plan_is_checked_from_where_moves_in_flight_lead(self) -> None:
        story = Story()
        story.balancer.request([HOT])
        story.begin()
        with pytest.raises(InputError, match="the slot is owned by lane 3"):
            story.balancer.request([HOT])

    def test_a_negative_epoch_is_refused(self) -> None:
        story = Story()
        with pytest.raises(InputError, match="first_epoch=-1"):
            story.balancer.request([HOT], not_before=-1)
        assert story.balancer.planned == ()

    def test_windows_of_moves_by_hand_do_not_count_either(self) -> None:
        story = Story(cooldown_windows=1)
        story.balancer.request([HOT])
        story.run(1)
        story.settle()
        story.run(2)
        assert [view.last.epochs for view in story.policy.asked] == [(2, 2)]


def failing() -> Iterator[Move]:
    """Yield one move, then fail: policies may be generators."""
    yield HOT
    raise KeyError("lost")


class TestBadPolicies:
    @pytest.mark.parametrize(
        ("answer", "text"),
        [
            (ZeroDivisionError("by zero"), "policy scripted failed: ZeroDivisionError: by zero"),
            ([Move(99, 0, 1)], "slot 99, which does not exist"),
            ([Move(0, 0, 9)], "lane 9, which does not exist"),
            ([Move(0, 2, 1)], "its owner is lane 0"),
            ([Move(0, 0, 0)], "where it is already"),
            ([HOT, Move(0, 0, 1)], "moves slot 0 twice"),
            ([HOT, "slot 1"], "must return moves"),
            (42, "must return a Proposal or moves"),
            (None, "must return a Proposal or moves"),
            (Proposal(add_lanes=-1), "asks for -1 more lanes"),
            (Proposal(retire=(9,)), r"retires lanes \[9\]"),
            (Proposal(retire=(0,)), "still owns slots"),
            (Proposal(not_curable=(8,)), "which do not exist"),
            (Proposal((HOT,), on_their_own=(WARM,)), "none of its moves: .'slot 1: lane 0 -> lane 2'"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_cannot_be_is_refused_with_the_reason_and_nothing_moves(self, answer: Any, text: str) -> None:
        story = Story(answer, max_lanes=8)
        table = story.balancer.table
        assert story.run(2) == [(), ()]
        (refused,) = story.of(Refused)
        assert refused.refusal is Refusal.BAD_PROPOSAL
        assert re.search(text, refused.why)
        assert story.balancer.table == table
        assert len(story.policy.asked) == 2  # it gets another chance

    @pytest.mark.parametrize(
        "answer",
        [failing, lambda: Proposal(moves=None), lambda: [Move(1.0, 0, 1)], lambda: Proposal(retire=3)],  # type: ignore[arg-type]
        ids=["generator that fails", "no moves at all", "slot 1.0", "retires 3"],
    )
    def test_an_answer_that_cannot_even_be_read_is_refused_too(self, answer: Callable[[], Any]) -> None:
        story = Story(answer())
        assert story.run(2) == [(), ()]
        assert story.refusals == [Refusal.BAD_PROPOSAL]

    def test_memory_of_a_refused_proposal_is_not_kept(self) -> None:
        story = Story(Proposal(memory="good"), Proposal((Move(99, 0, 1),), memory="bad"))
        story.run(3)
        assert [view.memory for view in story.policy.asked] == [None, "good", "good"]


class TestElastic:
    grow = Proposal((HOT,), add_lanes=2, note="more")
    empty_lane_3 = (Move(6, 3, 0), Move(7, 3, 1))

    def test_lanes_are_fixed_unless_bounds_are_given(self) -> None:
        story = Story(self.grow, Proposal(self.empty_lane_3, retire=(3,)))
        assert story.run(3) == [(), (), ()]
        assert story.refusals == [Refusal.LANES_ARE_FIXED] * 2
        assert [entry.why for entry in story.of(Refused)] == [
            "2 more and 0 fewer lanes were asked for",
            "0 more and 1 fewer lanes were asked for",
        ]

    @pytest.mark.parametrize(
        ("low", "high", "granted"), [(None, 6, True), (None, 5, False), (4, None, True), (1, 8, True), (1, 4, False)]
    )
    def test_the_upper_bound(self, low: int | None, high: int | None, granted: bool) -> None:
        story = Story(self.grow, min_lanes=low, max_lanes=high)
        story.begin()
        assert story.report_all() == (LaneWish(add=2) if granted else None)

    @pytest.mark.parametrize(("low", "granted"), [(1, True), (3, True), (4, False)])
    def test_the_lower_bound(self, low: int, granted: bool) -> None:
        story = Story(Proposal(self.empty_lane_3, retire=(3,)), min_lanes=low)
        story.run()
        assert story.begin() == (self.empty_lane_3 if granted else ())

    def test_to_add_lanes_is_a_wish_and_the_policy_is_asked_again_when_they_are_there(self) -> None:
        story = Story(self.grow, max_lanes=8)
        story.begin()
        assert story.report_all() == LaneWish(add=2)
        assert [entry.lanes for entry in story.of(LanesWanted)] == [6]
        assert story.run(2) == [(), ()]  # nothing moves, and nobody is asked, until the lanes are there
        assert len(story.policy.asked) == 1
        story.balancer.lanes_changed(range(6))
        story.policy.answers.append([Move(0, 0, 5)])
        assert story.run(2) == [(), (Move(0, 0, 5),)]
        assert story.policy.asked[-1].last.lane_ids == (0, 1, 2, 3, 4, 5)
        assert len(story.policy.asked[-1].windows) == 1  # windows of other lanes are forgotten

    def test_a_lane_retires_once_its_last_slot_has_settled_elsewhere(self) -> None:
        story = Story(Proposal(self.empty_lane_3, retire=(3,)), strategy="fluid", min_lanes=1)
        story.run(2)
        assert story.settle() is None
        story.run(1)
        assert story.settle() == LaneWish(retire=(3,))
        story.run(2)
        assert len(story.policy.asked) == 1
        story.balancer.lanes_changed([0, 1, 2])
        story.run()
        assert story.policy.asked[-1].table.lanes == (0, 1, 2)

    def test_an_empty_lane_retires_at_once(self) -> None:
        story = Story(Proposal(self.empty_lane_3), Proposal(retire=(3,)), min_lanes=1)
        story.run(2)
        assert story.settle() is None
        story.begin()
        assert story.report_all() == LaneWish(retire=(3,))

    def test_a_lane_that_was_given_a_slot_by_hand_meanwhile_stays(self) -> None:
        story = Story(Proposal(self.empty_lane_3, retire=(3,)), min_lanes=1)
        story.run(2)
        story.balancer.request([Move(0, 0, 3)])
        assert story.settle() is None
        assert story.begin() == (Move(0, 0, 3),)
        assert story.settle() is None

    def test_a_lane_that_is_being_stopped_takes_no_slot_any_more(self) -> None:
        story = Story(Proposal(self.empty_lane_3, retire=(3,)), min_lanes=1)
        story.run(2)
        assert story.settle() == LaneWish(retire=(3,))
        with pytest.raises(InputError, match="lane 3 is being stopped"):
            story.balancer.request([HOT])
        story.balancer.lanes_changed([0, 1, 2, 3])  # the engine kept it after all
        story.balancer.request([HOT])
        assert story.begin() == (HOT,)

    def test_a_plan_that_lost_a_part_retires_nobody_later_on(self) -> None:
        story = Story(Proposal(self.empty_lane_3, retire=(3,)), strategy="fluid", min_lanes=1)
        story.run(2)
        assert story.settle() is None
        story.balancer.lane_lost(1)
        story.balancer.request([Move(7, 3, 2)])
        story.begin()
        assert story.settle() is None

    def test_a_lane_that_still_owns_slots_cannot_have_gone(self) -> None:
        story = Story()
        with pytest.raises(InputError, match=r"owned by lanes \[3\]"):
            story.balancer.lanes_changed([0, 1, 2])
        assert story.balancer.table.lanes == (0, 1, 2, 3)
        assert story.of(LanesChanged) == []

    def test_plans_for_a_lane_that_has_gone_are_dropped(self) -> None:
        story = Story(lanes=2)
        story.balancer.lanes_changed([0, 1, 2])
        story.balancer.queue(scheduled([(Move(0, 0, 2),), (Move(1, 0, 1),)], first_epoch=5))
        story.balancer.lanes_changed([0, 1])
        assert story.balancer.planned == (Move(1, 0, 1),)

    @pytest.mark.parametrize(("event", "phase"), [(None, Phase.RECOVERING), (Event.HANDED_OFF, Phase.IN_TRANSIT)])
    def test_a_source_that_has_gone_for_good_is_not_waited_for(self, event: Event | None, phase: Phase) -> None:
        story = Story()
        story.balancer.request(self.empty_lane_3)
        story.begin()
        for slot in (6, 7):
            if event:
                story.ack(slot, event)
        story.balancer.lanes_changed([0, 1, 2])
        assert story.phases == {6: phase, 7: phase}

    def test_a_lane_that_has_gone_already_is_not_retired_again(self) -> None:
        story = Story(Proposal(self.empty_lane_3, retire=(3,)), min_lanes=1)
        story.run(2)
        story.balancer.lanes_changed([0, 1, 2])
        assert story.settle() is None


class TestResize:
    """8 slots on 4 lanes; lane 3 has 6 and 7."""

    @staticmethod
    def without_lane_3(strategy: str = "fluid", **options: Any) -> Story:
        story = Story(strategy=strategy, **options)
        story.run()
        assert story.balancer.resize(runs_without(story, 3)) is None
        return story

    def test_a_lane_is_drained_and_then_let_go(self) -> None:
        story = self.without_lane_3()
        assert story.balancer.draining == (3,)
        assert story.begin() == (Move(6, 3, 0),)
        assert story.settle() is None
        assert story.begin() == (Move(7, 3, 1),)
        assert story.settle() == LaneWish(retire=(3,))
        assert story.balancer.draining == (3,)
        story.balancer.lanes_changed([0, 1, 2])
        assert not story.balancer.draining

    def test_each_move_says_why(self) -> None:
        story = self.without_lane_3("sudden")
        assert {move.reason for move in story.begin()} == {"resize to 3 lanes: lane 3 leaves"}
        story = Story(strategy="sudden")
        story.balancer.lanes_changed(range(5))
        story.balancer.resize(story.balancer.table.apply([Move(0, 0, 4), Move(2, 1, 4)]))
        assert {move.reason for move in story.begin()} == {"resize to 5 lanes: lane 4 takes its share"}

    def test_a_move_by_hand_says_so_unless_it_has_a_reason_of_its_own(self) -> None:
        story = Story(strategy="sudden")
        story.balancer.request([Move(0, 0, 1), Move(1, 0, 1, "to make room")])
        assert [move.reason for move in story.begin()] == ["asked for by hand", "to make room"]

    def test_a_table_with_the_same_slots_lets_go_at_once(self) -> None:
        story = Story([Move(6, 3, 0), Move(7, 3, 1)])
        story.run(2)
        story.settle()
        table = story.balancer.table
        assert story.balancer.resize(table.with_lanes([0, 1, 2])) == LaneWish(retire=(3,))

    def test_it_supersedes_all_plans(self) -> None:
        story = Story()
        story.balancer.queue(scheduled([(Move(0, 0, 1),), (Move(6, 3, 2),)], first_epoch=9))
        story.balancer.resize(runs_without(story, 3))
        assert story.balancer.planned == (Move(6, 3, 0), Move(7, 3, 1))

    def test_it_begins_once_what_is_under_way_has_settled(self) -> None:
        story = Story([HOT])  # slot 0 to lane 3
        story.run()
        assert story.begin() == (HOT,)
        story.balancer.resize(runs_without(story, 3))
        assert story.begin() == ()
        assert story.settle() is None
        assert sorted(move.slot for move in story.begin()) == [0, 6, 7]

    @pytest.mark.parametrize("lost", [3, 0, 1])
    def test_no_loss_of_a_lane_calls_it_off(self, lost: int) -> None:
        story = self.without_lane_3()
        story.begin()
        story.balancer.lane_lost(lost)
        story.settle()
        assert story.begin() == (Move(7, 3, 1),)
        assert story.settle() == LaneWish(retire=(3,))

    def test_new_lanes_get_their_slots_whoever_is_lost_meanwhile(self) -> None:
        story = Story(strategy="fluid")
        story.balancer.lanes_changed(range(5))
        story.balancer.resize(story.balancer.table.apply([Move(0, 0, 4), Move(2, 1, 4)]))
        story.begin()
        for lane in (4, 1):
            story.balancer.lane_lost(lane)
        story.settle()
        assert story.begin() == (Move(2, 1, 4),)

    def test_a_move_by_hand_in_its_place_does_not_call_it_off(self) -> None:
        story = self.without_lane_3()
        story.balancer.request([Move(7, 3, 2)])
        for expected in (Move(6, 3, 0), Move(7, 3, 2)):
            assert story.begin() == (expected,)
            wish = story.settle()
        assert wish == LaneWish(retire=(3,))

    def test_a_lane_that_is_drained_takes_no_slot(self) -> None:
        story = self.without_lane_3()
        with pytest.raises(InputError, match="lane 3 is being stopped"):
            story.balancer.request([HOT])
        assert story.balancer.planned == (Move(6, 3, 0), Move(7, 3, 1))


def runs_without(story: Story, lane: int) -> RoutingTable:
    """Return the table without a lane: its slots go to the others in turn."""
    table = story.balancer.table
    rest = [other for other in table.lanes if other != lane]
    moves = [Move(slot, lane, rest[at % len(rest)]) for at, slot in enumerate(table.slots_of(lane).tolist())]
    return table.apply(moves).with_lanes(rest)


class TestCopyAhead:
    def story(self, **options: Any) -> Story:
        story = Story(strategy="fluid", copy_ahead_bytes=1000, **options)
        story.run(size=2000)
        story.balancer.request([HOT, WARM])
        return story

    def test_only_the_next_step_is_copied_ahead_and_waits_for_its_copies(self) -> None:
        story = self.story()
        assert story.balancer.to_prepare() == (HOT,)
        assert story.begin() == ()
        story.balancer.prepared(HOT.slot)
        assert story.begin() == (HOT,)
        assert story.balancer.to_prepare() == (WARM,)
        story.settle()
        story.balancer.prepared(WARM.slot)
        story.balancer.unprepared(WARM.slot)  # its target has died
        assert story.begin() == ()
        story.balancer.prepared(WARM.slot)
        assert story.begin() == (WARM,)
        assert story.balancer.to_prepare() == ()

    def test_small_slots_are_not_and_neither_are_any_unless_asked_for(self) -> None:
        small = Story(copy_ahead_bytes=1000)
        small.run(size=999)
        none = Story()
        none.run(size=2000)
        for story in (small, none):
            story.balancer.request([HOT])
            assert story.balancer.to_prepare() == ()
            assert story.begin() == (HOT,)

    def test_a_slot_that_was_on_its_way_when_a_window_closed_still_has_its_size(self) -> None:
        story = Story(strategy="sudden", copy_ahead_bytes=1000)
        story.run(size=2000)
        story.balancer.request([HOT])
        story.balancer.prepared(HOT.slot)
        story.begin()
        for lane in story.balancer.table.lanes:  # no lane has the slot: none reports it
            slots = np.setdiff1d(story.balancer.table.slots_of(lane), [HOT.slot])
            loads = SlotLoads.of(np.ones(slots.size), state_bytes=np.full(slots.size, 2000))
            story.balancer.report(LoadReport(story.epoch, LaneLoad(lane), slots, loads))
        story.settle()
        back = Move(HOT.slot, HOT.target, HOT.source)
        story.balancer.request([back])
        assert story.balancer.to_prepare() == (back,)

    def test_a_copy_of_one_move_is_none_of_the_next(self) -> None:
        story = self.story()
        story.balancer.prepared(HOT.slot)
        story.begin()
        story.balancer.queue(scheduled([(Move(0, 3, 0),)]))
        story.settle()
        story.balancer.prepared(WARM.slot)
        story.begin()
        story.settle()
        assert story.begin() == ()
        assert story.balancer.to_prepare() == (Move(0, 3, 0),)


class TestMoveCost:
    """What is measured reaches policies with the next view."""

    @staticmethod
    def cost_after(*measured: tuple[int, float]) -> MoveCost:
        story = Story(Proposal(), move_cost=MoveCost(seconds_per_move=1.0, seconds_per_byte=1e-6))
        for size, seconds in measured:
            story.balancer.measured_move(size, seconds)
        story.run()
        return story.policy.asked[-1].move_cost

    def test_large_moves_teach_what_a_byte_costs_and_small_ones_what_a_move_costs(self) -> None:
        large = self.cost_after((1 << 21, 4.0))
        assert large.seconds_per_move == 1.0
        assert large.seconds_per_byte == pytest.approx(0.7e-6 + 0.3 * 4.0 / (1 << 21))
        small = self.cost_after((1000, 3.0))
        assert small.seconds_per_move == pytest.approx(1.6)
        assert small.seconds_per_byte == 1e-6

    def test_it_comes_close_to_what_is_measured_again_and_again(self) -> None:
        assert self.cost_after(*[(0, 0.02)] * 30).seconds_per_move == pytest.approx(0.02, rel=0.01)


def in_phase(phase: Phase) -> Story:
    """Return a story in which the move HOT (slot 0, lane 0 to 3) stands in `phase`."""
    story = Story([HOT], min_lanes=1)
    story.run()
    if phase is not Phase.PLANNED:
        story.begin()
    if phase is Phase.IN_TRANSIT:
        story.ack(0, Event.HANDED_OFF)
    if phase is Phase.RECOVERING:
        story.balancer.lane_lost(0)
    assert story.phases == ({} if phase is Phase.PLANNED else {0: phase})
    return story


TOLD = (Phase.ANNOUNCED, Phase.IN_TRANSIT, Phase.RECOVERING)


class TestLostLanes:
    @pytest.mark.parametrize("lane", [0, 3])
    def test_a_plan_that_needs_the_lane_is_dropped(self, lane: int) -> None:
        story = in_phase(Phase.PLANNED)
        story.balancer.lane_lost(lane)
        assert story.balancer.planned == ()
        assert story.begin() == ()
        (dropped,) = story.of(PhaseChanged)
        assert (dropped.move, dropped.after) == (HOT, Phase.CANCELLED)
        assert [entry.lost for entry in story.of(LanesChanged)] == [(lane,)]

    def test_a_plan_that_does_not_need_it_stays(self) -> None:
        story = in_phase(Phase.PLANNED)
        story.balancer.lane_lost(1)
        assert story.begin() == (HOT,)

    @pytest.mark.parametrize(
        ("before", "lost", "after"),
        [
            (Phase.ANNOUNCED, [0], Phase.RECOVERING),
            (Phase.ANNOUNCED, [3], Phase.ANNOUNCED),
            (Phase.ANNOUNCED, [0, 3], Phase.RECOVERING),
            (Phase.ANNOUNCED, [3, 0], Phase.RECOVERING),
            (Phase.ANNOUNCED, [1], Phase.ANNOUNCED),
            (Phase.IN_TRANSIT, [0], Phase.IN_TRANSIT),
            (Phase.IN_TRANSIT, [3], Phase.IN_TRANSIT),
            (Phase.IN_TRANSIT, [3, 0, 3], Phase.IN_TRANSIT),
            (Phase.RECOVERING, [0], Phase.RECOVERING),
            (Phase.RECOVERING, [3, 3], Phase.RECOVERING),
        ],
    )
    def test_a_told_move_goes_on_and_settles(self, before: Phase, lost: list[int], after: Phase) -> None:
        story = in_phase(before)
        for lane in lost:
            story.balancer.lane_lost(lane)
        assert story.phases == {0: after}
        assert story.begin() == ()
        story.ack(0, Event.INSTALLED, epoch=1)
        assert story.phases == {}
        assert story.owners[0] == 3

    def test_the_queue_goes_on_after_a_loss(self) -> None:
        story = Story([HOT, WARM, Move(2, 1, 0)], strategy="fluid")
        story.run(2)
        story.balancer.lane_lost(2)  # WARM was to go there
        story.settle()
        assert story.begin() == (Move(2, 1, 0),)


class TestRestart:
    def test_plans_are_forgotten(self) -> None:
        story = in_phase(Phase.PLANNED)
        story.restart()
        assert story.balancer.planned == ()
        assert story.begin() == ()

    @pytest.mark.parametrize("phase", TOLD)
    def test_told_moves_are_recovered(self, phase: Phase) -> None:
        story = in_phase(phase)
        table = story.balancer.table
        story.restart()
        assert story.phases == {0: Phase.RECOVERING}
        assert story.balancer.table == table
        assert story.begin() == ()
        story.ack(0, Event.HANDED_OFF, epoch=1)
        story.ack(0, Event.INSTALLED, epoch=1)
        assert story.phases == {}

    @pytest.mark.parametrize("phase", TOLD)
    def test_restarting_twice_is_restarting_once(self, phase: Phase) -> None:
        story = in_phase(phase)
        story.restart()
        once = story.balancer.state
        story.restart()
        assert story.balancer.state == once

    def test_an_older_state_may_list_a_move_that_has_settled_since(self) -> None:
        story = in_phase(Phase.ANNOUNCED)
        saved = story.balancer.state
        story.settle()
        story.balancer = Balancer.restored(saved, story.policy, story.strategy)
        assert story.phases == {0: Phase.RECOVERING}
        story.ack(0, Event.INSTALLED, epoch=1)
        assert story.phases == {}

    def test_epochs_and_windows_go_on_where_they_were(self) -> None:
        story = Story()
        story.run(3)
        story.restart()
        with pytest.raises(ProtocolError, match="epoch 2 was asked for after epoch 2"):
            story.balancer.next_epoch(2)
        story.report_all()  # of epoch 2: nobody knows what the dead balancer had of it
        asked = len(story.policy.asked)
        story.run()
        assert [view.last.epochs for view in story.policy.asked[asked:]] == [(3, 3)]

    def test_the_state_is_a_value(self) -> None:
        story = in_phase(Phase.IN_TRANSIT)
        assert story.balancer.state == BalancerState(
            story.balancer.table, (MoveLife(HOT, Phase.IN_TRANSIT, epoch=1),), epoch=1
        )

    def test_a_window_is_not_decided_on_before_recovered_moves_have_settled(self) -> None:
        story = in_phase(Phase.ANNOUNCED)
        story.restart()
        story.run(2)
        assert len(story.policy.asked) == 1
        story.settle()
        story.run()
        assert len(story.policy.asked) == 2


class TestAcknowledgements:
    def test_twice(self) -> None:
        story = in_phase(Phase.ANNOUNCED)
        story.ack(0, Event.HANDED_OFF)
        story.ack(0, Event.HANDED_OFF)
        assert story.phases == {0: Phase.IN_TRANSIT}
        assert [entry.why for entry in story.of(AckIgnored)] == ["the move is in transit already"]

    def test_twice_after_it_is_over(self) -> None:
        story = in_phase(Phase.ANNOUNCED)
        story.settle()
        story.ack(0, Event.INSTALLED)
        assert [entry.why for entry in story.of(AckIgnored)] == ["no move at epoch 1 is under way"]

    def test_out_of_order(self) -> None:
        story = in_phase(Phase.ANNOUNCED)
        story.ack(0, Event.INSTALLED)
        assert story.phases == {}
        story.ack(0, Event.HANDED_OFF)
        assert [entry.event for entry in story.of(AckIgnored)] == [Event.HANDED_OFF]

    def test_damage_found_before_the_sources_word_arrived(self) -> None:
        story = in_phase(Phase.ANNOUNCED)
        story.ack(0, Event.HANDOFF_DAMAGED)
        assert story.phases == {0: Phase.RECOVERING}
        story.ack(0, Event.HANDED_OFF)
        story.ack(0, Event.HANDOFF_DAMAGED)
        assert story.phases == {0: Phase.RECOVERING}
        story.ack(0, Event.INSTALLED)
        assert story.phases == {}

    def test_late_words_about_an_earlier_move_do_not_touch_the_second_one(self) -> None:
        story = in_phase(Phase.ANNOUNCED)
        story.settle()
        story.balancer.request([Move(0, 3, 1)])
        story.begin()
        for event in (Event.HANDED_OFF, Event.INSTALLED, Event.HANDOFF_DAMAGED):
            story.ack(0, event, epoch=1)
        assert story.phases == {0: Phase.ANNOUNCED}
        assert len(story.of(AckIgnored)) == 3

    @pytest.mark.parametrize(("slot", "epoch"), [(5, 1), (99, 1), (0, 0), (0, 77)])
    def test_of_unknown_moves(self, slot: int, epoch: int) -> None:
        story = in_phase(Phase.ANNOUNCED)
        assert story.ack(slot, Event.INSTALLED, epoch=epoch) is None
        assert story.phases == {0: Phase.ANNOUNCED}
        assert [entry.slot for entry in story.of(AckIgnored)] == [slot]

    @pytest.mark.parametrize(
        "event", [event for event in Event if event not in (Event.HANDED_OFF, Event.INSTALLED, Event.HANDOFF_DAMAGED)]
    )
    def test_lanes_speak_of_their_own_part_only(self, event: Event) -> None:
        story = in_phase(Phase.ANNOUNCED)
        with pytest.raises(ProtocolError, match=f"lanes cannot say '{event.value}' of slot 0: lane 0 -> lane 3"):
            story.ack(0, event)


class TestJournal:
    def test_the_life_of_a_move_can_be_read_from_it(self) -> None:
        story = in_phase(Phase.ANNOUNCED)
        story.settle()
        assert [(entry.epoch, entry.event, entry.after) for entry in story.of(PhaseChanged)] == [
            (1, Event.ANNOUNCE, Phase.ANNOUNCED),
            (1, Event.HANDED_OFF, Phase.IN_TRANSIT),
            (1, Event.INSTALLED, Phase.SETTLED),
        ]

    def test_it_is_plain_json_whatever_numbers_a_policy_uses(self) -> None:
        story = Story([Move(np.int64(0), np.int64(0), np.int64(3), "argmax")])  # type: ignore[arg-type]
        story.run(2)
        story.settle()
        entries = json.loads(json.dumps(story.journal.as_dicts(), allow_nan=False))
        decided = next(entry for entry in entries if entry["kind"] == "Decided")
        assert decided["moves"] == [{"slot": 0, "source": 0, "target": 3, "reason": "argmax"}]

    def test_units_of_several_stages_are_named_by_stage_and_slot(self) -> None:
        journal = Journal.of_query(UnitNames((StageUnits(0, 8), StageUnits(8, 4, 0))))
        moves, even = (Move(7, 0, 1), Move(9, 1, 0, "full")), Balance.of([1.0], [1.0], [1])
        journal.record(Decided(3, "even", moves, 1, (11,), even, even, 0, ""))
        journal.record(PhaseChanged(3, moves[1], Event.ANNOUNCE, Phase.PLANNED, Phase.ANNOUNCED))
        decided, changed = journal.as_dicts()
        assert decided["moves"] == [
            {"stage": 0, "slot": 7, "unit": 7, "source": 0, "target": 1, "reason": ""},
            {"stage": 1, "slot": 1, "unit": 9, "source": 1, "target": 0, "reason": "full"},
        ]
        assert decided["not_curable"] == [{"stage": 1, "slot": 3, "unit": 11}]
        assert changed["move"] == decided["moves"][1]

    def test_what_no_move_can_cure_is_numbers_of_slots_in_one_stage(self) -> None:
        journal, even = Journal.of_query(), Balance.of([1.0], [1.0], [1])
        journal.record(Decided(3, "even", (), 0, (5,), even, even, 0, ""))
        assert journal.as_dicts()[0]["not_curable"] == [5]

    def test_an_idle_lane_makes_an_infinite_ratio_which_json_has_no_word_for(self) -> None:
        story = Story([Move(0, 0, 3), Move(1, 0, 3)])
        story.run()
        (decided,) = [entry for entry in story.journal.as_dicts() if entry["kind"] == "Decided"]
        assert decided["after"]["utilisation_ratio"] is None
        json.dumps(story.journal.as_dicts(), allow_nan=False)

    def test_it_keeps_the_newest_entries(self) -> None:
        journal = Journal(keep=3)
        for epoch in range(5):
            journal.record(Entry(epoch))
        assert [entry.epoch for entry in journal] == [2, 3, 4]
        assert len(journal) == 3
        assert journal.dropped == {"Entry": 2}

    def test_what_comes_often_does_not_push_out_what_is_rare(self) -> None:
        journal = Journal(keep=3)
        journal.record(Requested(0, ()))
        for epoch in range(1, 9):
            journal.record(Entry(epoch))
        assert [entry.epoch for entry in journal] == [0, 6, 7, 8]
        assert journal.dropped == {"Entry": 5}

    def test_a_plan_counts_for_the_moves_that_it_names(self) -> None:
        journal, moves = Journal(keep=10), tuple(Move(slot, 0, 1) for slot in range(4))
        for epoch in range(5):
            journal.record(Requested(epoch, moves))
        assert [entry.epoch for entry in journal] == [3, 4]
        assert journal.dropped == {"Requested": 3}

    def test_one_that_is_too_large_is_kept_all_the_same(self) -> None:
        journal = Journal(keep=3)
        journal.record(Requested(0, tuple(Move(slot, 0, 1) for slot in range(4))))
        assert len(journal) == 1

    def test_what_was_ignored_is_kept_for_a_shorter_while(self) -> None:
        journal = Journal(keep=40)
        for epoch in range(50):
            journal.record(ReportIgnored(epoch, 0, epoch, "late"))
            journal.record(PhaseChanged(epoch, Move(0, 0, 1), Event.ANNOUNCE, Phase.PLANNED, Phase.ANNOUNCED))
        assert (len(journal.of(ReportIgnored)), len(journal.of(PhaseChanged))) == (5, 40)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"window_epochs": 0}, "window_epochs must be at least 1, got 0"),
            ({"history": 0}, "history must be at least 1, got 0"),
            ({"cooldown_windows": -1}, "cooldown_windows must be at least 0, got -1"),
            ({"patience": -1}, "patience must be at least 0, got -1"),
            ({"min_gain": 1.0}, "min_gain is a share from 0 to below 1, got 1.0"),
            ({"min_gain": float("nan")}, "min_gain is a share"),
            ({"min_gain": -0.1}, "min_gain is a share"),
            ({"max_bytes_in_flight": -1}, "max_bytes_in_flight must not be negative, got -1"),
            ({"copy_ahead_bytes": -1}, "copy_ahead_bytes must not be negative, got -1"),
            ({"min_lanes": 0}, "lanes from 0 to None is no range"),
            ({"max_lanes": 0}, "lanes from None to 0 is no range"),
            ({"min_lanes": 5, "max_lanes": 4}, "lanes from 5 to 4 is no range"),
        ],
    )
    def test_numbers_that_would_stop_it_for_good_are_refused(self, options: dict[str, Any], text: str) -> None:
        with pytest.raises(InputError, match=f"balancer: {text}"):
            BalancerOptions(**options)


class TestStart:
    def test_windows_of_lanes_that_have_just_started_are_not_used(self) -> None:
        story = Story(Proposal((HOT,)), settle_windows=1, warm_up_windows=2)
        story.run(3)
        assert [entry.why for entry in story.of(WindowDropped)] == ["lanes have just started"]
        assert len(story.of(Decided)) == 1
