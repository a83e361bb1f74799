"""Publish: the outputs of committed epochs go to the sink, in epoch order, each epoch once.

After a crash an epoch may be published again, and a driver that was taken over may still be publishing the one it was
at. Both publish the same committed files, under names that depend on the epoch only, so whoever is second replaces the
first with the same. `foreachBatch` gets the epoch's number, as in Spark, to do likewise. Delta knows epochs itself.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.types import StructType

from evenflow.errors import InputError
from evenflow.state import FileRef, Folder, filesystem_at

_WHAT = "the sink's path"
_STAGED = "_evenflow"  # where epochs are written before they are moved into place; readers skip it
_HALF_WRITTEN = re.compile(r"\.part-epoch(\d+)-")
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
    _driver: str = field(default_factory=lambda: secrets.token_hex(4))  # no two write to the same hidden file
    _is_tidy: bool = False

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        """Write a file per lane; doing it again leaves the same files."""
        filesystem, root = filesystem_at(self.path, _WHAT)
        filesystem.create_dir(root)
        if not self._is_tidy:
            _remove_what_was_left(filesystem, root, epoch)
            self._is_tidy = True
        folder = Folder.at(self.location)
        for number, file in enumerate(files):
            name = f"{_prefix(epoch)}{number:05d}.{self.compression}.parquet"
            # Readers skip names that begin with a dot, so they see the whole file or none.
            hidden = f"{root}/.{name}.{self._driver}"
            pq.write_table(folder.read_table(file), hidden, compression=self.compression, filesystem=filesystem)
            filesystem.move(hidden, f"{root}/{name}")


@dataclass
class FileSink:
    """Writes each epoch with Spark's own writer to a hidden folder, then moves the files into place."""

    kind: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Publish one epoch; doing it again leaves the same files, and so does another driver that is at it as well."""
        filesystem, root = filesystem_at(self.path, _WHAT)
        staged = f"{_STAGED}/.{_prefix(epoch)}{secrets.token_hex(4)}"
        frame.write.format(self.kind).options(**self.options).save(f"{self.path}/{staged}")
        # If it is gone, the epoch was published long ago: what is there now must not be touched.
        written = filesystem.get_file_info(fs.FileSelector(f"{root}/{staged}"))
        parts = sorted(entry.path for entry in written if entry.base_name.startswith("part-"))
        endings = [path.rsplit("/", 1)[-1].partition(".")[2] for path in parts]
        names = [f"{_prefix(epoch)}{number:05d}.{ending}" for number, ending in enumerate(endings)]
        for path, name in zip(parts, names, strict=True):
            filesystem.move(path, f"{root}/{name}")
        for old in _files_in(filesystem, root):
            if old.base_name.startswith(_prefix(epoch)) and old.base_name not in names:
                filesystem.delete_file(old.path)
        filesystem.delete_dir(f"{root}/{staged}")
        _remove_what_was_left(filesystem, f"{root}/{_STAGED}", epoch)


def _remove_what_was_left(filesystem: fs.FileSystem, folder: str, epoch: int) -> None:
    """Remove what drivers that were killed have half-written of older epochs."""
    for found in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        half = _HALF_WRITTEN.match(found.base_name)
        if half and int(half[1]) < epoch:
            with contextlib.suppress(FileNotFoundError):
                (filesystem.delete_dir if found.type == fs.FileType.Directory else filesystem.delete_file)(found.path)


def _prefix(epoch: int) -> str:
    """Return how the names of an epoch's files begin; nothing else decides them, so a second try replaces the first."""
    return f"part-epoch{epoch:010d}-"


def _files_in(filesystem: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    found = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return [entry for entry in found if entry.type == fs.FileType.File]


@dataclass
class DeltaSink:
    """Adds to a Delta table, or replaces all that is in it; Delta skips an epoch that it has seen from this query."""

    save: Callable[[DataFrameWriter], None]
    query_id: str
    options: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Publish one epoch."""
        once = {"txnAppId": self.query_id, "txnVersion": str(epoch)}
        mode = "overwrite" if self.replaces else "append"
        self.save(frame.write.format("delta").options(**self.options, **once).mode(mode))


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


def refuse_unreachable(path: str) -> None:
    """Raise if files cannot be published there; whether they may be is seen when it is done."""
    filesystem_at(path, _WHAT)


def refuse_unknown_format(kind: str) -> None:
    """Raise if there is no sink of that name."""
    known = (*FILE_FORMATS, "console", "delta", "memory", "noop")
    if kind not in known:
        raise InputError(
            f"writeStream: there is no sink for format {kind!r}; known: {', '.join(known)}, or foreachBatch"
        )
