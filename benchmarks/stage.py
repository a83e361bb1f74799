"""The stage for benchmarks of running lanes: a session, keys, feeds of epochs, and who committed what when."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
# Operators of the benchmarks are imported by the lanes' processes.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).resolve().parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import evenflow as ef
from evenflow.spark import Query

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

AGGREGATES = {"total": ef.sum("value"), "n": ef.count(), "low": ef.min("value"), "high": ef.max("value")}
_POLL_S = 0.02
_PATIENCE_S = 300.0


@contextlib.contextmanager
def session(task_slots: int, **settings: str) -> Iterator[SparkSession]:
    """Run a quiet Spark with so many task slots."""
    builder = (
        SparkSession.builder.master(f"local[{task_slots},4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # leaves cores to lanes
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def slots_of(spark: SparkSession, keys: Ints, slots: int) -> Ints:
    """Return the slot of each key, as Spark's hash has it."""
    frame = spark.createDataFrame(pa.table({"key": keys}))
    column = frame.select(F.pmod(F.xxhash64("key"), F.lit(slots)).alias("slot")).toArrow()["slot"]
    found: Ints = column.to_numpy().astype(np.int64)
    return found


@dataclass
class Feed:
    """Brings one file per epoch to a folder: the ready ones at once, the live ones one per tick of the clock.

    A file arrives when it is due, whether the query has taken the one before or not: latencies count from then.
    """

    folder: Path
    due_s: dict[int, float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the stream: one file is one epoch, numbered as they came."""
        self._inbox.mkdir(parents=True, exist_ok=True)
        source = spark.readStream.schema("key long, value long").option("maxFilesPerTrigger", 1)
        return source.parquet(str(self._inbox))

    def give(self, keys: Ints) -> int:
        """Let one more epoch arrive now; return its number."""
        epoch = len(self.due_s)
        self._inbox.mkdir(parents=True, exist_ok=True)
        hidden = self.folder / f"epoch-{epoch:05d}.parquet"
        pq.write_table(pa.table({"key": keys, "value": np.arange(keys.size) % 1000}), hidden)
        now = time.time()
        os.utime(hidden, ns=(time.time_ns(), int(1e9) * (1_000_000_000 + epoch)))  # Spark takes them by age
        self.due_s[epoch] = now
        hidden.rename(self._inbox / hidden.name)
        return epoch

    def start(self, interval_s: float, keys_of: Callable[[int], Ints]) -> None:
        """Let epochs arrive at a steady pace until `stop`."""

        def run() -> None:
            began = time.monotonic()
            for tick in range(1 << 30):
                keys = keys_of(len(self.due_s))
                if self._stop.wait(max(0.0, began + tick * interval_s - time.monotonic())):
                    return
                self.give(keys)

        self._thread = threading.Thread(target=run, name="feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let no more epochs arrive."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def _inbox(self) -> Path:
        return self.folder / "in"


@dataclass(frozen=True)
class Setting:
    """Where a part of a benchmark runs, how big it is, and how long an epoch takes beside the lanes' work."""

    spark: SparkSession
    folder: Path
    quick: bool
    epoch_s: float = 0.0

    def feed(self, name: str) -> Feed:
        """Return a new feed."""
        return Feed(self.folder / name)

    def start(
        self,
        feed: Feed,
        *,
        rows_per_s: float | None = None,
        operator: ef.SlotOperator | None = None,
        live: bool = False,
        **balance: Any,
    ) -> Query:
        """Start a query on a feed: to the end of what is there, or until it is stopped."""
        keyed = ef.keyed(feed.stream(self.spark), "key")
        stream = keyed.apply(operator) if operator else keyed.agg(**AGGREGATES)
        writer = stream.balance(**balance).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(feed.folder / "checkpoint"))
        if rows_per_s is not None:
            writer = writer.option("evenflow.rowsPerSecond", rows_per_s)
        return (writer if live else writer.trigger(availableNow=True)).start()

    def work_s(self, times: float = 2.0) -> float:
        """Return how long lanes shall be at an epoch, so that they and not Spark's driver set the pace."""
        return max(0.3, times * self.epoch_s)


