"""A user's program, run as a script: its classes are those of `__main__`, which no lane can import.

Usage: ``python tests/spark/script_of_sessions.py PLACE REVISION``. It takes in all files in PLACE/in, one per epoch,
and puts out what each session says; REVISION stands for a change of the program.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import evenflow as ef
from tests.spark.driver_under_fault import session
from tests.spark.streams import DDL

PLACE, REVISION = Path(sys.argv[1]), sys.argv[2]


@dataclass
class Session:
    """What is kept of a key."""

    bids: int = 0
    by_bidder: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: 0))

    def add(self, bidder: str) -> None:
        self.bids += 1
        self.by_bidder[bidder] += 1

    def speak(self) -> str:
        return f"revision {REVISION}: {self.bids} bids by {len(self.by_bidder)}"


class Sessions(ef.SlotOperator):
    """Keeps a session per key, and a function made on the way."""

    output = "auction long, said string, is_session boolean"
    columns_needed = ("bidder",)

    def init(self) -> tuple[dict[int, Session], Callable[[str], str]]:
        greeting = f"started by {REVISION}"
        return {}, lambda said: f"{greeting}, {said}"

    def process(self, state: Any, rows: pa.Table) -> tuple[Any, pa.Table]:
        sessions, greet = state
        for row in rows.to_pylist():
            sessions.setdefault(row["auction"], Session()).add(row["bidder"])
        keys = sorted(set(rows["auction"].to_pylist()))
        said = [greet(sessions[key].speak()) for key in keys]
        return state, pa.table(
            {"auction": keys, "said": said, "is_session": [isinstance(sessions[key], Session) for key in keys]}
        )


if __name__ == "__main__":
    spark = session(PLACE, "local[3]")
    stream = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(PLACE / "in"))
    stateful = ef.keyed(stream, "auction").apply(Sessions()).balance(lanes=2, slots=4, policy="static")
    writer = stateful.writeStream.option("checkpointLocation", str(PLACE / "checkpoint")).trigger(availableNow=True)
    query = writer.format("parquet").start(str(PLACE / "out"))
    query.awaitTermination()
    spark.stop()
