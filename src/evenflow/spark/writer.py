"""`writeStream`: Spark's names and meanings, and at the end `start`, which brings the parts of a query together."""

from __future__ import annotations

import atexit
import math
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from evenflow.control import Controller, ControllerState
from evenflow.errors import DamagedFileError, InputError
from evenflow.lane import LaneConfig
from evenflow.lane.faults import Faults
from evenflow.log import QueryLog, label_of
from evenflow.operators import Apply
from evenflow.spark.conductor import Conductor
from evenflow.spark.coordinator import Coordinator, lanes_running
from evenflow.spark.engine import Engine, initial_table
from evenflow.spark.internals import give_id, master_of, spark_schema, task_slots, use_this_python
from evenflow.spark.progress import Progress
from evenflow.spark.query import Query
from evenflow.spark.route import Router
from evenflow.spark.sink import (
    FILE_FORMATS,
    DeltaSink,
    FileSink,
    FrameSink,
    MemorySink,
    NoSink,
    ParquetSink,
    Sink,
    console_sink,
    refuse_unknown_format,
    refuse_unreachable,
)
from evenflow.spark.table import Table
from evenflow.state import Checkpoint, Folder, Identity, home_of

if TYPE_CHECKING:
    from evenflow.spark.stream import StatefulStream

_Write: TypeAlias = Callable[[DataFrame, int], None]

_MODES = ("update", "complete")
_EXECUTORS_S = 30.0  # how long to wait for the executors of a cluster
_POLL_S = 0.1


