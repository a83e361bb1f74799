"""One lane with most of the work, on real cores: `python -m benchmarks.straggler [--quick] [--json FILE]`.

2 lanes on 2 cores, no rate limit: each record burns 100 microseconds of CPU time in Python. 1,000 keys, of which half
belong to one lane (for Spark: to one of 2 shuffle partitions, by its own hash) and get 50 % of the rows, or 80 %.
Slowdown: time with 80 % / time with 50 %, per epoch once all is warm, within one round; rounds take turns over all
contenders. `transformWithState` needs the package protobuf; without it, it is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.burning import Burning, burn, turns_for
from benchmarks.figures import Figure, Part, write_json
from benchmarks.stage import Course, Feed, Ints, session, slots_of

from pyspark.sql import DataFrame, Row, SparkSession  # isort: skip
from pyspark.sql import functions as F  # noqa: N812  # isort: skip
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout  # isort: skip
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle  # isort: skip

import evenflow as ef  # isort: skip

LANES, SLOTS, KEYS, SEED = 2, 256, 1_000, 1
BURN_S = 100e-6  # of CPU time, per record
EVEN, SKEWED = 0.5, 0.8
STATE = "total long, n long"
OUTPUT = "key long, total long, n long"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True)
class Job:
    """One run of one contender."""

    spark: SparkSession
    feed: Feed
    turns: int
    epochs: int

    @property
    def stream(self) -> DataFrame:
        """The rows, one file per epoch."""
        return self.feed.stream(self.spark)

    @property
    def checkpoint(self) -> str:
        """A folder of the run's own."""
        return str(self.feed.folder / "checkpoint")


@dataclass(frozen=True)
class Took:
    """Seconds per epoch: once warm, and over the whole run but its first epoch."""

    warm_s: float
    whole_s: float


# --- contenders ------------------------------------------------------------------------------------------------------


