"""`writeStream`: Spark's names and meanings, and at the end `start`, which brings the parts of a query together."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from evenflow.control import Controller, ControllerState
from evenflow.control.journal import Journal
from evenflow.engine import Engine
from evenflow.errors import InputError
from evenflow.lane import LaneConfig
from evenflow.log import QueryLog, label_of
from evenflow.spark.driver_socket import driver_socket
from evenflow.spark.foreach import row_by_row
from evenflow.spark.frames import seen_in
from evenflow.spark.internals import give_id, is_local, qualified, spark_schema, use_this_python
from evenflow.spark.lane_jobs import lanes_running
from evenflow.spark.lane_links import LaneLinks
from evenflow.spark.outlet import Outlet, outlet_of, refuse_unknown_format
from evenflow.spark.owners import Mark
from evenflow.spark.probe import refuse_unshared
from evenflow.spark.progress import Progress
from evenflow.spark.query import Query
from evenflow.spark.room import lanes_that_fit, spare_slots
from evenflow.spark.route import Router
from evenflow.spark.said import Options, Said, checked_mode, checked_trigger, text_of
from evenflow.spark.shell import Shell, initial_table
from evenflow.spark.sink import Write
from evenflow.spark.telling import tell_start
from evenflow.state import (
    Checkpoint,
    Folder,
    Identity,
    Retries,
    SparkLog,
    below,
    has_scheme,
    home_of,
    query_at,
    spark_path,
)

if TYPE_CHECKING:
    from evenflow.spark.stream import StatefulStream

_SPARKS_PART = "spark"  # Spark's own checkpoint, in the query's
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


class StreamWriter:
    """Collects how results are written; `start` starts the query. The names are those of Spark's DataStreamWriter."""

    def __init__(self, stream: StatefulStream) -> None:
        """Write `stream`; mode update, triggers as fast as they come."""
        self._stream = stream
        self._format: str | None = None
        self._mode = "update"
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
        self._mode = checked_mode(outputMode, self._stream.operator)
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
        stream, options = self._stream, self._stream.options
        spark = stream.stream.sparkSession
        retries = Retries(self._options.storage_retry_s(), self._name or "query")
        outlet = outlet_of(self._said(spark, table, path, retries))
        _refuse_name_in_use(spark, self._name)
        room = lanes_that_fit(spark, options.lanes, options.slots)
        use_this_python(spark.sparkContext)
        location = self._location(spark, outlet)
        router = Router(
            stream.keys,
            stream.selected,
            options.slots,
            home_of(location),
            stream.operator.needs_hash(stream.schema, stream.keys),
            options.exchange or ("direct" if is_local(spark.sparkContext) else "shuffle"),
            room.route_tasks,
            self._options.arrival_column(stream.stream.schema),
            retries,
        )
        spark_writer, pace = self._spark_writer(router, location), self._options.rows_per_second()
        port = self._options.driver_port()
        driver_socket(spark.sparkContext, port)[0].close()  # says now if there is none
        outlet.refuse(query_at(location, retries))
        identity = Identity(
            query_id=str(uuid.uuid4()),
            keys=stream.keys,
            key_types=tuple(str(stream.schema.field(key).type) for key in stream.keys),
            slots=options.slots,
            contents=stream.operator.contents(stream.schema, stream.keys),
            output_mode=self._mode,
            created_at_s=time.time(),
        )
        refuse_unshared(spark.sparkContext, location, retries, room.lane_start_s)
        checkpoint = Checkpoint.open(location, identity, retries=retries)
        query_id = checkpoint.identity.query_id
        log = QueryLog(label_of(self._name, query_id))
        retries.query = log.query
        _refuse_what_runs(checkpoint)
        spark_log = SparkLog.at(below(location, _SPARKS_PART), retries)
        checkpoint.refuse_if_lost(spark_log)
        around = Folder.at(location, retries=retries)  # what Spark keeps is in it as well
        address = around.storage.address("")
        sink = outlet.open(checkpoint.folder.location, Mark(query_id, address, time.time()))
        for remark in checkpoint.take_over(spark_log):  # another driver that is at it ends with its next step
            log.warning(remark)
        base = LaneConfig(
            0,
            checkpoint.folder.location,
            seen_in(spark, stream.operator, stream.schema, stream.keys).resumed(checkpoint.identity.contents),
            stream.schema,
            stream.keys,
            options.slots,
            self._replaces,
            pace,
            publishes=outlet.publishes,
            query=log.query,
            output=outlet.form,
            retry_s=retries.patience_s,
        )
        controller = Controller.restored(
            ControllerState(
                initial_table(checkpoint, options.policy, options.slots, room.lanes),
                epoch=checkpoint.recover().last_accepted,
            ),
            options.policy,
            options.strategy,
            options.controller,
            Journal.of_query(),
        )
        links = LaneLinks(
            spark.sparkContext,
            lambda lane: replace(base, lane=lane),
            _group(checkpoint),
            log,
            lane_timeout_s=options.lane_timeout_s,
            port=port,
        )
        progress = Progress(query_id, self._name, lanes_why=room.why)
        shell = Shell(
            spark=spark,
            checkpoint=checkpoint,
            controller=controller,
            links=links,
            engine=Engine(
                checkpoint, controller, options.handover, unit_weights=lambda: progress.unit_weights(options.slots)
            ),
            router=router,
            sink=sink,
            progress=progress,
            config=base,
            max_lag=options.max_lag,
            ends_by_itself=not self._trigger.keys().isdisjoint({"availableNow", "once"}),
            spare_slots=lambda: spare_slots(spark),
            lane_start_s=room.lane_start_s,
            log=log,
        )
        give_id(around, query_id)
        tell_start(shell, lanes_why=room.why, exchange_asked=options.exchange is not None)
        return Query.started(shell, spark_writer, self._name)

    @property
    def _name(self) -> str | None:
        return self._options.get("queryName")

    @property
    def _replaces(self) -> bool:
        """Whether an epoch's rows take the place of all that was published before."""
        return self._mode == "complete"

    def _said(self, spark: SparkSession, table: str | None, path: str | None, retries: Retries) -> Said:
        stream = self._stream
        return Said(
            spark=spark,
            schema=spark_schema(stream.operator.output_schema(stream.schema, stream.keys)),
            kind=self._format,
            table=table,
            function=self._function,
            options=self._options,
            path=None if path is None else _located(spark, path, "the path of the output"),
            partitions=self._partitions,
            name=self._name,
            replaces=self._replaces,
            retries=retries,
        )

    def _spark_writer(self, router: Router, location: str) -> DataStreamWriter:
        """Return Spark's writer for the routed stream; its own checkpoint lies beside ours."""
        prepared = router.prepared(self._stream.stream)
        writer = prepared.writeStream.option("checkpointLocation", spark_path(below(location, _SPARKS_PART)))
        if self._name:
            writer = writer.queryName(self._name)
        try:
            return writer.trigger(**self._trigger) if self._trigger else writer
        except (IllegalArgumentException, ValueError) as error:
            raise InputError(f"writeStream: trigger expects an interval like '5 seconds': {error}") from error

    def _location(self, spark: SparkSession, outlet: Outlet) -> str:
        """Return where the checkpoint is; as in Spark perhaps in the session's folder for all, or in a passing one."""
        given, common = self._options.get("checkpointLocation"), spark.conf.get(_CHECKPOINTS, None)
        if given is not None:
            return _located(spark, given, "checkpointLocation")
        if common:
            return below(_located(spark, common, _CHECKPOINTS), self._name or str(uuid.uuid4()))
        if outlet.outlives:
            raise InputError(
                "writeStream: set option('checkpointLocation', ...): without it nothing could be recovered"
            )
        location = tempfile.mkdtemp(prefix="evenflow-")
        atexit.register(shutil.rmtree, location, ignore_errors=True)  # its state can be asked for until then
        return location


