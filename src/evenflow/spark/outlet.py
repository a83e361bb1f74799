"""Where results go: chosen from what `writeStream` was told, checked while nothing is touched, opened when all is well.

What writes files belongs to one query (`owners`); Delta, functions and views see to several writers themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from evenflow.errors import InputError
from evenflow.spark.filesink import (
    FILE_FORMATS,
    WHAT,
    QueryFiles,
    files_sink,
    form_of_lanes,
    refuse_missing_source,
    refuse_to_replace_files,
)
from evenflow.spark.internals import ViewInMemory
from evenflow.spark.owners import Mark, OutputFolder
from evenflow.spark.said import Options, Said
from evenflow.spark.sink import DeltaSink, FrameSink, MemorySink, NoSink, Sink, Write, console_sink
from evenflow.spark.table import Table
from evenflow.state import ARROW, OutputFormat, filesystem_at

KNOWN = (*FILE_FORMATS, "console", "delta", "memory", "noop")


class Outlet(Protocol):
    """A place for results."""

    @property
    def publishes(self) -> bool:
        """Whether outputs are wanted at all."""

    @property
    def outlives(self) -> bool:
        """Whether results are kept, so that a query must be able to go on with them: it needs a checkpoint."""

    @property
    def form(self) -> OutputFormat:
        """In which form lanes are to write their outputs."""

    def refuse(self, query_id: str | None) -> None:
        """Raise if the query, None for a new one, cannot write there; nothing is touched."""

    def open(self, home: str, mark: Mark) -> Sink:
        """Make what is needed to publish the outputs that lie in the checkpoint's folder `home`."""


def outlet_of(said: Said) -> Outlet:
    """Return the outlet that was asked for; raise if there is none like it."""
    if said.table is not None:
        if said.function is not None:
            raise InputError("writeStream: toTable and foreach or foreachBatch both say where rows go: keep one")
        partitioned = replace(said, partitions=_partition_columns(said))
        return Table.named(partitioned, said.table, lambda: default_format(said.spark))
    function = said.function
    if function is not None:
        _refuse_to_partition(said, "a function")
        return _Handed(said, lambda _: function)
    kind = said.kind or default_format(said.spark)
    if kind in (*FILE_FORMATS, "delta"):
        return _kept(said, kind, _partition_columns(said))
    _refuse_to_partition(said, kind)
    if kind == "noop":
        return _Nowhere()
    if kind == "console":
        console = _console(said.options)
        return _Handed(said, lambda _: console)
    if not said.name:
        raise InputError("writeStream: the memory sink needs queryName('...'), the name of its view")
    return _View(said, said.name)


def _kept(said: Said, kind: str, partitions: tuple[str, ...]) -> Outlet:
    """Return the outlet for rows that are kept at a path."""
    refuse_missing_source(said.spark, kind)
    path = said.path
    if path is None:
        noop = "; to keep the state and write nothing, say format('noop')"
        raise InputError(f"writeStream: format {kind!r} needs a path: start('out'){noop}")
    if kind == "delta":
        options = said.options.of_sink()
        return _Handed(
            said,
            lambda query_id: DeltaSink(lambda to: to.save(path), query_id, options, said.replaces, partitions),
            outlives=True,
        )
    refuse_to_replace_files(kind, replaces=said.replaces)
    filesystem_at(path, WHAT)  # says now what cannot be reached
    return _Files(said, kind, path, partitions)


def refuse_unknown_format(kind: str, whose: str = "") -> None:
    """Raise if there is no sink of that name."""
    if kind not in KNOWN:
        raise InputError(
            f"writeStream: there is no sink for format {kind!r}{whose}; known: {', '.join(KNOWN)}, or foreachBatch"
        )


def default_format(spark: SparkSession) -> str:
    """Return the format of what is written without `format`, as in Spark."""
    kind = (spark.conf.get("spark.sql.sources.default", "parquet") or "").lower()
    refuse_unknown_format(kind, ", which spark.sql.sources.default names")
    return kind


@dataclass(frozen=True)
class _Nowhere:
    """Outputs that nobody wants."""

    publishes: bool = False
    outlives: bool = False
    form: OutputFormat = ARROW

    def refuse(self, query_id: str | None) -> None:
        """Refuse nobody."""

    def open(self, home: str, mark: Mark) -> Sink:  # noqa: ARG002 - there is nothing to open
        return NoSink()


