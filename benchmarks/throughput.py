"""Rows per second against Spark's own ways: `python -m benchmarks.throughput [--quick] [--json FILE]`.

All contenders run in one session on the same Parquet files: 2,000,000 bids, 100,000 keys; uniform, Zipf 1.2, and 80 %
of the rows in the slots of one lane. Time is Spark's own `triggerExecution` for every contender, the median of the
triggers after the warm-up, so the ratios compare like with like. Rounds alternate between the contenders.

Besides `groupBy().agg()` there are two that show what is possible: a stream that only brings rows of a key together and
counts them in `mapInArrow`, and one that only reads. The per-key Python ways, `applyInPandasWithState` and
`transformWithState`, run on a twentieth of the rows.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import evenflow as ef

KEYS, FILES, LANES, SLOTS, SEED = 100_000, 20, 2, 256, 1
SLOW_SHARE = 20  # the per-key Python contenders get one row in so many: they would take minutes
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
OUTPUT = "auction long, total long, n long"


def main() -> None:
    """Run all contenders and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="uniform and Zipf only, one round, fewer files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    spark = _session()
    folder = Path(tempfile.mkdtemp(prefix="evenflow-bench-"))
    rates: dict[str, dict[str, list[float]]] = {}
    try:
        shapes = ("uniform", "zipf") if options.quick else ("uniform", "zipf", "hot-lane")
        for shape in shapes:
            data = _bids(spark, folder / shape, shape, FILES // 2 if options.quick else FILES)
            for rows, files in ((200_000, 2), (1_000_000, 10)):
                if options.quick and rows > 200_000:  # noqa: PLR2004 - the larger of the two
                    continue
                case = f"{shape}, {rows:,} rows per trigger"
                for _ in range(rounds):
                    for name, contender in CONTENDERS.items():
                        rate = contender(spark, data, files, folder / "run")
                        rates.setdefault(case, {}).setdefault(name, []).append(rate)
                        print(f"{case:<40} {name:<22} {rate:12,.0f} rows/s", flush=True)
        slow = _slow_contenders(spark, folder, 1 if options.quick else 2)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    report = _report(rates, slow)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


def _report(rates: dict[str, dict[str, list[float]]], slow: dict[str, float]) -> dict[str, Any]:
    """Print and return medians and ratios; ratios are of the same round."""
    print(f"\n{'case':<40} {'evenflow':>12} {'groupBy.agg':>12} {'ratio':>7}  each round")
    ratios: dict[str, float] = {}
    for case, contenders in rates.items():
        own, theirs = contenders["evenflow"], contenders["groupby_agg"]
        each = [mine / spark for mine, spark in zip(own, theirs, strict=True)]
        ratios[case] = float(np.median(each))
        print(
            f"{case:<40} {np.median(own):12,.0f} {np.median(theirs):12,.0f} {ratios[case]:7.2f}  "
            + " ".join(f"{ratio:.2f}" for ratio in each)
        )
    print(f"\n{'case':<40} {'shuffle only':>12} {'read only':>12}  evenflow's part of read only")
    for case, contenders in rates.items():
        shuffled, read = (float(np.median(contenders[name])) for name in ("shuffle_only", "read_only"))
        share = float(np.median(contenders["evenflow"])) / read
        print(f"{case:<40} {shuffled:12,.0f} {read:12,.0f}  {share:.2f}")
    first = next(iter(rates))
    own_rate = float(np.median(rates[first]["evenflow"]))
    result = {"vs_groupby_agg": ratios[first]}
    for name, rate in slow.items():
        result[f"vs_{name}"] = own_rate / rate
        print(f"{name:<40} {rate:12,.0f} rows/s; evenflow is {own_rate / rate:,.0f} times as fast")
    wanted = [(case, ratio, 2.0 if "1,000,000" in case else 1.5) for case, ratio in ratios.items()]
    wanted.append(("vs_apply_in_pandas_with_state", result["vs_apply_in_pandas_with_state"], 50.0))
    for name, ratio, target in wanted:
        print(f"target {name}: at least {target}: {'met' if ratio >= target else 'MISSED'} ({ratio:.2f})")
    return {"ratios": result, "by_case": ratios, "rows_per_s": rates, "slow_rows_per_s": slow}


# --- contenders ------------------------------------------------------------------------------------------------------


def _groupby_agg(spark: SparkSession, data: Path, files: int, folder: Path) -> float:
    stream = _stream(spark, data, files)
    frame = stream.groupBy("auction").agg(F.sum("price").alias("total"), F.count("*").alias("n"))
    return _rate(frame.writeStream.outputMode("update").format("noop"), folder, data)


def _evenflow(spark: SparkSession, data: Path, files: int, folder: Path) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    query = (
        ef.keyed(_stream(spark, data, files), "auction")
        .agg(total=ef.sum("price"), n=ef.count())
        .balance(lanes=LANES, slots=SLOTS, max_lag=0)  # in lock-step, so that a trigger holds all of its own work
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return _steady(query.spark_query)


def _shuffle_only(spark: SparkSession, data: Path, files: int, folder: Path) -> float:
    """Bring the rows of a key together and count them in Python: no state, no result worth having."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([sum(batch.num_rows for batch in batches)])], names=["n"])

    stream = _stream(spark, data, files).select("auction", "price")
    frame = stream.repartition(LANES, "auction").mapInArrow(count, "n long")
    return _rate(frame.writeStream.format("noop"), folder, data)


def _read_only(spark: SparkSession, data: Path, files: int, folder: Path) -> float:
    """Read two columns and drop them: what is left is Spark's own time per trigger."""
    stream = _stream(spark, data, files).select("auction", "price")
    return _rate(stream.writeStream.format("noop"), folder, data)


CONTENDERS: dict[str, Callable[[SparkSession, Path, int, Path], float]] = {
    "groupby_agg": _groupby_agg,
    "evenflow": _evenflow,
    "shuffle_only": _shuffle_only,
    "read_only": _read_only,
}


def _slow_contenders(spark: SparkSession, folder: Path, rounds: int) -> dict[str, float]:
    """Time the per-key Python ways on a twentieth of the rows."""
    data = _bids(spark, folder / "slow", "uniform", 4, rows=100_000 // SLOW_SHARE)
    contenders = {"apply_in_pandas_with_state": _apply_in_pandas_with_state}
    if _has_protobuf():
        contenders["transform_with_state"] = _transform_with_state
    else:
        print("transformWithState is left out: PySpark needs protobuf for it, which is not installed")
    rates = {}
    for name, contender in contenders.items():
        rates[name] = float(np.median([contender(spark, data, folder / "run") for _ in range(rounds)]))
        print(f"{'uniform, a twentieth of the rows':<40} {name:<26} {rates[name]:8,.0f} rows/s", flush=True)
    return rates


def _has_protobuf() -> bool:
    return bool(importlib.util.find_spec("google") and importlib.util.find_spec("google.protobuf"))


def _apply_in_pandas_with_state(spark: SparkSession, data: Path, folder: Path) -> float:
    def fold(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        total, count = state.get if state.exists else (0, 0)
        for frame in frames:
            total, count = total + int(frame["price"].sum()), count + len(frame)
        state.update((total, count))
        yield pd.DataFrame({"auction": [key[0]], "total": [total], "n": [count]})

    frame = (
        _stream(spark, data, 1)
        .groupBy("auction")
        .applyInPandasWithState(
            fold,
            OUTPUT,
            "total long, n long",
            "update",
            GroupStateTimeout.NoTimeout,
        )
    )
    return _rate(frame.writeStream.outputMode("update").format("noop"), folder, data)


def _transform_with_state(spark: SparkSession, data: Path, folder: Path) -> float:
    class Fold(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._state = handle.getValueState("totals", "total long, n long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802 - Spark's names
            total, count = self._state.get() or (0, 0)
            for row in rows:
                total, count = total + row.price, count + 1
            self._state.update((total, count))
            yield Row(auction=key[0], total=total, n=count)

        def close(self) -> None:
            """Nothing is held open."""

    provider = "spark.sql.streaming.stateStore.providerClass"
    before = str(spark.conf.get(provider))
    spark.conf.set(provider, ROCKSDB)  # the only store it works with
    try:
        grouped = _stream(spark, data, 1).groupBy("auction")
        frame = grouped.transformWithState(Fold(), OUTPUT, "update", "none")
        return _rate(frame.writeStream.outputMode("update").format("noop"), folder, data)
    finally:
        spark.conf.set(provider, before)


# --- parts -----------------------------------------------------------------------------------------------------------


def _rate(writer: Any, folder: Path, data: Path) -> float:  # noqa: ARG001 - all contenders are called alike
    shutil.rmtree(folder, ignore_errors=True)
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    return _steady(query)


def _steady(query: StreamingQuery) -> float:
    """Return rows per second of the triggers in the second half: the first ones warm up."""
    done = [entry for entry in query.recentProgress if entry["durationMs"].get("addBatch")]
    late = done[len(done) // 2 :]
    rows = max(int(entry["numInputRows"]) for entry in done)
    return rows / (float(np.median([entry["durationMs"]["triggerExecution"] for entry in late])) / 1e3)


def _stream(spark: SparkSession, data: Path, files: int) -> DataFrame:
    schema = "auction long, bidder long, price long, channel string, ts long"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(data))


def _bids(spark: SparkSession, folder: Path, shape: str, files: int, rows: int = 100_000) -> Path:
    """Write `files` files of `rows` bids each."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(SEED)
    keys = rng.choice(2**40, KEYS, replace=False)
    weights: npt.NDArray[np.float64] = np.ones(KEYS)
    if shape == "zipf":
        weights = (1.0 / np.arange(1, KEYS + 1) ** 1.2).astype(np.float64)
    elif shape == "hot-lane":
        frame = spark.createDataFrame(pa.table({"key": keys}))
        slots = np.array([row[0] for row in frame.select(F.pmod(F.xxhash64("key"), F.lit(SLOTS))).collect()])
        hot = ef.RoutingTable.even(SLOTS, LANES).owners[slots] == 0
        weights = np.where(hot, 0.8 / hot.sum(), 0.2 / (~hot).sum())
    chances = np.cumsum(weights / weights.sum())
    for file in range(files):
        drawn = np.minimum(np.searchsorted(chances, rng.random(rows)), KEYS - 1)
        table = pa.table(
            {
                "auction": keys[drawn],
                "bidder": rng.integers(0, 50_000, rows),
                "price": rng.integers(1, 10_000, rows),
                "channel": pa.array(np.array(["web", "app", "tv", "radio"])[rng.integers(0, 4, rows)]),
                "ts": (np.arange(rows) + file * rows) * 1_000,
            }
        )
        pq.write_table(table, folder / f"part-{file:02d}.parquet")
    return folder


def _session() -> SparkSession:
    return (
        SparkSession.builder.master(f"local[{LANES + 2}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", str(LANES))  # Spark's best here; its default of 200 is ten times slower
        .getOrCreate()
    )


if __name__ == "__main__":
    main()
