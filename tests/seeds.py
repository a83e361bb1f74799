"""The seed of a test that is drawn anew with every run, and shown in the test's name; a variable replays it."""

from __future__ import annotations

import os
import random


def seed_of_run(variable: str) -> int:
    """Return what `variable` of the environment says, else a number drawn for this run: one for all its processes."""
    if variable in os.environ:
        return int(os.environ[variable])
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")  # None where one process runs all tests
    return random.Random(run and f"{run} {variable}").randrange(1 << 32)