class StreamWriter:
    """Collects how results are written; `start` starts the query."""

    def __init__(self, stream: StatefulStream) -> None:
        """Write `stream`; mode update, triggers as fast as they come."""
        self._stream = stream
        self._format = "noop"
        self._mode = "update"
        self._name: str | None = None
        self._options: dict[str, str] = {}
        self._trigger: dict[str, Any] = {}
        self._function: _Write | None = None
        self._table: str | None = None

    def format(self, source: str) -> StreamWriter:
        """Set the sink: parquet, json, csv, orc, delta, console, memory or noop."""
        refuse_unknown_format(source)
        self._format = source
        return self

    def outputMode(self, outputMode: str) -> StreamWriter:  # noqa: N802 - Spark's names
        """`update`: rows that changed in the epoch; `complete`: all rows, every time."""
        if outputMode not in _MODES:
            raise InputError(f"writeStream: outputMode is {' or '.join(_MODES)}, got {outputMode!r}")
        self._mode = outputMode
        return self

    def option(self, key: str, value: object) -> StreamWriter:
        """Set an option: `checkpointLocation`, or one of the sink's."""
        self._options[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: object) -> StreamWriter:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def queryName(self, queryName: str) -> StreamWriter:  # noqa: N802 - Spark's names
        """Name the query; the memory sink's view has this name."""
        self._name = queryName
        return self

    def trigger(self, *, processingTime: str | None = None, availableNow: bool | None = None) -> StreamWriter:
        """Set when epochs begin: `processingTime="1 second"`, or `availableNow=True` for all there is and then end."""
        if (processingTime is None) == (availableNow is None):
            raise InputError("writeStream: trigger takes either processingTime='...' or availableNow=True")
        self._trigger = {"availableNow": True} if availableNow else {"processingTime": processingTime}
        return self

    def foreachBatch(self, func: _Write) -> StreamWriter:  # noqa: N802 - Spark's name
        """Call `func(rows, epoch)` for every epoch, in order; after a crash perhaps again with the same epoch."""
        self._function = func
        return self

    def toTable(self, tableName: str) -> Query:  # noqa: N802 - Spark's names
        """Write to a table of the catalog, created if need be (as parquet, unless `format` says otherwise)."""
        self._table = tableName
        return self.start()

    def start(self, path: str | None = None) -> Query:
        """Start the query and return it at once. What cannot work is refused here, and nothing is touched."""
        stream, options = self._stream, self._stream.options
        spark = stream.stream.sparkSession
        if path is not None:
            self.option("path", path)
        if self._replaces and isinstance(stream.operator, Apply):
            raise InputError(
                f"writeStream: complete mode needs aggregates; {stream.operator.name} only knows the rows of each "
                f"epoch: use outputMode('update')"
            )
        lanes, free_slots = _lanes(spark, options.lanes)
        use_this_python(spark.sparkContext)
        location = self._location()
        router = Router(
            stream.keys,
            stream.columns,
            options.slots,
            home_of(location),
            stream.operator.needs_hash(stream.schema, stream.keys),
            options.exchange or ("direct" if master_of(spark.sparkContext).startswith("local[") else "shuffle"),
            free_slots - lanes,
            self._arrival_column(),
        )
        spark_writer, sink_of, pace = self._spark_writer(router, location), self._sink(spark), self._rows_per_second()
        identity = Identity(
            query_id=str(uuid.uuid4()),
            keys=stream.keys,
            key_types=tuple(str(stream.schema.field(key).type) for key in stream.keys),
            slots=options.slots,
            contents=stream.operator.contents(stream.schema, stream.keys),
            output_mode=self._mode,
            created_at_s=time.time(),
        )
        checkpoint = Checkpoint.open(location, identity)
        _refuse_what_runs(checkpoint)
        _refuse_lost_offsets(checkpoint, location)
        sink = sink_of(checkpoint.folder.location, checkpoint.identity.query_id)
        query_id = checkpoint.identity.query_id
        log = QueryLog(label_of(self._name, query_id))
        for remark in checkpoint.take_over():  # another driver that is at it ends with its next step
            log.warning(remark)
        base = LaneConfig(
            0,
            checkpoint.folder.location,
            stream.operator.resumed(checkpoint.identity.contents),
            stream.schema,
            stream.keys,
            options.slots,
            self._replaces,
            pace,
            publishes=self._publishes,
        )
        controller = Controller.restored(
            ControllerState(
                initial_table(checkpoint, options.policy, options.slots, lanes),
                epoch=checkpoint.recover().last_accepted,
            ),
            options.policy,
            options.strategy,
            options.controller,
        )
        coordinator = Coordinator(spark.sparkContext, lambda lane: replace(base, lane=lane), _group(checkpoint), log)
        faults = Faults.scripted()
        engine = Engine(
            spark=spark,
            checkpoint=checkpoint,
            controller=controller,
            coordinator=coordinator,
            conductor=Conductor(checkpoint, controller, coordinator, options.handover, faults=faults),
            router=router,
            sink=sink,
            progress=Progress(query_id, self._name),
            config=base,
            max_lag=options.max_lag,
            spare_slots=lambda: _free_slots(spark, 0) - 1,
            faults=faults,
            log=log,
        )
        give_id(location, query_id)
        return Query.started(engine, spark_writer, self._name, ends_by_itself="availableNow" in self._trigger)

    # --- parts ---------------------------------------------------------------------------------------------------

    def _spark_writer(self, router: Router, location: str) -> DataStreamWriter:
        """Return Spark's writer for the routed stream; its own checkpoint lies beside ours."""
        prepared = router.prepared(self._stream.stream)
        writer = prepared.writeStream.option("checkpointLocation", f"{location}/spark")
        if self._name:
            writer = writer.queryName(self._name)
        try:
            return writer.trigger(**self._trigger) if self._trigger else writer
        except (IllegalArgumentException, ValueError) as error:
            raise InputError(f"writeStream: trigger expects an interval like '5 seconds': {error}") from error

    def _arrival_column(self) -> str | None:
        """Return the column that says when a row arrived, for latencies."""
        name = self._options.get("evenflow.arrivalColumn")
        kinds = {field.name: field.dataType.simpleString() for field in self._stream.stream.schema.fields}
        if name is not None and kinds.get(name) != "timestamp":
            has = "there is none of this name" if name not in kinds else f"it is a {kinds[name]}"
            raise InputError(f"writeStream: evenflow.arrivalColumn names a timestamp column, got {name!r}: {has}")
        return name

    def _rows_per_second(self) -> float | None:
        """Return how fast a lane may be at most, in demos and experiments."""
        text = self._options.get("evenflow.rowsPerSecond")
        if text is None:
            return None
        try:
            rate = float(text)
        except ValueError:
            rate = math.nan
        if not rate > 0:
            raise InputError(f"writeStream: evenflow.rowsPerSecond is a number above 0, got {text!r}")
        return rate

    def _location(self) -> str:
        if "checkpointLocation" in self._options:
            return self._options["checkpointLocation"].rstrip("/")
        if self._table is None and self._format in ("memory", "console", "noop"):
            location = tempfile.mkdtemp(prefix="evenflow-")
            atexit.register(shutil.rmtree, location, ignore_errors=True)  # its state can be asked for until then
            return location
        raise InputError("writeStream: set option('checkpointLocation', ...): without it nothing could be recovered")

    def _sink_options(self) -> dict[str, str]:
        own = ("checkpointLocation", "path")
        return {
            key: value for key, value in self._options.items() if key not in own and not key.startswith("evenflow.")
        }

    def _output_schema(self) -> StructType:
        return spark_schema(self._stream.operator.output_schema(self._stream.schema, self._stream.keys))

    @property
    def _publishes(self) -> bool:
        return self._function is not None or self._table is not None or self._format != "noop"

    @property
    def _replaces(self) -> bool:
        """Whether an epoch's rows take the place of all that was published before."""
        return self._mode == "complete"

    def _sink(self, spark: SparkSession) -> Callable[[str, str], Sink]:
        """Return what makes the sink, once the checkpoint's location and the query's id are known."""
        if not self._publishes:
            return lambda _location, _id: NoSink()
        schema, options, path = self._output_schema(), self._sink_options(), self._options.get("path")
        if self._table is not None:
            write_as = self._writing_to_table(spark, self._table, schema, options)
        else:
            write_as = self._writing(options, path)
            if self._function is None and self._format == "parquet" and path and not set(options) - {"compression"}:
                return lambda location, _: ParquetSink(location, path, options.get("compression", "snappy"))
        return lambda location, query_id: FrameSink(spark, location, schema, write_as(query_id))

    def _writing(self, options: dict[str, str], path: str | None) -> Callable[[str], _Write]:
        """Return what makes, from the query's id, the function that writes one epoch's frame."""
        if self._function is not None:
            function = self._function
            return lambda _: function
        if self._format == "console":
            return lambda _: console_sink(options)
        if self._format == "memory":
            if not self._name:
                raise InputError("writeStream: the memory sink needs queryName('...'), the name of its view")
            memory = MemorySink(self._name, self._replaces)
            return lambda _: memory
        if path is None:
            raise InputError(f"writeStream: format {self._format!r} needs a path: start('out')")
        if self._format == "delta":
            return lambda query_id: DeltaSink(lambda writer: writer.save(path), query_id, options, self._replaces)
        self._refuse_to_replace_files(self._format)
        refuse_unreachable(path)
        return lambda _: FileSink(self._format, path, options)

    def _writing_to_table(
        self, spark: SparkSession, name: str, schema: StructType, options: dict[str, str]
    ) -> Callable[[str], _Write]:
        table = Table.named(spark, name, None if self._format == "noop" else self._format, schema)
        if table.kind in FILE_FORMATS:
            self._refuse_to_replace_files(table.kind)
        return lambda query_id: table.sink(schema, options, query_id, replaces=self._replaces)

    def _refuse_to_replace_files(self, kind: str) -> None:
        """Refuse complete mode, as Spark does: each epoch's rows would come on top of those of the epochs before."""
        if self._replaces:
            raise InputError(
                f"writeStream: complete mode gives all rows every time, and {kind} files can only be added: use "
                f"outputMode('update'), or a sink that replaces what it has: delta, memory, console, foreachBatch"
            )


