"""The life of a move: no dead ends, every failure edge as a story, and the dog and cat of the paper."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import InputError, ProtocolError
from evenflow.migration import Event, MoveLife, Phase, QueuedStep, protocol
from evenflow.migration.protocol import TRANSITIONS
from evenflow.model import ControlMessage, Move, RoutingTable, Transfer

MOVE = Move(7, source=0, target=3)

LOSSES = (Event.SOURCE_LOST, Event.TARGET_LOST, Event.BALANCER_RESTARTED)
LANES_WORDS = (Event.HANDED_OFF, Event.INSTALLED, Event.HANDOFF_DAMAGED)


def life(*events: Event, phase: Phase = Phase.PLANNED) -> Phase:
    """Return the phase after `events`."""
    move = MoveLife(MOVE, phase)
    for event in events:
        move = move.after(event)
    return move.phase


class TestTable:
    @pytest.mark.parametrize("phase", Phase)
    def test_every_phase_can_end(self, phase: Phase) -> None:
        reached, edge = {phase}, {phase}
        while edge:
            edge = {after for (before, _), after in TRANSITIONS.items() if before in edge} - reached
            reached |= edge
        assert any(phase.is_over for phase in reached)

    @pytest.mark.parametrize("phase", Phase)
    def test_every_phase_can_be_reached(self, phase: Phase) -> None:
        assert phase is Phase.PLANNED or any(
            after is phase and before is not phase for (before, _), after in TRANSITIONS.items()
        )

    @pytest.mark.parametrize("phase", [phase for phase in Phase if phase.is_in_flight])
    def test_a_move_in_flight_settles_by_the_targets_word_alone(self, phase: Phase) -> None:
        assert life(Event.INSTALLED, phase=phase) is Phase.SETTLED

    @pytest.mark.parametrize("phase", [phase for phase in Phase if phase.is_over])
    def test_what_is_over_stays_over(self, phase: Phase) -> None:
        assert {after for (before, _), after in TRANSITIONS.items() if before is phase} == {phase}

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("phase", Phase)
    def test_losses_can_happen_at_any_time(self, phase: Phase, loss: Event) -> None:
        assert (phase, loss) in TRANSITIONS

    @pytest.mark.parametrize("phase", [phase for phase in Phase if phase.is_in_flight])
    def test_what_lanes_were_told_of_cannot_be_taken_back(self, phase: Phase) -> None:
        afterwards = {after for (before, _), after in TRANSITIONS.items() if before is phase}
        assert Phase.PLANNED not in afterwards
        assert Phase.CANCELLED not in afterwards

    @pytest.mark.parametrize("phase", Phase)
    def test_a_phase_is_planned_in_flight_or_over(self, phase: Phase) -> None:
        assert [phase is Phase.PLANNED, phase.is_in_flight, phase.is_over].count(True) == 1

    @given(st.lists(st.sampled_from([*LANES_WORDS, *LOSSES])))
    def test_what_lanes_say_of_a_move_that_was_handed_off_is_always_understood(self, events: list[Event]) -> None:
        phase = life(Event.ANNOUNCE, Event.HANDED_OFF, *events)
        assert (phase is Phase.SETTLED) == (Event.INSTALLED in events)

    @given(st.lists(st.sampled_from([*LANES_WORDS, *LOSSES])))
    def test_a_repeated_event_tells_nothing_new(self, events: list[Event]) -> None:
        twice = [event for event in events for _ in range(2)]
        before = (Event.ANNOUNCE, Event.HANDED_OFF)
        assert life(*before, *twice) is life(*before, *events)


class TestDrawing:
    drawing = (protocol.__doc__ or "").split("::")[1].split("*PLANNED*")[0]

    def test_the_drawing_shows_the_phases_of_the_table(self) -> None:
        drawn = set(re.findall(r"[A-Z_]{6,}", self.drawing))
        assert drawn == {phase.name for phase in Phase}
        assert drawn == {phase.name for (phase, _) in TRANSITIONS}

    def test_the_drawing_names_every_event_of_the_table(self) -> None:
        words = re.sub(r"[^a-z]+", " ", self.drawing)
        for event in {event for (before, event), after in TRANSITIONS.items() if before is not after}:
            # "source or target lost", "any loss": the drawing is for people
            shown = event.value.split(" by ")[0].removeprefix("source ").removeprefix("balancer ")
            assert shown in words, event


class TestStories:
    def test_all_goes_well(self) -> None:
        announced = MoveLife(MOVE).announced(12)
        assert (announced.phase, announced.epoch) == (Phase.ANNOUNCED, 12)
        settled = announced.after(Event.HANDED_OFF).after(Event.INSTALLED)
        assert settled == MoveLife(MOVE, Phase.SETTLED, epoch=12)

    @pytest.mark.parametrize(
        ("events", "phase"),
        [
            # the source dies
            ([Event.SOURCE_LOST], Phase.CANCELLED),
            ([Event.ANNOUNCE, Event.SOURCE_LOST], Phase.RECOVERING),
            ([Event.ANNOUNCE, Event.SOURCE_LOST, Event.INSTALLED], Phase.SETTLED),
            ([Event.ANNOUNCE, Event.HANDED_OFF, Event.SOURCE_LOST], Phase.IN_TRANSIT),
            ([Event.ANNOUNCE, Event.HANDED_OFF, Event.SOURCE_LOST, Event.INSTALLED], Phase.SETTLED),
            # it is taken for dead, but had finished
            ([Event.ANNOUNCE, Event.SOURCE_LOST, Event.HANDED_OFF], Phase.RECOVERING),
            # the target dies
            ([Event.TARGET_LOST], Phase.CANCELLED),
            ([Event.ANNOUNCE, Event.TARGET_LOST], Phase.ANNOUNCED),
            ([Event.ANNOUNCE, Event.TARGET_LOST, Event.HANDED_OFF, Event.INSTALLED], Phase.SETTLED),
            ([Event.ANNOUNCE, Event.HANDED_OFF, Event.TARGET_LOST], Phase.IN_TRANSIT),
            ([Event.ANNOUNCE, Event.HANDED_OFF, Event.TARGET_LOST, Event.HANDOFF_DAMAGED], Phase.RECOVERING),
            # both die, in either order
            ([Event.ANNOUNCE, Event.SOURCE_LOST, Event.TARGET_LOST], Phase.RECOVERING),
            ([Event.ANNOUNCE, Event.TARGET_LOST, Event.SOURCE_LOST], Phase.RECOVERING),
            ([Event.ANNOUNCE, Event.TARGET_LOST, Event.SOURCE_LOST, Event.INSTALLED], Phase.SETTLED),
            ([Event.ANNOUNCE, Event.HANDED_OFF, Event.SOURCE_LOST, Event.TARGET_LOST], Phase.IN_TRANSIT),
            # the target dies while it rebuilds the slot, and the next one, and the next one
            ([Event.ANNOUNCE, Event.SOURCE_LOST, *[Event.TARGET_LOST] * 3, Event.INSTALLED], Phase.SETTLED),
            # the balancer restarts
            ([Event.BALANCER_RESTARTED], Phase.CANCELLED),
            ([Event.ANNOUNCE, Event.BALANCER_RESTARTED], Phase.RECOVERING),
            ([Event.ANNOUNCE, Event.HANDED_OFF, Event.BALANCER_RESTARTED], Phase.RECOVERING),
            ([Event.ANNOUNCE, Event.BALANCER_RESTARTED, Event.BALANCER_RESTARTED], Phase.RECOVERING),
            ([Event.ANNOUNCE, Event.BALANCER_RESTARTED, Event.HANDED_OFF, Event.INSTALLED], Phase.SETTLED),
            ([Event.ANNOUNCE, Event.INSTALLED, Event.BALANCER_RESTARTED], Phase.SETTLED),
            # a second plan for the same slot before the first was told to anyone
            ([Event.SUPERSEDED], Phase.CANCELLED),
            ([Event.CANCEL], Phase.CANCELLED),
            # the target's word comes before the source's
            ([Event.ANNOUNCE, Event.INSTALLED, Event.HANDED_OFF], Phase.SETTLED),
        ],
        ids=lambda value: ", ".join(event.value for event in value) if isinstance(value, list) else value.value,
    )
    def test_failures(self, events: list[Event], phase: Phase) -> None:
        assert life(*events) is phase

    @pytest.mark.parametrize("before", [[], [Event.HANDED_OFF], [Event.SOURCE_LOST]])
    def test_a_second_move_of_the_slot_cannot_stop_the_first_once_it_is_announced(self, before: list[Event]) -> None:
        for event in (Event.SUPERSEDED, Event.CANCEL, Event.ANNOUNCE):
            with pytest.raises(ProtocolError):
                life(Event.ANNOUNCE, *before, event)


class TestIllegal:
    @pytest.mark.parametrize(
        ("phase", "event"),
        [(phase, event) for phase in Phase for event in Event if (phase, event) not in TRANSITIONS],
        ids=lambda value: value.value,
    )
    def test_what_the_table_does_not_list_is_an_error_that_says_what_and_when(self, phase: Phase, event: Event) -> None:
        text = f"slot 7: lane 0 -> lane 3 is {phase.value}: '{event.value}' cannot happen to it"
        with pytest.raises(ProtocolError, match=f"^{re.escape(text)}$"):
            MoveLife(MOVE, phase).after(event)

    def test_a_planned_move_has_nothing_to_hand_off(self) -> None:
        for event in LANES_WORDS:
            with pytest.raises(ProtocolError):
                life(event)


class TestDogAndCat:
    """LR-E4. Slot 0 is the dog, slot 1 the cat; both begin on lane 0, the dog moves at 150, the cat at 200."""

    dog, cat = 0, 1
    start = RoutingTable(np.array([0, 0]), (0, 1))
    plan = (QueuedStep((Move(dog, 0, 1),), 150), QueuedStep((Move(cat, 0, 1),), 200))
    rows = ((100, dog, 10), (100, cat, 5), (200, dog, 13), (200, cat, 23))

    def table_at(self, time: int) -> RoutingTable:
        """Return the table for records of `time`: a reconfiguration takes effect at its time (LR-A4)."""
        table = self.start
        for step in self.plan:
            if time >= step.not_before:
                table = table.apply(step.moves)
        return table

    @pytest.mark.parametrize(
        ("time", "lanes"),
        [(100, [0, 0]), (149, [0, 0]), (150, [1, 0]), (199, [1, 0]), (200, [1, 1]), (201, [1, 1])],
    )
    def test_records_from_the_time_of_the_move_on_go_to_the_new_lane(self, time: int, lanes: list[int]) -> None:
        assert self.table_at(time).lanes_of(np.array([self.dog, self.cat])).tolist() == lanes

    def test_states_and_owners(self) -> None:
        state: dict[int, defaultdict[int, int]] = {0: defaultdict(int), 1: defaultdict(int)}
        moved = {}
        for time in (100, 150, 200):
            for move in (move for step in self.plan if step.not_before == time for move in step.moves):
                handed = MoveLife(move).announced(time).after(Event.HANDED_OFF)
                moved[move.slot] = state[move.source].pop(move.slot)
                state[move.target][move.slot] = moved[move.slot]
                assert handed.after(Event.INSTALLED).phase is Phase.SETTLED
            for _, slot, value in (row for row in self.rows if row[0] == time):
                state[int(self.table_at(time).owners[slot])][slot] += value
        assert state == {0: {}, 1: {self.dog: 23, self.cat: 28}}
        assert moved == {self.dog: 10, self.cat: 5}

    def test_table_one_of_the_control_messages(self) -> None:
        at_150 = ControlMessage(150, self.plan[0].moves)
        assert at_150.transfers == (Transfer(sender=0, receiver=1, slot_ids=(self.dog,)),)
        assert not ControlMessage(151).migration

    def test_the_same_slot_twice_at_one_time_is_refused(self) -> None:
        # LR-A5: not defined by the paper.
        with pytest.raises(InputError, match="slot 0 is moved twice in one step"):
            self.start.apply([Move(self.dog, 0, 1), Move(self.dog, 1, 0)])