@dataclass(frozen=True)
class _Handed:
    """Each epoch's frame is handed to a function, which is made from the query's id."""

    said: Said
    write_of: Callable[[str], Write]
    outlives: bool = False
    publishes: bool = True
    form: OutputFormat = ARROW

    def refuse(self, query_id: str | None) -> None:
        """Refuse nobody: whoever takes frames knows their query and epoch."""

    def open(self, home: str, mark: Mark) -> Sink:
        return FrameSink(self.said.spark, home, self.said.schema, self.write_of(mark.query_id), self.said.retries)


@dataclass(frozen=True)
class _View:
    """A temporary view, which lasts as long as the session."""

    said: Said
    name: str
    outlives: bool = False
    publishes: bool = True
    form: OutputFormat = ARROW

    def refuse(self, query_id: str | None) -> None:
        if query_id is not None and not self.said.replaces:
            raise InputError(
                "writeStream: the memory sink holds what one run puts out, so in update mode rows of the runs before "
                "would be missing: choose a new checkpointLocation or none, or outputMode('complete')"
            )

    def open(self, home: str, mark: Mark) -> Sink:  # noqa: ARG002 - views do not know whose they are
        view = ViewInMemory(self.said.spark, self.said.schema, self.name)
        write = MemorySink(view, self.said.replaces)
        return FrameSink(self.said.spark, home, self.said.schema, write, self.said.retries)


@dataclass(frozen=True)
class _Files:
    """A folder of files."""

    said: Said
    kind: str
    path: str
    partitions: tuple[str, ...]
    outlives: bool = True
    publishes: bool = True

    @property
    def form(self) -> OutputFormat:
        return form_of_lanes(self.said, self.kind, self.partitions) or ARROW

    @property
    def _folder(self) -> OutputFolder:
        return OutputFolder.at(self.path, share=self.said.options.shares_output(), retries=self.said.retries)

    def refuse(self, query_id: str | None) -> None:
        self._folder.refuse_other(query_id)

    def open(self, home: str, mark: Mark) -> Sink:
        self._folder.claim(mark)
        files = QueryFiles(self.path, mark.query_id, self.said.retries)
        return files_sink(self.said, self.kind, home, files, self.partitions)


def _console(options: Options) -> Write:
    rows, truncate = options.get("numRows") or "20", (options.get("truncate") or "true").lower()
    if not rows.isdecimal() or truncate not in ("true", "false"):
        raise InputError(
            f"writeStream: console takes option numRows, a number, and truncate, true or false; got {rows!r} and "
            f"{truncate!r}"
        )
    return console_sink(int(rows), truncate=truncate == "true")


def _refuse_to_partition(said: Said, what: str) -> None:
    if said.partitions:
        raise InputError(
            f"writeStream: partitionBy lays out files and tables, and {what} has no partitions: leave it out, or "
            f"write to files or a table"
        )


def _partition_columns(said: Said) -> tuple[str, ...]:
    """Return the columns to partition by as the output spells them; Spark resolves names in any letter case."""
    exact = said.spark.conf.get("spark.sql.caseSensitive", "false") == "true"
    fold: Callable[[str], str] = (lambda name: name) if exact else str.lower
    kinds = {fold(field.name): (field.name, field.dataType) for field in said.schema.fields}
    for name in said.partitions:
        if fold(name) not in kinds:
            has = ", ".join(said.schema.names)
            raise InputError(f"writeStream: partitionBy: there is no column {name!r}; the query puts out {has}")
    found = [kinds[fold(name)] for name in said.partitions]
    _refuse_partitions(found, len(said.schema.fields))
    return tuple(name for name, _ in found)


def _refuse_partitions(columns: Sequence[tuple[str, DataType]], total: int) -> None:
    names = [name for name, _ in columns]
    if len(set(names)) != len(names):
        raise InputError(f"writeStream: partitionBy names each column once, got {', '.join(names)}")
    if names and len(names) == total:
        raise InputError("writeStream: partitionBy must leave a column for the files themselves")
    for name, kind in columns:
        if isinstance(kind, ArrayType | MapType | StructType | VariantType):
            raise InputError(f"writeStream: partitionBy: {name} is a {kind.simpleString()}, which names no folder")