def _free_slots(spark: SparkSession, needed: int) -> int:
    """Return the task slots that no lane of another query holds; executors of a cluster may need time to come up."""
    context = spark.sparkContext
    taken = lanes_running.total()
    patience_s = 0.0 if master_of(context).startswith("local[") else _EXECUTORS_S
    deadline = time.monotonic() + patience_s
    while (free := task_slots(context) - taken) < needed and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return free


def _lanes(spark: SparkSession, wanted: int | None) -> tuple[int, int]:
    """Return the number of lanes and of free task slots; refuse if lanes and one route task do not fit in."""
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise InputError("a speculative copy of a lane would fence off the healthy one: set spark.speculation=false")
    needed = 2 if wanted is None else wanted + 1
    free = _free_slots(spark, needed)
    if needed > free:
        master = master_of(spark.sparkContext)
        taken = lanes_running.total()
        held = f", of which lanes of other queries hold {taken}" if taken else ""
        more = f"use master local[{needed + taken}]" if master.startswith("local[") else "give the session more cores"
        fewer = f", or balance(lanes={free - 1})" if free > 1 else ""
        raise InputError(
            f"{needed - 1} lanes and routing need {needed} task slots, the session ({master}) has {free + taken}"
            f"{held}: {needed - free} are missing; {more}{fewer}"
        )
    return needed - 1 if wanted is not None else free - 1, free


def _refuse_what_runs(checkpoint: Checkpoint) -> None:
    """Refuse to start a query that is running in this session: two would write to one checkpoint."""
    if _group(checkpoint) in lanes_running:
        raise InputError(
            f"the query of checkpoint {checkpoint.folder.location} is running in this session: stop it first, "
            f"or choose another checkpointLocation"
        )


def _refuse_lost_offsets(checkpoint: Checkpoint, location: str) -> None:
    """Refuse to go on without Spark's part of the checkpoint: it would count from 0, and such epochs are skipped."""
    last = checkpoint.recover().last_accepted
    if last >= 0 and not Folder.at(location).exists(f"spark/offsets/{last}"):
        raise DamagedFileError(
            f"checkpoint {location}: epoch {last} was accepted, but Spark's own part of the checkpoint, "
            f"{location}/spark, does not know it (offsets/{last} is missing). Restore that folder, or start with a new "
            f"checkpoint location; the query then reads its source from the beginning. Nothing was changed."
        )


def _group(checkpoint: Checkpoint) -> str:
    """Return the name under which the lanes' jobs can be cancelled."""
    return f"evenflow-{checkpoint.identity.query_id}"
