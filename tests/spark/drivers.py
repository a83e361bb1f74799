"""Drivers in processes of their own, which may be killed; and whatever else a cluster is made of."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.streams import Expected, read_published, rows_of

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def process(log: Path, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a group of its own; at the end, all that is left of the group is ended."""
    with log.open("ab") as file:
        started = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)  # a driver's JVM is in its group
            started.wait()


@contextlib.contextmanager
def driver(
    place: Path, lanes: int, *faults: str, exchange: str = "direct", master: str = "local[3]"
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the driver on the files in `place`; it dies where `faults` say."""
    done = place / "deaths"
    done.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.spark.driver_under_fault", str(place), str(lanes), exchange, master]
    script = {"EVENFLOW_FAULTS": ",".join(faults), "EVENFLOW_FAULTS_DONE": str(done)}
    with process(place / "log", *command, **script) as started:
        yield started


def log_of(place: Path) -> str:
    return (place / "log").read_text()[-3000:]


def run_until_done(place: Path, lanes: list[int], *faults: str) -> int:
    """Start the driver again and again until it ends by itself; return how often it was killed."""
    kills = 0
    while True:
        with driver(place, lanes[kills], *faults) as started:
            code = started.wait(120)
        if code == 0:
            return kills
        assert code == -signal.SIGKILL, log_of(place)
        kills += 1


def kill_chain(place: Path, marks: list[str]) -> int:
    """Start drivers that die in moves, one per mark, each on what the last has left; return the number of epochs."""
    deaths = place / "deaths"
    deaths.mkdir()
    (place / "in").mkdir()
    for dead in range(len(marks) + 1):
        command = [sys.executable, "-m", "tests.spark.driver_of_moves", str(place), *marks]
        with process(place / "log", *command) as started:
            code = started.wait(120)
        assert code == (0 if dead == len(marks) else -signal.SIGKILL), log_of(place)
        assert {path.name for path in deaths.iterdir()} == set(marks[: dead + 1]), log_of(place)
    return len(list((place / "in").glob("*.parquet")))


def epochs_of_files(place: Path) -> list[list[int]]:
    """Return the numbers of each epoch's input files, in the order in which they are read, by Spark's own account.

    Spark notes down first which files it has found, then which of its notes make up an epoch. A driver that dies
    between the two leaves a file without an epoch, which the next epoch has besides its own.
    """
    log = place / "checkpoint" / "spark"
    found: dict[int, set[Path]] = {}
    for notes in (log / "sources" / "0").glob("[0-9]*"):  # of ten batches at a time, or of one
        for line in notes.read_text().splitlines()[1:]:
            note = json.loads(line)
            found.setdefault(note["batchId"], set()).add(Path(urlsplit(note["path"]).path))
    epochs, begin = [], 0
    for offset in sorted((log / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        end = json.loads(offset.read_text().splitlines()[-1])["logOffset"] + 1
        files = sorted(path for batch in range(begin, end) for path in found.get(batch, ()))
        files.sort(key=lambda path: path.stat().st_size, reverse=True)  # as Spark does, to fill its partitions
        epochs.append([int(path.stem) for path in files])
        begin = end
    return epochs


def check_results(place: Path, tables: list[pa.Table]) -> None:
    """Compare what a driver has held and published with a run without failures, of the same epochs."""
    epochs = epochs_of_files(place)
    assert sorted(number for files in epochs for number in files) == list(range(len(tables)))
    expected = Expected([pa.concat_tables([tables[number] for number in files]) for files in epochs])
    assert read_published(place / "out") == expected.published
    assert set(rows_of(pq.read_table(place / "state.parquet"))) == set(expected.state.values())


def marks(faults: tuple[str, ...]) -> set[str]:
    """Return the names of the marks that fired faults leave."""
    return {fault.replace(":", "_").replace("*", "any") for fault in faults}
