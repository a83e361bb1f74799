"""Random streams through Spark's applyInPandasWithState and ours; by hand, `python -m tests.spark.group_state_seeds`.

By event time all calls must be the same, batch for batch. By processing time nobody can tell Spark what time it is:
each key must have been called with the same rows, and its timeouts as often.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState

import evenflow as ef
from tests.operators.dedup_oracle import Event, random_epochs, table_of
from tests.operators.group_oracle import EVENT, OUT, PROCESSING, STATE, by_event_time
from tests.spark.driver_under_fault import session
from tests.spark.streams import Bench, Wanderlust, pids_of, until, write_input

DDL = "key long, at timestamp, value long"
DELAY = "5 seconds"
Found = list[Counter[Any]]


def until_quiet(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Count the rows of a key until none has come for a moment; some keys are called twice then."""
    rows = sum(len(frame) for frame in frames)
    calls, total = state.get if state.exists else (0, 0)
    if not state.hasTimedOut:
        state.update((calls + 1, total + rows))
        state.setTimeoutDuration(1)
    elif calls % 2:
        state.update((calls + 1, total))
        state.setTimeoutDuration(1)
    else:
        state.remove()
    kind = "timeout" if state.hasTimedOut else "data"
    number = None if pd.isna(key[0]) else int(key[0])
    columns: dict[str, Any] = {"key": pd.array([number], "Int64"), "kind": kind, "n": rows, "total": total}
    yield pd.DataFrame({**columns, "state": str(calls), "now_ms": 0})


def compare(bench: Bench, timeout: str, seed: int, epochs: int = 8) -> None:
    """Check that both make the same calls, with moves and the death of a lane; it says how it may be repeated."""
    rng = random.Random(seed)
    rests, mode = timeout == PROCESSING or rng.random() < 0.5, rng.choice(["append", "update"])
    tables = [rows for rows in random_epochs(rng, epochs) if rows] or [[(1, 0, 0)]]
    runs = []
    for ours in (False, True):
        place = bench.place / f"{timeout} {seed} {ours}".replace(" ", "-")
        place.mkdir()
        runs.append(_run(bench, place, timeout, mode, tables, rests=rests, ours=ours))
    assert runs[1] == runs[0], f"{timeout}: tests.spark.group_state_seeds --first {seed} --seeds 1"


def _run(  # noqa: PLR0913 - all that a run is made of
    bench: Bench, place: Path, timeout: str, mode: str, tables: list[list[Event]], *, rests: bool, ours: bool
) -> Found:
    """Return the calls of each batch that made any; where only the clock says which, those of each input file."""
    batches: Found = []
    (place / "in").mkdir()
    for number, rows in enumerate([] if rests else tables):
        write_input(place / "in", number, table_of(rows))
    stream = bench.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(place / "in"))
    marked = stream.withWatermark("at", DELAY)
    function = by_event_time if timeout == EVENT else until_quiet
    grouped: Any = ef.keyed(marked, "key") if ours else marked.groupBy("key")
    stateful: Any = grouped.applyInPandasWithState(function, OUT, STATE, mode, timeout)
    if ours:
        stateful = stateful.balance(lanes=2, slots=8, policy=Wanderlust(), window_epochs=1)
    killed: list[int] = []

    def take(frame: DataFrame, epoch: int) -> None:
        if found := Counter(tuple(row) for row in frame.collect()):
            batches.append(found)
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
    files: Found = []
    for number, rows in enumerate(tables if rests else []):
        write_input(place / "in", number, table_of(rows))
        if timeout == EVENT:
            query.processAllAvailable()
        else:
            files.append(_until_quiet(batches, rows))
    query.stop()
    return batches if timeout == EVENT else files


def _until_quiet(batches: Found, rows: list[Event]) -> Counter[Any]:
    """Wait until the last timeout of every key with rows is over; return the calls since the last time."""
    keys = {key for key, _, _ in rows}
    wanted = {(key, "data") for key in keys} | {(key, "timeout") for key in keys}

    def calls() -> Counter[Any]:
        return sum(list(batches), Counter())

    def is_quiet() -> bool:
        made = calls()
        ended = {key for key, kind, _, _, state, _ in made if kind == "timeout" and int(state) % 2 == 0}
        return {(key, kind) for key, kind, *_ in made} >= wanted and ended >= keys

    until(is_quiet, "the timeouts of all keys")
    made = calls()
    batches.clear()
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = session(Path(folder), "local[4]")
        bench = Bench(spark, Path(folder))
        for seed in range(asked.first, asked.first + asked.seeds):
            for timeout in (EVENT, PROCESSING):
                compare(bench, timeout, seed)
            print(f"seed {seed}: the same", flush=True)  # noqa: T201 - that is its report
        spark.stop()


if __name__ == "__main__":
    main()
