"""Files of committed epochs in a folder: made where readers do not look, then given the name that readers see.

::

    out/part-epoch0000000007-<query id>-00000.snappy.parquet       what readers see; with partitionBy in out/k=v/
    out/_evenflow/staged/<query id>/epoch0000000007-<token>...     what a driver is writing, or was when it was killed

The names of an epoch's files depend on the query and the epoch only. So whoever publishes an epoch again, or at the
same time as another driver of the query, replaces files with the same; and no query touches those of another one.

Nothing is looked for in the folder while a query runs. Only its first epoch may have been published before, by a run
with other options: then, once, the folder is searched for files of that epoch and for what killed drivers have left.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from evenflow.errors import InputError, UnreachableError
from evenflow.spark.internals import why_no_source
from evenflow.spark.owners import OWN_FOLDER, OutputFolder
from evenflow.spark.said import Said
from evenflow.spark.sink import FrameSink, Sink
from evenflow.state import (
    FileRef,
    Folder,
    OutputFormat,
    Retries,
    Storage,
    below,
    filesystem_at,
    read_output,
    spark_path,
    storage_at,
)
from evenflow.state.outputs import PARQUET_ENDINGS, parquet_ending, parquet_of
from evenflow.state.placing import move, place, put

FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "avro")
WHAT = "the sink's path"
_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"  # where Spark looks for types that Parquet lacks: intervals
_CODEC = "spark.sql.parquet.compression.codec"
_STAGED = re.compile(r"epoch(\d+)-")
_Result = TypeVar("_Result")


@dataclass
class QueryFiles:
    """The files that one query has in a folder."""

    path: str
    query_id: str
    retries: Retries = field(default_factory=Retries)
    folders: set[str] = field(default_factory=set)  # where in the folder files were published: its partitions, by path
    _left: dict[str, bool] | None = None  # what drivers before this one have staged, and whether it is a folder

    @cached_property
    def storage(self) -> Storage:
        """The folder, for files that are placed one by one."""
        return storage_at(self.path)

    @cached_property
    def _filesystem(self) -> tuple[fs.FileSystem, str]:
        return filesystem_at(self.path, WHAT)

    def stage(self, epoch: int) -> str:
        """Return a new name to write an epoch to, or the beginning of several, below the path."""
        return f"{self._staged}/epoch{epoch:010d}-{secrets.token_hex(4)}"

    def name(self, epoch: int, number: int, ending: str) -> str:
        """Return the name of one file of an epoch."""
        return f"{self._prefix(epoch)}{number:05d}.{ending}"

    def begin(self) -> None:
        """Raise if the folder belongs to another query: asked once, where two could claim it at the same moment."""
        if self._left is None:
            OutputFolder.at(self.path, retries=self.retries).refuse_other(self.query_id)

    def publish(self, epoch: int, staged: str) -> None:
        """Move what Spark wrote to its place; doing it again leaves the same files."""
        filesystem, root = self._filesystem
        self.begin()
        # If it is gone, the epoch was published long ago: what is there now must not be touched.
        written = self._do(f"list {staged}", lambda: _entries(filesystem, f"{root}/{staged}", must_be=True))
        parts = sorted(entry.path for entry in written if _is_part(entry))
        names = [self._name_of(epoch, number, part, f"{root}/{staged}/") for number, part in enumerate(parts)]
        for part, name in zip(parts, names, strict=True):
            self._make_folder(name.rpartition("/")[0])
            self._do(f"write {name}", lambda: move(filesystem, part, f"{root}/{name}"))  # noqa: B023 - called at once
        self._do(f"remove {staged}", lambda: _remove_folder(filesystem, f"{root}/{staged}"))
        self.finish(epoch, names)

    def finish(self, epoch: int, names: Sequence[str]) -> None:
        """Tidy up after an epoch is there as `names`: the first time what a run before has left of it, by other names.

        Of what killed drivers have staged, older epochs go; at this one another driver may still be.
        """
        if self._left is None:
            self._left = self._do("look for leftovers", lambda: self._leftovers(epoch, names))
        filesystem, root = self._filesystem
        for path in [path for path in self._left if _epoch_of(path) < epoch]:
            remove = _remove_folder if self._left.pop(path) else _remove_file
            self._do(f"remove {path.removeprefix(root)}", lambda: remove(filesystem, path))  # noqa: B023 - at once

    @contextlib.contextmanager
    def reaching(self, epoch: int) -> Iterator[None]:
        """Say what could not be done, and where: Arrow does not say which file it could not write."""
        try:
            yield
        except OSError as error:
            raise UnreachableError(
                f"{WHAT} {self.storage.address('')}: cannot publish epoch {epoch}: {error}. See that it can be "
                f"reached, has room and may be written by this user, then start again."
            ) from error

    @property
    def _staged(self) -> str:
        return f"{OWN_FOLDER}/staged/{self.query_id}"

    def _prefix(self, epoch: int) -> str:
        return f"part-epoch{epoch:010d}-{self.query_id}-"

    def _name_of(self, epoch: int, number: int, part: str, staged: str) -> str:
        """Return the name of a part, below the path: in the folders of its partition, with Spark's endings."""
        partition, slash, file = part.removeprefix(staged).rpartition("/")
        return f"{partition}{slash}{self.name(epoch, number, file.partition('.')[2])}"

    def _make_folder(self, partition: str) -> None:
        filesystem, root = self._filesystem
        if partition not in self.folders:
            self._do(f"make {partition}", lambda: filesystem.create_dir(f"{root}/{partition}".rstrip("/")))
            self.folders.add(partition)

    def _leftovers(self, epoch: int, names: Sequence[str]) -> dict[str, bool]:
        """Remove files of the epoch that are not among `names`; return what is staged."""
        filesystem, root = self._filesystem
        places = {f"{root}/{name}" for name in names}
        for found in _entries(filesystem, root):
            if found.base_name.startswith(self._prefix(epoch)) and found.path not in places:
                _remove_file(filesystem, found.path)
        staged = fs.FileSelector(f"{root}/{self._staged}", allow_not_found=True)
        return {entry.path: entry.type == fs.FileType.Directory for entry in filesystem.get_file_info(staged)}

    def _do(self, what: str, act: Callable[[], _Result]) -> _Result:
        return self.retries.carry_out(f"{what} in {self.storage.address('')}", act)


