"""A skewed stream of bids, as in Nexmark: files that arrive by the clock, made from a seed, for Spark's file source.

Files and not Spark's `rate` source, because a micro-batch of `rate` takes all that has come in meanwhile: behind an
overloaded lane each would be longer than the one before. Files come with a limit per micro-batch, as Kafka's do.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from evenflow.model import RoutingTable
from evenflow.model.slots import FloatArray, IntArray

BID_SCHEMA = "auction long, bidder long, price long, timestamp timestamp"
_BIDDERS = 10_000


@dataclass(frozen=True)
class Auctions:
    """The keys: those in the slots of the hot lane, and all others."""

    hot: IntArray
    cold: IntArray


def auctions_of(spark: SparkSession, table: RoutingTable, hot_lane: int = 0, keys: int = 10_000) -> Auctions:
    """Return which of `keys` auctions are in slots that `hot_lane` owns under `table`, and which are not."""
    is_hot = table.lanes_of(auction_slots(spark, table.slots, keys)) == hot_lane
    return Auctions(np.flatnonzero(is_hot), np.flatnonzero(~is_hot))


def auction_slots(spark: SparkSession, slots: int, keys: int = 10_000) -> IntArray:
    """Ask Spark which of `slots` slots each of `keys` auctions hashes to."""
    slot = F.pmod(F.xxhash64("id"), F.lit(slots)).cast("int")
    return np.array([row.slot for row in spark.range(0, keys, 1, 1).select(slot.alias("slot")).collect()])


@dataclass
class BidFeed:
    """Writes a file of bids every `file_s` seconds; `share` of the bids are for hot auctions."""

    folder: Path
    auctions: Auctions
    share: float
    rows_per_second: float
    seed: int = 1
    file_s: float = 0.25
    rows_written: int = 0
    began_s: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def stream(self, spark: SparkSession, files: int) -> DataFrame:
        """Return the bids as a streaming DataFrame; a micro-batch takes at most so many files of them."""
        return spark.readStream.schema(BID_SCHEMA).option("maxFilesPerTrigger", files).parquet(str(self.folder))

    def write_one_each(self, number: int) -> int:
        """Write one bid for each auction, now, in two files; return the number of bids."""
        for name, auctions in (("hot", self.auctions.hot), ("cold", self.auctions.cold)):
            self._write(f"{name}-{number:06d}", auctions, np.full(auctions.size, time.time()))
        return self.auctions.hot.size + self.auctions.cold.size

    def start(self) -> None:
        """Let bids arrive from now on."""
        self.began_s = time.time()
        self._thread = threading.Thread(target=self._run, name="evenflow-bids", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let no more bids arrive."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def bids(self, number: int) -> IntArray:
        """Return the auctions of file `number`: the same for the same seed."""
        rng = np.random.default_rng((self.seed, number))
        rows = round((number + 1) * self.file_s * self.rows_per_second) - round(
            number * self.file_s * self.rows_per_second
        )
        is_hot = rng.random(rows) < self.share
        chosen = np.where(is_hot, rng.choice(self.auctions.hot, rows), rng.choice(self.auctions.cold, rows))
        return chosen.astype(np.int64)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(max(0.0, self.began_s + (number + 1) * self.file_s - time.time())):
            auctions = self.bids(number)
            arrived = self.began_s + self.file_s * (number + np.arange(auctions.size) / max(1, auctions.size))
            self._write(f"then-{number:06d}", auctions, arrived)
            self.rows_written += auctions.size
            number += 1

    def _write(self, name: str, auctions: IntArray, arrived_s: FloatArray) -> None:
        """Write one file; it appears under its name when it is complete."""
        rng = np.random.default_rng((self.seed, *name.encode()))
        bids = pa.table(
            {
                "auction": auctions,
                "bidder": rng.integers(0, _BIDDERS, auctions.size),
                "price": rng.integers(1, 10_000, auctions.size),
                "timestamp": pa.array((arrived_s * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
            }
        )
        hidden = self.folder / f".{name}"
        pq.write_table(bids, hidden)
        hidden.rename(self.folder / f"{name}.parquet")