def timed_setting(spark: SparkSession, folder: Path, *, quick: bool) -> Setting:
    """Warm up, and time what an epoch costs beside the lanes' work on this machine, as busy as it is."""
    setting = Setting(spark, folder, quick)
    feed, epochs, slots = setting.feed("timing"), 24, 64
    for _ in range(epochs):
        feed.give(np.arange(2_000))
    query = setting.start(feed, lanes=4, slots=slots, policy="static", max_lag=4)
    query.awaitTermination()
    committed = np.array([Course.of(query, epochs, slots).frontier_s(epoch) for epoch in range(epochs)])
    return Setting(spark, folder, quick, float(np.median(np.diff(committed[epochs // 2 :]))))


@dataclass(frozen=True)
class Course:
    """Which lane committed each epoch of each slot, and when; NaN and -1 where that is not known (yet)."""

    committed_s: Floats
    lane: Ints

    @classmethod
    def of(cls, query: Query, epochs: int, slots: int) -> Course:
        """Read it off the commits of a query."""
        committed, lane = np.full((epochs, slots), np.nan), np.full((epochs, slots), -1)
        for step in query.steps():
            for advance in step.advances:
                reached = slice(max(0, advance.since + 1), advance.version + 1)
                committed[reached, list(advance.slots)] = step.at_s
                lane[reached, list(advance.slots)] = step.lane
        return cls(committed, lane)

    @property
    def epochs(self) -> int:
        """How many epochs there are."""
        return int(self.committed_s.shape[0])

    def frontier_s(self, epoch: int) -> float:
        """Return when all slots had reached an epoch; NaN if they have not."""
        return float(self.committed_s[: epoch + 1].max())

    def latency_s(self, due_s: dict[int, float]) -> Floats:
        """Return the time from when each epoch was due to its commit, by epoch and slot."""
        due = np.array([due_s.get(epoch, np.nan) for epoch in range(self.epochs)])
        latency: Floats = self.committed_s - due[:, None]
        return latency

    def rate(self, rows: Ints, since_s: float, until_s: float) -> float:
        """Return rows per second within a span, whatever their epochs; `rows` by epoch and slot.

        A lane's rows count as folded evenly from its commit before to theirs: a big commit just after the span begins
        was mostly work of before it.
        """
        done = 0.0
        for lane in np.unique(self.lane[self.lane >= 0]).tolist():
            own = self.lane == lane
            ends, which = np.unique(self.committed_s[own], return_inverse=True)
            folded = np.bincount(which, rows[own])[1:]
            starts, ends = ends[:-1], ends[1:]
            inside = np.minimum(ends, until_s) - np.maximum(starts, since_s)
            done += float((folded * np.clip(inside / np.maximum(1e-9, ends - starts), 0.0, 1.0)).sum())
        return done / max(1e-9, until_s - since_s)

    def steady_rate(self, rows: Ints, warm_up: int) -> float:
        """Return rows per second from the end of the warm-up to when the first slot has run out of rows."""
        return self.rate(rows, self.frontier_s(warm_up), float(np.nanmin(self.committed_s[-1])))


def wait_for(query: Query, condition: Callable[[], bool], patience_s: float = _PATIENCE_S) -> None:
    """Wait until something has happened in a query."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if query.awaitTermination(_POLL_S) and not condition():
            raise RuntimeError("the query ended before that")
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience_s:g} s for nothing; the last progress: {query.lastProgress}")


def reached(query: Query, epoch: int) -> bool:
    """Tell whether an epoch is published."""
    last = query.lastProgress
    return last is not None and int(last["epoch"]) >= epoch


def counts(slots: int, epochs: Sequence[Ints], slot_of: Callable[[Ints], Ints]) -> Ints:
    """Return the rows of each epoch in each slot."""
    return np.stack([np.bincount(slot_of(keys), minlength=slots) for keys in epochs])