@dataclass
class ParquetSink:
    """Gives the Parquet files that lanes have written their names; neither the driver nor Spark touches a row."""

    location: str
    files: QueryFiles
    form: OutputFormat

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        """Let a file per lane appear; doing it again leaves the same files."""
        ours, folder = self.files, Folder.at(self.location, retries=self.files.retries)
        ours.begin()
        hidden = ours.stage(epoch)
        names = [
            ours.name(epoch, number, parquet_ending(file) or self.form.ending) for number, file in enumerate(files)
        ]
        with ours.reaching(epoch):
            for number, (file, name) in enumerate(zip(files, names, strict=True)):
                bring = self._bringing(folder, file, name, f"{hidden}-{number:05d}")
                ours.retries.carry_out(f"publish {name} in {ours.storage.address('')}", bring)
            ours.storage.settle([""])  # the checkpoint lets go of its files after this
            ours.finish(epoch, names)

    def _bringing(self, folder: Folder, file: FileRef, name: str, hidden: str) -> Callable[[], None]:
        """Return what brings one file to its place. One that was written for another sink is made Parquet first."""
        if parquet_ending(file) is not None:
            return lambda: place(folder, file, self.files.storage, name, hidden)
        content = parquet_of(read_output(folder, file), self.form)
        return lambda: put(content, self.files.storage, name, hidden)


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


def form_of_lanes(said: Said, kind: str, partitions: Sequence[str]) -> OutputFormat | None:
    """Return the Parquet files that lanes write themselves; None for what is left to Spark's own writer."""
    compression = said.options.get("compression") or said.spark.conf.get(_CODEC, "snappy") or "snappy"
    codec = compression.lower().replace("uncompressed", "none")
    plain = kind == "parquet" and not partitions and not {*map(str.lower, said.options.of_sink())} - {"compression"}
    return OutputFormat(codec, {_SPARK_SCHEMA: said.schema.json()}) if plain and codec in PARQUET_ENDINGS else None


def files_sink(said: Said, kind: str, home: str, files: QueryFiles, partitions: Sequence[str]) -> Sink:
    """Return what publishes files of a kind: those of the lanes, or those that Spark writes."""
    form = form_of_lanes(said, kind, partitions)
    if form is not None:
        return ParquetSink(home, files, form)
    return FrameSink(
        said.spark, home, said.schema, FileSink(kind, files, said.options.of_sink(), partitions), said.retries
    )


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


def _entries(filesystem: fs.FileSystem, path: str, *, must_be: bool = False) -> list[fs.FileInfo]:
    """Return everything below a folder."""
    found: list[fs.FileInfo] = filesystem.get_file_info(
        fs.FileSelector(path, recursive=True, allow_not_found=not must_be)
    )
    return found


def _remove_folder(filesystem: fs.FileSystem, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_dir(path)


def _remove_file(filesystem: fs.FileSystem, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_file(path)
