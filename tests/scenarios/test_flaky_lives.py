"""Random lives on a storage whose calls fail now and then, before or after they were carried out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.scenarios.random_lives import Life
from tests.state.flaky import flaky_storage


@pytest.mark.parametrize("seed", range(200, 206))
def test_errors_that_pass_leave_no_trace(tmp_path: Path, seed: int) -> None:
    with flaky_storage(random.Random(seed), 0.05):
        Life(tmp_path, seed).go(60)
