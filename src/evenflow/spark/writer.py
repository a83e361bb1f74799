"""`writeStream`: Spark's names and meanings; `start` hands what was said to `composition`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row

from evenflow.errors import InputError
from evenflow.spark.composition import started
from evenflow.spark.foreach import row_by_row
from evenflow.spark.outlet import refuse_unknown_format
from evenflow.spark.query import Query
from evenflow.spark.said import Options, Settings, checked_mode, checked_trigger, text_of
from evenflow.spark.sink import Write

if TYPE_CHECKING:
    from evenflow.spark.stream import StatefulStream


class StreamWriter:
    """Collects how results are written; `start` starts the query. The names are those of Spark's DataStreamWriter."""

    def __init__(self, stream: StatefulStream) -> None:
        """Write `stream`; the operator's own mode, triggers as fast as they come."""
        self._stream = stream
        self._format: str | None = None
        self._mode = stream.stages[-1].operator.output_modes()[0]
        self._options = Options()
        self._trigger: dict[str, Any] = {}
        self._function: Write | None = None
        self._partitions: tuple[str, ...] = ()

    def format(self, source: str) -> StreamWriter:
        """Set the sink: parquet, json, csv, orc, text, avro, delta, console, memory or noop.

        Without it, it is the session's `spark.sql.sources.default`, parquet unless that was changed.
        """
        kind = text_of("format", source).lower()
        refuse_unknown_format(kind)
        self._format, self._function = kind, None
        return self

    def outputMode(self, outputMode: str) -> StreamWriter:  # noqa: N802 - Spark's names
        """`update`: rows that changed in the epoch; `complete`: all rows, every time.

        Operators of your own put out what they like, and nothing of it changes later: `append` is the same there.
        """
        self._mode = checked_mode(outputMode, self._stream.stages[-1].operator)
        return self

    def option(self, key: str, value: object) -> StreamWriter:
        """Set an option: `checkpointLocation`, or one of the sink's."""
        self._options.set(key, value)
        return self

    def options(self, **options: object) -> StreamWriter:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def partitionBy(self, *cols: str | list[str] | tuple[str, ...]) -> StreamWriter:  # noqa: N802 - Spark's name
        """Lay out files in a folder per value of these columns, as Spark does: `k=v/`."""
        names = cols[0] if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
        self._partitions = tuple(text_of("partitionBy", name) for name in names)
        return self

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> StreamWriter:  # noqa: N802 - Spark's name
        """Say what to use instead."""
        raise InputError(
            f"writeStream: clusterBy{cols!r} is for tables that cluster themselves: create one (CREATE TABLE ... USING "
            f"delta CLUSTER BY ...) and write to it with toTable; for files there is partitionBy"
        )

    def queryName(self, queryName: str) -> StreamWriter:  # noqa: N802 - Spark's names
        """Name the query; the memory sink's view has this name."""
        return self.option("queryName", text_of("queryName", queryName))

    def trigger(
        self,
        *,
        processingTime: str | None = None,
        once: bool | None = None,
        continuous: str | None = None,
        availableNow: bool | None = None,
        realTime: str | None = None,
    ) -> StreamWriter:
        """Set when epochs begin: `processingTime="1 second"`, or `availableNow=True` for all there is and then end.

        `once=True` takes all there is as one epoch, and then ends; Spark has deprecated it.
        """
        self._trigger = checked_trigger(
            processingTime=processingTime,
            once=once,
            continuous=continuous,
            availableNow=availableNow,
            realTime=realTime,
        )
        return self

    def foreachBatch(self, func: Write) -> StreamWriter:  # noqa: N802 - Spark's name
        """Call `func(rows, epoch)` for every epoch, in order; after a crash perhaps again with the same epoch."""
        if not callable(func):
            raise InputError(f"writeStream: foreachBatch takes a function of (DataFrame, epoch), got {func!r}")
        self._function, self._format = func, None
        return self

    def foreach(self, f: Callable[[Row], None] | Any) -> StreamWriter:
        """Call `f(row)` for every row, on executors; or `f.open(partition, epoch)`, `f.process(row)`, `f.close(error)`.

        After a crash perhaps again: the same rows for the same partition and epoch.
        """
        self._function, self._format = row_by_row(f), None
        return self

    def toTable(  # noqa: N802 - Spark's names
        self,
        tableName: str,
        format: str | None = None,  # noqa: A002 - Spark's name
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: object,
    ) -> Query:
        """Write to a table of the catalog, created if need be (as parquet, unless `format` or the session differ)."""
        self._also(format, outputMode, partitionBy, queryName, options)
        return self._start(text_of("toTable", tableName), self._options.get("path"))

    def start(
        self,
        path: str | os.PathLike[str] | None = None,
        format: str | None = None,  # noqa: A002 - Spark's name
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: object,
    ) -> Query:
        """Start the query and return it at once. What cannot work is refused here, and nothing is touched."""
        self._also(format, outputMode, partitionBy, queryName, options)
        said = self._options.get("path")
        given = said if path is None else text_of("start", os.fspath(path) if isinstance(path, os.PathLike) else path)
        if said not in (None, given):
            raise InputError(f"writeStream: option path says {said!r} and start {given!r}: keep one of them")
        return self._start(None, given)

    # --- parts ---------------------------------------------------------------------------------------------------

    def _also(
        self,
        kind: str | None,
        mode: str | None,
        partitions: str | list[str] | None,
        name: str | None,
        options: dict[str, object],
    ) -> None:
        """Set what may be said at the end as well."""
        self.options(**options)
        if mode is not None:
            self.outputMode(mode)
        if partitions is not None:
            self.partitionBy(partitions)
        if kind is not None:
            self.format(kind)
        if name is not None:
            self.queryName(name)

    def _start(self, table: str | None, path: str | None) -> Query:
        settings = Settings(
            kind=self._format,
            table=table,
            function=self._function,
            path=path,
            partitions=self._partitions,
            mode=self._mode,
            options=self._options,
            trigger=self._trigger,
        )
        in_mode = replace(self._stream, operator=self._stream.operator.in_mode(self._mode))
        return started(in_mode, settings)
