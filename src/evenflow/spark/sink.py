"""Publish: the outputs of committed epochs go to the sink, in epoch order, each epoch once.

After a crash an epoch may be published again, and a driver that was taken over may still be publishing the one it was
at. Both publish the same committed files. Files get names that depend on the query and the epoch only (`filesink`), so
whoever is second replaces the first with the same. `foreachBatch` gets the epoch's number, as in Spark, to do likewise.
Delta knows epochs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.types import StructType

from evenflow.operators.arrays import fitted, pieces
from evenflow.spark.internals import arrow_schema
from evenflow.state import FileRef, Folder

Write: TypeAlias = Callable[[DataFrame, int], None]
_MESSAGE = 64 << 20  # bytes handed to Spark at a time


class Sink(Protocol):
    """Where outputs go."""

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        """Bring one epoch's output files to the sink."""


@dataclass
class FrameSink:
    """Turns output files into a DataFrame and hands it to a function of (frame, epoch)."""

    spark: SparkSession
    location: str
    schema: StructType
    write: Write

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        """Read the files in Spark tasks, so that the driver holds none of their rows."""
        self.write(frame_of(self.spark, self.location, self.schema, files), epoch)


@dataclass
class NoSink:
    """For outputs that nobody wants: only the state counts."""

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        """Do nothing."""


def frame_of(spark: SparkSession, location: str, schema: StructType, files: Sequence[FileRef]) -> DataFrame:
    """Return the rows of Arrow files in the checkpoint as a DataFrame."""
    if not files:
        return spark.createDataFrame([], schema)
    rows = [(file.name, file.size, file.crc32) for file in files]
    names = spark.createDataFrame(rows, "name string, size long, crc32 long").coalesce(1)
    return names.mapInArrow(_reader(location, arrow_schema(schema)), schema)


def _reader(location: str, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = Folder.at(location)
        for batch in batches:
            for row in batch.to_pylist():
                rows = folder.read_table(FileRef(row["name"], row["size"], row["crc32"]))
                for piece in pieces(fitted(rows, schema), _MESSAGE):
                    yield from piece.to_batches()

    return read


@dataclass
class DeltaSink:
    """Adds to a Delta table, or replaces all that is in it; Delta skips an epoch that it has seen from this query."""

    save: Callable[[DataFrameWriter], None]
    query_id: str
    options: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False
    partitions: Sequence[str] = ()

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Publish one epoch."""
        once = {"txnAppId": self.query_id, "txnVersion": str(epoch)}
        mode = "overwrite" if self.replaces else "append"
        writer = frame.write.format("delta").options(**self.options, **once).mode(mode)
        self.save(writer.partitionBy(*self.partitions) if self.partitions else writer)


@dataclass
class MemorySink:
    """Keeps all outputs (in complete mode, the newest ones) as a temporary view named like the query."""

    name: str
    complete: bool
    _tables: dict[int, pa.Table] = field(default_factory=dict)

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Publish one epoch."""
        if self.complete:
            self._tables.clear()
        self._tables[epoch] = frame.toArrow()
        rows = pa.concat_tables([self._tables[key] for key in sorted(self._tables)])
        frame.sparkSession.createDataFrame(rows, frame.schema).createOrReplaceTempView(self.name)


def console_sink(rows: int, *, truncate: bool) -> Write:
    """Return a sink that prints the first rows of each epoch, like Spark's."""

    def show(frame: DataFrame, epoch: int) -> None:
        print(f"-------------------------------------------\nEpoch: {epoch}\n" + "-" * 43)  # noqa: T201 - it is a console
        frame.show(rows, truncate)

    return show
