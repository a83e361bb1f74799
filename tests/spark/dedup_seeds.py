"""Random streams through Spark's own dropDuplicates and through dedup: by hand, `python -m tests.spark.dedup_seeds`."""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import evenflow as ef
from evenflow.spark.stream import StatefulStream
from tests.operators.dedup_oracle import Event, events_of, random_epochs, table_of
from tests.spark.driver_under_fault import session
from tests.spark.streams import Bench, Wanderlust, pids_of, write_input

DDL = "key long, at timestamp, value long"
KINDS = ("plain", "time in key", "within")
DELAY = "15 seconds"


def by_spark(stream: DataFrame, kind: str) -> DataFrame:
    marked = stream.withWatermark("at", DELAY)
    if kind == "within":
        return marked.dropDuplicatesWithinWatermark(["key"])
    return marked.dropDuplicates(["key", "at"]) if kind == "time in key" else stream.dropDuplicates(["key"])


def by_us(stream: DataFrame, kind: str) -> StatefulStream:
    marked = stream.withWatermark("at", DELAY)
    if kind == "within":
        return ef.keyed(marked, "key").dedup(within=DELAY, on="at")
    return ef.keyed(marked, "key", "at").dedup() if kind == "time in key" else ef.keyed(stream, "key").dedup()


def compare(bench: Bench, kind: str, seed: int, epochs: int = 6) -> None:
    """Check that both pass the same rows, with moves and the death of a lane; the source rests after each batch or not.

    It says how it may be repeated.
    """
    rng = random.Random(seed)
    rests, mode = rng.random() < 0.5, rng.choice(["append", "update"])
    tables = [rows for rows in random_epochs(rng, epochs) if rows] or [[(1, 0, 0)]]
    passed = []
    for ours in (False, True):
        place = bench.place / f"{kind} {seed} {ours}".replace(" ", "-")
        place.mkdir()
        passed.append(_run(bench, place, kind, mode, tables, rests=rests, ours=ours))
    assert passed[1] == passed[0], f"{kind}: tests.spark.dedup_seeds --first {seed} --seeds 1"


def _run(  # noqa: PLR0913 - all that a run is made of
    bench: Bench, place: Path, kind: str, mode: str, tables: list[list[Event]], *, rests: bool, ours: bool
) -> Counter[Event]:
    seen: Counter[Event] = Counter()
    (place / "in").mkdir()
    for number, rows in enumerate([] if rests else tables):
        write_input(place / "in", number, table_of(rows))
    stream = bench.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(place / "in"))
    stateful: Any = by_spark(stream, kind)
    if ours:
        balanced = by_us(stream, kind).balance(lanes=2, slots=8, policy=Wanderlust(), window_epochs=1)
        stateful = balanced
    killed: list[int] = []

    def take(frame: DataFrame, epoch: int) -> None:
        seen.update(events_of(frame.toArrow()))
        if ours and epoch >= len(tables) // 2 and not killed:
            killed.append(next(iter(pids_of(query).values())))
            os.kill(killed[0], signal.SIGKILL)

    writer = stateful.writeStream.outputMode(mode).option("checkpointLocation", str(place / "checkpoint"))
    writer = writer.foreachBatch(take)
    query = (writer if rests else writer.trigger(availableNow=True)).start()
    if ours:
        bench.started(query)
    if not rests:
        query.awaitTermination()
    for number, rows in enumerate(tables if rests else []):
        write_input(place / "in", number, table_of(rows))
        query.processAllAvailable()
    query.stop()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = session(Path(folder), "local[4]")
        bench = Bench(spark, Path(folder))
        for seed in range(asked.first, asked.first + asked.seeds):
            for kind in KINDS:
                compare(bench, kind, seed)
            print(f"seed {seed}: the same", flush=True)  # noqa: T201 - that is its report
        spark.stop()


if __name__ == "__main__":
    main()
