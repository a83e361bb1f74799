"""A program that is run as a script: its own classes are state, and after a restart they are those of the program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.spark.drivers import log_of, process
from tests.spark.streams import one_bid_per_key, read_published, write_input

pytestmark = pytest.mark.spark

KEYS = 5
SCRIPT = Path(__file__).with_name("script_of_sessions.py")


def run(place: Path, revision: int) -> None:
    command = [sys.executable, str(SCRIPT), str(place), str(revision)]
    with process(place / "log", *command, PYTHONPATH=":".join(path for path in sys.path if path)) as started:
        assert started.wait(200) == 0, log_of(place)


@pytest.mark.timeout(500)
def test_classes_and_functions_of_a_script_are_state_through_a_restart_with_another_program(tmp_path: Path) -> None:
    for revision in (1, 2):
        write_input(tmp_path / "in", revision, one_bid_per_key(revision, KEYS))
        run(tmp_path, revision)
    assert set(read_published(tmp_path / "out")) == {
        (key, f"started by 1, revision {n}: {n} bids by {n}", True) for key in range(KEYS) for n in (1, 2)
    }
