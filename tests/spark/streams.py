"""Streams from files, the queries that the tests run on them, and what they must come to."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import evenflow as ef
from evenflow.model import LoadView, Move
from evenflow.spark.stream import StatefulStream

SCHEMA = pa.schema([("auction", pa.int64()), ("bidder", pa.string()), ("price", pa.int64()), ("ratio", pa.float64())])
DDL = "auction long, bidder string, price long, ratio double"
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Wanderlust:
    """A policy that moves some slots whenever it is asked, by its seed and the epochs of the window alone."""

    seed: int = 0
    most: int = 5

    def propose(self, view: LoadView) -> list[Move]:
        rng = random.Random(f"{self.seed}/{view.last.epochs}")
        table = view.table
        slots = rng.sample(range(table.slots), min(self.most, table.slots))
        wanted = [Move(slot, int(table.owners[slot]), rng.choice(table.lanes), "to see the world") for slot in slots]
        return [move for move in wanted if move.source != move.target]


def bids(rng: random.Random, rows: int, keys: int = 30) -> pa.Table:
    """Return random bids, some with nulls; the same key may come several times."""
    columns = [
        [rng.choice([None, *range(keys)]) for _ in range(rows)],
        [rng.choice([None, "", "ann", "bob", "cæsar"]) for _ in range(rows)],
        [rng.choice([None, *range(-50, 1000)]) for _ in range(rows)],
        [rng.choice([None, 0.5, -1.25, 3.0]) for _ in range(rows)],
    ]
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def one_bid_per_key(epoch: int, keys: int = 40) -> pa.Table:
    """Return one bid for each key, so that each key's count rises by one with every epoch."""
    columns = [list(range(keys)), [f"b{epoch}"] * keys, [epoch * 1000 + key for key in range(keys)], [0.5] * keys]
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def write_input(folder: Path, number: int, table: pa.Table) -> None:
    """Write one file of the stream; with one file per trigger, it is the epoch of its number."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden, name = folder / f".{number:05d}", folder / f"{number:05d}.parquet"
    pq.write_table(table, hidden)
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    hidden.rename(name)


def totals(stream: DataFrame) -> StatefulStream:
    """The query of most tests; what it puts out shows every lost and every repeated row."""
    return ef.keyed(stream, "auction").agg(total=ef.sum("price"), n=ef.count(), last=ef.last("price"))


@dataclass
class Expected:
    """The totals, as a run without any failure would hold and publish them, one epoch per table."""

    tables: Sequence[pa.Table]
    state: dict[int | None, Row] = field(default_factory=dict)
    published: Counter[Row] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for table in self.tables:
            rows = table.to_pylist()
            for row in rows:
                _, total, n, _ = self.state.get(row["auction"], (None, None, 0, None))
                price = row["price"]
                total = total if price is None else price + (total or 0)
                self.state[row["auction"]] = (row["auction"], total, n + 1, price)
            self.published.update(self.state[key] for key in dict.fromkeys(row["auction"] for row in rows))


def rows_of(table: pa.Table) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def read_published(folder: Path) -> Counter[Row]:
    """Return all rows that Spark would see in a folder of Parquet files."""
    files = [path for path in folder.rglob("*.parquet") if not path.name.startswith((".", "_"))]
    return sum((rows_of(pq.read_table(file)) for file in files), Counter())


def counts_rise_by_one(published: Iterable[Row], epochs: int) -> None:
    """Check Flink's way: through everything, each key's count was published as 1, 2, 3, ... and nothing else."""
    seen = defaultdict(list)
    for key, _, n, _ in published:
        seen[key].append(n)
    for key, counts in seen.items():
        assert sorted(counts) == list(range(1, epochs + 1)), f"key {key}"


def until(condition: Callable[[], Any], what: str, seconds: float = 60) -> None:
    """Wait for a condition."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        pause.wait(0.05)


@dataclass
class Bench:
    """A session, a folder to work in, and the queries that were started there."""

    spark: SparkSession
    place: Path
    queries: list[ef.Query] = field(default_factory=list)
    fed: int = 0

    @property
    def out(self) -> Path:
        return self.place / "out"

    def feed(self, *tables: pa.Table) -> None:
        for table in tables:
            write_input(self.place / "in", self.fed, table)
            self.fed += 1

    def stream(self) -> DataFrame:
        (self.place / "in").mkdir(exist_ok=True)
        reader = self.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.place / "in"))

    def writer(self, stateful: StatefulStream, kind: str = "parquet") -> Any:
        return stateful.writeStream.option("checkpointLocation", str(self.place / "checkpoint")).format(kind)

    def started(self, query: ef.Query) -> ef.Query:
        self.queries.append(query)
        return query

    def start(self, stateful: StatefulStream) -> ef.Query:
        return self.started(self.writer(stateful).start(str(self.out)))

    def run(self, stateful: StatefulStream) -> ef.Query:
        """Process all there is."""
        query = self.started(self.writer(stateful).trigger(availableNow=True).start(str(self.out)))
        query.awaitTermination()
        return query

    def no_jobs_are_left(self) -> None:
        """Check that no lane holds a task slot any more."""
        tracker = self.spark.sparkContext.statusTracker()
        until(lambda: not tracker.getActiveJobsIds(), "all lanes end")

    def stop(self) -> None:
        for query in self.queries:
            query.stop()


def state_of(query: ef.Query) -> Counter[Row]:
    return rows_of(query.state().toArrow())


def pids_of(query: ef.Query) -> dict[int, int]:
    """Return the process of each lane that is there."""
    links = query._shell.links
    hellos = {lane: links.hello_of(lane) for lane in query._shell.balancer.table.lanes}
    return {lane: hello.pid for lane, hello in hellos.items() if hello is not None}


def files_below(place: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a folder and what they hold."""
    for path in sorted(place.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(place)), path.read_bytes()
