"""Any rows, any moves, any deaths of lanes and driver: state and published rows are those of a run without them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.engine.calculations import CALCULATIONS
from tests.engine.one_process import World

SEEDS = int(os.environ.get("EVENFLOW_SEEDS", "24"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_repeated(tmp_path: Path, seed: int) -> None:
    """Once with aggregates, once with an operator of one's own: seeds take turns."""
    rng = random.Random(seed)
    world = World(
        tmp_path,
        rng,
        mischief=rng.choice([0.0, 0.02, 0.1]),
        lane_deaths=rng.choice([0.0, 0.01, 0.05]),
        driver_deaths=rng.choice([0.0, 0.02, 0.1]),
        elastic=rng.choice([0.0, 0.5]),
        lanes=rng.randint(1, 4),
        policy=rng.choice(["static", "even"]),
        max_lag=rng.choice([0, 1, 3]),
        calculation=CALCULATIONS["diary" if seed % 2 else "totals"](),
    )
    for _ in range(rng.randint(5, 25)):
        if rng.random() < 0.5:
            world.ask_for_moves()
        if rng.random() < 0.1:
            world.restart()
        if rng.random() < 0.2:
            world.resize()
        world.run(world.rows())
        if rng.random() < 0.3:
            world.finish()
            world.check()
    world.finish()
    world.check()
