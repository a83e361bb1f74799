"""Publish: the outputs of committed epochs go to the sink, in epoch order, each epoch once.

After a crash an epoch may be published again. Files get names that depend on the epoch only, so a second time replaces
the first. `foreachBatch` gets the epoch's number, as in Spark, to do likewise. Delta knows epochs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from evenflow.errors import InputError
from evenflow.state import FileRef, Folder

FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "avro")


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
    write: Callable[[DataFrame, int], None]

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
    return names.mapInArrow(_reader(location), schema)


def _reader(location: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = Folder.at(location)
        for batch in batches:
            for row in batch.to_pylist():
                yield from folder.read_table(FileRef(row["name"], row["size"], row["crc32"])).to_batches()

    return read


@dataclass
class ParquetSink:
    """Writes Parquet files straight from the lanes' Arrow outputs, without a Spark job in between."""

    location: str
    path: str
    compression: str = "snappy"

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        """Write a file per lane; doing it again leaves the same files."""
        filesystem, root = _filesystem(self.path)
        filesystem.create_dir(root)
        folder = Folder.at(self.location)
        for number, file in enumerate(files):
            name = f"{_prefix(epoch)}{number:05d}.{self.compression}.parquet"
            # Readers skip names that begin with a dot, so they see the whole file or none.
            hidden = f"{root}/.{name}"
            pq.write_table(folder.read_table(file), hidden, compression=self.compression, filesystem=filesystem)
            filesystem.move(hidden, f"{root}/{name}")


@dataclass
class FileSink:
    """Writes each epoch with Spark's own writer to a hidden folder, then moves the files into place."""

    kind: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Publish one epoch; doing it again leaves the same files."""
        filesystem, root = _filesystem(self.path)
        staged = f"{root}/_evenflow/{epoch}"
        where = f"{self.path}/_evenflow/{epoch}"
        frame.write.format(self.kind).options(**self.options).mode("overwrite").save(where)
        prefix = _prefix(epoch)
        for old in _files_in(filesystem, root):
            if old.base_name.startswith(prefix):
                filesystem.delete_file(old.path)
        written = sorted(entry.path for entry in _files_in(filesystem, staged) if entry.base_name.startswith("part-"))
        for number, path in enumerate(written):
            ending = path.rsplit("/", 1)[-1].partition(".")[2]
            filesystem.move(path, f"{root}/{prefix}{number:05d}.{ending}")
        filesystem.delete_dir(staged)


def _filesystem(path: str) -> tuple[fs.FileSystem, str]:
    return fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path.rstrip("/"))


def _prefix(epoch: int) -> str:
    """Return how the names of an epoch's files begin; nothing else decides them, so a second try replaces the first."""
    return f"part-epoch{epoch:010d}-"


def _files_in(filesystem: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    found = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return [entry for entry in found if entry.type == fs.FileType.File]


@dataclass
class DeltaSink:
    """Appends to a Delta table; Delta skips an epoch that it has seen from this query."""

    path: str
    query_id: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Publish one epoch."""
        once = {"txnAppId": self.query_id, "txnVersion": str(epoch)}
        frame.write.format("delta").options(**self.options, **once).mode("append").save(self.path)


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


def console_sink(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a sink that prints each epoch, like Spark's."""
    rows = int(options.get("numRows", "20"))
    truncate = options.get("truncate", "true").lower() != "false"

    def show(frame: DataFrame, epoch: int) -> None:
        print(f"-------------------------------------------\nEpoch: {epoch}\n" + "-" * 43)  # noqa: T201 - it is a console
        frame.show(rows, truncate)

    return show


def refuse_unknown_format(kind: str) -> None:
    """Raise if there is no sink of that name."""
    known = (*FILE_FORMATS, "console", "delta", "memory", "noop")
    if kind not in known:
        raise InputError(
            f"writeStream: there is no sink for format {kind!r}; known: {', '.join(known)}, or foreachBatch"
        )
