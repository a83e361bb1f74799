"""Several driver processes on one checkpoint: the last to start goes on as if alone, the others end and say why."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

import pyarrow as pa
import pytest

from tests.spark.drivers import check_results, driver, log_of, process
from tests.spark.streams import one_bid_per_key, until, write_input

pytestmark = pytest.mark.spark


class Feed:
    """Gives one more epoch of input whenever all is published, so that drivers are at work."""

    def __init__(self, place: Path) -> None:
        self.place, self.tables = place, list[pa.Table]()

    def more(self) -> None:
        self.tables.append(one_bid_per_key(len(self.tables)))
        write_input(self.place / "in", len(self.tables) - 1, self.tables[-1])

    def published(self) -> int:
        return len({path.name.split("-")[1] for path in (self.place / "out").glob("part-*")})

    def claimed(self, run: int) -> bool:
        """Return whether a run has the checkpoint; until then, keep the others busy."""
        if self.published() == len(self.tables):
            self.more()
        return bool(list((self.place / "checkpoint" / "evenflow" / "runs").glob(f"{run:06d}-*.json")))


def endless(place: Path, note: str) -> AbstractContextManager[Popen[bytes]]:
    """Run a driver that ends when it is taken over."""
    command = [sys.executable, "-m", "tests.spark.driver_taken_over", str(place), str(place / note)]
    return process(place / "log", *command)


@pytest.mark.timeout(400)
def test_the_last_driver_to_start_goes_on_and_the_others_end(tmp_path: Path) -> None:
    """The first one hangs when it is taken over, and wakes up when all is done; the second one is at work."""
    feed = Feed(tmp_path)
    feed.more()
    with endless(tmp_path, "first") as first:
        until(lambda: feed.published() == 1, "the first driver is at work")
        feed.more()
        os.killpg(first.pid, signal.SIGSTOP)  # with its JVM and its lanes, in the middle of whatever it is at
        with endless(tmp_path, "second") as second:
            until(lambda: feed.published() == 2, "the second driver is at work")
            with driver(tmp_path, 2) as third:
                until(lambda: feed.claimed(3), "the third driver starts")
                feed.more()
                assert second.wait(60) == 0, log_of(tmp_path)
                assert third.wait(120) == 0, log_of(tmp_path)
        os.killpg(first.pid, signal.SIGCONT)
        assert first.wait(60) == 0, log_of(tmp_path)
    for note in ("first", "second"):
        told = (tmp_path / note).read_text()
        assert f"checkpoint/evenflow was taken over by another run of its query (process {third.pid} on" in told
    check_results(tmp_path, feed.tables)
