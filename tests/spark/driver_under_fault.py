"""A driver that may be killed: runs the totals of all input files, one per epoch, and writes down the state at the end.

Usage: ``python -m tests.spark.driver_under_fault PLACE LANES EXCHANGE MASTER``. Its environment says where it dies.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from evenflow.spark.writer import StreamWriter
from tests.spark.streams import DDL, Wanderlust, totals

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that starts sooner


def session(place: Path, master: str) -> SparkSession:
    """Return a quiet session that starts soon, with `place` for its files."""
    daemon = "tests.spark.warm_daemon" if master.startswith("local[") else "pyspark.daemon"
    return (
        SparkSession.builder.master(master)
        .config("spark.python.daemon.module", daemon)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")  # killed lanes are what is tested
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", QUICK)
        .config("spark.executor.extraJavaOptions", QUICK)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.local.dir", str(place / "local"))
        .getOrCreate()
    )


def writer(spark: SparkSession, place: Path, lanes: int, exchange: Any) -> StreamWriter:
    """Return the writer of the query on the files in `place`; slots move all the time."""
    stream = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(place / "in"))
    stateful = totals(stream).balance(
        lanes=lanes,
        slots=16,
        policy=Wanderlust(),
        strategy="sudden",
        exchange=exchange,
        settle_windows=0,  # lanes die all the time here, and slots are to move all the same
        warm_up_windows=1,
        max_lag=0,  # Spark must not be through with all files while lanes that died come back: each epoch has its death
    )
    return stateful.writeStream.option("checkpointLocation", str(place / "checkpoint")).format("parquet")


def main(place: Path, lanes: int, exchange: Any, master: str) -> None:
    spark = session(place, master)
    query = writer(spark, place, lanes, exchange).trigger(availableNow=True).start(str(place / "out"))
    query.awaitTermination()
    pq.write_table(query.state().toArrow(), place / "state.parquet")
    (place / "moves").write_text(str(len(query.moves())))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
