"""A few random lives with every run of the tests, one of them new each time; a failure says how to replay it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.random_lives import STEPS, Life
from tests.seeds import seed_of_run

LIVES = int(os.environ.get("EVENFLOW_SEEDS", "6"))


@pytest.mark.parametrize("seed", [*range(LIVES - 1), seed_of_run("EVENFLOW_LIFE")])
def test_a_random_life(tmp_path: Path, seed: int) -> None:
    Life(tmp_path, seed).go(STEPS)


@pytest.mark.parametrize("seed", [*range(LIVES - 1), seed_of_run("EVENFLOW_LIFE")])
def test_a_random_life_of_two_stages(tmp_path: Path, seed: int) -> None:
    Life(tmp_path, seed, stages=2).go(STEPS)


def test_a_life_is_the_same_every_time(tmp_path: Path) -> None:
    lives = [Life(tmp_path / name, 5) for name in ("once", "again")]
    for life in lives:
        life.go(20)
    once, again = lives
    assert once.story == again.story
    assert once.world.deaths == again.world.deaths
    assert once.world.ownership.committed == again.world.ownership.committed
