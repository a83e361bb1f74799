"""On a bounded set of keys, the checkpoint stays bounded, however long the query runs and whatever dies."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.engine.one_process import World, files_below

EPOCHS = 240


@pytest.mark.parametrize("deaths", [0.0, 0.02])
def test_the_checkpoint_does_not_grow(tmp_path: Path, deaths: float) -> None:
    world = World(tmp_path, random.Random(11), mischief=deaths, lane_deaths=deaths, driver_deaths=deaths, lanes=2)
    files, sizes = [], []
    for epoch in range(EPOCHS):
        if epoch % 5 == 0:
            world.ask_for_moves()
        world.run(world.rows())
        found = files_below(tmp_path)
        assert len(found) < 160
        # How many records there are since they were summed up is chance.
        data = [size for name, size in found.items() if name.endswith(".arrow")]
        files.append(len(data))
        sizes.append(sum(data))
    world.finish()
    world.check()
    early, late = slice(EPOCHS // 4, EPOCHS // 2), slice(3 * EPOCHS // 4, EPOCHS)
    # Peaks of a random life: they differ by chance, by more than a tenth with some seeds.
    assert max(files[late]) <= 1.3 * max(files[early])
    assert max(sizes[late]) <= 1.3 * max(sizes[early])
