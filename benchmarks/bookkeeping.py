"""What epochs and restarts cost besides rows: `python -m benchmarks.bookkeeping [--quick] [--json FILE]`.

Messages and records: 16 lanes, epochs of a few rows; what is left after routing is messages and bookkeeping.
Recovery: 10,000,000 keys in the checkpoint; from the start of the second run to its first result.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

import evenflow as ef
from evenflow.spark import Query

LANES = 16
EPOCHS = 40


def main() -> None:
    """Run both and print them with their targets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1,000,000 keys instead of 10,000,000")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="evenflow-bench-"))
    try:
        figures = {**_messages(folder / "messages"), **_recovery(folder / "recovery", 1 if options.quick else 10)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, value in figures.items():
        print(f"{name:<44} {value:12,.4g}")
    for name, target in (("bookkeeping_ms_p50", 20), ("restart_to_first_result_s", 60)):
        print(f"target {name} <= {target}: {'met' if figures[name] <= target else 'MISSED'}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


def _messages(folder: Path) -> dict[str, float]:
    """Return what epochs of a few rows cost on 16 lanes, routing aside."""
    _write(folder / "in", EPOCHS, lambda file: np.arange(256) + file)
    with _Session(LANES + 1) as spark:
        query = _query(spark, folder, LANES, files=1)
        query.awaitTermination()
        late = [entry["durationMs"] for entry in query.recentProgress[EPOCHS // 2 :]]
    names = ("accept", "work", "commit", "publish")
    parts = {part: np.array([entry.get(part, 0.0) for entry in late]) for part in names}
    total = sum(parts.values())
    return {
        "bookkeeping_ms_p50": float(np.median(total)),
        "bookkeeping_ms_p95": float(np.quantile(total, 0.95)),
        **{f"{part}_ms_p50": float(np.median(values)) for part, values in parts.items()},
    }


def _recovery(folder: Path, millions: int) -> dict[str, float]:
    """Build up state, stop, and time the next run's way to its first result."""
    rows = 1_000_000
    _write(folder / "in", millions, lambda file: np.random.default_rng(7).permutation(rows) + file * rows)
    with _Session(4) as spark:
        query = _query(spark, folder, 2, files=1)
        query.awaitTermination()
        last = query.lastProgress
        keys, state_bytes = (last["state"]["rows"], last["state"]["bytes"]) if last else (0, 0)
    _write(folder / "in", 1, lambda _: np.arange(10), first=millions)
    with _Session(4) as spark:
        began = time.perf_counter()
        query = _query(spark, folder, 2, files=1)
        query.awaitTermination()
        took = time.perf_counter() - began
    return {
        "recovered_keys": float(keys),
        "state_bytes_per_key": state_bytes / max(1, keys),
        "restart_to_first_result_s": took,
    }


def _query(spark: SparkSession, folder: Path, lanes: int, files: int) -> Query:
    stream = spark.readStream.schema("auction long, price long").option("maxFilesPerTrigger", files)
    return (
        ef.keyed(stream.parquet(str(folder / "in")), "auction")
        .agg(total=ef.sum("price"), n=ef.count())
        .balance(lanes=lanes)
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "ckpt"))
        .trigger(availableNow=True)
        .start()
    )


def _write(folder: Path, files: int, keys_of: Any, first: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(first, first + files):
        keys = keys_of(file)
        pq.write_table(pa.table({"auction": keys, "price": keys % 1000}), folder / f"part-{file:05d}.parquet")


class _Session:
    """A quiet Spark session for one part of the benchmark."""

    def __init__(self, slots: int) -> None:
        self._slots = slots

    def __enter__(self) -> SparkSession:
        self._spark = (
            SparkSession.builder.master(f"local[{self._slots}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "OFF")
            .config("spark.driver.memory", "3g")
            .getOrCreate()
        )
        return self._spark

    def __exit__(self, *_: object) -> None:
        self._spark.stop()


if __name__ == "__main__":
    main()
