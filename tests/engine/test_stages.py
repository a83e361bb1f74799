"""Stages that feed each other, with played lanes: a unit takes an epoch when all units that feed it have."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evenflow.engine import Handover
from evenflow.errors import InputError, ProtocolError
from evenflow.lane.messages import Work
from evenflow.model import StageUnits
from evenflow.state import Advance, Block, FileRef, LaneCommit, Segment, work_name
from tests.engine.scene import Scene, folded

TWO = (StageUnits(0, 4), StageUnits(4, 3, fed_by=0))
THREE = (StageUnits(0, 4), StageUnits(4, 3, fed_by=0), StageUnits(7, 2, fed_by=1))


def two_stages(place: Path, **how: Any) -> Scene:
    """Units 0 to 3 feed units 4 to 6. Lane 0 has units 0 to 3, lane 1 has units 4 to 6."""
    return Scene.ready(place, slots=7, stages=TWO, **how)


def rows_in(work: Work) -> Counter[tuple[int, int]]:
    """Return how many rows a work has for each unit and epoch."""
    found = Counter[tuple[int, int]]()
    for each in work.inputs:
        for part in each.parts:
            counts = dict(zip(part.segment.slots, part.segment.counts, strict=True))
            for unit in part.segment.slots if part.slots is None else part.slots:
                found[unit, each.epoch] += counts[unit]
    return found


def expected(stages: Sequence[StageUnits], epochs: int) -> Counter[tuple[int, int]]:
    """Return how many rows each unit gets in each epoch: one of the source, or one of each unit that feeds it."""
    rows = Counter[int]()
    for stage in stages:
        source = stage if stage.fed_by is None else stages[stage.fed_by]
        rows.update(stage.first + (unit if source is stage else unit % stage.slots) for unit in units_of(source))
    return Counter({(unit, epoch): count for unit, count in rows.items() for epoch in range(epochs)})


def units_of(stage: StageUnits) -> range:
    return range(stage.first, stage.first + stage.slots)


class TestOrder:
    def test_a_stage_waits_for_all_units_that_feed_it(self, tmp_path: Path) -> None:
        scene = two_stages(tmp_path, lanes=7)  # a unit each
        scene.accept()
        for lane in (0, 1, 2, 4, 5, 6):
            scene.run(lane)
        assert scene.versions == [0, 0, 0, -1, -1, -1, -1]
        assert not any(scene.told(lane, Work) for lane in (4, 5, 6))
        scene.run(3)
        assert folded(scene.take(4, Work)) == {0: [4, 4]}, "of units 0 and 3, as soon as the last has committed"
        assert all(scene.told(lane, Work) for lane in (5, 6))

    def test_what_is_put_out_is_folded_in_the_same_epoch(self, tmp_path: Path) -> None:
        scene = two_stages(tmp_path)
        scene.accept()
        scene.run(0)
        while not (work := scene.done(1)).advances:  # it has taken up the epoch, with nothing to fold
            pass
        assert rows_in(work) == {(4, 0): 2, (5, 0): 1, (6, 0): 1}
        assert scene.checkpoint.frontier == 0
        assert scene.checkpoint.fed(0) == (), "nobody needs it any more"

    def test_an_epoch_is_over_when_all_stages_have_passed_it(self, tmp_path: Path) -> None:
        scene = two_stages(tmp_path)
        scene.accept()
        scene.run(0)
        assert (scene.checkpoint.frontier, len(scene.checkpoint.fed(0))) == (-1, 1)

    def test_the_first_stage_goes_ahead(self, tmp_path: Path) -> None:
        scene = two_stages(tmp_path)
        for _ in range(3):
            scene.accept()
        scene.run(0)
        assert scene.versions[:4] == [2] * 4
        assert scene.run(1) == {0: [4, 5, 6], 1: [4, 5, 6], 2: [4, 5, 6]}

    def test_what_waits_for_a_fed_unit_is_known(self, tmp_path: Path) -> None:
        scene = two_stages(tmp_path)
        scene.accept()
        scene.run(0)
        assert scene.engine.pending_rows().tolist() == [0, 0, 0, 0, 2, 1, 1]


class TestFailures:
    def test_what_was_put_out_outlives_the_lane_that_did(self, tmp_path: Path) -> None:
        scene = two_stages(tmp_path)
        scene.accept()
        scene.run(0)
        scene.lose(0)
        assert scene.run(1) == {0: [4, 5, 6]}

    def test_what_a_lost_lane_had_not_committed_is_put_out_by_the_next(self, tmp_path: Path) -> None:
        scene = two_stages(tmp_path)
        scene.accept()
        scene.lose(0)
        scene.join(0)
        scene.adopt(0)
        scene.run(0)
        assert scene.run(1) == {0: [4, 5, 6]}
        assert scene.checkpoint.frontier == 0

    def test_a_driver_that_starts_again_knows_what_was_put_out(self, tmp_path: Path) -> None:
        before = two_stages(tmp_path)
        for _ in range(2):
            before.accept()
        before.run(0)
        scene = two_stages(tmp_path)
        assert [len(scene.checkpoint.fed(epoch)) for epoch in range(2)] == [1, 1]
        assert scene.run(1) == {0: [4, 5, 6], 1: [4, 5, 6]}

    @pytest.mark.parametrize("handover", ["at once", "at the timestamp"])
    @pytest.mark.parametrize("stages", [TWO, THREE])
    @pytest.mark.parametrize("seed", range(4))
    def test_any_life_ends_with_all_rows_folded_once(
        self, tmp_path: Path, seed: int, stages: tuple[StageUnits, ...], handover: Handover
    ) -> None:
        rng, units, epochs = random.Random(seed), sum(stage.slots for stage in stages), 12
        how: dict[str, Any] = {"slots": units, "stages": stages, "lanes": 3, "handover": handover}
        scene, rows = Scene.ready(tmp_path, **how), Counter[tuple[int, int]]()
        accepted = 0
        while scene.checkpoint.frontier < epochs - 1:
            lane, chance = rng.randrange(3), rng.random()
            if accepted < epochs and chance < 0.15:
                scene.accept()
                accepted += 1
            elif chance < 0.2:
                unit, target = rng.randrange(units), rng.randrange(3)
                if scene.balancer.table.owners[unit] != target:
                    with contextlib.suppress(InputError):
                        scene.ask((unit, target))
            elif chance < 0.22:
                scene.lose(lane)
                scene.join(lane)
            elif chance < 0.23:
                scene = Scene.ready(tmp_path, **how)
            elif work := next(iter(scene.told(lane, Work)), None):
                rows += rows_in(work)
                scene.done(lane)
            else:
                idle = not any(scene.answer(each) for each in range(3) if not scene.told(each, Work))
                stuck = idle and accepted == epochs and not any(scene.told(each, Work) for each in range(3))
                assert not stuck, f"nobody has anything to do: {scene.versions}"
        assert rows == expected(stages, epochs)


class TestRefused:
    def commit(self, scene: Scene, *, epoch: int = 0, unit: int = 4) -> None:
        block = Block(FileRef(work_name(0, 0, "x"), 1, 0), (Segment(0, 0, 1, (unit,), (1,)),))
        scene.checkpoint.commit([LaneCommit(0, "x", 0, (Advance(-1, 0, (3,)),), feeds=((epoch, block),))])

    def test_input_for_a_unit_that_has_passed_the_epoch(self, tmp_path: Path) -> None:
        scene = two_stages(tmp_path)
        scene.accept()
        scene.checkpoint.commit([LaneCommit(1, "y", 0, (Advance(-1, 0, (4,)),))])
        with pytest.raises(ProtocolError, match="feeds unit 4 at epoch 0, which that has passed"):
            self.commit(scene)

    def test_input_for_a_unit_that_does_not_exist(self, tmp_path: Path) -> None:
        scene = two_stages(tmp_path)
        scene.accept()
        with pytest.raises(ProtocolError, match="feeds unit 7, which does not exist"):
            self.commit(scene, unit=7)

    def test_input_of_an_epoch_that_is_not_accepted(self, tmp_path: Path) -> None:
        scene = two_stages(tmp_path)
        scene.accept()
        with pytest.raises(ProtocolError, match="output of epoch 1, which is not accepted"):
            self.commit(scene, epoch=1)
