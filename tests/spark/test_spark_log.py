"""What a power cut leaves is given back to Spark by its own logs: it carries out that batch again, and goes on."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from evenflow.state import SparkLog

Batches = dict[int, list[int]]


def read(spark: SparkSession, place: Path) -> Batches:
    """Let Spark take all files there are, one per batch; return the rows of each batch that it has carried out."""
    found: Batches = {}

    def take(batch: DataFrame, number: int) -> None:
        found[number] = sorted(int(row["value"]) for row in batch.collect())

    source = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(place / "in"))
    writer = source.writeStream.foreachBatch(take).option("checkpointLocation", str(place / "spark"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return found


def test_spark_hands_batches_over_again(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / "in" / f"{number}.txt").write_text(f"{number}")
    first = read(spark, tmp_path)
    assert len(first) == 4
    SparkLog.at(str(tmp_path / "spark")).hand_over_again(2)
    again = read(spark, tmp_path)
    assert min(again) == 2
    assert again[2] == first[2], "the batch whose offsets are there is made of the same rows"
    assert sorted(row for rows in again.values() for row in rows) == sorted(first[2] + first[3])
