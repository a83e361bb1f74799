"""The state of one epoch, read while lanes are at different ones, slots move, and lanes and drivers die."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from evenflow.errors import TakenOverError
from evenflow.lane.cut import cut_of, read
from evenflow.state import Folder
from tests.engine.calculations import CALCULATIONS, SLOTS
from tests.engine.one_process import World, state_of
from tests.seeds import seed_of_run
from tests.spark.streams import Wanderlust


@pytest.mark.parametrize("calculation", CALCULATIONS)
@pytest.mark.parametrize("seed", [*range(3), seed_of_run("EVENFLOW_CUTS")])
def test_a_cut_is_the_state_of_one_epoch(tmp_path: Path, calculation: str, seed: int) -> None:
    world = World(
        tmp_path,
        random.Random(seed),
        mischief=0.01,
        together=0.0,  # so that lanes come apart
        lane_deaths=0.005,
        driver_deaths=0.005,
        max_lag=4,
        policy=Wanderlust(seed),
        calculation=CALCULATIONS[calculation](),
    )
    assert state_of(world.shell)[0] == -1
    apart = []
    for _ in range(25):
        world.run(world.rows())
        for _ in range(2):
            apart.append(world.check_cut())
            world.go_on(2)
    assert max(apart) >= 2, "lanes were never apart: nothing was shown"
    world.finish()
    world.check()


def test_it_is_the_same_in_whatever_portions_it_is_read(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(3), max_lag=4)
    for _ in range(6):
        world.run(world.rows(40))
    epoch, expected = state_of(world.shell)
    stage, folder = world.shell.config.stages[0], Folder.at(world.shell.config.location)
    recovery = world.shell.checkpoint.recover()
    for size, portions in ((-1, SLOTS), (1 << 40, 1)):  # each slot on its own, all together
        cut = cut_of(recovery, stage.units, size)
        assert (cut.epoch, len(cut.portions)) == (epoch, portions)
        found = pa.Table.from_batches([batch for each in cut.portions for batch in read(stage, folder, each)])
        assert found.sort_by("key").equals(expected.sort_by("key"))


def test_files_are_not_swept_while_they_are_read_and_are_afterwards(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(4), max_lag=0)
    world.run(world.rows(40))
    world.finish()
    with world.shell.cut(world.shell.config.units[-1]) as cut:
        for _ in range(60):
            world.run(world.rows(40))
        world.finish()
        stage, folder = world.shell.config.stages[0], Folder.at(world.shell.config.location)
        batches = [batch for each in cut.portions for batch in read(stage, folder, each)]
    held = world.calculation.held(pa.Table.from_batches(batches))
    assert sorted(held, key=str) == sorted(world.oracle.at(0), key=str)
    for _ in range(20):
        world.run(world.rows(40))
    world.finish()
    names = {ref.snapshot.file.name for each in cut.portions for ref in each.slots if ref.snapshot}
    names |= {change.file.name for each in cut.portions for ref in each.slots for change in ref.changes}
    assert not any(folder.exists(name) for name in names)


def test_a_run_whose_files_another_one_has_removed_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(5), max_lag=0)
    for _ in range(3):
        world.run(world.rows(40))
    world.finish()
    old = world.shell
    world.restart()
    for _ in range(60):
        world.run(world.rows(40))
    world.finish()
    with pytest.raises(TakenOverError, match="taken over"):
        state_of(old)
