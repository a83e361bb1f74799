"""More lanes and fewer: what a resize refuses, and what the engine does with room that was found."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenflow.engine import Room, TimePassed
from evenflow.errors import InputError
from tests.engine.scene import Scene


class TestRefused:
    @pytest.mark.parametrize(
        ("lanes", "spare", "words"),
        [
            (0, 4, "resize: from 1 to 4 lanes (a slot each), got 0"),
            (5, 4, "resize: from 1 to 4 lanes (a slot each), got 5"),
            (
                4,
                1,
                "resize: 2 more lanes need 2 task slots, 1 are free: give the session more cores, or ask for 3 lanes",
            ),
            (
                3,
                -2,
                "resize: 1 more lanes need 1 task slots, 0 are free: give the session more cores, or ask for 2 lanes",
            ),
        ],
        ids=["none", "more than slots", "too little room", "less than no room"],
    )
    def test_what_cannot_be(self, tmp_path: Path, lanes: int, spare: int, words: str) -> None:
        scene = Scene.ready(tmp_path)
        with pytest.raises(InputError) as refused:
            scene.engine.resize(lanes, spare, scene.now_s)
        assert str(refused.value) == words
        scene.handle(TimePassed())
        assert scene.started == [0, 1]

    def test_while_lanes_are_starting(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.engine.resize(4, 2, scene.now_s)
        with pytest.raises(InputError, match=r"resize: lanes \[2, 3\] are just starting; wait until they are there"):
            scene.engine.resize(3, 2, scene.now_s)

    def test_while_lanes_give_away_their_slots(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.engine.resize(1, 0, scene.now_s)
        with pytest.raises(
            InputError, match=r"resize: lanes \[1\] are giving away their slots; wait until they are gone"
        ):
            scene.engine.resize(2, 0, scene.now_s)


def test_as_many_lanes_as_slots_and_as_there_is_room_for(tmp_path: Path) -> None:
    scene = Scene.ready(tmp_path)
    scene.engine.resize(4, 2, scene.now_s)
    scene.handle(TimePassed())
    assert scene.started == [0, 1, 2, 3]
    for lane in (2, 3):
        scene.join(lane)
    assert [*scene.balancer.table.lanes] == [0, 1, 2, 3]


def test_one_lane_is_enough(tmp_path: Path) -> None:
    scene = Scene.ready(tmp_path)
    scene.engine.resize(1, 0, scene.now_s)
    scene.accept()
    assert [int(lane) for lane in scene.balancer.table.owners] == [0, 0, 0, 0]


@pytest.mark.parametrize(("asked", "spare", "started"), [(2, 2, [2, 3]), (1, 2, [2]), (2, 1, [])])
def test_lanes_that_the_policy_wants_are_started_if_there_is_room_for_all(
    tmp_path: Path, asked: int, spare: int, started: list[int]
) -> None:
    scene = Scene.ready(tmp_path)
    scene.handle(Room(asked, spare))
    assert scene.started == [0, 1, *started]
