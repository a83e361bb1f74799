"""Publish: the outputs of committed epochs go to the sink, in epoch order, each epoch once.

After a crash an epoch may be published again, and a driver that was taken over may still be publishing the one it was
at. Both publish the same committed files. Files get names that depend on the query and the epoch only (`filesink`), so
whoever is second replaces the first with the same. `foreachBatch` gets the epoch's number, as in Spark, to do likewise.
Delta knows epochs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.types import StructType

from evenflow.operators.arrays import fitted, pieces
from evenflow.spark.internals import ViewInMemory, arrow_schema
from evenflow.state import FileRef, Folder, Retries, read_output

Write: TypeAlias = Callable[[DataFrame, int], None]
# Up to so many bytes of files an epoch goes to Spark through the driver, as one partition: tasks that read files cost
# about 200 ms more to plan and start than a frame that is made from an Arrow table.
SMALL_EPOCH = 8 << 20
# Files of a larger epoch are read by as many tasks as there are files, up to this. It does not depend on the cluster: a
# partition of an epoch holds the same rows whoever publishes it.
MOST_PARTITIONS = 64
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
    retries: Retries = field(default_factory=Retries)

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        """Hand over the rows of the files."""
        self.write(frame_of(self.spark, self.location, self.schema, files, self.retries), epoch)


@dataclass
class NoSink:
    """For outputs that nobody wants: only the state counts."""

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        """Do nothing."""


def frame_of(
    spark: SparkSession, location: str, schema: StructType, files: Sequence[FileRef], retries: Retries
) -> DataFrame:
    """Return the rows of output files as a DataFrame; if they are many, no row of them passes through the driver."""
    if not files:
        return spark.createDataFrame([], schema)
    columns = arrow_schema(schema)
    if sum(file.size for file in files) <= SMALL_EPOCH:
        folder = Folder.at(location, retries=retries)
        rows = pa.concat_tables([fitted(read_output(folder, file), columns) for file in files])
        # In one piece: Spark takes a piece without rows for the end, and would lose what comes after it.
        return spark.createDataFrame(rows.combine_chunks(), schema).coalesce(1)
    parts = shared_out(files, MOST_PARTITIONS)
    numbers = spark.range(0, len(parts), 1, len(parts))  # one in each partition
    return numbers.mapInArrow(_reader(location, parts, columns, retries), schema)


def shared_out(files: Sequence[FileRef], most: int) -> list[Sequence[FileRef]]:
    """Return the files in their order, in at most so many parts."""
    count = min(len(files), most)
    ends = [len(files) * part // count for part in range(count + 1)]
    return [files[start:end] for start, end in pairwise(ends)]


def _reader(
    location: str, parts: Sequence[Sequence[FileRef]], schema: pa.Schema, retries: Retries
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = Folder.at(location, retries=retries)
        for batch in batches:
            for part in batch.column(0).to_pylist():
                for file in parts[part]:
                    for piece in pieces(fitted(read_output(folder, file), schema), _MESSAGE):
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
    """Keeps all outputs (in complete mode, the newest ones) behind a view; an epoch costs what it adds."""

    view: ViewInMemory
    complete: bool

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Publish one epoch."""
        self.view.add(frame, epoch, replaces=self.complete)


def console_sink(rows: int, *, truncate: bool) -> Write:
    """Return a sink that prints the first rows of each epoch, like Spark's."""

    def show(frame: DataFrame, epoch: int) -> None:
        print(f"-------------------------------------------\nEpoch: {epoch}\n" + "-" * 43)  # noqa: T201 - it is a console
        frame.show(rows, truncate)

    return show
