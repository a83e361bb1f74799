"""Tables of the catalog as outlets: made when the query starts, and published to like folders of files, or by Delta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.sql import SparkSession

from evenflow.errors import InputError
from evenflow.spark.filesink import (
    FILE_FORMATS,
    QueryFiles,
    files_sink,
    form_of_lanes,
    refuse_missing_source,
    refuse_to_replace_files,
)
from evenflow.spark.owners import Mark, OutputFolder
from evenflow.spark.said import Said
from evenflow.spark.sink import DeltaSink, FrameSink, Sink, Write
from evenflow.state import ARROW, FileRef, OutputFormat

_FORMATS = (*FILE_FORMATS, "delta")
_NULL = "__HIVE_DEFAULT_PARTITION__"  # what Spark calls the folder of rows without a value


@dataclass(frozen=True)
class Table:
    """A table that results are to go to: there already, or to be made."""

    said: Said
    name: str
    kind: str
    partitions: tuple[str, ...]
    publishes: bool = True
    outlives: bool = True

    @property
    def form(self) -> OutputFormat:
        """In which form lanes are to write their outputs."""
        return form_of_lanes(self.said, self.kind, self.partitions) or ARROW

    @classmethod
    def named(cls, said: Said, name: str, default: Callable[[], str]) -> Table:
        """Return the table, of format `default` if it is new; raise if the rows do not fit it. Nothing is made yet."""
        is_there = said.spark.catalog.tableExists(name)
        kind = said.kind if is_there else said.kind or default()
        if kind is not None and kind not in _FORMATS:
            raise InputError(f"toTable: a table's format is one of {', '.join(_FORMATS)}, got {kind!r}")
        table = cls._there(said, name) if is_there else cls(said, name, str(kind), said.partitions)
        refuse_missing_source(said.spark, table.kind)
        if table.kind in FILE_FORMATS:
            refuse_to_replace_files(table.kind, replaces=said.replaces)
        return table

    @classmethod
    def _there(cls, said: Said, name: str) -> Table:
        """Return a table of the catalog; raise unless its format, columns, partitions and place are what is asked."""
        described = _described(said.spark, name)
        kind, provider = said.kind, described.get("Provider", "").lower()
        if provider not in ((kind,) if kind else _FORMATS):
            raise InputError(
                f"toTable: expected a table of format {kind or ' or '.join(_FORMATS)}, but {name} is "
                f"{f'one of format {provider}' if provider else 'a view'}: choose another name, or that format"
            )
        columns = said.spark.catalog.listColumns(name)
        partitions = tuple(column.name for column in columns if column.isPartition)
        if said.partitions and said.partitions != partitions:
            raise InputError(
                f"toTable: {name} is partitioned by {', '.join(partitions) or 'nothing'}, and partitionBy says "
                f"{', '.join(said.partitions)}: leave partitionBy out, or choose another table"
            )
        if provider != "delta" and any(column.isBucket for column in columns):
            raise InputError(
                f"toTable: {name} is bucketed, and files are added to tables without buckets only: choose another "
                f"table, or write to this one in foreachBatch"
            )
        have = [(column.name, column.dataType) for column in columns]
        fields = sorted(said.schema.fields, key=lambda field: _place(field.name, partitions))
        need = [(field.name, field.dataType.simpleString()) for field in fields]
        if have != need:
            raise InputError(f"toTable: {name} is there with columns {_told(have)}; the query puts out {_told(need)}")
        path = said.path
        if path is not None and not _same_place(path, described.get("Location", "")):
            raise InputError(
                f"toTable: {name} is there, at {described.get('Location')}, and option path says {path}: leave it out"
            )
        return cls(said, name, provider, partitions)

    def refuse(self, query_id: str | None) -> None:
        """Raise if the table's files belong to another query."""
        folder = self._folder()
        if folder is not None:
            OutputFolder.at(folder, share=self.said.options.shares_output(), retries=self.said.retries).refuse_other(
                query_id
            )

    def open(self, home: str, mark: Mark) -> Sink:
        """Make the table if need be, and claim it."""
        said, options = self.said, self.said.options.of_sink()
        if not said.spark.catalog.tableExists(self.name):
            self._make()
        if self.kind == "delta":
            write: Write = DeltaSink(
                lambda writer: writer.saveAsTable(self.name), mark.query_id, options, said.replaces, self.partitions
            )
        else:
            folder = str(self._folder())
            OutputFolder.at(folder, share=said.options.shares_output(), retries=said.retries).claim(mark)
            files = QueryFiles(folder, mark.query_id, said.retries)
            into = files_sink(said, self.kind, home, files, self.partitions)
            return _Adding(said.spark, self.name, into, files, partitioned=bool(self.partitions))
        return FrameSink(said.spark, home, said.schema, write, said.retries)

    def _make(self) -> None:
        said, path = self.said, self.said.path
        writer = said.spark.createDataFrame([], said.schema).write.format(self.kind).options(**said.options.of_sink())
        writer = writer.partitionBy(*self.partitions) if self.partitions else writer
        writer = writer if path is None else writer.option("path", path)
        writer.mode("ignore").saveAsTable(self.name)  # another query that starts may be faster; it then owns the table

    def _folder(self) -> str | None:
        """Return where the table's files are or are to be; None if Delta or the catalog sees to that."""
        if self.kind == "delta":
            return None
        if self.said.spark.catalog.tableExists(self.name):
            return _described(self.said.spark, self.name)["Location"]
        return self.said.path


@dataclass
class _Adding:
    """Publishes an epoch to a table of files, and lets the catalog know."""

    spark: SparkSession
    name: str
    into: Sink
    files: QueryFiles
    partitioned: bool

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        """Publish one epoch."""
        known = set(self.files.folders)
        self.into.publish(epoch, files)
        if self.partitioned and (new := self.files.folders - known):
            partitions = " ".join(f"PARTITION ({partition_spec(folder)})" for folder in sorted(new))
            self.spark.sql(f"ALTER TABLE {self.name} ADD IF NOT EXISTS {partitions}")
        self.spark.catalog.refreshTable(self.name)


def partition_spec(folder: str) -> str:
    """Return how SQL calls the partition of a folder, such as `a=1/b=x%2Fy`: the catalog need not search for it."""
    pairs = [part.partition("=") for part in folder.split("/")]
    return ", ".join(f"`{unquote(name).replace('`', '``')}` = {_literal(unquote(value))}" for name, _, value in pairs)


def _literal(value: str) -> str:
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return "NULL" if value == _NULL else f"'{quoted}'"


def _place(column: str, partitions: tuple[str, ...]) -> int:
    """Return a column's place in a table: those that are partitions come last, in their order."""
    return partitions.index(column) + 1 if column in partitions else 0


def _same_place(path: str, location: str) -> bool:
    return path.removeprefix("file:").rstrip("/") == location.removeprefix("file:").rstrip("/")


def _described(spark: SparkSession, name: str) -> dict[str, str]:
    """Return what the catalog says of a table, beside its columns."""
    rows = [(row.col_name, row.data_type) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()]
    names = [row[0] for row in rows]
    return dict(rows[names.index("# Detailed Table Information") :])


def _told(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
