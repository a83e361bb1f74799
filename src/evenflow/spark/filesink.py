"""Files of committed epochs in a folder: written where readers do not look, then moved into place.

::

    out/part-epoch0000000007-<query id>-00000.snappy.parquet       what readers see; with partitionBy in out/k=v/
    out/_evenflow/staged/<query id>/epoch0000000007-<token>/       what a driver is writing, or was when it was killed

The names of an epoch's files depend on the query and the epoch only. So whoever publishes an epoch again, or at the
same time as another driver of the query, replaces files with the same; and no query touches those of another one.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from evenflow.errors import InputError, UnreachableError
from evenflow.spark.internals import spark_schema, why_no_source
from evenflow.spark.owners import OWN_FOLDER, OutputFolder
from evenflow.state import FileRef, Folder, below, filesystem_at, spark_path, storage_at

FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "avro")
WHAT = "the sink's path"
_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"  # where Spark looks for types that Parquet lacks: intervals
_STAGED = re.compile(r"epoch(\d+)-")


@dataclass
class QueryFiles:
    """The files that one query has in a folder."""

    path: str
    query_id: str
    folders: set[str] = field(default_factory=set)  # where in the folder files were published: its partitions, by path
    _left: list[str] | None = None  # staged folders of drivers before this one that are still to be removed

    def stage(self, epoch: int) -> str:
        """Return the name of a new folder to write an epoch to, below the path."""
        return f"{self._staged}/epoch{epoch:010d}-{secrets.token_hex(4)}"

    def publish(self, epoch: int, staged: str) -> None:
        """Move what was written to its place; doing it again leaves the same files."""
        filesystem, root = filesystem_at(self.path, WHAT)
        is_first = self._left is None
        if is_first:
            OutputFolder.at(self.path).refuse_other(self.query_id)  # where two could claim it at the same moment
        # If it is gone, the epoch was published long ago: what is there now must not be touched.
        written = filesystem.get_file_info(fs.FileSelector(f"{root}/{staged}", recursive=True))
        parts = sorted(entry.path for entry in written if _is_part(entry))
        names = [self._name(epoch, number, part, f"{root}/{staged}/") for number, part in enumerate(parts)]
        for part, name in zip(parts, names, strict=True):
            self._make_folder(filesystem, root, name.rpartition("/")[0])
            filesystem.move(part, f"{root}/{name}")
        if is_first:  # a driver before this one may have published the epoch with other options
            self._remove_others(filesystem, root, epoch, names)
        filesystem.delete_dir(f"{root}/{staged}")
        self._tidy(filesystem, root, epoch)

    @property
    def _staged(self) -> str:
        return f"{OWN_FOLDER}/staged/{self.query_id}"

    def _prefix(self, epoch: int) -> str:
        return f"part-epoch{epoch:010d}-{self.query_id}-"

    def _name(self, epoch: int, number: int, part: str, staged: str) -> str:
        """Return the name of a part, below the path: in the folders of its partition, with Spark's endings."""
        partition, slash, file = part.removeprefix(staged).rpartition("/")
        return f"{partition}{slash}{self._prefix(epoch)}{number:05d}.{file.partition('.')[2]}"

    def _make_folder(self, filesystem: fs.FileSystem, root: str, partition: str) -> None:
        if partition not in self.folders:
            filesystem.create_dir(f"{root}/{partition}".rstrip("/"))
            self.folders.add(partition)

    def _remove_others(self, filesystem: fs.FileSystem, root: str, epoch: int, names: Sequence[str]) -> None:
        """Remove files of the epoch that are not among `names`."""
        places = {f"{root}/{name}" for name in names}
        for found in filesystem.get_file_info(fs.FileSelector(root, recursive=True)):
            if found.base_name.startswith(self._prefix(epoch)) and found.path not in places:
                filesystem.delete_file(found.path)

    def _tidy(self, filesystem: fs.FileSystem, root: str, epoch: int) -> None:
        """Remove what drivers that were killed have staged of older epochs; at this one another may still be."""
        if self._left is None:
            found = filesystem.get_file_info(fs.FileSelector(f"{root}/{self._staged}", allow_not_found=True))
            self._left = [entry.path for entry in found]
        for path in [path for path in self._left if _epoch_of(path) < epoch]:
            with contextlib.suppress(FileNotFoundError):
                filesystem.delete_dir(path)
            self._left.remove(path)


@dataclass
class ParquetSink:
    """Writes Parquet files straight from the lanes' Arrow outputs, without a Spark job in between."""

    location: str
    files: QueryFiles
    codec: str = "snappy"

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        """Write a file per lane; doing it again leaves the same files."""
        filesystem, root = filesystem_at(self.files.path, WHAT)
        staged = self.files.stage(epoch)
        filesystem.create_dir(f"{root}/{staged}")
        folder, ending = Folder.at(self.location), _ENDINGS[self.codec]
        for number, file in enumerate(files):
            path = f"{root}/{staged}/part-{number:05d}.{ending}parquet"
            rows = folder.read_table(file)
            rows = rows.replace_schema_metadata({_SPARK_SCHEMA: spark_schema(rows.schema).json()})
            try:
                pq.write_table(rows, path, compression=self.codec, filesystem=filesystem)
            except OSError as error:  # Arrow does not say which file it could not write
                raise UnreachableError(
                    f"{WHAT} {storage_at(self.files.path).address('')}: cannot write {staged}, epoch {epoch}: {error}. "
                    f"See that it has room and may be written by this user, then start again."
                ) from error
        self.files.publish(epoch, staged)


@dataclass
class FileSink:
    """Writes each epoch with Spark's own writer."""

    kind: str
    files: QueryFiles
    options: Mapping[str, str] = field(default_factory=dict)
    partitions: Sequence[str] = ()

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Publish one epoch; doing it again leaves the same files, and so does another driver that is at it as well."""
        staged = self.files.stage(epoch)
        writer = frame.write.format(self.kind).options(**self.options)
        writer = writer.partitionBy(*self.partitions) if self.partitions else writer
        writer.save(spark_path(below(self.files.path, staged)))
        self.files.publish(epoch, staged)


_ENDINGS = {"none": "", "snappy": "snappy.", "gzip": "gz.", "zstd": "zstd."}  # as Spark writes them


def arrow_codec(compression: str) -> str | None:
    """Return what Arrow calls a compression of Spark's, None for one that is left to Spark."""
    codec = compression.lower().replace("uncompressed", "none")
    return codec if codec in _ENDINGS else None


def refuse_missing_source(spark: SparkSession, kind: str) -> None:
    """Raise if Spark has not got what writes a format: avro and delta come in packages of their own."""
    why = why_no_source(spark, kind)
    if why is not None:
        raise InputError(
            f"writeStream: this session cannot write {kind}: start it with the package that can, in "
            f"spark.jars.packages; Spark says: {why}"
        )


def refuse_to_replace_files(kind: str, *, replaces: bool) -> None:
    """Refuse complete mode, as Spark does: each epoch's rows would come on top of those of the epochs before."""
    if replaces:
        raise InputError(
            f"writeStream: complete mode gives all rows every time, and {kind} files can only be added: use "
            f"outputMode('update'), or a sink that replaces what it has: delta, memory, console, foreachBatch"
        )


def _is_part(entry: fs.FileInfo) -> bool:
    return bool(entry.type == fs.FileType.File and entry.base_name.startswith("part-"))


def _epoch_of(staged: str) -> float:
    """Return the epoch of a staged folder; what is none of ours stays."""
    found = _STAGED.match(staged.rpartition("/")[2])
    return int(found[1]) if found else float("inf")