def _located(spark: SparkSession, location: str, what: str) -> str:
    """Return a path or URI that means the same to Spark and to us, wherever Spark takes paths to be."""
    if has_scheme(location):
        return location
    try:
        return qualified(spark.sparkContext, location).removeprefix("file:")
    except IllegalArgumentException as error:
        raise InputError(f"writeStream: {what} is a path or a URI, got {location!r}: {error}") from error


def _refuse_name_in_use(spark: SparkSession, name: str | None) -> None:
    """Refuse a second query of a name, as Spark does, before anything is started."""
    if name is not None and any(query.name == name for query in spark.streams.active):
        raise InputError(
            f"writeStream: a query named {name!r} is running in this session: stop it first, or choose another "
            f"queryName"
        )


def _refuse_what_runs(checkpoint: Checkpoint) -> None:
    """Refuse to start a query that is running in this session: two would write to one checkpoint."""
    if _group(checkpoint) in lanes_running:
        raise InputError(
            f"the query of checkpoint {checkpoint.folder.location} is running in this session: stop it first, "
            f"or choose another checkpointLocation"
        )


def _group(checkpoint: Checkpoint) -> str:
    """Return the name under which the lanes' jobs can be cancelled."""
    return f"evenflow-{checkpoint.identity.query_id}"
