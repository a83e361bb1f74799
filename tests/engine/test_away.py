"""Lanes that stay away: their units are others' after a while, and a new lane that never comes is given up."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from evenflow.control.journal import LanesChanged, PhaseChanged, Refusal, Refused
from evenflow.engine import Accepted, Event, Handover, TimePassed
from evenflow.engine.away import LANE_GRACE_S, LANE_START_S
from evenflow.lane.messages import Adopt, Release
from evenflow.migration import Phase
from evenflow.model import LoadReport
from tests.engine.one_process import World
from tests.engine.scene import Scene


def time_passes(scene: Scene, seconds: float) -> None:
    scene.now_s += seconds
    scene.handle(TimePassed())


def owners(scene: Scene) -> list[int]:
    return [int(lane) for lane in scene.balancer.table.owners]


class TestGone:
    def test_the_others_adopt_its_units_at_once_without_an_epoch(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.accept()
        scene.done(1)
        scene.lose(0)
        assert scene.engine.waits_until_s() == scene.now_s + LANE_GRACE_S
        time_passes(scene, LANE_GRACE_S - 1)
        assert not scene.told(1, Adopt)
        time_passes(scene, 1)
        assert [entry.slot for entry in scene.adopt(1).slots] == [0, 1]
        assert scene.run(1) == {0: [0, 1]}, "the rows that were routed to the lane that is gone"
        assert scene.checkpoint.frontier == 0
        assert owners(scene) == [1] * 4
        assert scene.engine.missing() == []
        assert scene.engine.waits_until_s() == math.inf
        scene.accept()
        assert scene.run(1) == {1: [0, 1, 2, 3]}

    def test_one_that_is_back_in_time_keeps_its_units(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.lose(0)
        scene.join(0)
        time_passes(scene, 2 * LANE_GRACE_S)
        assert owners(scene) == [0, 0, 1, 1]
        assert len(scene.adopt(0).slots) == 2

    def test_one_that_is_back_later_gets_a_share_with_the_next_epoch(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.lose(0)
        time_passes(scene, LANE_GRACE_S)
        scene.adopt(1)
        scene.join(0)
        assert not scene.told(0, Adopt)
        assert scene.balancer.table.lanes == (0, 1)
        scene.accept()
        assert sorted(owners(scene)) == [0, 0, 1, 1]
        scene.done(1)
        scene.release(1)
        scene.done(0)
        scene.adopt(0)
        assert len(scene.run(0)[0]) == 2
        assert scene.checkpoint.frontier == 0

    def test_while_no_lane_is_there_none_is_gone(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.lose(0)
        scene.lose(1)
        assert scene.engine.waits_until_s() == math.inf
        time_passes(scene, 10 * LANE_GRACE_S)
        assert scene.balancer.table.lanes == (0, 1)
        scene.join(1)
        assert scene.engine.waits_until_s() <= scene.now_s
        time_passes(scene, 0)
        assert sorted(entry.slot for adopt in scene.told(1, Adopt) for entry in adopt.slots) == [0, 1, 2, 3]

    @pytest.mark.parametrize("handover", ["at once", "at the timestamp"])
    def test_a_unit_on_its_way_there_is_let_go_of_where_it_is(self, tmp_path: Path, handover: Handover) -> None:
        scene = Scene.ready(tmp_path, slots=6, lanes=3, handover=handover)
        scene.accept()
        scene.ask((0, 2))
        scene.accept()
        scene.lose(2)
        time_passes(scene, LANE_GRACE_S)
        target = owners(scene)[0]
        assert target in (0, 1)
        for _ in range(40):
            for lane in (0, 1):
                scene.answer(lane)
        assert scene.versions == [1] * 6
        assert Phase.PASSED_ON in {entry.after for entry in scene.balancer.journal.of(PhaseChanged)}
        assert scene.balancer.in_flight == ()

    def test_one_that_was_to_go_there_and_need_not_stays(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path, handover="at the timestamp")
        scene.accept()
        scene.accept()
        scene.ask((2, 0))
        scene.accept()  # lane 1 is at epoch 0, and folds epoch 1 of the unit before it lets go
        scene.lose(0)
        time_passes(scene, LANE_GRACE_S)
        assert not scene.told(1, Release)
        while scene.answer(1):
            pass
        assert scene.versions == [2] * 4
        assert scene.balancer.in_flight == ()

    def test_an_epoch_that_was_announced_and_not_accepted_changes_nothing(self, tmp_path: Path) -> None:
        """It may wait for lanes to catch up, so for the very units that it moves."""
        scene = Scene.ready(tmp_path, slots=6, lanes=3)
        scene.accept()
        scene.ask((0, 1), (3, 2), (2, 0))  # from lane 0, from lane 1 to lane 2, and to lane 0
        handle = scene.handle
        later: list[Event] = []
        scene.handle = lambda *events: later.extend(events)  # type: ignore[method-assign]
        scene.accept()
        scene.handle = handle  # type: ignore[method-assign]
        scene.lose(0)
        time_passes(scene, LANE_GRACE_S)
        for _ in range(40):
            for lane in (1, 2):
                scene.answer(lane)
        assert scene.checkpoint.frontier == 0, "nobody waits for the epoch"
        assert [type(event) for event in later] == [Accepted]
        scene.handle(*later)
        for _ in range(40):
            for lane in (1, 2):
                scene.answer(lane)
        assert scene.checkpoint.frontier == 1
        assert scene.balancer.in_flight == ()
        assert 0 not in owners(scene)


class TestNeverCame:
    def test_a_resize_goes_on_with_those_that_came(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path, slots=8)
        scene.engine.resize(4, 4, scene.now_s)
        scene.handle()
        assert scene.engine.missing() == []
        scene.join(2)
        assert [*scene.balancer.table.lanes] == [0, 1]
        time_passes(scene, LANE_START_S)
        assert scene.retired == [3]
        assert [*scene.balancer.table.lanes] == [0, 1, 2]
        assert [entry.refusal for entry in scene.balancer.journal.of(Refused)] == [Refusal.LANES_DO_NOT_COME]
        scene.engine.resize(4, 4, scene.now_s)
        scene.accept()
        assert 2 in owners(scene)

    def test_a_resize_starts_others_in_the_place_of_those_that_are_gone(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path)
        scene.lose(0)
        time_passes(scene, LANE_GRACE_S)
        scene.engine.resize(2, 0, scene.now_s)
        scene.handle(TimePassed())
        assert scene.retired == [0]
        assert scene.started == [0, 1, 2]


class TestWaiting:
    def test_a_load_elsewhere_does_not_take_the_time_to_spare_of_who_had_its_epoch_before(self, tmp_path: Path) -> None:
        scene = Scene.ready(tmp_path, lanes=3, slots=6)
        scene.now_s = 100.0
        scene.ask((0, 1))
        scene.accept()
        for lane in range(3):
            scene.run(lane)
        scene.release(0)
        scene.accept()
        scene.now_s += 3.0
        scene.adopt(1)
        scene.now_s += 1.0
        reports: list[LoadReport] = []
        scene.balancer.report = reports.append  # type: ignore[method-assign,assignment]
        scene.done(2, seconds=4.0, idle_s=5.0)
        assert [(report.lane.lane, report.lane.idle_s) for report in reports] == [(2, 5.0)]


@pytest.mark.parametrize("seed", range(6))
def test_a_world_whose_lanes_stay_away(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = World(tmp_path, rng, vanishing=1.0, lanes=3, max_lag=seed % 3)
    for at in range(30):
        world.run(world.rows())
        world.ask_for_moves()
        if at % 3 == 0:
            world.links.kill(rng.choice(world.shell.balancer.table.lanes))
        if at % 10 == 9:
            world.resize()
    world.finish()
    world.check()
    assert any(entry.gone for entry in world.shell.journal.of(LanesChanged))