def _evenflow(job: Job) -> Took:
    query = (
        ef.keyed(job.stream, "key")
        .apply(Burning(job.turns))
        .balance(lanes=LANES, slots=SLOTS, policy="even")
        .writeStream.format("noop")
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    course = Course.of(query, job.epochs, SLOTS)
    ends = np.array([course.frontier_s(epoch) for epoch in range(job.epochs)])
    half = job.epochs // 2
    return Took((ends[-1] - ends[half - 1]) / (job.epochs - half), (ends[-1] - ends[0]) / (job.epochs - 1))


def _apply_in_pandas_with_state(job: Job) -> Took:
    turns = job.turns

    def fold(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        total, n = state.get if state.exists else (0, 0)
        for frame in frames:
            for value in frame["value"].tolist():
                burn(turns)
                total, n = total + value, n + 1
        state.update((total, n))
        yield pd.DataFrame({"key": [key[0]], "total": [total], "n": [n]})

    grouped = job.stream.groupBy("key")
    return _timed(job, grouped.applyInPandasWithState(fold, OUTPUT, STATE, "update", GroupStateTimeout.NoTimeout))


class Processor(StatefulProcessor):
    """Sums and counts per key, at the same price."""

    def __init__(self, turns: int) -> None:
        """Burn so many turns per row."""
        self.turns = turns

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self.sums = handle.getValueState("sums", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, ARG002 - Spark's name
        """Fold one key's rows."""
        total, n = (self.sums.get() or (0, 0)) if self.sums.exists() else (0, 0)
        for row in rows:
            burn(self.turns)
            total, n = total + row["value"], n + 1
        self.sums.update((total, n))
        yield Row(key=key[0], total=total, n=n)

    def close(self) -> None:
        """Leave nothing open."""


def _transform_with_state(job: Job) -> Took:
    job.spark.conf.set(_PROVIDER, _ROCKSDB)
    try:
        frame = job.stream.groupBy("key").transformWithState(Processor(job.turns), OUTPUT, "Update", "None")
        return _timed(job, frame)
    finally:
        job.spark.conf.unset(_PROVIDER)


def _timed(job: Job, frame: DataFrame) -> Took:
    """Run one of Spark's own to the end; its triggers follow each other, so their time is all there is."""
    writer = frame.writeStream.outputMode("update").format("noop").option("checkpointLocation", job.checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    done = [entry for entry in query.recentProgress if entry["numInputRows"]]
    took = [float(entry["durationMs"]["triggerExecution"]) / 1e3 for entry in done]
    return Took(float(np.mean(took[len(took) // 2 :])), float(np.mean(took[1:])))


CONTENDERS: dict[str, tuple[Callable[[Job], Took], str]] = {
    "evenflow": (_evenflow, "lanes"),
    "applyInPandasWithState": (_apply_in_pandas_with_state, "partitions"),
    "transformWithState": (_transform_with_state, "partitions"),
}


# --- the run ---------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run all contenders and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, fewer epochs and rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    rounds, epochs, rows = (1, 14, 10_000) if options.quick else (options.rounds, 20, 20_000)
    folder = Path(tempfile.mkdtemp(prefix="evenflow-bench-"))
    contenders = dict(CONTENDERS)
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        del contenders["transformWithState"]
        print("transformWithState is left out: it needs the package protobuf")
    turns = turns_for(BURN_S)
    took: dict[str, dict[float, list[Took]]] = {name: {EVEN: [], SKEWED: []} for name in contenders}
    try:
        with session(LANES + 1) as spark:
            halves = _halves(spark)
            for round_ in range(rounds + 1):  # the first is for warming up, with a few rows
                for name, (run, by) in contenders.items():
                    for share in (EVEN, SKEWED):
                        size = rows if round_ else rows // 20
                        feed = _feed(folder / "run", halves[by], share, epochs, size)
                        one = run(Job(spark, feed, turns, epochs))
                        shutil.rmtree(folder / "run", ignore_errors=True)
                        if round_:
                            took[name][share].append(one)
                            print(f"{name:<24} {share:.0%} of the rows in one half: {one.warm_s:.3f} s", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    part = _report(took, rows)
    part.show()
    if options.json:
        write_json([part], options.json)


def _report(took: dict[str, dict[float, list[Took]]], rows: int) -> Part:
    """Return the slowdowns: medians of the rounds' own."""
    figures = []
    for name, shares in took.items():
        pairs = list(zip(shares[SKEWED], shares[EVEN], strict=True))
        warm = [skewed.warm_s / even.warm_s for skewed, even in pairs]
        whole = [skewed.whole_s / even.whole_s for skewed, even in pairs]
        seconds = float(np.median([even.warm_s for _, even in pairs]))
        most = 1.1 if name == "evenflow" else None
        figures += [
            Figure(f"{name}: seconds per epoch of {rows:,} rows, uniform", seconds),
            Figure(f"{name}: slowdown", float(np.median(warm)), most=most),
            Figure(f"{name}: slowdown over the whole run, from the 2nd epoch on", float(np.median(whole))),
        ]
    return Part("straggler", figures)


def _halves(spark: SparkSession) -> dict[str, Ints]:
    """Return, for lanes and for Spark's partitions, which keys belong to the first one, as a mask."""
    keys = np.arange(KEYS)
    owners = ef.RoutingTable.even(SLOTS, LANES).owners[slots_of(spark, keys, SLOTS)]
    frame = spark.createDataFrame(pa.table({"key": keys}))
    partition = frame.select(F.pmod(F.hash("key"), F.lit(LANES)).alias("at")).toArrow()["at"].to_numpy()
    return {"lanes": owners == 0, "partitions": partition == 0}


def _feed(folder: Path, first_half: Ints, share: float, epochs: int, rows: int) -> Feed:
    """Write all epochs: `share` of each one's rows on the keys of the first half."""
    feed, rng = Feed(folder), np.random.default_rng(SEED)
    inside, outside = np.flatnonzero(first_half), np.flatnonzero(~first_half)
    hot = round(share * rows)
    for _ in range(epochs):
        keys = np.concatenate([rng.choice(inside, hot), rng.choice(outside, rows - hot)])
        feed.give(rng.permutation(keys))
    return feed


if __name__ == "__main__":
    main()
